//! A trace: the tool calls of one run with their results (1.3), read from its document.

use std::fmt;

use etude_core::tree;
use etude_core::verbatim::request_digest;
use serde_json::{Map, Value, json};

/// Record of a run in skill mode: its request, messages and calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The run's id.
    pub run: String,
    /// The request as typed.
    pub request: String,
    /// Values that were given besides the request.
    pub input: Map<String, Value>,
    /// Status at the end of the run: `succeeded`, or any other word.
    pub status: String,
    /// The user's verdict: `good`, `bad` or `unknown`.
    pub judged: String,
    /// Messages and calls in order.
    pub events: Vec<Event>,
    /// The last text of the agent.
    pub answer: Option<String>,
    /// Start and end of the run, in milliseconds; `None` for a trace from a file.
    pub span_ms: Option<(u64, u64)>,
}

/// A message or a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A message of the user after the request.
    User(String),
    /// A text of the agent beside its calls.
    Agent(String),
    /// A tool was called.
    Call(Box<TraceCall>),
    /// Neither `said` nor `tool`: the trace is not usable.
    Unknown,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments as JSON: an object, unless the model wrote something else.
    pub arguments: Value,
    /// True if a person or a policy denied the call.
    pub is_denied: bool,
    /// Result of the call; `null` if it returned nothing.
    pub result: Value,
    /// Reason of a failure: a text, or an object with `message`.
    pub error: Option<Value>,
}

impl TraceCall {
    /// True if the call was made and did not fail.
    pub fn is_good(&self) -> bool {
        !self.is_denied && self.error.is_none()
    }
}

/// Reason why a document cannot be read as a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// Not a JSON object.
    NotAnObject,
    /// `trace` is not 1.
    Version,
    /// A member is missing, or has another type.
    Member {
        /// The name of the member.
        name: &'static str,
        /// The type that it must have, such as `a text`.
        wanted: &'static str,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("a trace is one JSON object on one line"),
            Self::Version => f.write_str("`trace` must be 1, the only version of the format"),
            Self::Member { name, wanted } => write!(f, "`{name}` must be {wanted}"),
        }
    }
}

impl std::error::Error for Malformed {}

impl Trace {
    /// A trace from its document (1.3). `origins` in it are not read.
    ///
    /// # Errors
    /// A required member is missing or has another type.
    pub fn from_json(document: &Value) -> Result<Self, Malformed> {
        let members = document.as_object().ok_or(Malformed::NotAnObject)?;
        if members.get("trace").and_then(Value::as_u64) != Some(1) {
            return Err(Malformed::Version);
        }
        let text = |name: &'static str| -> Result<String, Malformed> {
            let found = members.get(name).and_then(Value::as_str);
            found.map(str::to_owned).ok_or(Malformed::Member { name, wanted: "a text" })
        };
        let word = |name: &str, default: &str| members.get(name).and_then(Value::as_str).unwrap_or(default).to_owned();
        let input = match members.get("input") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(input)) => input.clone(),
            Some(_) => return Err(Malformed::Member { name: "input", wanted: "an object" }),
        };
        let events = members.get("events").and_then(Value::as_array);
        let events = events.ok_or(Malformed::Member { name: "events", wanted: "a list" })?;
        Ok(Self {
            run: text("run")?,
            request: text("request")?,
            input,
            status: word("status", "succeeded"),
            judged: judged(members)?,
            events: events.iter().map(event).collect::<Result<_, _>>()?,
            answer: members.get("answer").and_then(Value::as_str).map(str::to_owned),
            span_ms: None,
        })
    }

    /// A trace from an ATIF trajectory.
    ///
    /// # Errors
    /// The trajectory has no steps, or no step of a user.
    pub fn from_atif(document: &Value) -> Result<Self, Malformed> {
        let steps = document["steps"].as_array().ok_or(Malformed::Member { name: "steps", wanted: "a list" })?;
        let run = document["session_id"].as_str().or_else(|| document["trajectory_id"].as_str()).unwrap_or_default();
        let mut reader = Atif::default();
        steps.iter().for_each(|step| reader.step(step));
        let request =
            reader.request.ok_or(Malformed::Member { name: "steps", wanted: "a list with a user's message" })?;
        Ok(Self {
            run: run.to_owned(),
            request,
            input: Map::new(),
            status: "succeeded".to_owned(),
            judged: "unknown".to_owned(),
            events: reader.events,
            answer: reader.answer,
            span_ms: None,
        })
    }

    /// The texts of the user: the request, then later messages.
    pub fn user_texts(&self) -> impl Iterator<Item = &str> {
        let later = self.events.iter().filter_map(|event| match event {
            Event::User(text) => Some(text.as_str()),
            _ => None,
        });
        std::iter::once(self.request.as_str()).chain(later)
    }

    /// The calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &TraceCall> {
        self.events.iter().filter_map(|event| match event {
            Event::Call(call) => Some(&**call),
            _ => None,
        })
    }

    /// Digest that names the request: 16 hexadecimal digits (1.4). Two requests with the same digest are the same request.
    pub fn digest(&self) -> String {
        request_digest(self.user_texts())
    }

    /// Sort key of traces that depends on nothing but their content.
    pub(crate) fn order(&self) -> (String, String, String) {
        let calls: Vec<Value> = self.calls().map(|call| json!([call.tool, call.arguments, call.result])).collect();
        (self.digest(), Value::from(calls).to_string(), self.run.clone())
    }
}

fn judged(members: &Map<String, Value>) -> Result<String, Malformed> {
    match members.get("judged") {
        None | Some(Value::Null) => Ok("unknown".to_owned()),
        Some(Value::String(word)) if ["good", "bad", "unknown"].contains(&word.as_str()) => Ok(word.clone()),
        Some(_) => Err(Malformed::Member { name: "judged", wanted: "`good`, `bad` or `unknown`" }),
    }
}

fn event(document: &Value) -> Result<Event, Malformed> {
    let text = || {
        let text = document["text"].as_str().map(str::to_owned);
        text.ok_or(Malformed::Member { name: "text", wanted: "a text" })
    };
    match (document.get("said").and_then(Value::as_str), document.get("tool").and_then(Value::as_str)) {
        (Some("user"), _) => Ok(Event::User(text()?)),
        (Some("agent"), _) => Ok(Event::Agent(text()?)),
        (None, Some(tool)) => {
            let arguments = document.get("arguments");
            let arguments =
                arguments.ok_or(Malformed::Member { name: "arguments", wanted: "present for every call" })?;
            // An export has arguments that were not JSON as a text.
            if !(arguments.is_object() || arguments.is_string()) {
                return Err(Malformed::Member { name: "arguments", wanted: "an object" });
            }
            let error = document.get("error").filter(|error| !error.is_null()).cloned();
            let is_denied = document["approval"] == "denied";
            let result = document.get("result").cloned().unwrap_or_default();
            Ok(Event::Call(Box::new(TraceCall {
                tool: tool.to_owned(),
                arguments: arguments.clone(),
                is_denied,
                result,
                error,
            })))
        }
        _ => Ok(Event::Unknown),
    }
}

/// Parts of an ATIF trajectory that were read so far.
#[derive(Debug, Default)]
struct Atif {
    request: Option<String>,
    events: Vec<Event>,
    answer: Option<String>,
}

impl Atif {
    fn step(&mut self, step: &Value) {
        let message = plain_message(&step["message"]);
        match step["source"].as_str() {
            Some("user") if self.request.is_none() => self.request = Some(message),
            Some("user") => self.events.push(Event::User(message)),
            Some("agent") => self.agent(step, message),
            Some("system") => {}
            _ => self.events.push(Event::Unknown),
        }
    }

    fn agent(&mut self, step: &Value, message: String) {
        let calls = step["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if calls.is_empty() {
            self.answer = Some(message);
            return;
        }
        if !message.trim().is_empty() {
            self.events.push(Event::Agent(message));
        }
        let results = step["observation"]["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        for call in calls {
            let Some(tool) = call["function_name"].as_str() else {
                self.events.push(Event::Unknown);
                continue;
            };
            let id = &call["tool_call_id"];
            let found = results.iter().find(|result| !id.is_null() && result["source_call_id"] == *id);
            let found = found.or_else(|| results.first().filter(|_| results.len() == 1 && calls.len() == 1));
            let result = found.map(|found| match &found["content"] {
                Value::String(text) => tree::composed(text),
                other => other.clone(),
            });
            let (arguments, result) = (call["arguments"].clone(), result.unwrap_or_default());
            let call = TraceCall { tool: tool.to_owned(), arguments, is_denied: false, result, error: None };
            self.events.push(Event::Call(Box::new(call)));
        }
    }
}

fn plain_message(message: &Value) -> String {
    match message {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}
