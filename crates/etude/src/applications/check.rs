//! Conformance: the five points of the format, of which only the last runs anything (C-1.6).

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use etude_spec::application::{APP_FILE, Body, findings, sections_missing};
use etude_spec::{Diagnostic, Severity};

use super::call::argv;
use super::copy::copy_tree;
use super::{Access, Call, Limits, Package, Status, Surroundings};
use crate::run_id;
use crate::skills::{self, body_of};

/// Longest time for the command that is tried.
const TRIAL_TIME: Duration = Duration::from_secs(20);

/// A package with more bytes than this is not copied for a trial.
const MOST_COPIED: u64 = 256 << 20;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// Nobody knows: nothing was safe to run.
    Unverified,
}

impl Outcome {
    /// The word in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unverified => "unverified",
        }
    }
}

/// One point.
#[derive(Debug, Clone)]
pub struct Check {
    /// `C1` to `C5`.
    pub id: &'static str,
    /// Whether it holds.
    pub outcome: Outcome,
    /// What speaks against it.
    pub diagnostics: Vec<Diagnostic>,
}

/// A package against the format.
#[derive(Debug, Clone)]
pub struct Conformance {
    /// No point fails and nothing else is wrong.
    pub is_conformant: bool,
    /// The five points.
    pub checks: Vec<Check>,
    /// Everything else about the contract, its body and its skills.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a package. Only if its commands may run, the first declared one that needs no confirmation is run once,
/// without arguments, in a copy.
pub fn check(package: &Arc<Package>, access: &Access, surroundings: &Surroundings) -> Conformance {
    let path = package.file();
    let named = |word: &str| -> Vec<Diagnostic> {
        package.diagnostics.iter().filter(|d| d.name == Some(word)).cloned().collect()
    };
    let point = |id, diagnostics: Vec<Diagnostic>| {
        let outcome = if diagnostics.is_empty() { Outcome::Pass } else { Outcome::Fail };
        Check { id, outcome, diagnostics }
    };
    let mut diagnostics = package.diagnostics.clone();
    let body = match body_of(&package.root.join(APP_FILE)) {
        Ok(body) => body,
        Err(why) => {
            diagnostics.push(findings::undecodable_body(&path, &why));
            String::new()
        }
    };
    let contract = &package.contract;
    let missing = sections_missing(Body(&body), contract);
    if !missing.is_empty() {
        diagnostics.push(findings::sections(&path, &missing));
    }
    if contract.is_scheduling_supported && !Body(&body).documents_scheduling(&contract.commands) {
        diagnostics.push(findings::scheduling_undocumented(&path));
    }
    for file in contract.skills.iter().filter_map(|name| package.skill_file(name)) {
        diagnostics.extend(
            skills::check(&file, etude_spec::skill::Profile::Lenient).map(|c| c.diagnostics).unwrap_or_default(),
        );
    }
    let mut entry = Vec::new();
    if contract.entry.is_empty() || !Body(&body).documents_entry(&contract.entry) {
        entry.extend(diagnostics.iter().filter(|d| d.path.as_deref().is_some_and(|p| p.starts_with("entry"))).cloned());
        if entry.is_empty() {
            entry.push(findings::sections(&path, &["CLI"]));
        }
    }
    let checks = vec![
        point("C1", Vec::new()),
        point("C2", named("AA_MISSING_APP_DIR")),
        point("C3", named("AA_MISSING_SKILLS_DIR")),
        point("C4", entry),
        trial(package, access, surroundings),
    ];
    let is_conformant = checks.iter().all(|check| check.outcome != Outcome::Fail)
        && !diagnostics.iter().any(|fault| fault.severity == Severity::Error);
    Conformance { is_conformant, checks, diagnostics }
}

/// C5: JSON by default.
fn trial(package: &Arc<Package>, access: &Access, surroundings: &Surroundings) -> Check {
    let unverified = || Check { id: "C5", outcome: Outcome::Unverified, diagnostics: Vec::new() };
    let contract = &package.contract;
    let command = contract.commands.iter().find(|command| !contract.needs_confirmation(command));
    let (Some(command), true, true) = (command, access.execution, package.is_compatible()) else { return unverified() };
    let copy = surroundings.scratch.join(format!("trial-{}", run_id::new())).join(&contract.slug);
    let mut left = MOST_COPIED;
    let copied = copy_tree(&package.root, &copy, &mut left, &|_| false);
    let outcome = match copied {
        Err(_) => unverified(),
        Ok(()) => {
            let root = fs::canonicalize(&copy).unwrap_or_else(|_| copy.clone());
            let argv = argv(&contract.entry, command, &[]);
            let call = Call { package: Arc::clone(package), access: access.clone(), command: command.clone(), argv };
            let limits = Limits { timeout: TRIAL_TIME, ..Limits::default() };
            let envelope = call.run_in(&root, surroundings, &limits);
            // A command that refuses to work without arguments and says so in JSON keeps to the contract.
            let is_json = envelope.output.is_some() && envelope.status != Status::ContractError;
            match is_json {
                true => Check { id: "C5", outcome: Outcome::Pass, diagnostics: Vec::new() },
                false => Check { id: "C5", outcome: Outcome::Fail, diagnostics: envelope.diagnostics },
            }
        }
    };
    if let Some(parent) = copy.parent() {
        // What cannot be removed now lies with the scratch files and is in nobody's way.
        let _ = fs::remove_dir_all(parent);
    }
    outcome
}
