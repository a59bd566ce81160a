//! `etude skill show`: one skill in its activated form.

use std::sync::Arc;

use etude_packages::skills::{Activation, ActivationError, Compat, Invoker, Request, Shell};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_spec::Diagnostic;
use serde_json::json;

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::{paths, stdout};
use etude_core::failure::FailureKind;

pub(super) fn show(context: &Context, args: &args::SkillShow) -> Result<Exit, Refused> {
    let compat = super::compat(args.compat);
    let catalog = super::discover(context, compat)?;
    let trust = super::approvals(context)?;
    let project_dir = context.start_dir()?;
    let shell = match compat {
        Compat::ClaudeCode => Some(shell(context)?),
        Compat::Spec => None,
    };
    let request = Request {
        invoker: Invoker::Reader,
        compat,
        arguments: args.args.as_deref(),
        trust: &trust,
        project_dir: &project_dir,
        shell: shell.as_ref(),
    };
    let activation = catalog.activate(&args.name, &request).map_err(|error| -> Refused {
        let faults: Vec<Diagnostic> = match &error {
            ActivationError::Unknown { .. } => catalog.diagnostics_of(&args.name).cloned().collect(),
            _ => Vec::new(),
        };
        // A skill with errors is there, and its errors are the reason.
        if faults.iter().any(Diagnostic::is_error) {
            return faults.into();
        }
        context.show(&faults);
        problem(&error).into()
    })?;
    print(context, &activation);
    Ok(Exit::Done)
}

fn print(context: &Context, activation: &Activation) {
    if context.is_json() {
        let mut document = json!({
            "name": activation.name,
            "body": activation.body,
            "directory": activation.directory,
            "resources": activation.resources,
            "allowed-tools": activation.allowed_tools,
        });
        if activation.has_more {
            document["more"] = json!(true);
        }
        stdout::json(&document);
        return;
    }
    let line_break = if activation.body.ends_with('\n') { "" } else { "\n" };
    stdout::text(&format!("{}{line_break}", activation.body));
    if !context.global.quiet {
        crate::render::say!("directory: {}", activation.directory);
        for file in &activation.resources {
            crate::render::say!("  {}", crate::render::text::harmless(file));
        }
        if activation.has_more {
            crate::render::say!("  and more: list the directory to see all");
        }
    }
}

/// Shell for commands in skill bodies: runs in the user's directory, with the user's environment but for keys.
fn shell(context: &Context) -> Result<Shell, Problem> {
    let directory = context.start_dir()?;
    let withheld_env = context.settings(&directory)?.withheld_env;
    let state = paths::state_dir().map_err(Problem::environment)?;
    let scratch = state.join("scratch");
    let settings = HostSettings {
        run_id: etude_runtime::run_id::new(),
        app_dir: directory,
        blobs: Arc::new(FileBlobs::new(scratch.clone(), false)),
    };
    let environment = ChildEnvironment::without_keys(&withheld_env);
    let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused).build();
    Ok(Shell { host: Arc::new(host), scratch })
}

fn problem(error: &ActivationError) -> Problem {
    match error {
        ActivationError::Unknown { .. } => Problem::usage(error.to_string())
            .hint("list the skills and the reasons why others are not read: etude skill list"),
        ActivationError::Unreadable { .. } => {
            Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, error.to_string())
        }
        ActivationError::PeopleOnly(_) | ActivationError::Command { .. } => {
            Problem::new(Exit::Failed, FailureKind::StepFailed, error.to_string())
        }
    }
}
