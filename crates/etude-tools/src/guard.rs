//! Guards of a user: programs that may deny a tool call, whatever else allows it (`b-stages` §11.3, §20.4).
//!
//! A stage machine runs its guards itself, because it decides inside the journal. This module runs them for the calls of
//! agents and of steps of type `tool`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use etude_core::document::Document;
use etude_core::effect::{Chunk, Command, Inherits, ProcessCall, Protocol, Setting, Stdin};
use etude_core::exact::Exact;
use etude_core::machine::guard::{SLOT, UNDECIDED, Verdict, verdict};
use etude_process::ProcessHost;
use etude_spec::stage_machine::GUARD_TIMEOUT_MS;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bound;
use crate::program::{self, Programs, Ran};
use crate::tool::ToolResult;

/// Maximum length of a denial that a model reads, in bytes.
const MAX_REASON: usize = 2_000;

/// A tool call that guards decide about.
#[derive(Debug, Clone)]
pub struct Proposal<'a> {
    /// Name of the called tool.
    pub tool: &'a str,
    /// The arguments of the call as JSON.
    pub args: &'a Value,
    /// The arguments with all digits of their numbers, if `args` rounds them: the tool gets all digits.
    pub exact: Option<Exact>,
    /// Path of the effect that calls the tool.
    pub key: &'a str,
    /// Id of the run that the call belongs to.
    pub run_id: &'a str,
    /// Input of the run.
    pub input: Value,
    /// The directory of the app.
    pub cwd: &'a str,
}

impl Proposal<'_> {
    /// The document that a guard reads: that of a machine's guard, without a machine and a stage.
    fn document(&self) -> Document {
        let document = json!({
            "protocol": "stage-hook/1", "hook": "guard", "input": self.input,
            "machine": null, "stage": null, "ctx": null, "act": null, "result": null,
            "run": {
                "workflowRunId": self.run_id, "stageExecutionId": null, "attempt": 1, "compoundTurnId": null,
                "cwd": self.cwd,
            },
            "slot": SLOT,
            "payload": {"toolId": self.tool, "args": self.args, "decision": "approve"},
            "correlationId": self.key,
        });
        Document::from(document).with("/payload/args".to_owned(), self.exact.clone())
    }
}

/// Runs guards in order, until one denies the call or is broken (B-H2, B-H3). `None` if the call may be made.
pub async fn refusal(
    guards: &[Command],
    host: &Arc<ProcessHost>,
    proposal: &Proposal<'_>,
    token: &CancellationToken,
) -> Option<ToolResult> {
    if guards.is_empty() {
        return None;
    }
    let document: Arc<str> = proposal.document().to_string().into();
    // The user has configured the guards, so they run without a sandbox.
    let programs = Programs { host: Arc::clone(host), sandbox: None };
    let limit = Duration::from_millis(GUARD_TIMEOUT_MS);
    for (at, command) in guards.iter().enumerate() {
        let call = ProcessCall {
            command: command.clone(),
            dir: String::new(),
            env: Vec::new(),
            key: format!("{}/guard{}", proposal.key, at + 1),
            attempt: 1,
            stdin: Stdin(vec![Chunk::Text(Arc::clone(&document))]),
            protocol: Protocol::Document,
            setting: Setting { inherits: Inherits::Basics, ..Setting::default() },
        };
        let verdict = match program::run(&programs, call, limit, token, |_| ControlFlow::Continue(())).await {
            Ran::Ended(end) => verdict(&end),
            Ran::TimedOut => Verdict::Broken(format!("did not end within {} s", limit.as_secs())),
            Ran::Cancelled | Ran::Stopped => return Some(ToolResult::cancelled()),
        };
        match verdict {
            Verdict::Allow => {}
            Verdict::Deny(why) => return Some(ToolResult::denied(&bound::plain(&why, MAX_REASON))),
            Verdict::Broken(why) => {
                let why = bound::plain(&why, MAX_REASON);
                return Some(ToolResult::denied(&format!("{UNDECIDED}: `{command}` {why}")));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-H1: a guard reads the arguments with all digits, as the tool gets them.
    #[test]
    fn a_guard_judges_all_digits() {
        let text = r#"{"id":12345678901234567890123}"#;
        let args = etude_core::tool::shown_arguments(text);
        let document = |exact| {
            let input = json!({});
            Proposal { tool: "pay", args: &args, exact, key: "p/pay", run_id: "r", input, cwd: "/app" }.document()
        };
        let exact = document(etude_core::tool::all_digits(text)).to_string();
        assert!(exact.contains(r#""payload":{"toolId":"pay","args":{"id":12345678901234567890123},"#), "{exact}");
        let kept = document(None).to_string();
        assert!(kept.contains(r#""args":{"id":1.2345678901234568e"#), "{kept}");
    }
}
