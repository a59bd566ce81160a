//! Recorded effects of a run, for people and programs.

mod bytes;
mod groups;
mod place;
mod replay;

use std::path::Path;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::{Chunk, Effect};
use etude_core::machine::Command;
use etude_core::model::{ModelResponse, Usage};
use etude_core::outcome::{Conditions, Exit, Outcome, ProcessEnd, Stdout, Warmth};
use etude_core::plan::Plan;
use etude_core::report::duration;
use etude_core::tool::ToolReply;
use etude_process::blob::{self, BlobStore};
use etude_runtime::engine::RunView;
use etude_runtime::record;
use serde_json::{Value, json};

use crate::header::Header;

pub use bytes::{Bytes, bytes};
pub use groups::Groups;
pub use place::EffectPlace;
pub use replay::{Replay, Replayed, open_gates, replay};

/// An effect that has ended.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// The id of the effect, as `etude runs show` lists it.
    pub id: String,
    /// The outcome in one line.
    pub summary: String,
    /// The readable streams of the effect.
    pub streams: Vec<Stream>,
    /// Worker and sandbox of a process.
    pub conditions: Conditions,
    /// True if the effect is void: the run had failed, was continued, and runs it again (ADR 0041). Its streams are
    /// those of the effect that has its name now.
    pub is_done_again: bool,
    /// True if the outcome makes a step fail, unless the step allows it.
    pub is_failed: bool,
    /// True if the effect was stopped before its end: its run or step had no use for it.
    pub is_stopped: bool,
    /// The attempt at the run in which the effect ended, from 1.
    pub run_attempt: u32,
    /// End of the effect, in milliseconds after the run began; `None` in journals of earlier versions.
    pub ended_at_ms: Option<u64>,
    /// Duration, in milliseconds.
    pub elapsed_ms: u64,
    /// Usage of a model call.
    pub usage: Option<Usage>,
    /// The model that responded.
    pub model: Option<String>,
}

etude_core::words! {
    /// A stream that an effect read or wrote.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Stream {
        /// Stdin of a process. It is rebuilt from the plan and the earlier outcomes.
        Stdin = "stdin",
        /// Usable part of a process's stdout.
        Stdout = "stdout",
        /// Stderr of a process.
        Stderr = "stderr",
        /// Prompt of a model call.
        Prompt = "prompt",
        /// The text of a model's response.
        ModelResponse = "answer",
        /// The content or the error of a tool's result.
        Result = "result",
    }
}

/// The state in which an effect ended: `failed`, `cancelled` or `succeeded`.
const fn status(is_failed: bool, is_stopped: bool) -> &'static str {
    match (is_failed, is_stopped) {
        (true, _) => "failed",
        (false, true) => "cancelled",
        (false, false) => "succeeded",
    }
}

/// The same for the document of an effect.
pub fn status_of(document: &Value) -> &'static str {
    status(document["failed"] == true, document["stopped"] == true)
}

impl Inspected {
    /// The state in which the effect ended: `failed`, `cancelled` or `succeeded`.
    pub const fn status(&self) -> &'static str {
        status(self.is_failed, self.is_stopped)
    }

    /// The effect as a document: each stream with the command that prints it.
    pub fn to_json(&self, run_id: &str) -> Value {
        let streams: serde_json::Map<String, Value> = self
            .streams
            .iter()
            .map(|stream| {
                let word = stream.word();
                (word.to_owned(), format!("etude runs show {run_id} --stream {}/{word}", self.id).into())
            })
            .collect();
        let mut out =
            json!({"id": self.id, "summary": self.summary, "streams": streams, "run_attempt": self.run_attempt});
        match &self.conditions.worker {
            Some(Warmth::Warm) => out["worker"] = "warm".into(),
            Some(Warmth::Cold(_)) => out["worker"] = "cold".into(),
            None => {}
        }
        if let Some(enforced) = &self.conditions.sandbox {
            out["sandbox"] = enforced.as_str().into();
        }
        if self.is_done_again {
            out["done_again"] = true.into();
        }
        if self.is_failed {
            out["failed"] = true.into();
        }
        if self.is_stopped {
            out["stopped"] = true.into();
        }
        out
    }

    /// The effect in a document of [`Self::to_json`], which has no times and no usage; `None` if it has no id.
    pub fn from_json(document: &Value) -> Option<Self> {
        let text = |name: &str| document[name].as_str().map(str::to_owned);
        let streams = document["streams"].as_object().into_iter().flatten();
        let worker = document["worker"].as_str().map(|word| match word {
            "warm" => Warmth::Warm,
            _ => Warmth::Cold(String::new()),
        });
        Some(Self {
            id: text("id")?,
            summary: text("summary").unwrap_or_default(),
            streams: streams.filter_map(|(word, _)| Stream::from_word(word)).collect(),
            conditions: Conditions { worker, sandbox: text("sandbox") },
            is_done_again: document["done_again"] == true,
            is_failed: document["failed"] == true,
            is_stopped: document["stopped"] == true,
            run_attempt: document["run_attempt"].as_u64().and_then(|number| number.try_into().ok()).unwrap_or(1),
            ended_at_ms: None,
            elapsed_ms: 0,
            usage: None,
            model: None,
        })
    }
}

/// The effects of a run, in the order in which they ended.
pub fn effects(view: &RunView, blobs: &dyn BlobStore) -> Vec<Inspected> {
    let void = record::void(&view.records);
    let mut run_attempt = 1;
    let numbered = view.records.iter().enumerate().map(|(at, record)| {
        run_attempt = record::Continuation::of(record).map_or(run_attempt, |continuation| continuation.number);
        (at, run_attempt, record)
    });
    numbered
        .filter(|(_, _, record)| !record.key.starts_with('!'))
        .map(|(at, run_attempt, record)| {
            let (id, is_done_again) = (record.key.clone(), void.contains(&at));
            let (mut elapsed_ms, mut usage, mut model) = (0, None, None);
            let (summary, mut streams, conditions, is_failed, is_stopped) = match record::to_outcome(record, blobs) {
                Ok(completed) => {
                    elapsed_ms = completed.elapsed_ms;
                    if let Outcome::Response(response) = &completed.outcome {
                        (usage, model) = (Some(response.usage), Some(response.model.clone()));
                    }
                    let (mut summary, streams) = describe(&completed.outcome, completed.elapsed_ms);
                    if let Some((tool, arguments)) = record::to_call(record) {
                        summary = format!("{tool} {arguments} {summary}");
                    }
                    let is_failed = is_failure(&completed.outcome);
                    let is_stopped = matches!(completed.outcome, Outcome::Abandoned | Outcome::Stopped(_));
                    let conditions = match completed.outcome {
                        Outcome::Process(end) => end.conditions,
                        Outcome::Tool(reply) => of_tool(&reply),
                        _ => Conditions::default(),
                    };
                    (summary, streams, conditions, is_failed, is_stopped)
                }
                Err(error) => (error.to_string(), Vec::new(), Conditions::default(), true, false),
            };
            if is_done_again {
                streams.clear();
            }
            let ended_at_ms = record::at_ms(record);
            Inspected {
                id,
                summary,
                streams,
                conditions,
                is_done_again,
                is_failed,
                is_stopped,
                run_attempt,
                ended_at_ms,
                elapsed_ms,
                usage,
                model,
            }
        })
        .collect()
}

/// True if a step fails with this outcome, unless its definition allows it.
fn is_failure(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Process(end) => end.exit != Exit::Status(0) || matches!(end.stdout, Stdout::Unusable { .. }),
        Outcome::CallFailed(_) => true,
        Outcome::Tool(reply) => matches!(&**reply, ToolReply::Done(result) if result.error.is_some()),
        Outcome::Decided(decision) => !decision.approved,
        _ => false,
    }
}

fn describe(outcome: &Outcome, ms: u64) -> (String, Vec<Stream>) {
    let took = duration(ms);
    match outcome {
        Outcome::Process(end) => {
            let exit = match &end.exit {
                Exit::Status(status) => format!("exit status {status}"),
                Exit::Signal { name, .. } => format!("killed by {name}"),
                Exit::NotStarted(why) => format!("not started: {why}"),
            };
            let mut streams = vec![Stream::Stdin, Stream::Stdout];
            if end.stderr.bytes > 0 {
                streams.push(Stream::Stderr);
            }
            (format!("{exit} after {took}{}", conditions(&end.conditions)), streams)
        }
        Outcome::Response(answer) => {
            let tokens = answer.usage.input_tokens + answer.usage.output_tokens;
            (
                format!("{} responded after {took}, {tokens} tokens", answer.model),
                vec![Stream::Prompt, Stream::ModelResponse],
            )
        }
        Outcome::CallFailed(failure) => {
            (format!("no response after {took}: {}", failure.message), vec![Stream::Prompt])
        }
        Outcome::Opened(tool_list) => {
            let names: Vec<&str> = tool_list.tools.iter().map(|available| available.tool.name.as_str()).collect();
            (format!("offered {}", if names.is_empty() { "no tools".to_owned() } else { names.join(", ") }), Vec::new())
        }
        Outcome::Tool(reply) => match &**reply {
            ToolReply::Held { question, .. } => (format!("asked for approval: {question}"), Vec::new()),
            ToolReply::Done(result) => {
                let what = match &result.error {
                    Some(error) => format!("{}/{} after {took}", error.class.word(), error.code),
                    None => format!("returned {} bytes after {took}", result.content.len()),
                };
                (what + &conditions(&of_tool(reply)), vec![Stream::Result])
            }
        },
        Outcome::Slept => (format!("waited {took}"), Vec::new()),
        Outcome::Decided(decision) => {
            let word = if decision.approved { "approved" } else { "denied" };
            (format!("{word} by {} at {}", decision.by, decision.at), Vec::new())
        }
        Outcome::Recalled(Some(_)) => ("found in the cache".to_owned(), Vec::new()),
        Outcome::Recalled(None) => ("not in the cache".to_owned(), Vec::new()),
        Outcome::Scanned(found) if found.is_empty() => ("no secret in the prompt".to_owned(), Vec::new()),
        Outcome::Scanned(found) => (format!("the prompt holds {}", found.join(", ")), Vec::new()),
        Outcome::Remembered => ("stored in the cache".to_owned(), Vec::new()),
        Outcome::Abandoned => (format!("stopped after {took}"), Vec::new()),
        Outcome::Stopped(_) => (format!("stopped after {took}"), vec![Stream::Stderr]),
    }
}

/// Worker and sandbox of a tool's program.
fn of_tool(reply: &ToolReply) -> Conditions {
    match reply {
        ToolReply::Done(result) => Conditions { worker: None, sandbox: result.sandbox.clone() },
        ToolReply::Held { .. } => Conditions::default(),
    }
}

/// Worker and sandbox of a process, as the end of a sentence.
fn conditions(conditions: &Conditions) -> String {
    let worker = match &conditions.worker {
        Some(Warmth::Warm) => ", in a warm interpreter".to_owned(),
        Some(Warmth::Cold(why)) => format!(", in a new interpreter ({why})"),
        None => String::new(),
    };
    let sandbox = conditions.sandbox.as_ref().map(|enforced| format!(", sandboxed: {enforced}")).unwrap_or_default();
    worker + &sandbox
}

/// The input with which the run began; `None` if its header cannot be read.
pub fn input(view: &RunView, blobs: &dyn BlobStore) -> Option<Json> {
    Header::parse(&view.run.header, blobs).ok().map(|header| header.request.input)
}

/// Path of the request to the run; `None` if the run was not started with a request.
pub fn routing(view: &RunView, blobs: &dyn BlobStore) -> Option<Value> {
    Header::parse(&view.run.header, blobs).ok().and_then(|header| header.request.routing)
}

/// One stream of one effect, unchanged; `None` if there is no such stream. For stdin use [`stdin`].
///
/// # Errors
/// The journal is damaged.
pub fn read(view: &RunView, effect: &str, stream: Stream, blobs: &dyn BlobStore) -> Result<Option<Vec<u8>>, String> {
    let Some(record) = view.records.iter().rev().find(|record| record.key == effect) else { return Ok(None) };
    let outcome = record::to_checked_outcome(record, blobs).map_err(|e| e.to_string())?.outcome;
    Ok(match (stream, outcome) {
        (Stream::Prompt, _) => record::to_prompt(record).map(String::into_bytes),
        (Stream::ModelResponse, Outcome::Response(answer)) => Some(said(&answer).into_bytes()),
        (Stream::Result, Outcome::Tool(reply)) => match *reply {
            ToolReply::Done(result) => Some(result.content.into_bytes()),
            ToolReply::Held { .. } => None,
        },
        (Stream::Stdout, Outcome::Process(end)) => Some(match end.stdout {
            Stdout::Value(json) => json.text().map_err(|e| e.to_string())?.as_bytes().to_vec(),
            Stdout::Unusable { found, .. } => found.into_bytes(),
        }),
        (Stream::Stderr, Outcome::Process(ProcessEnd { stderr, .. }) | Outcome::Stopped(stderr)) => {
            Some(match stderr.blob {
                Some(digest) => blob::bytes(&*blobs.open(digest).map_err(|e| e.to_string())?)?,
                None => stderr.tail.into_bytes(),
            })
        }
        _ => None,
    })
}

/// The text of a response, and a line for each of its tool calls.
fn said(answer: &ModelResponse) -> String {
    let mut text = answer.text.clone();
    for call in &answer.tool_calls {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[call {}: {}({})]\n", call.id, call.name, call.arguments));
    }
    text
}

/// Stdin of a process of the run, rebuilt by a replay of the run; `None` if the run has no such process with its
/// current definition.
///
/// # Errors
/// The journal is damaged.
pub fn stdin(
    view: &RunView,
    plan: &Plan,
    app: &Path,
    effect: &str,
    blobs: &Arc<dyn BlobStore>,
) -> Result<Option<Vec<u8>>, String> {
    let (mut replay, mut commands) = Replay::new(view, plan, app, Arc::clone(blobs))?;
    loop {
        for command in commands {
            if let Command::Start(id, Effect::Process(call)) = command
                && id.as_str() == effect
            {
                return bytes_of(&call.stdin.0).map(Some);
            }
        }
        let Some((_, next)) = replay.advance()? else { return Ok(None) };
        commands = next;
    }
}

fn bytes_of(chunks: &[Chunk]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Chunk::Bytes(piece) => bytes.extend_from_slice(piece),
            Chunk::Json(json) => bytes.extend_from_slice(json.text().map_err(|e| e.to_string())?.as_bytes()),
        }
    }
    Ok(bytes)
}
