//! Agent Applications as tools: their catalog, their contracts, and calls of their commands (C-1.9, C-1.10, C-1.13).
//!
//! A confirmation is a separate question: no mode, list or earlier answer replaces it (C-1.14).

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_core::data::bare;
use etude_core::effect::Command;
use etude_core::model::Tool;
use etude_core::tool::{AvailableTool, ToolReply, ToolResult};
use etude_core::tree;
use etude_process::Cancel;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use etude_invoke::Invoker;
use etude_packages::applications::{
    Catalog, CommandCall, Envelope, Invoked, Invoking, Limits, Person, Places, ProgramContext, Refusal, RunEffect,
    Status, Unconfirmed, Why, activate, prepare, scheduling,
};
use etude_packages::skills;
use etude_packages::trust::{Approvals, Store};

/// Name of the tool that shows a model the contract of an application.
pub(super) const ACTIVATE: &str = "activate_application";
/// Name of the tool that runs a command of an application.
pub(super) const RUN: &str = "run_application";

/// Maximum length of an output that a model reads, in characters.
const MAX_OUTPUT: usize = 60_000;

/// Settings for the commands of applications.
#[derive(Debug, Clone, Default)]
pub struct ApplicationAccess {
    /// Directory of confirmations and scratch files.
    pub state_dir: PathBuf,
    /// Environment of the commands: all variables that they inherit.
    pub environment: Vec<(OsString, OsString)>,
}

#[derive(Debug)]
pub(super) struct Applications {
    catalog: Catalog,
    store: Option<Store>,
    access: ApplicationAccess,
}

/// The trust level of a package that may be activated (C-1.11).
fn trust_word(package: &etude_packages::applications::Package, trust: &Approvals) -> &'static str {
    if package.access(trust).execution { "approved" } else { "approved for reading" }
}

/// The caller of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Caller {
    /// A step of a definition, not a model.
    pub(super) is_step: bool,
    /// A person can be asked, or the run may wait. Always true for a step.
    pub(super) can_ask: bool,
    /// A person has confirmed this call.
    pub(super) is_confirmed: bool,
}

impl Applications {
    pub(super) fn discover(app: &Path, home: Option<&Path>, store: Option<&Store>, access: &ApplicationAccess) -> Self {
        let catalog = Catalog::discover(&Places { project: app, home, paths: &[] });
        Self { catalog, store: store.cloned(), access: access.clone() }
    }

    /// The current approvals: a command of this run may have changed its package, and the approval with it.
    fn trust(&self) -> Approvals {
        self.store.as_ref().and_then(|store| store.approvals().ok()).unwrap_or_default()
    }

    /// The applications that an agent may see.
    fn visible(&self) -> Vec<&Arc<etude_packages::applications::Package>> {
        let trust = self.trust();
        self.catalog.packages().filter(|package| package.is_compatible() && package.access(&trust).activation).collect()
    }

    /// The catalog text for an agent, and the two tools; `None` if no application is in reach.
    pub(super) fn available(&self) -> Option<(String, [AvailableTool; 2])> {
        let known = self.visible();
        let slugs: Vec<&str> = known.iter().map(|package| package.contract.slug.as_str()).collect();
        if slugs.is_empty() {
            return None;
        }
        let mut text = format!(
            "These applications are in reach. Read the contract of one with `{ACTIVATE}` before you run it:\n\n"
        );
        let trust = self.trust();
        for package in &known {
            let contract = &package.contract;
            let commands = contract.commands.join(", ");
            let later = if contract.is_scheduling_supported { "as its contract says" } else { "not supported" };
            let _ = writeln!(
                text,
                "- {} ({}, {}; {}, {}): {}. Commands: {commands}. Scheduling: {later}.",
                contract.slug,
                contract.name,
                contract.version,
                package.source.word(),
                trust_word(package, &trust),
                contract.description.trim().trim_end_matches('.')
            );
        }
        let slug = json!({"type": "string", "enum": slugs});
        let tool = |name: &str, description: &str, properties: Value, required: Value| Tool {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            })),
        };
        let activate = tool(
            ACTIVATE,
            "Reads the contract of an application: what its commands do, take and print.",
            json!({"application": slug}),
            json!(["application"]),
        );
        let run = tool(
            RUN,
            "Runs a declared command of an application and returns what it prints.",
            json!({
                "application": slug,
                "command": {"type": "string", "description": "The declared command, such as `box list`."},
                "args": {"type": "array", "items": {"type": "string"}, "description": "Its arguments, one each."},
                "when": {"type": "string", "description": "Only if it is to happen later or again: when, in the user's \
                    words. Nothing is run then; you learn whether and how the application does that itself."},
            }),
            json!(["application", "command"]),
        );
        let activate = AvailableTool {
            tool: activate,
            is_pipeline: false,
            is_exclusive: false,
            is_kept: true,
            approval_key: None,
        };
        let run =
            AvailableTool { tool: run, is_pipeline: false, is_exclusive: true, is_kept: false, approval_key: None };
        Some((text, [activate, run]))
    }

    /// The contract of an application, as an agent gets it.
    pub(super) fn activate(&self, arguments: &str) -> ToolResult {
        let asked = tree::parse_response(arguments).unwrap_or_default();
        let slug = asked.get("application").and_then(Value::as_str).unwrap_or_default();
        let Some(package) = self.visible().into_iter().find(|package| package.contract.slug == slug) else {
            return ToolResult::terminal("ApplicationUnavailable", &format!("no application `{slug}` is available"));
        };
        match activate(package, &package.access(&self.trust()), skills::Invoker::Agent, None) {
            Ok(activated) => ToolResult::ok(activated.text()),
            Err(why) => ToolResult::terminal("ApplicationUnavailable", &why),
        }
    }

    /// The reply to a call with `when`: etude never postpones a command; the application's contract says how to (C-1.15).
    fn scheduled(&self, slug: &str, when: &str) -> ToolResult {
        if !self.visible().iter().any(|package| package.contract.slug == slug) {
            return ToolResult::terminal("ApplicationUnavailable", &format!("no application `{slug}` is available"));
        }
        match scheduling(&self.catalog, slug, when) {
            Ok(section) => ToolResult::terminal(
                "NotScheduled",
                &format!(
                    "nothing was run: no command is put off for you; `{slug}` does it with its own commands, called without \
                     `when`. Its contract says: {section}"
                ),
            ),
            Err(refusal) => refused(&refusal),
        }
    }

    /// The application command that a call names.
    ///
    /// # Errors
    /// The result that the caller gets instead of a call.
    pub(super) fn find(&self, arguments: &str) -> Result<CommandCall, ToolResult> {
        let (slug, words, args) = asked(arguments).map_err(|why| ToolResult::terminal("InputInvalid", &why))?;
        if let Some(when) = when(arguments) {
            return Err(self.scheduled(&slug, &when));
        }
        prepare(&self.catalog, &slug, &words, &args, &self.trust()).map_err(|refusal| refused(&refusal))
    }

    /// Invokes a command. `cancel` abandons it.
    pub(super) async fn invoke(
        &self,
        call: CommandCall,
        caller: Caller,
        run_effect: RunEffect,
        invoker: &Invoker,
        cancel: CancellationToken,
    ) -> ToolReply {
        // The boundaries between arguments are part of the question.
        let line = etude_preview::describe::command(&Command::Direct(call.argv.clone()));
        let slug = call.package.contract.slug.clone();
        let giving_up = Cancel::new();
        let invoking = Invoking {
            program_context: ProgramContext {
                environment: self.access.environment.clone(),
                granted: Vec::new(),
                stdin: None,
                scratch: self.access.state_dir.join("scratch"),
                cancel: giving_up.clone(),
                run_effect: Some(run_effect),
            },
            limits: Limits::default(),
            person: match caller {
                Caller { is_confirmed: true, .. } => Person::HasConfirmed,
                Caller { can_ask: true, .. } => Person::Later,
                Caller { can_ask: false, .. } => Person::Unattended,
            },
            state_dir: self.access.state_dir.clone(),
            trust: self.store.clone(),
            given_up: cancel.clone(),
        };
        let work = call.invoke(invoker, invoking);
        tokio::pin!(work);
        let ended = tokio::select! {
            ended = &mut work => ended,
            () = cancel.cancelled() => {
                giving_up.cancel();
                work.await
            }
        };
        match ended {
            Ok(Invoked::Ended(envelope)) if caller.is_step => ToolReply::Done(for_step(&envelope)),
            Ok(Invoked::Ended(envelope)) => ToolReply::Done(for_agent(&envelope)),
            Ok(Invoked::Unconfirmed(why)) => unconfirmed(why, &slug, &line, caller),
            Err(error) => ToolReply::Done(ToolResult::terminal("ApplicationUnavailable", &error.to_string())),
        }
    }
}

/// The reply to a command that was not confirmed.
fn unconfirmed(why: Unconfirmed, slug: &str, line: &str, caller: Caller) -> ToolReply {
    ToolReply::Done(match why {
        Unconfirmed::Denied(refusal) => refused(&refusal),
        Unconfirmed::Broken(why) => ToolResult::terminal("ConfirmationFailed", &why),
        Unconfirmed::Stale => {
            let why = "the package has changed since it was confirmed, or the confirmation has expired; call again";
            ToolResult::terminal("ConfirmationStale", why)
        }
        Unconfirmed::Waiting { request, .. } if !caller.can_ask => ToolResult::denied(&format!(
            "`{line}` needs a person's confirmation, and no one can be asked here; a person can confirm it with: etude approve {}",
            request.id
        )),
        Unconfirmed::Waiting { fresh, .. } => {
            let mut question = format!("{slug} wants to run: {line}");
            for text in fresh.description.iter().cloned().chain(fresh.state.iter().map(crate::readable::text)) {
                let _ = write!(question, "\n{text}");
            }
            return ToolReply::Held { key: format!("{slug} {line}"), question, is_once: true };
        }
    })
}

/// A tool of this name as patterns see it: `run_application(application=tool-shed)`.
pub(super) fn as_tool(name: &str) -> etude_tools::Tool {
    etude_tools::Tool::named(name, Vec::new(), json!({"type": "object"}))
}

/// The same for a tool that only reads.
pub(super) fn as_reader(name: &str) -> etude_tools::Tool {
    let mut tool = as_tool(name);
    (tool.effect, tool.gated) = (etude_tools::Effect::Reads, false);
    tool
}

/// Slug, words of the command, and arguments of a call.
fn asked(arguments: &str) -> Result<(String, Vec<String>, Vec<String>), String> {
    let value = tree::parse_response(arguments).map_err(|e| format!("the arguments are not JSON: {e}"))?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let (Some(slug), Some(command)) = (text("application"), text("command")) else {
        return Err("the arguments must have `application` and `command`".to_owned());
    };
    let args = value.get("args").and_then(Value::as_array).into_iter().flatten();
    let args = args.map(|arg| bare(arg).into_owned());
    Ok((slug.to_owned(), command.split_whitespace().map(str::to_owned).collect(), args.collect()))
}

/// The time in the member `when` of a call; `None`: now.
fn when(arguments: &str) -> Option<String> {
    let value = tree::parse_response(arguments).ok()?;
    let when = value.get("when")?.as_str()?.trim();
    (!when.is_empty()).then(|| when.to_owned())
}

fn refused(refusal: &Refusal) -> ToolResult {
    let code = match refusal.why {
        Why::Unknown | Why::Incompatible => "ApplicationUnavailable",
        Why::Undeclared => "CommandUndeclared",
        Why::NotTrusted => "NotTrusted",
        Why::Denied => "ApprovalDenied",
    };
    ToolResult::terminal(code, &reported(&refusal.envelope))
}

/// A summary of an ended call, in one line.
fn reported(envelope: &Envelope) -> String {
    let mut parts: Vec<String> = envelope
        .diagnostics
        .iter()
        .map(|d| {
            let word = d.name.map(|name| format!("{name}: ")).unwrap_or_default();
            let hint = d.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{word}{}{hint}", d.message)
        })
        .collect();
    if let Some(code) = envelope.exit_code.filter(|code| *code != 0) {
        parts.push(format!("exit status {code}"));
    }
    let stderr = envelope.stderr.trim();
    if !stderr.is_empty() && envelope.status != Status::Succeeded {
        parts.push(format!("stderr: {stderr}"));
    }
    if parts.is_empty() { envelope.status.word().to_owned() } else { parts.join("; ") }
}

/// The document for an agent: also after a failure, whose output often explains more than its status.
fn for_agent(envelope: &Envelope) -> ToolResult {
    let mut bytes = Vec::new();
    // Writing into memory cannot fail.
    let _ = envelope.write(&mut bytes);
    let mut content = String::from_utf8_lossy(&bytes).trim().to_owned();
    if let Some((at, _)) = content.char_indices().nth(MAX_OUTPUT) {
        let left_out = content.len() - at;
        content.truncate(at);
        let _ = write!(content, "\n[{left_out} bytes left out; ask the command for less]");
    }
    match envelope.status {
        Status::Succeeded => ToolResult::ok(content),
        _ => ToolResult { content, ..ToolResult::terminal("CommandFailed", &reported(envelope)) },
    }
}

/// The output for a step, as the command printed it.
fn for_step(envelope: &Envelope) -> ToolResult {
    match (&envelope.output, envelope.status) {
        (Some(output), Status::Succeeded) => ToolResult::ok(output.get()),
        _ => ToolResult::terminal("CommandFailed", &reported(envelope)),
    }
}
