//! Agent Skills: the frontmatter of a `SKILL.md`, and its faults (C-2).
//!
//! One reader has two profiles: [`Profile::Strict`] follows the specification, [`Profile::Lenient`] is for loading
//! skills. Under the latter, cosmetic faults are warnings, and a skill without a description is left out. Both read the
//! fields that Claude Code adds into [`Extensions`] (C-3.6). This module reads no files: see `etude_packages::skills`.

pub mod catalog;
pub mod claude;
mod instructions;
mod name;
mod portable;
mod read;
mod recover;
mod tools;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::diagnostic::{Diagnostic, Severity};

/// Faults that only a search of the disk can find.
pub mod findings {
    pub use crate::diagnose::skills::{
        body_not_utf8, dangling, file_case, not_a_skill, shadowed, too_deep, too_many, unreadable, unreadable_root,
    };
}

pub use instructions::Instructions;
pub use name::normalized;
pub use read::{boolean_word, read};
pub use tools::tool_list;
pub(crate) use tools::{denies_all, without};

/// The file that makes a directory a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Directories of skills below an app, a project or a home directory; the first one wins (C-2.6). An app also has
/// [`APP_ROOT`], which comes first.
pub const ROOTS: [&str; 3] = [".agents/skills", ".etude/skills", ".claude/skills"];

/// The directory of an app's own skills.
pub const APP_ROOT: &str = "skills";

/// File name that `validate` accepts in place of [`SKILL_FILE`]; discovery does not (C-2.9).
pub const LOWER_FILE: &str = "skill.md";

/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 64;
/// Maximum length of a description, in characters.
pub const MAX_DESCRIPTION: usize = 1024;
/// Maximum length of `compatibility`, in characters.
pub const MAX_COMPATIBILITY: usize = 500;

/// Strictness of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The rules of the specification, as the reference validator checks them (C-2.9).
    Strict,
    /// The behaviour of clients (C-2.4): load every usable skill, and report its faults.
    Lenient,
}

impl Profile {
    /// Severity of a fault that leaves the skill usable.
    pub(crate) const fn severity(self) -> Severity {
        match self {
            Self::Strict => Severity::Error,
            Self::Lenient => Severity::Warning,
        }
    }
}

/// The frontmatter of a skill.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Skill {
    /// The skill's name, trimmed and in the form NFKC.
    pub name: String,
    /// Purpose of the skill and when to use it, trimmed.
    pub description: String,
    /// The licence in the author's words.
    pub license: Option<String>,
    /// Requirements on the environment.
    pub compatibility: Option<String>,
    /// Fields that clients add for themselves; values as written.
    pub metadata: IndexMap<String, String>,
    /// Tools that the skill may use without approval; `None` if the file does not list any.
    pub allowed_tools: Option<Vec<String>>,
    /// Fields that Claude Code adds (C-3.1).
    pub extensions: Extensions,
    /// All other fields; scalars as written.
    pub extra: IndexMap<String, Value>,
}

/// The fields that Claude Code adds to a skill (C-3.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Extensions {
    /// Further hints on when to use the skill; belongs to the description.
    pub when_to_use: Option<String>,
    /// Hint on the arguments to type after the skill's name.
    pub argument_hint: Option<String>,
    /// Names of arguments, by position.
    pub arguments: Vec<String>,
    /// True if only people may invoke the skill.
    pub disable_model_invocation: bool,
    /// True if people may invoke the skill.
    pub user_invocable: bool,
    /// Tools that the skill takes away from the agent.
    pub disallowed_tools: Vec<String>,
    /// Model for the rest of the turn.
    pub model: Option<String>,
    /// Reasoning effort of the model.
    pub effort: Option<String>,
    /// `fork` runs the skill in an agent of its own.
    pub context: Option<String>,
    /// Kind of that agent.
    pub agent: Option<String>,
    /// True if the caller does not wait for that agent.
    pub background: bool,
    /// Hooks at certain times; they are not run.
    pub hooks: Option<Value>,
    /// Patterns of the files that the skill is for.
    pub paths: Vec<String>,
    /// Shell for the skill's injected commands.
    pub shell: Option<String>,
    /// The fields above that are set, by their names in files, as documents show them.
    pub given: IndexMap<String, Value>,
}

impl Default for Extensions {
    fn default() -> Self {
        Self {
            when_to_use: None,
            argument_hint: None,
            arguments: Vec::new(),
            disable_model_invocation: false,
            user_invocable: true,
            disallowed_tools: Vec::new(),
            model: None,
            effort: None,
            context: None,
            agent: None,
            background: true,
            hooks: None,
            paths: Vec::new(),
            shell: None,
            given: IndexMap::new(),
        }
    }
}

/// Result of reading the frontmatter.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The skill, with every part that could be read; `None` if it must not be loaded.
    pub skill: Option<Skill>,
    /// All faults of the frontmatter.
    pub diagnostics: Vec<Diagnostic>,
}

/// Fields of a skill that are set, by their names in files, as documents show them (`skill check`).
pub fn properties(skill: &Skill) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(skill.name));
    out.insert("description".into(), json!(skill.description));
    for (key, value) in [("license", &skill.license), ("compatibility", &skill.compatibility)] {
        if let Some(value) = value {
            out.insert(key.into(), json!(value));
        }
    }
    if !skill.metadata.is_empty() {
        out.insert("metadata".into(), json!(skill.metadata));
    }
    if let Some(tools) = &skill.allowed_tools {
        out.insert("allowed-tools".into(), json!(tools));
    }
    out.extend(skill.extensions.given.iter().map(|(key, value)| (key.clone(), value.clone())));
    if !skill.extra.is_empty() {
        out.insert("extra".into(), json!(skill.extra));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests;
