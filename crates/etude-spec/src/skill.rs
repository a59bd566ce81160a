//! Agent Skills: what the frontmatter of a `SKILL.md` says, and what is wrong with it (C-2).
//!
//! Two profiles over one reader: [`Profile::Strict`] is the specification, [`Profile::Lenient`] is how skills are loaded:
//! what is only cosmetic is a warning, and a skill without a description is left out. The fields that Claude Code adds
//! are read into [`Extensions`] in both (C-3.6). Nothing here touches a disk: see `etude_packages::skills`.

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

/// Faults that only a search of the disk can show.
pub mod findings {
    pub use crate::diagnose::skills::{body_not_utf8, dangling, not_a_skill, shadowed, too_deep, too_many, unreadable};
}

pub use instructions::Instructions;
pub use name::normalized;
pub use read::{boolean_word, read};
pub use tools::tool_list;

/// The file that makes a directory a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// The directories of skills, below an app or a project and below a home; the first one wins (C-2.6). An app also has
/// [`APP_ROOT`], before them.
pub const ROOTS: [&str; 3] = [".agents/skills", ".etude/skills", ".claude/skills"];

/// The directory of an app's own skills.
pub const APP_ROOT: &str = "skills";

/// What `validate` takes in place of [`SKILL_FILE`]; discovery does not (C-2.9).
pub const LOWER_FILE: &str = "skill.md";

/// Most characters of a name.
pub const MAX_NAME: usize = 64;
/// Most characters of a description.
pub const MAX_DESCRIPTION: usize = 1024;
/// Most characters of `compatibility`.
pub const MAX_COMPATIBILITY: usize = 500;

/// How much is asked of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The specification, as the reference validator checks it (C-2.9).
    Strict,
    /// What clients do (C-2.4): load what can be loaded, and say what is wrong.
    Lenient,
}

impl Profile {
    /// How bad a fault is that keeps no one from using the skill.
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
    /// What it is called, trimmed and in the form NFKC.
    pub name: String,
    /// What it does and when it is of use, trimmed.
    pub description: String,
    /// The licence in the author's words.
    pub license: Option<String>,
    /// What it needs around it.
    pub compatibility: Option<String>,
    /// What clients add for themselves; values as they are written.
    pub metadata: IndexMap<String, String>,
    /// The tools that it may use without asking; `None` if it says nothing about them.
    pub allowed_tools: Option<Vec<String>>,
    /// What Claude Code adds (C-3.1).
    pub extensions: Extensions,
    /// All other fields; scalars as they are written.
    pub extra: IndexMap<String, Value>,
}

/// The fields that Claude Code adds to a skill (C-3.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Extensions {
    /// When to use it; belongs to the description.
    pub when_to_use: Option<String>,
    /// What to type after its name.
    pub argument_hint: Option<String>,
    /// Names for arguments, by position.
    pub arguments: Vec<String>,
    /// Only people may invoke it.
    pub disable_model_invocation: bool,
    /// People may invoke it.
    pub user_invocable: bool,
    /// Tools that it takes away.
    pub disallowed_tools: Vec<String>,
    /// A model for the rest of the turn.
    pub model: Option<String>,
    /// How hard the model is to think.
    pub effort: Option<String>,
    /// `fork`: an agent of its own runs it.
    pub context: Option<String>,
    /// Which kind of agent that is.
    pub agent: Option<String>,
    /// Whether that agent is waited for.
    pub background: bool,
    /// What is to happen at certain times; not acted on.
    pub hooks: Option<Value>,
    /// Files that it is for, as patterns.
    pub paths: Vec<String>,
    /// The shell of its injected commands.
    pub shell: Option<String>,
    /// The fields above that are given, as documents show them, by the names that they have in files.
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

/// What reading the frontmatter came to.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The skill, with every part that could be read; `None` if it is not to be loaded.
    pub skill: Option<Skill>,
    /// Everything that is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
}

impl Reading {
    /// True if there is a skill and no error.
    pub fn is_valid(&self) -> bool {
        self.skill.is_some() && !self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// A skill's fields as documents show them (`skill check`): those that are given, by the names that they have in files.
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
