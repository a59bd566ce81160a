//! Agent Applications as tools: their catalog, their contracts, and calls of their commands (C-1.9, C-1.10, C-1.13).
//!
//! A confirmation is a question of its own: no mode, no list and no earlier answer stands in for it (C-1.14).

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_core::model::Tool;
use etude_core::tool::{OfferedTool, ToolReply, ToolResult};
use etude_runtime::process::Cancel;
use serde_json::{Value, json};

use crate::applications::{
    Answer, Call, Catalog, Confirmations, Envelope, Limits, Places, Refusal, Status, Surroundings, Verdict, Why,
    Within, activate, prepare, scheduling,
};
use crate::clock;
use crate::trust::{Approvals, Store};

/// Reads a contract.
pub(super) const ACTIVATE: &str = "activate_application";
/// Runs a command.
pub(super) const RUN: &str = "run_application";

/// Most characters of an output that a model reads.
const MOST_OUTPUT: usize = 60_000;

/// What commands of applications are run with.
#[derive(Debug, Clone, Default)]
pub struct ApplicationAccess {
    /// Where confirmations and scratch files are kept.
    pub state_dir: PathBuf,
    /// All variables that commands inherit.
    pub environment: Vec<(OsString, OsString)>,
}

/// The applications in reach.
#[derive(Debug)]
pub(super) struct Applications {
    catalog: Catalog,
    store: Option<Store>,
    access: ApplicationAccess,
}

/// Who calls.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Caller {
    /// A model.
    Agent {
        /// Somebody can be asked.
        can_ask: bool,
        /// What the policy says against the call, if it says anything.
        policy: Option<Box<ToolReply>>,
    },
    /// A step that somebody wrote: its run can always wait.
    Step,
}

impl Applications {
    pub(super) fn discover(app: &Path, home: Option<&Path>, store: Option<&Store>, access: &ApplicationAccess) -> Self {
        let catalog = Catalog::discover(&Places { project: app, home, paths: &[] });
        Self { catalog, store: store.cloned(), access: access.clone() }
    }

    /// What is approved now: a command of this run may have changed its package, and the approval with it.
    fn trust(&self) -> Approvals {
        self.store.as_ref().and_then(|store| store.approvals().ok()).unwrap_or_default()
    }

    /// The applications that an agent may know of.
    fn known(&self) -> Vec<&crate::applications::Package> {
        let trust = self.trust();
        self.catalog.packages().filter(|package| package.is_compatible() && package.access(&trust).activation).collect()
    }

    /// What an agent is told of them, and the tools; nothing if there are none.
    pub(super) fn offered(&self) -> Option<(String, [OfferedTool; 2])> {
        let known = self.known();
        let slugs: Vec<&str> = known.iter().map(|package| package.contract.slug.as_str()).collect();
        if slugs.is_empty() {
            return None;
        }
        let mut text = format!(
            "These applications are in reach. Read the contract of one with `{ACTIVATE}` before you run it:\n\n"
        );
        for package in &known {
            let contract = &package.contract;
            let commands = contract.commands.join(", ");
            let later = if contract.is_scheduling_supported { "as its contract says" } else { "not supported" };
            let _ = writeln!(
                text,
                "- {} ({}): {} Commands: {commands}. Scheduling: {later}.",
                contract.slug, contract.version, contract.description
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
                    words. Nothing is run then; you are told whether and how the application does that itself."},
            }),
            json!(["application", "command"]),
        );
        let activate = OfferedTool { tool: activate, is_exclusive: false, is_kept: true, approval_key: None };
        let run = OfferedTool { tool: run, is_exclusive: true, is_kept: false, approval_key: None };
        Some((text, [activate, run]))
    }

    /// A contract as an agent gets it.
    pub(super) fn activate(&self, arguments: &str) -> ToolResult {
        let asked: Value = serde_json::from_str(arguments).unwrap_or_default();
        let slug = asked.get("application").and_then(Value::as_str).unwrap_or_default();
        let Some(package) = self.known().into_iter().find(|package| package.contract.slug == slug) else {
            return ToolResult::terminal(
                "ApplicationUnavailable",
                &format!("there is no application `{slug}` in reach"),
            );
        };
        match activate(package, None) {
            Ok(activated) => ToolResult { content: activated.text(), error: None },
            Err(why) => ToolResult::terminal("ApplicationUnavailable", &why),
        }
    }

    /// Runs a command, or says what stands against it. Blocks.
    pub(super) fn call(
        &self,
        arguments: &str,
        caller: Caller,
        is_confirmed: bool,
        within: Within,
        cancel: Cancel,
    ) -> ToolReply {
        let (slug, words, args) = match asked(arguments) {
            Ok(asked) => asked,
            Err(why) => return ToolReply::Done(ToolResult::terminal("InputInvalid", &why)),
        };
        if let Some(when) = when(arguments) {
            return ToolReply::Done(self.scheduled(&slug, &when));
        }
        let call = match prepare(&self.catalog, &slug, &words, &args, &self.trust()) {
            Ok(call) => call,
            Err(refusal) => return ToolReply::Done(refused(&refusal)),
        };
        let surroundings = Surroundings {
            environment: self.access.environment.clone(),
            stdin: None,
            scratch: self.access.state_dir.join("scratch"),
            cancel,
            // The call of the agent has passed its chain already.
            layers: None,
            within: Some(within),
        };
        let content = match call.access.content.clone().map_or_else(|| call.package.content(), Ok) {
            Ok(content) => content,
            Err(error) => return ToolReply::Done(ToolResult::terminal("ApplicationUnavailable", &error.to_string())),
        };
        // A question of the policy gives way to the confirmation, which asks for more; a denial does not.
        match &caller {
            Caller::Agent { policy: Some(says), .. }
                if matches!(**says, ToolReply::Done(_)) || !call.needs_confirmation() =>
            {
                return (**says).clone();
            }
            _ => {}
        }
        if call.needs_confirmation()
            && let Some(reply) = self.confirm(&call, &content.digest(), &caller, is_confirmed, &surroundings)
        {
            return reply;
        }
        let envelope = call.run(&surroundings, &Limits::default());
        if let (Some(store), Some(before)) = (&self.store, &call.access.content)
            && let Ok(after) = call.package.content()
        {
            // What its own commands change below `app/` goes on being approved; a store that cannot be written says so
            // at the next call.
            let _ = store.rebase(&call.package.root, before, &after);
        }
        ToolReply::Done(match caller {
            Caller::Agent { .. } => for_agent(&envelope),
            Caller::Step => for_step(&envelope),
        })
    }

    /// What an agent is told that wants something to happen later: nothing is put off here (C-1.15).
    fn scheduled(&self, slug: &str, when: &str) -> ToolResult {
        if !self.known().iter().any(|package| package.contract.slug == slug) {
            return ToolResult::terminal(
                "ApplicationUnavailable",
                &format!("there is no application `{slug}` in reach"),
            );
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

    /// Sees to a person's confirmation; a reply if the command does not run now.
    fn confirm(
        &self,
        call: &Call<'_>,
        digest: &str,
        caller: &Caller,
        is_confirmed: bool,
        surroundings: &Surroundings,
    ) -> Option<ToolReply> {
        let store = Confirmations::new(&self.access.state_dir);
        let broken = |why: String| Some(ToolReply::Done(ToolResult::terminal("ConfirmationFailed", &why)));
        let mut answer_given = is_confirmed;
        match is_confirmed.then(|| store.is_open(call, digest)) {
            Some(Err(error)) => return broken(error.to_string()),
            // The answer was to what was shown: another content, or a question of yesterday, is another matter.
            Some(Ok(false)) => {
                let why = "the package has changed since it was confirmed, or the question has expired; ask again";
                return Some(ToolReply::Done(ToolResult::terminal("ConfirmationStale", why)));
            }
            _ => {}
        }
        loop {
            match store.ask(call, digest) {
                Err(error) => return broken(error.to_string()),
                Ok(Verdict::Confirmed(_)) => return None,
                Ok(Verdict::Denied(answer)) => {
                    return Some(ToolReply::Done(refused(&call.denied(&answer.by, answer.reason.as_deref()))));
                }
                // The gate that was opened for this very call has been answered.
                Ok(Verdict::Waiting { request, .. }) if answer_given => {
                    answer_given = false;
                    let by = "the answer to the run's question".to_owned();
                    let answer = Answer { approved: true, by, at: clock::now_rfc3339(), reason: None };
                    if let Err(error) = store.answer(&request.id, answer) {
                        return broken(error.to_string());
                    }
                }
                Ok(Verdict::Waiting { request, .. }) => {
                    let line = call.argv.join(" ");
                    if matches!(caller, Caller::Agent { can_ask: false, .. }) {
                        let why = format!(
                            "`{line}` needs a person's confirmation and there is nobody to ask; they can give it with: \
                             etude approve {}",
                            request.id
                        );
                        return Some(ToolReply::Done(ToolResult::denied(&why)));
                    }
                    let fresh = call.fresh(surroundings);
                    let mut question = format!("{} wants to run: {line}", request.slug);
                    for text in fresh.description.iter().cloned().chain(fresh.state.iter().map(Value::to_string)) {
                        let _ = write!(question, "\n{text}");
                    }
                    return Some(ToolReply::Held { key: format!("{} {line}", request.slug), question, is_once: true });
                }
            }
        }
    }
}

/// A tool of this kind as patterns see it: `run_application(application=tool-shed)`.
pub(super) fn as_tool(name: &str) -> etude_tools::Tool {
    etude_tools::Tool::named(name, Vec::new(), json!({"type": "object"}))
}

/// Slug, words of the command, arguments.
fn asked(arguments: &str) -> Result<(String, Vec<String>, Vec<String>), String> {
    let value: Value = serde_json::from_str(arguments).map_err(|e| format!("the arguments are not JSON: {e}"))?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let (Some(slug), Some(command)) = (text("application"), text("command")) else {
        return Err("the arguments must have `application` and `command`".to_owned());
    };
    let args = value.get("args").and_then(Value::as_array).into_iter().flatten();
    let args = args.map(|arg| arg.as_str().map_or_else(|| arg.to_string(), str::to_owned));
    Ok((slug.to_owned(), command.split_whitespace().map(str::to_owned).collect(), args.collect()))
}

/// When a call is to happen, if not now.
fn when(arguments: &str) -> Option<String> {
    let value: Value = serde_json::from_str(arguments).ok()?;
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
    ToolResult::terminal(code, &told(&refusal.envelope))
}

/// What is to be said about a call, in one line.
fn told(envelope: &Envelope) -> String {
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

/// The document that an agent reads: also after a failure, whose output often says more than its status.
fn for_agent(envelope: &Envelope) -> ToolResult {
    let mut bytes = Vec::new();
    // Writing into memory cannot fail.
    let _ = envelope.write(&mut bytes);
    let mut content = String::from_utf8_lossy(&bytes).trim().to_owned();
    if let Some((at, _)) = content.char_indices().nth(MOST_OUTPUT) {
        let left_out = content.len() - at;
        content.truncate(at);
        let _ = write!(content, "\n[{left_out} bytes left out; ask the command for less]");
    }
    match envelope.status {
        Status::Succeeded => ToolResult { content, error: None },
        _ => ToolResult { content, ..ToolResult::terminal("CommandFailed", &told(envelope)) },
    }
}

/// The output alone, as the command printed it.
fn for_step(envelope: &Envelope) -> ToolResult {
    match (&envelope.output, envelope.status) {
        (Some(output), Status::Succeeded) => ToolResult { content: output.get().to_owned(), error: None },
        _ => ToolResult::terminal("CommandFailed", &told(envelope)),
    }
}
