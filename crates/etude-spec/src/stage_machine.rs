//! Stage machines (system B): reading from machine.yaml and stage files to a plan.
//!
//! In order: `stage` reads stage files with their placeholders, `definition` reads machine.yaml, and `hooks`, `paths`
//! and `next` read the parts around each stage. `load` combines them, in the order of checks that the contract requires
//! (`b-stages` §2.5).

mod core_version;
mod definition;
mod hooks;
mod load;
mod mark;
mod next;
mod paths;
mod schema;
mod stage;

pub(crate) use load::alone as stage_alone;

use std::sync::Arc;

use etude_core::effect::Command;
use etude_core::model::Tier;
use etude_core::plan::stages::{Guard, Policy, Script, StageMachine};

use crate::diagnose::stage_machine as diagnose;
use crate::diagnostic::{self, Diagnostic};
use crate::files::{entries_of, misnamed, source_text};
use crate::input::InputDecl;
use crate::source::{FileKind, Sources};
use crate::yaml::{self, Node};

/// The directory that holds the machines.
pub const MACHINES: &str = "machines";

/// The file that makes a directory a machine.
pub const MACHINE_FILE: &str = "machine.yaml";

/// A valid stage machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The description, by which requests are routed.
    pub description: String,
    /// Example requests, in the order of the file.
    pub triggers: Vec<String>,
    /// The parameters under `input`.
    pub input: InputDecl,
    /// The plan that the interpreter runs.
    pub plan: Arc<StageMachine>,
    /// Every file that a run depends on, relative to the app, in order.
    pub files: Vec<String>,
}

/// Overview of a stage machine, valid or not.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Name of the machine's directory below `machines/`.
    pub name: String,
    /// Purpose of the machine; empty if the file does not give one.
    pub description: String,
    /// Example requests, in the order of the file.
    pub triggers: Vec<String>,
    /// The parameters under `input`; none if they cannot be read.
    pub input: InputDecl,
    /// True if the machine has no errors.
    pub valid: bool,
}

/// Result of checking the stage machines of an app.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// All faults, by file, rank and place.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of machines checked.
    pub checked: usize,
    /// Names of the machines with errors, in order.
    pub broken: Vec<String>,
}

/// Timeout of a guard of the configuration, in milliseconds.
pub const GUARD_TIMEOUT_MS: u64 = hooks::DEFAULT_TIMEOUT_MS;

/// Settings of the user's configuration for stage machines.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Switches of the policy.
    pub policy: Policy,
    /// Guard commands, which run in the app's directory.
    pub guards: Vec<Command>,
}

/// Reason why the configuration has no model for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingModel {
    /// No model is configured for the tier.
    Unmapped(Tier),
    /// The model lacks a capability; the reason as a run states it.
    Incapable(String),
}

/// The stage machines of an app.
pub struct Machines<'s> {
    sources: &'s dyn Sources,
    rules: Rules,
    names: Vec<String>,
    diagnostics: Vec<Diagnostic>,
}

impl<'s> Machines<'s> {
    /// Discovers the stage machines of an app with one directory listing.
    pub fn new(sources: &'s dyn Sources, rules: Rules) -> Self {
        let mut names = Vec::new();
        let mut diagnostics = Vec::new();
        match entries_of(sources, MACHINES) {
            Ok(entries) => {
                let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir);
                names.extend(dirs.map(|entry| entry.name).filter(|name| !name.starts_with(['_', '.'])));
                names.sort_unstable();
            }
            Err(unreadable) => diagnostics.push(unreadable),
        }
        Self { sources, rules, names, diagnostics }
    }

    /// Names of the machines' directories, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Faults of `machines/` itself.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// True if `machines/` has a directory of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Loads one machine with its stages and all its faults. Without a machine there is at least one error, or the
    /// warning that its directory has no definition.
    pub fn machine(&self, name: &str) -> (Option<Machine>, Vec<Diagnostic>) {
        let loaded = load::machine(self.sources, name, &self.rules);
        (loaded.machine, loaded.diagnostics)
    }

    /// Warning about a machine that the configuration has no model for, at its `model`; `None` if its file cannot be read.
    pub fn without_model(&self, name: &str, missing: &MissingModel) -> Option<Diagnostic> {
        let file = source_text(self.sources, &file_of(name)).ok()?;
        let root = yaml::parse(&file).0;
        let entries = root.as_ref().and_then(Node::as_map)?;
        let first = entries.0.first().map(|(key, _)| key.span);
        let at = entries.get("model").map(|node| node.span).or(first)?;
        Some(match missing {
            MissingModel::Unmapped(tier) => diagnose::unmapped_tier(&file, at, name, tier.word()),
            MissingModel::Incapable(why) => diagnose::incapable_model(&file, at, why),
        })
    }

    /// Checks the machines `names`, or all of them if `names` is empty.
    pub fn check(&self, names: &[&str]) -> Report {
        let mut report = Report::default();
        if names.is_empty() {
            report.diagnostics.extend(self.diagnostics.iter().cloned());
        }
        for name in self.names.iter().filter(|name| names.is_empty() || names.contains(&name.as_str())) {
            let loaded = load::machine(self.sources, name, &self.rules);
            if !loaded.missing {
                report.checked += 1;
                report.broken.extend(loaded.machine.is_none().then(|| name.clone()));
            }
            report.diagnostics.extend(loaded.diagnostics);
        }
        diagnostic::sort(&mut report.diagnostics);
        report
    }

    /// Summaries of all machines, in order of their names. Directories without a definition are left out.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut summaries = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let loaded = load::machine(self.sources, name, &self.rules);
            if !loaded.missing {
                let (description, triggers, input) = loaded.head;
                let valid = loaded.machine.is_some();
                summaries.push(Summary { name: name.clone(), description, triggers, input, valid });
            }
        }
        summaries
    }
}

impl Rules {
    /// Guards of the configuration, in the form of the plan.
    fn guards(&self) -> impl Iterator<Item = Guard> {
        self.guards.iter().map(|command| Guard {
            script: Script { command: command.clone(), timeout_ms: GUARD_TIMEOUT_MS },
            dir: String::new(),
        })
    }
}

/// The JSON Schema of the frontmatter of a stage file, draft 2020-12.
pub fn stage_schema() -> serde_json::Value {
    let mut schema = crate::schema_json::object(&crate::fields::stage_machine::STAGE);
    schema["$schema"] = crate::schema_json::DIALECT.into();
    schema["title"] = "stages/<id>.md".into();
    schema["additionalProperties"] = true.into();
    // A stage file may have further keys (B-F6).
    let policy = &mut schema["properties"]["retryPolicy"];
    policy["additionalProperties"] = true.into();
    for form in policy["properties"]["backoff"]["anyOf"].as_array_mut().into_iter().flatten() {
        if form.get("additionalProperties").is_some() {
            form["additionalProperties"] = true.into();
        }
    }
    schema["properties"]["id"]["pattern"] = "^[a-z0-9]+(-[a-z0-9]+)*$".into();
    schema["properties"]["turnCap"]["minimum"] = 1.into();
    schema
}

/// The JSON Schema of machine.yaml, draft 2020-12.
pub fn machine_schema() -> serde_json::Value {
    let mut schema = crate::schema_json::object(&crate::fields::stage_machine::MACHINE);
    schema["$schema"] = crate::schema_json::DIALECT.into();
    schema["title"] = "machine.yaml".into();
    schema["$defs"] = serde_json::json!({"parameter": crate::schema_json::parameter()});
    schema
}

/// The directory of the machine `name`.
pub fn dir_of(name: &str) -> String {
    format!("{MACHINES}/{name}")
}

/// The file of the machine `name`.
pub fn file_of(name: &str) -> String {
    format!("{MACHINES}/{name}/{MACHINE_FILE}")
}

/// The warning about a directory below `machines/` without a definition.
fn no_machine_file(sources: &dyn Sources, name: &str) -> Diagnostic {
    diagnose::no_machine_file(&dir_of(name), misnamed(sources, &file_of(name)).as_deref())
}

#[cfg(test)]
mod tests;
