//! Conformance: the five rules of the format, of which only the last runs a command (C-1.6).

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use etude_spec::application::{APP_FILE, Body, findings, sections_missing};
use etude_spec::{Diagnostic, Severity};

use super::call::argv;
use super::copy::copy_tree;
use super::{Access, CommandCall, Envelope, Limits, Package, ProgramContext, Status};
use crate::skills::{self, body_of};
use crate::trust::StateIn;
use etude_files::private;
use etude_runtime::run_id;

/// Time limit of the trial command.
const TRIAL_TIME: Duration = Duration::from_secs(20);

/// Maximum size of a package that is copied for a trial, in bytes.
const MAX_COPIED: u64 = 256 << 20;

etude_core::words! {
    /// The outcome of a rule.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Outcome {
        /// The rule holds.
        Pass = "pass",
        /// The rule does not hold.
        Fail = "fail",
        /// Unknown: no command was safe to run.
        Unverified = "unverified",
    }
}

/// A rule of the check of a package, with its outcome.
#[derive(Debug, Clone)]
pub struct Check {
    /// `C1` to `C5`.
    pub id: &'static str,
    /// The outcome of the rule.
    pub outcome: Outcome,
    /// Findings that make the rule fail.
    pub diagnostics: Vec<Diagnostic>,
}

/// Conformance of a package to the format.
#[derive(Debug, Clone)]
pub struct Conformance {
    /// True if no rule fails and there is no other error.
    pub is_conformant: bool,
    /// Outcomes of the five rules.
    pub checks: Vec<Check>,
    /// All other findings about the contract, its body and its skills.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a package. If its commands may run, the first declared one without confirmation runs once, without arguments, in a
/// copy.
pub fn check(package: &Arc<Package>, access: &Access, program_context: &ProgramContext) -> Conformance {
    let path = package.file();
    let named = |word: &str| -> Vec<Diagnostic> {
        package.diagnostics.iter().filter(|d| d.name == Some(word)).cloned().collect()
    };
    let point = |id, diagnostics: Vec<Diagnostic>| {
        let outcome = if diagnostics.is_empty() { Outcome::Pass } else { Outcome::Fail };
        Check { id, outcome, diagnostics }
    };
    // Faults of skills are reported below, in full.
    let is_of_skill = |fault: &&Diagnostic| fault.name.is_some_and(|name| name.starts_with("SK_"));
    let mut diagnostics: Vec<_> = package.diagnostics.iter().filter(|fault| !is_of_skill(fault)).cloned().collect();
    let no_file = named("AA_MISSING_APP_FILE");
    let contract = &package.contract;
    let body = body_of(&package.root.join(APP_FILE)).unwrap_or_else(|why| {
        let fault = findings::undecodable_body(&path, &why);
        if no_file.is_empty() && !diagnostics.contains(&fault) {
            diagnostics.push(fault);
        }
        String::new()
    });
    let missing = sections_missing(Body(&body), contract);
    if !missing.is_empty() && no_file.is_empty() {
        diagnostics.push(findings::sections(&path, &missing));
    }
    if contract.is_scheduling_supported && Body(&body).scheduling(&contract.commands).is_none() {
        diagnostics.push(findings::scheduling_undocumented(&path));
    }
    for file in contract.skills.iter().filter_map(|name| package.skill_file(name)) {
        let found = skills::check(&file, etude_spec::skill::Profile::Lenient).map(|checked| checked.diagnostics);
        // The findings of the package already contain a mismatch of name and directory.
        diagnostics.extend(found.unwrap_or_default().into_iter().filter(|fault| fault.name != Some("SK_NAME_DIR")));
    }
    let entry = match contract.entry.is_empty() || !Body(&body).documents_entry(&contract.entry) {
        true => undocumented_entry(&path, &diagnostics),
        false => Vec::new(),
    };
    let checks = vec![
        point("C1", no_file),
        point("C2", named("AA_MISSING_APP_DIR")),
        point("C3", named("AA_MISSING_SKILLS_DIR")),
        point("C4", entry),
        trial(package, access, program_context),
    ];
    let is_conformant = checks.iter().all(|check| check.outcome != Outcome::Fail)
        && !diagnostics.iter().any(|fault| fault.severity == Severity::Error);
    Conformance { is_conformant, checks, diagnostics }
}

/// Findings that make C4 fail: those of the entry, or else that the text does not name the entry.
fn undocumented_entry(path: &str, diagnostics: &[Diagnostic]) -> Vec<Diagnostic> {
    let of_entry = |fault: &&Diagnostic| fault.path.as_deref().is_some_and(|field| field.starts_with("entry"));
    let entry: Vec<Diagnostic> = diagnostics.iter().filter(of_entry).cloned().collect();
    if !entry.is_empty() {
        return entry;
    }
    let words = ["AA_MISSING_APP_FILE", "AA_BODY_SECTION_MISSING"];
    let of_body = diagnostics.iter().find(|fault| fault.name.is_some_and(|word| words.contains(&word)));
    vec![of_body.cloned().unwrap_or_else(|| findings::sections(path, &["CLI"]))]
}

/// C5: JSON by default.
fn trial(package: &Arc<Package>, access: &Access, program_context: &ProgramContext) -> Check {
    let unverified = || Check { id: "C5", outcome: Outcome::Unverified, diagnostics: Vec::new() };
    let contract = &package.contract;
    let command = contract.commands.iter().find(|command| !contract.needs_confirmation(command, &[]));
    let (Some(command), true, true) = (command, access.execution, package.is_compatible()) else { return unverified() };
    let argv = argv(&contract.entry, command, &[]);
    let (command, args) = (command.clone(), Vec::new());
    let call = CommandCall { package: Arc::clone(package), access: access.clone(), command, args, argv };
    let limits = Limits { timeout: TRIAL_TIME, ..Limits::default() };
    let Some(envelope) = tried(&call, program_context, &limits) else { return unverified() };
    // A command that rejects missing arguments in JSON conforms to the contract.
    let is_json = envelope.output.is_some() && envelope.status != Status::ContractError;
    match is_json {
        true => Check { id: "C5", outcome: Outcome::Pass, diagnostics: Vec::new() },
        false => Check { id: "C5", outcome: Outcome::Fail, diagnostics: envelope.diagnostics },
    }
}

/// Runs a command in a copy with its own state. `None` if the package cannot be copied or differs from the approved one.
fn tried(call: &CommandCall, program_context: &ProgramContext, limits: &Limits) -> Option<Envelope> {
    if let Some(approved) = &call.access.content {
        let copy = call.copy(approved, StateIn::Copy, program_context).ok()?;
        return Some(call.run_in(copy.root(), program_context, limits));
    }
    private::create_dir_all(&program_context.scratch).ok()?;
    let copy = program_context.scratch.join(format!("trial-{}", run_id::new())).join(&call.package.contract.slug);
    let mut left = MAX_COPIED;
    let envelope = copy_tree(&call.package.root, &copy, &mut left, &|_| false).ok().map(|()| {
        let root = fs::canonicalize(&copy).unwrap_or_else(|_| copy.clone());
        call.run_in(&root, program_context, limits)
    });
    if let Some(parent) = copy.parent() {
        // A leftover copy lies harmlessly among the scratch files.
        let _ = fs::remove_dir_all(parent);
    }
    envelope
}
