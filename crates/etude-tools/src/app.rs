//! Tools of the app's `tools/`: programs with JSON on stdin and JSON on stdout (A-7.1, `b-stages` §20.5).
//!
//! stdin is `{"tool", "args", "toolCallId", "run": {"workflowRunId", "stageExecutionId", "cwd"}}`. stdout is
//! `{"ok": true, "value": …}` or `{"ok": false, "error": {"class", "code", "message"}}`; a script without a sidecar may
//! print any other JSON value, which is then the result. stderr is for people.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use etude_core::effect::{Chunk, Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, ProcessEnd, Stdout};
use etude_core::report::duration;
use etude_core::template::compact;
use etude_core::tree;
use etude_spec::tool::AppTool;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bound;
use crate::found::Found;
use crate::program::{self, Programs, Ran};
use crate::tool::{ApprovalKey, Boxed, CallContext, Effect, ErrorClass, Origin, Run, Tool, ToolError, ToolResult};

/// The tool definitions of an app, as read by `etude_spec::tool::load`.
#[derive(Debug, Clone, Default)]
pub struct AppTools {
    /// Definitions in the order of their names.
    pub tools: Vec<AppTool>,
    /// The app's directory, passed as `run.cwd`.
    pub app_dir: String,
}

/// Time limit of a script for `--help`.
const HELP_TIME: Duration = Duration::from_secs(10);

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 4_000;

/// Makes tools that can be called. Scripts that only their `--help` describes are started for it now, all at once.
pub(crate) async fn entries(tools: AppTools, programs: &Programs) -> Vec<Found> {
    let AppTools { tools, app_dir } = tools;
    join_all(tools.into_iter().map(|tool| entry(tool, app_dir.clone(), programs))).await
}

async fn entry(definition: AppTool, app_dir: String, programs: &Programs) -> Found {
    let described = match (&definition.description, definition.has_help) {
        (text, false) if !text.is_empty() => text.clone(),
        (_, true) => help(&definition, programs).await,
        _ => String::new(),
    };
    let described = match described.trim() {
        "" => format!("The program `{}` of this app.", definition.file),
        text => bound::plain(text, MAX_DESCRIPTION),
    };
    let origin = Origin::App { file: definition.file.clone() };
    let schema = definition.input_schema.clone();
    let mut tool = Tool::new(&definition.name, &described, schema, Effect::Executes, origin);
    tool.gated = definition.gated;
    tool.tags.clone_from(&definition.tags);
    if let Some(key) = &definition.approval_key {
        tool.approval_key = ApprovalKey::Template(key.clone());
    }
    Found::new(tool, AppRun { definition: Arc::new(definition), app_dir, programs: programs.clone() })
}

/// The output of a script for `--help`, on either stream. Empty if the script fails or takes too long.
async fn help(definition: &AppTool, programs: &Programs) -> String {
    let Command::Direct(words) = &definition.command else { return String::new() };
    let script = words.first().cloned().unwrap_or_default();
    // Both streams go to one pipe, because usage messages are found on either.
    let words = ["sh", "-c", "exec \"$0\" --help 1>&2", &script].map(str::to_owned).to_vec();
    let call = call(Command::Direct(words), format!("{}/help", definition.name), Stdin::default());
    let ran = program::run(programs, call, HELP_TIME, &CancellationToken::new(), |_| ControlFlow::Continue(())).await;
    match ran {
        Ran::Ended(end) if end.exit.is_success() => end.stderr.tail,
        _ => String::new(),
    }
}

fn call(command: Command, key: String, stdin: Stdin) -> ProcessCall {
    let (dir, env) = (String::new(), Vec::new());
    ProcessCall { command, dir, env, key, attempt: 1, stdin, protocol: Protocol::Document, setting: Setting::default() }
}

#[derive(Debug)]
struct AppRun {
    definition: Arc<AppTool>,
    app_dir: String,
    programs: Programs,
}

impl Run for AppRun {
    fn run(&self, args: Arc<Value>, cx: CallContext) -> Boxed<ToolResult> {
        let (definition, programs) = (Arc::clone(&self.definition), self.programs.clone());
        let args = cx.written.as_deref().map_or_else(|| args.to_string(), written);
        let run = json!({
            "workflowRunId": cx.workflow_run_id,
            "stageExecutionId": cx.stage_execution_id,
            "cwd": self.app_dir,
        });
        let (tool, id) = (Value::from(definition.name.as_str()), Value::from(cx.call_id.as_str()));
        let document = format!(r#"{{"tool":{tool},"args":{args},"toolCallId":{id},"run":{run}}}"#);
        // The model of a stage sees class, code and message, and nothing of what a program wrote for people (B-AP4).
        let (reports_stderr, most) = (cx.stage_execution_id.is_none(), cx.max_result());
        Box::pin(async move {
            let stdin = Stdin(vec![Chunk::Text(document.into())]);
            let call = call(definition.command.clone(), cx.key(), stdin);
            let listener = cx.on_output.clone();
            let timeout = Duration::from_millis(definition.timeout_ms);
            let ran = program::run(&programs, call, timeout, &cx.cancel, move |bytes| {
                if let Some(listener) = &listener {
                    listener(bytes);
                }
                ControlFlow::Continue(())
            })
            .await;
            let sandbox = ran.sandbox(&programs);
            let result: ToolResult = match ran {
                Ran::Ended(end) => result(&definition, &end, (reports_stderr, most)),
                Ran::TimedOut => {
                    let message = format!(
                        "`{}` took longer than {} and was killed; raise `timeout` in `{}`",
                        definition.name,
                        duration(definition.timeout_ms),
                        definition.file
                    );
                    ToolError::transient("ExecutionTimeout", message).into()
                }
                Ran::Cancelled | Ran::Stopped => ToolError::cancelled().into(),
            };
            ToolResult { sandbox, ..result }
        })
    }
}

fn result(definition: &AppTool, end: &ProcessEnd, (reports_stderr, most): (bool, usize)) -> ToolResult {
    let name = &definition.name;
    let tail = bound::plain(end.stderr.tail.trim(), 2_000);
    let tail = if tail.is_empty() || !reports_stderr { String::new() } else { format!("; stderr ends in:\n{tail}") };
    let ended = match &end.exit {
        Exit::Status(0) => None,
        Exit::Status(status) => Some(format!("exited with status {status}")),
        Exit::Signal { name, .. } => Some(format!("was killed by {name}{}", Exit::why_signal(name))),
        Exit::NotStarted(why) => return ToolError::failed(format!("`{name}` was not started: {why}")).into(),
    };
    if let Some(ended) = ended {
        return ToolError::failed(format!("`{name}` {ended}{tail}")).into();
    }
    let malformed = |why: String| ToolError::terminal("OutputMalformed", format!("`{name}`: {why}{tail}")).into();
    match &end.stdout {
        Stdout::Unusable { problem, .. } => malformed(problem.clone()),
        Stdout::Value(json) => match json.text() {
            Ok(text) => document(definition, &text, most).unwrap_or_else(malformed),
            Err(error) => malformed(error.to_string()),
        },
    }
}

/// The arguments of a call as written. Empty text means no arguments.
fn written(text: &str) -> String {
    if text.trim().is_empty() { "{}".to_owned() } else { compact(text) }
}

/// The result in the document on stdout, or the fault of the document. A value keeps its digits (A-3.3).
fn document(definition: &AppTool, text: &str, most: usize) -> Result<ToolResult, String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    match members.get("ok").map(|ok| ok.get()) {
        Some("true") => value_of(members.get("value").map_or("null", |value| value.get()), most),
        Some("false") => {
            let error = members.get("error").map(|error| tree::parse_response(error.get()).map_err(|e| e.to_string()));
            let error = error.transpose()?.unwrap_or_default();
            let error = error.as_object().ok_or("stdout has `\"ok\": false` without an `error` object")?;
            let word = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
            Ok(ToolError {
                class: declared_class(word("class")),
                code: if word("code").is_empty() { "ToolExecutionFailed" } else { word("code") }.to_owned(),
                message: bound::clip(word("message"), 4_000, ""),
            }
            .into())
        }
        None if definition.bare => value_of(text, most),
        _ => Err("stdout must be `{\"ok\": true, \"value\": …}` or `{\"ok\": false, \"error\": {…}}`".to_owned()),
    }
}

/// The error class that a tool declares. It cannot declare a cancellation.
fn declared_class(word: &str) -> ErrorClass {
    ErrorClass::from_word(word).filter(|class| *class != ErrorClass::Cancellation).unwrap_or(ErrorClass::ToolTerminal)
}

/// A text unchanged, any other value as JSON; at most `most` bytes.
fn value_of(value: &str, most: usize) -> Result<ToolResult, String> {
    let text = match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str(value).map_err(|e| format!("the value cannot be parsed: {e}"))?,
        Some(b'n') => "[done, no result]".to_owned(),
        _ => compact(value),
    };
    Ok(ToolResult::ok(bound::clip(&text, most, "request less data in one call")))
}
