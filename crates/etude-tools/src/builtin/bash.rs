//! `Bash`: runs a command line.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_core::effect::{Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, ProcessEnd};
use etude_core::shell;
use serde_json::{Value, json};

use crate::bound::Ends;
use crate::builtin::{number, object, text};
use crate::program::{self, Programs, Ran};
use crate::tool::{Boxed, CallContext, Run, ToolError, ToolResult, members};

pub(super) const DESCRIPTION: &str = "Runs a command line with bash in the app's folder and returns what it prints, stdout \
    and stderr together, and its exit status where that is not 0. Each call is a new shell without a terminal and \
    without input. Long output keeps its beginning and its end. To look at files prefer `Read`, `Grep` and `Glob`.";

/// Maximum length of the output in a result, in bytes.
const MAX_OUTPUT: usize = 30_000;

/// Length of output in bytes after which a command is ended.
const TOO_MUCH: u64 = 256 << 20;

const DEFAULT_SECONDS: usize = 120;
const MAX_SECONDS: usize = 3_600;

/// Script that runs the command line. Both streams go to one pipe, so that their order is kept and all of it is seen as it
/// comes. It prefers `bash`, because models write for it.
const SHELL: &str = r#"exec 1>&2; if command -v bash >/dev/null 2>&1; then exec bash -c "$@"; fi; exec sh -c "$@""#;

/// Name of the shell itself, before its positional parameters.
const NAME: &str = "bash";

pub(super) fn schema() -> Value {
    object(
        json!({
            "command": {"type": "string", "minLength": 1, "description": "The command line."},
            "timeout": {
                "type": "integer", "minimum": 1, "maximum": MAX_SECONDS,
                "description": format!("Longest time in seconds; by default {DEFAULT_SECONDS}."),
            },
            "description": {"type": "string", "description": "What it is for, in a few words, for anyone who approves it."},
        }),
        &["command"],
    )
}

/// The tool, with the host for its commands.
#[derive(Debug)]
pub(super) struct Bash {
    programs: Programs,
}

impl Bash {
    pub(super) fn new(programs: Programs) -> Self {
        Self { programs }
    }
}

impl Run for Bash {
    fn run(&self, args: Arc<Value>, cx: CallContext) -> Boxed<ToolResult> {
        let programs = self.programs.clone();
        Box::pin(async move {
            let seconds = number(members(&args), "timeout", DEFAULT_SECONDS);
            let line = text(members(&args), shell::COMMAND).unwrap_or_default();
            let mut words = ["sh", "-c", SHELL, "sh", line, NAME].map(str::to_owned).to_vec();
            // Arguments are passed beside the line: no shell reads them as text, whatever they contain (L-33).
            words.extend(shell::arguments(&args));
            let call = ProcessCall {
                command: Command::Direct(words),
                dir: String::new(),
                env: Vec::new(),
                key: cx.key(),
                attempt: 1,
                stdin: Stdin::default(),
                protocol: Protocol::Document,
                setting: Setting::default(),
            };
            let output = Arc::new(Mutex::new(Ends::new(MAX_OUTPUT)));
            let (into, listener) = (Arc::clone(&output), cx.on_output.clone());
            let timeout = Duration::from_secs(seconds as u64);
            let ran = program::run(&programs, call, timeout, &cx.cancel, move |bytes| {
                if let Some(listener) = &listener {
                    listener(bytes);
                }
                let mut output = into.lock().unwrap_or_else(PoisonError::into_inner);
                output.push(bytes);
                if output.total() > TOO_MUCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await;
            let output = std::mem::replace(&mut *output.lock().unwrap_or_else(PoisonError::into_inner), Ends::new(0));
            let sandbox = ran.sandbox(&programs);
            ToolResult { sandbox, ..result(ran, output, seconds) }
        })
    }
}

fn result(ran: Ran, output: Ends, seconds: usize) -> ToolResult {
    let mut printed = output.finish("send the output to a file, or filter it, to see the rest");
    let error = match &ran {
        Ran::Ended(end) => match failure(end) {
            Some(error) => error,
            None if printed.trim().is_empty() => return ToolResult::ok("[done, nothing was printed]"),
            None => return ToolResult::ok(printed),
        },
        Ran::TimedOut => {
            let message = format!("the command took longer than {seconds} s and was killed; raise `timeout`");
            ToolError::transient("ExecutionTimeout", message)
        }
        Ran::Cancelled => ToolError::cancelled(),
        Ran::Stopped => {
            ToolError::failed(format!("the command printed more than {} MiB and was killed", TOO_MUCH >> 20))
        }
    };
    if !printed.is_empty() && !printed.ends_with('\n') {
        printed.push('\n');
    }
    ToolResult::failed_with(format!("{printed}[{}]", error.message), error)
}

fn failure(end: &ProcessEnd) -> Option<ToolError> {
    match &end.exit {
        Exit::Status(0) => None,
        Exit::Status(status) => Some(ToolError::failed(format!("exit status {status}"))),
        Exit::Signal { name, .. } => Some(ToolError::failed(format!("killed by {name}{}", Exit::why_signal(name)))),
        Exit::NotStarted(why) => Some(ToolError::failed(why.clone())),
    }
}
