//! Version 1 of the records' bodies.

mod tools;

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::effect::Effect;
use etude_core::model::{
    CallFailure, CallFailureKind, ModelResponse, Part, Reasoning, Request, Role, Stop, ToolCall, Usage,
};
use etude_core::outcome::{Completed, Conditions, Decision, Exit, Outcome, ProcessEnd, Stderr, Stdout, Warmth};
use etude_core::tree::{self, TreeError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Error, VERSION, reopen};
use crate::blob::BlobStore;

#[derive(Serialize, Deserialize)]
pub(super) struct Body {
    v: u32,
    ms: u64,
    /// End of the effect in milliseconds since the run began. Only observers read it: the machine never sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<ProcessBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<ResponseBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call_failed: Option<CallFailedBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<AskedBody>,
    /// Name and arguments of a step's tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) called: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decided: Option<DecidedBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recalled: Option<ValueBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opened: Option<tools::ToolListBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<tools::ReplyBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scanned: Option<Vec<String>>,
    /// Stderr of an abandoned process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<StderrBody>,
    /// Word of an outcome without content: `slept`, `missed`, `remembered`, `abandoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plain: Option<String>,
}

/// The part of any record's body that has its time.
#[derive(Deserialize)]
pub(super) struct Time {
    #[serde(default)]
    at: Option<u64>,
}

impl Time {
    pub(super) fn parse(text: &str) -> Option<u64> {
        Self::at_start(text).or_else(|| serde_json::from_str::<Self>(text).ok()?.at)
    }

    /// The time in a body as this program writes it, where only the version and the duration come before it. A large
    /// body is not read to its end.
    fn at_start(text: &str) -> Option<u64> {
        let rest = text.strip_prefix(r#"{"v":1,"#)?;
        let rest = match rest.strip_prefix(r#""ms":"#) {
            Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(',')?,
            None => rest,
        };
        let digits = rest.strip_prefix(r#""at":"#)?;
        let end = digits.find(|c: char| !c.is_ascii_digit())?;
        digits[end..].starts_with([',', '}']).then(|| digits[..end].parse().ok())?
    }
}

#[derive(Serialize, Deserialize)]
struct ProcessBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<(i32, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<ValueBody>,
    /// The fault of stdout, and its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unusable: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "is_quiet")]
    stderr: StderrBody,
    /// `warm`, or the reason why the worker was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkerBody {
    Warm,
    Cold(String),
}

#[derive(Serialize, Deserialize, Default)]
struct StderrBody {
    tail: String,
    lines: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

fn is_quiet(stderr: &StderrBody) -> bool {
    stderr.bytes == 0
}

/// A JSON value: its text, or its place in a blob.
#[derive(Serialize, Deserialize)]
struct ValueBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Place>,
}

/// Place of a large value in a blob.
#[derive(Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) blob: String,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) digest: String,
}

#[derive(Serialize, Deserialize)]
struct ResponseBody {
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<(String, String, String)>,
    /// `end`, `tool_calls`, `length` or `refusal`.
    stop: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    usage: UsageBody,
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningBody>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    transport_failures: Vec<String>,
}

/// Reasoning of a model, as its provider wrote it.
#[derive(Serialize, Deserialize)]
struct ReasoningBody {
    model: String,
    thought: Box<RawValue>,
}

/// Request of a model call.
#[derive(Serialize, Deserialize)]
struct AskedBody {
    tier: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    /// Number of messages before those in `messages`.
    #[serde(default, skip_serializing_if = "is_none_before")]
    earlier: usize,
    /// Role and text of each message.
    messages: Vec<(String, String)>,
}

fn is_none_before(earlier: &usize) -> bool {
    *earlier == 0
}

#[derive(Serialize, Deserialize)]
struct UsageBody {
    calls: u64,
    input: u64,
    output: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    reasoning: u64,
    #[serde(default)]
    cost_usd: Option<f64>,
}

#[derive(Serialize, Deserialize)]
struct CallFailedBody {
    /// `environment`, `model` or `not_recorded`.
    kind: String,
    message: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    transport_failures: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct DecidedBody {
    approved: bool,
    answer: Box<RawValue>,
    by: String,
    at: String,
    #[serde(default)]
    reason: Option<String>,
}

impl Body {
    pub(super) fn of(completed: &Completed, asked: Option<&Effect>, at_ms: u64) -> Self {
        let mut body = Self {
            v: VERSION,
            ms: completed.elapsed_ms,
            at: Some(at_ms),
            process: None,
            answer: None,
            call_failed: None,
            asked: None,
            called: None,
            decided: None,
            recalled: None,
            opened: None,
            tool: None,
            scanned: None,
            stopped: None,
            plain: None,
        };
        match asked {
            Some(Effect::Model(request)) => body.asked = Some(AskedBody::of(request)),
            Some(Effect::Tool(call)) => body.called = Some((call.name.clone(), call.arguments.clone())),
            _ => {}
        }
        match &completed.outcome {
            Outcome::Process(end) => body.process = Some(ProcessBody::of(end)),
            Outcome::Response(answer) => body.answer = Some(ResponseBody::of(answer)),
            Outcome::CallFailed(failure) => body.call_failed = Some(CallFailedBody::of(failure)),
            Outcome::Decided(decision) => body.decided = Some(DecidedBody::of(decision)),
            Outcome::Recalled(Some(json)) => body.recalled = Some(ValueBody::of(json)),
            Outcome::Recalled(None) => body.plain = Some("missed".to_owned()),
            Outcome::Opened(tool_list) => body.opened = Some(tools::ToolListBody::of(tool_list)),
            Outcome::Tool(reply) => body.tool = Some(tools::ReplyBody::of(reply)),
            Outcome::Scanned(found) => body.scanned = Some(found.clone()),
            Outcome::Slept => body.plain = Some("slept".to_owned()),
            Outcome::Remembered => body.plain = Some("remembered".to_owned()),
            Outcome::Stopped(stderr) => body.stopped = Some(StderrBody::of(stderr)),
            Outcome::Abandoned => body.plain = Some("abandoned".to_owned()),
        }
        body
    }

    pub(super) fn into_prompt(self) -> Option<String> {
        let asked = self.asked?;
        let system = asked.system.map(|text| ("system".to_owned(), text));
        let all = system.into_iter().chain(asked.messages);
        let before = match asked.earlier {
            0 => String::new(),
            n => format!("--- after {n} messages ---\n"),
        };
        Some(before + &all.map(|(role, text)| format!("--- {role} ---\n{text}\n")).collect::<String>())
    }

    pub(super) fn to_text(&self) -> String {
        // Strings, numbers and raw JSON cannot fail to be printed.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn into_text_without_time(self) -> String {
        Self { at: None, ..self }.to_text()
    }

    pub(super) fn parse(key: &str, text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            v: u64,
        }
        let damaged = |e: serde_json::Error| Error::Damaged { key: key.to_owned(), why: e.to_string() };
        if tree::exceeds(text.as_bytes(), tree::MAX_VALUES) {
            let why = TreeError::TooMany(tree::MAX_VALUES).to_string();
            return Err(Error::Damaged { key: key.to_owned(), why });
        }
        let body = serde_json::from_str::<Self>(text);
        if body.as_ref().is_ok_and(|body| body.v <= VERSION) {
            return body.map_err(damaged);
        }
        // A newer body may have any other form.
        let Version { v } = serde_json::from_str(text).map_err(damaged)?;
        if v > u64::from(VERSION) {
            return Err(Error::TooNew { key: key.to_owned(), found: v });
        }
        body.map_err(damaged)
    }

    pub(super) fn into_completed(self, key: &str, blobs: &dyn BlobStore) -> Result<Completed, Error> {
        let damaged = || Error::Damaged { key: key.to_owned(), why: "it has no known outcome".to_owned() };
        let elapsed_ms = self.ms;
        let outcome = if let Some(process) = self.process {
            Outcome::Process(process.into_end(key, blobs)?)
        } else if let Some(answer) = self.answer {
            Outcome::Response(Box::new(answer.into_response().ok_or_else(damaged)?))
        } else if let Some(failure) = self.call_failed {
            Outcome::CallFailed(failure.into_failure().ok_or_else(damaged)?)
        } else if let Some(decided) = self.decided {
            Outcome::Decided(decided.into_decision())
        } else if let Some(recalled) = self.recalled {
            Outcome::Recalled(Some(recalled.into_json(key, blobs)?))
        } else if let Some(opened) = self.opened {
            Outcome::Opened(Box::new(opened.into_tool_list()))
        } else if let Some(tool) = self.tool {
            Outcome::Tool(Box::new(tool.into_reply().ok_or_else(damaged)?))
        } else if let Some(found) = self.scanned {
            Outcome::Scanned(found)
        } else if let Some(stderr) = self.stopped {
            Outcome::Stopped(stderr.into_stderr(key)?)
        } else {
            match self.plain.as_deref() {
                Some("missed") => Outcome::Recalled(None),
                Some("slept") => Outcome::Slept,
                Some("remembered") => Outcome::Remembered,
                Some("abandoned") => Outcome::Abandoned,
                _ => return Err(damaged()),
            }
        };
        Ok(Completed { outcome, elapsed_ms })
    }
}

impl ProcessBody {
    fn of(end: &ProcessEnd) -> Self {
        let (mut status, mut signal, mut not_started) = (None, None, None);
        match &end.exit {
            Exit::Status(code) => status = Some(*code),
            Exit::Signal { number, name } => signal = Some((*number, name.clone())),
            Exit::NotStarted(why) => not_started = Some(why.clone()),
        }
        let (output, unusable) = match &end.stdout {
            Stdout::Value(json) => (Some(ValueBody::of(json)), None),
            Stdout::Unusable { problem, found } => (None, Some((problem.clone(), found.clone()))),
        };
        let stderr = StderrBody::of(&end.stderr);
        let worker = end.conditions.worker.as_ref().map(|warmth| match warmth {
            Warmth::Warm => WorkerBody::Warm,
            Warmth::Cold(why) => WorkerBody::Cold(why.clone()),
        });
        let sandbox = end.conditions.sandbox.clone();
        Self { status, signal, not_started, output, unusable, stderr, worker, sandbox }
    }

    fn into_end(self, key: &str, blobs: &dyn BlobStore) -> Result<ProcessEnd, Error> {
        let damaged = |why: &str| Error::Damaged { key: key.to_owned(), why: why.to_owned() };
        let exit = match (self.status, self.signal, self.not_started) {
            (Some(status), None, None) => Exit::Status(status),
            (None, Some((number, name)), None) => Exit::Signal { number, name },
            (None, None, Some(why)) => Exit::NotStarted(why),
            _ => return Err(damaged("it does not say how the process ended")),
        };
        let stdout = match (self.output, self.unusable) {
            (Some(value), None) => Stdout::Value(value.into_json(key, blobs)?),
            (None, Some((problem, found))) => Stdout::Unusable { problem, found },
            _ => return Err(damaged("it does not say what was on stdout")),
        };
        let worker = self.worker.map(|warmth| match warmth {
            WorkerBody::Warm => Warmth::Warm,
            WorkerBody::Cold(why) => Warmth::Cold(why),
        });
        let conditions = Conditions { worker, sandbox: self.sandbox };
        Ok(ProcessEnd { exit, stdout, stderr: self.stderr.into_stderr(key)?, conditions })
    }
}

impl StderrBody {
    fn of(stderr: &Stderr) -> Self {
        let blob = stderr.blob.map(|digest| digest.to_string());
        Self { tail: stderr.tail.clone(), lines: stderr.lines, bytes: stderr.bytes, blob }
    }

    fn into_stderr(self, key: &str) -> Result<Stderr, Error> {
        let damaged = || Error::Damaged { key: key.to_owned(), why: "a blob's hash is malformed".to_owned() };
        let blob = self.blob.map(|hex| Digest::from_hex(&hex).ok_or_else(damaged)).transpose()?;
        Ok(Stderr { tail: self.tail, lines: self.lines, bytes: self.bytes, blob })
    }
}

impl ValueBody {
    fn of(json: &Json) -> Self {
        match (json.as_stored(), json.inline()) {
            (Some(stored), _) => Self {
                json: None,
                at: Some(Place {
                    blob: stored.blob.to_string(),
                    offset: stored.offset,
                    len: stored.len,
                    digest: stored.digest.to_string(),
                }),
            },
            (None, text) => {
                let text = text.unwrap_or("null").to_owned();
                Self { json: RawValue::from_string(text).ok(), at: None }
            }
        }
    }

    fn into_json(self, key: &str, blobs: &dyn BlobStore) -> Result<Json, Error> {
        match (self.json, self.at) {
            (Some(raw), None) => Ok(Json::trusted(raw.get())),
            // A member `json` of `null` is read as no member at all.
            (None, None) => Ok(Json::null()),
            (None, Some(place)) => reopen(key, blobs, &place),
            (Some(_), Some(_)) => Err(Error::Damaged { key: key.to_owned(), why: "a value occurs twice".to_owned() }),
        }
    }
}

impl ResponseBody {
    fn of(response: &ModelResponse) -> Self {
        let (stop, refusal) = match &response.stop {
            Stop::End => ("end", None),
            Stop::ToolCalls => ("tool_calls", None),
            Stop::Length => ("length", None),
            Stop::Refusal(reason) => ("refusal", Some(reason.clone())),
        };
        let calls = response.tool_calls.iter().map(|c| (c.id.clone(), c.name.clone(), c.arguments.clone()));
        Self {
            text: response.text.clone(),
            tool_calls: calls.collect(),
            stop: stop.to_owned(),
            refusal,
            usage: UsageBody {
                calls: response.usage.calls,
                input: response.usage.input_tokens,
                output: response.usage.output_tokens,
                cached: response.usage.cached_tokens,
                reasoning: response.usage.reasoning_tokens,
                cost_usd: response.usage.cost_usd,
            },
            model: response.model.clone(),
            reasoning: response.reasoning.as_ref().and_then(|reasoning| {
                let thought = RawValue::from_string(reasoning.json.to_string()).ok()?;
                Some(ReasoningBody { model: reasoning.model.clone(), thought })
            }),
            transport_failures: response.transport_failures.clone(),
        }
    }

    fn into_response(self) -> Option<ModelResponse> {
        let stop = match self.stop.as_str() {
            "end" => Stop::End,
            "tool_calls" => Stop::ToolCalls,
            "length" => Stop::Length,
            "refusal" => Stop::Refusal(self.refusal.unwrap_or_default()),
            _ => return None,
        };
        let calls = self.tool_calls.into_iter().map(|(id, name, arguments)| ToolCall { id, name, arguments });
        Some(ModelResponse {
            text: self.text,
            tool_calls: calls.collect(),
            stop,
            usage: Usage {
                calls: self.usage.calls,
                input_tokens: self.usage.input,
                output_tokens: self.usage.output,
                cached_tokens: self.usage.cached,
                reasoning_tokens: self.usage.reasoning,
                cost_usd: self.usage.cost_usd,
            },
            model: self.model,
            reasoning: self.reasoning.map(|body| Reasoning { model: body.model, json: Arc::from(body.thought.get()) }),
            transport_failures: self.transport_failures,
        })
    }
}

impl AskedBody {
    fn of(request: &Request) -> Self {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Image { path } => format!("[image {path}]"),
            Part::ToolCall { id, name, arguments } => format!("[call {id}: {name}({arguments})]"),
            Part::ToolResult { id, content } => format!("[result of {id}: {content}]"),
            // Reasoning is in the record of the response that it came with.
            Part::Reasoning(_) => String::new(),
        };
        let role = |role: Role| match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        // A turn of an agent is kept without the messages of earlier turns, which are in their records.
        let is_turn = !request.tools.is_empty();
        let earlier = request.messages.iter().rposition(|message| message.role == Role::Assistant);
        let earlier = earlier.filter(|_| is_turn).map_or(0, |at| at + 1);
        let system = request.system.clone().filter(|_| earlier == 0);
        let messages = request.messages[earlier..].iter().map(|message| {
            let parts: Vec<String> = message.parts.iter().map(text).collect();
            (role(message.role).to_owned(), parts.join("\n"))
        });
        Self { tier: request.tier.word().to_owned(), system, earlier, messages: messages.collect() }
    }
}

impl CallFailedBody {
    fn of(failure: &CallFailure) -> Self {
        let kind = match failure.kind {
            CallFailureKind::Environment => "environment",
            CallFailureKind::Model => "model",
            CallFailureKind::NotRecorded => "not_recorded",
        };
        Self {
            kind: kind.to_owned(),
            message: failure.message.clone(),
            model: failure.model.clone(),
            transport_failures: failure.transport_failures.clone(),
        }
    }

    fn into_failure(self) -> Option<CallFailure> {
        let kind = match self.kind.as_str() {
            "environment" => CallFailureKind::Environment,
            "model" => CallFailureKind::Model,
            "not_recorded" => CallFailureKind::NotRecorded,
            _ => return None,
        };
        Some(CallFailure {
            kind,
            message: self.message,
            model: self.model,
            transport_failures: self.transport_failures,
        })
    }
}

impl DecidedBody {
    fn of(decision: &Decision) -> Self {
        let answer = decision.answer.text().map(|t| t.to_string()).unwrap_or_else(|_| "null".to_owned());
        Self {
            approved: decision.approved,
            answer: RawValue::from_string(answer).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            by: decision.by.clone(),
            at: decision.at.clone(),
            reason: decision.reason.clone(),
        }
    }

    fn into_decision(self) -> Decision {
        Decision {
            approved: self.approved,
            answer: Json::trusted(self.answer.get()),
            by: self.by,
            at: self.at,
            reason: self.reason,
        }
    }
}
