//! Declared commands with their arguments, and refusals (C-1.13, C-0.4).

use std::sync::Arc;

use etude_core::effect::Command;
use etude_spec::Diagnostic;
use etude_spec::application::findings;
use etude_spec::command;

use super::{Access, Catalog, Envelope, Package, Status};
use crate::trust::Approvals;

/// A command that is ready to run, except for its confirmation.
#[derive(Debug, Clone)]
pub struct CommandCall {
    /// The package of the command.
    pub package: Arc<Package>,
    /// The user's permissions for the package.
    pub access: Access,
    /// Declared path of the command, such as `box list`.
    pub command: String,
    /// Arguments after the command.
    pub args: Vec<String>,
    /// The complete command line: entry, command, arguments.
    pub argv: Vec<String>,
}

/// Reason why a command is refused. Nothing was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The package does not exist.
    Unknown,
    /// The package has errors.
    Incompatible,
    /// The package does not declare the command, or no command for scheduling.
    Undeclared,
    /// The package is not approved.
    NotTrusted,
    /// A person has denied the command.
    Denied,
}

/// A refusal with its document.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The reason as a case, for the caller's next step.
    pub why: Why,
    /// The document for output and traces.
    pub envelope: Box<Envelope>,
}

/// Finds the declared command at the start of `words` in the package `slug`. The remaining words and `args` are its arguments.
///
/// # Errors
/// The first failed check, in the order of C-0.4.
pub fn prepare(
    catalog: &Catalog,
    slug: &str,
    words: &[String],
    args: &[String],
    approvals: &Approvals,
) -> Result<CommandCall, Refusal> {
    let refuse = |why, package: Option<&Package>, diagnostics: Vec<Diagnostic>| {
        let version = package.map(|package| package.contract.version.clone()).unwrap_or_default();
        let argv = words.iter().chain(args).cloned().collect();
        let envelope = Envelope::new(Status::Refused, slug, &version, &words.join(" "), argv, diagnostics);
        Refusal { why, envelope: Box::new(envelope) }
    };
    let Some(package) = catalog.find(slug) else {
        let known: Vec<String> = catalog.packages().map(|package| package.contract.slug.clone()).collect();
        return Err(refuse(Why::Unknown, None, vec![findings::no_such_package(slug, &known)]));
    };
    let path = package.file();
    if !package.is_compatible() {
        let mut diagnostics = package.diagnostics.clone();
        diagnostics.push(findings::declined(&path, slug));
        return Err(refuse(Why::Incompatible, Some(package), diagnostics));
    }
    let Some((name, length)) = package.contract.command(words) else {
        let mut diagnostics = vec![findings::no_such_command(&path, &words.join(" "), &package.contract.commands)];
        let is_about_time =
            words.first().is_some_and(|word| ["schedule", "remind", "reminder", "cron"].contains(&word.as_str()));
        if is_about_time {
            diagnostics.extend(package.scheduling().err());
        }
        return Err(refuse(Why::Undeclared, Some(package), diagnostics));
    };
    let access = package.access(approvals);
    if !access.execution {
        let shadowed: Vec<String> = package.shadows.iter().map(|root| root.display().to_string()).collect();
        let root = package.root.display().to_string();
        let has_changed = package.was_approved(approvals).is_some_and(|approval| approval.execution);
        return Err(refuse(
            Why::NotTrusted,
            Some(package),
            vec![findings::not_trusted(&path, &root, "execution", has_changed, &shadowed)],
        ));
    }
    let args: Vec<String> = words[length..].iter().chain(args).cloned().collect();
    let argv = argv(&package.contract.entry, name, &args);
    Ok(CommandCall { command: name.to_owned(), package: Arc::clone(package), access, args, argv })
}

/// The section on scheduling in the contract of `slug`, because etude itself never postpones a command (C-1.15).
///
/// # Errors
/// The package does not support scheduling, or does not document it.
pub fn scheduling(catalog: &Catalog, slug: &str, when: &str) -> Result<String, Refusal> {
    let refuse = |why, version: &str, diagnostic| {
        let envelope = Envelope::new(Status::Refused, slug, version, "", vec![when.to_owned()], vec![diagnostic]);
        Refusal { why, envelope: Box::new(envelope) }
    };
    let Some(package) = catalog.find(slug) else {
        let known: Vec<String> = catalog.packages().map(|package| package.contract.slug.clone()).collect();
        return Err(refuse(Why::Unknown, "", findings::no_such_package(slug, &known)));
    };
    package.scheduling().map_err(|fault| refuse(Why::Undeclared, &package.contract.version, fault))
}

/// The command line to start. An entry that needs a shell gets one, with all other words as arguments: nothing is inserted into
/// its text.
pub(super) fn argv(entry: &str, command: &str, args: &[String]) -> Vec<String> {
    let mut argv = match command::parse(entry) {
        Ok(Command::Direct(words)) => words,
        _ => ["sh", "-c", &format!("{entry} \"$@\""), "sh"].map(str::to_owned).to_vec(),
    };
    argv.extend(command.split(' ').map(str::to_owned));
    argv.extend(args.iter().cloned());
    argv
}

impl CommandCall {
    /// True if a person must confirm the command. Its words and its arguments count alike; no other code decides this.
    pub fn needs_confirmation(&self) -> bool {
        self.package.contract.needs_confirmation(&self.command, &self.args)
    }

    /// A document about this call.
    pub fn envelope(&self, status: Status, diagnostics: Vec<Diagnostic>) -> Envelope {
        let contract = &self.package.contract;
        Envelope::new(status, &contract.slug, &contract.version, &self.command, self.argv.clone(), diagnostics)
    }

    /// The refusal of a denied command.
    pub fn denied(&self, by: &str, reason: Option<&str>) -> Refusal {
        let diagnostic = findings::denied(&self.package.file(), &self.command, by, reason);
        Refusal { why: Why::Denied, envelope: Box::new(self.envelope(Status::Refused, vec![diagnostic])) }
    }
}
