//! Calls of the agents of a run, with every place in which each argument was seen (L-1 to L-3). Pipelines are learned from
//! them.
//!
//! Nothing is stored twice: the journal has every response and every result, and the trace is derived from them.

mod class;
mod places;

use std::collections::{BTreeMap, BTreeSet};

use etude_core::outcome::{Outcome, Stdout};
use etude_core::tool::{ToolReply, ToolResult};
use etude_core::tree;
use etude_process::blob::BlobStore;
use etude_runtime::engine::RunView;
use etude_runtime::record;
use etude_spec::lower::REQUEST;
use serde_json::{Map, Value, json};

pub use self::class::effect_class;
use self::places::Places;
pub use self::places::ValuePlace;
use etude_runs::header::Header;

/// Error code of a call that was denied.
const DENIED: &str = "ApprovalDenied";

/// Error code of a call that was refused before it was made: its tool or its arguments were invalid, it was one too many, or
/// the pipeline had made it.
const NOT_MADE: &str = "NotMade";

/// A tool call of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct TracedCall {
    /// Name of the effect: `…/turn3/Read[0]`.
    pub effect: String,
    /// The name of the tool.
    pub tool: String,
    /// Arguments as JSON; a string if they were not JSON.
    pub arguments: Value,
    /// State of its approval.
    pub approval: Approval,
    /// Result, or the error if it was denied; `None` if it never ended.
    pub result: Option<ToolResult>,
    /// Time from call to result, in milliseconds; `None` if it never ended.
    pub duration_ms: Option<u64>,
    /// Earlier places of each text and number of the arguments, by JSON pointer into the arguments.
    pub origins: Vec<(String, Vec<ValuePlace>)>,
}

etude_core::words! {
    /// Approval of a call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Approval {
        /// It needed no approval.
        None = "none",
        /// It waits for a decision.
        Asked = "asked",
        /// A person approved it.
        Granted = "granted",
        /// A person or the policy denied it.
        Denied = "denied",
    }
}

/// Event of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The agent wrote a text beside its calls.
    Said(String),
    /// A tool was called.
    Call(Box<TracedCall>),
    /// A part of the journal that cannot be read, by its key. The run may have made calls that are not among the events.
    Unreadable(String),
}

/// Key of a run's header as an unreadable part.
const HEADER: &str = "!header";

/// Request of a run in words, and its input values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Asked {
    /// The request as typed.
    pub request: String,
    /// The values of `-i` and `--input`.
    pub input: Map<String, Value>,
}

/// Request and input of a run; its whole input if nothing else is known.
pub fn asked(view: &RunView, blobs: &dyn BlobStore) -> Asked {
    let Ok(header) = Header::parse(&view.run.header, blobs) else { return Asked::default() };
    if let Some(asked) = &header.request.asked {
        let input = asked["input"].as_object().cloned().unwrap_or_default();
        return Asked { request: asked["request"].as_str().unwrap_or_default().to_owned(), input };
    }
    let Ok(Value::Object(mut input)) = header.request.input.value() else { return Asked::default() };
    let request = header.request.routing.as_ref().and_then(|trail| trail["request"].as_str()).map(str::to_owned);
    let request = request.or_else(|| Some(input.remove(REQUEST)?.as_str()?.to_owned()));
    Asked { request: request.unwrap_or_default(), input }
}

/// Tool calls of a run, in the order in which models and steps made them.
pub fn of(view: &RunView, blobs: &dyn BlobStore) -> Vec<TracedCall> {
    let calls = events(view, blobs).into_iter().filter_map(|event| match event {
        Event::Call(call) => Some(*call),
        Event::Said(_) | Event::Unreadable(_) => None,
    });
    calls.collect()
}

/// Events of a run, in the order in which models and steps caused them.
pub fn events(view: &RunView, blobs: &dyn BlobStore) -> Vec<Event> {
    let mut reader = Reader {
        events: Vec::new(),
        by_effect: BTreeMap::new(),
        keys: view.records.iter().map(|record| record.key.clone()).collect(),
        held: BTreeMap::new(),
        places: Places::default(),
    };
    if Header::parse(&view.run.header, blobs).is_err() {
        reader.events.push(Event::Unreadable(HEADER.to_owned()));
    }
    let Asked { request, input } = asked(view, blobs);
    reader.places.add("input", "/request", &request.into());
    reader.places.add("input", "", &Value::Object(input));
    for record in view.records.iter().filter(|record| !record.key.starts_with('!')) {
        match record::to_outcome(record, blobs) {
            Ok(completed) => reader.read(record, completed),
            Err(_) => reader.events.push(Event::Unreadable(record.key.clone())),
        }
    }
    reader.events
}

struct Reader {
    events: Vec<Event>,
    /// Indices of the calls in `events`, by effect.
    by_effect: BTreeMap<String, usize>,
    /// Names of all effects of the run.
    keys: BTreeSet<String>,
    /// Keys of the questions about calls that wait for an approval, by effect.
    held: BTreeMap<String, String>,
    places: Places,
}

impl Reader {
    fn read(&mut self, record: &etude_runtime::engine::Record, completed: etude_core::outcome::Completed) {
        let duration_ms = Some(completed.elapsed_ms);
        match completed.outcome {
            Outcome::Response(answer) => {
                self.refuse_before(&record.key);
                let made: Vec<TracedCall> = answer
                    .tool_calls
                    .iter()
                    .enumerate()
                    .map(|(n, call)| {
                        self.begun(format!("{}/{}[{n}]", record.key, call.name), &call.name, &call.arguments)
                    })
                    .collect();
                // The last text is the answer, and not a message.
                if !made.is_empty() && !answer.text.trim().is_empty() {
                    let from = format!("event/{}", self.events.len());
                    self.places.add(&from, "", &answer.text.as_str().into());
                    self.events.push(Event::Said(answer.text));
                }
                made.into_iter().for_each(|call| self.push(call));
            }
            Outcome::Decided(decision) => {
                let effect = record.key.strip_suffix("!ask").unwrap_or(&record.key);
                let key = self.held.remove(effect);
                if let Some(call) = self.call(effect) {
                    call.approval = if decision.approved { Approval::Granted } else { Approval::Denied };
                    if !decision.approved {
                        let (key, reason) = (key.as_deref(), decision.reason.as_deref());
                        // The result that the agent received.
                        call.result = Some(ToolResult::denied_by_user(&call.tool, key, reason));
                    }
                }
            }
            Outcome::Tool(reply) => self.ended(record, *reply, duration_ms),
            Outcome::Process(end) => {
                if let Stdout::Value(output) = end.stdout
                    && let Ok(text) = output.text()
                {
                    self.places.add(&record.key, "", &tree::composed(&text));
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, record: &etude_runtime::engine::Record, reply: ToolReply, duration_ms: Option<u64>) {
        // An approved call is made again, under its second name.
        let key = record.key.strip_suffix("#2").unwrap_or(&record.key);
        // Calls of steps come without a model.
        if let Some((tool, arguments)) = record::to_call(record)
            && !self.by_effect.contains_key(key)
        {
            let call = self.begun(key.to_owned(), &tool, &arguments);
            self.push(call);
        }
        match reply {
            ToolReply::Held { key: asked, .. } => {
                self.held.insert(key.to_owned(), asked);
                if let Some(call) = self.call(key) {
                    call.approval = Approval::Asked;
                }
            }
            ToolReply::Done(result) => {
                if result.error.is_none() {
                    self.places.add(key, "", &tree::composed(&result.content));
                }
                if let Some(call) = self.call(key) {
                    if result.error.as_ref().is_some_and(|error| error.code == DENIED) {
                        call.approval = Approval::Denied;
                    }
                    call.duration_ms = duration_ms;
                    call.result = Some(result);
                }
            }
        }
    }

    /// Refuses the earlier calls of a conversation that continues with a response: a call without any outcome was refused
    /// before it was made.
    fn refuse_before(&mut self, answer: &str) {
        let Some((conversation, _)) = answer.rsplit_once("/turn") else { return };
        let turns = format!("{conversation}/turn");
        for event in &mut self.events {
            let Event::Call(call) = event else { continue };
            let is_own = call.effect.strip_prefix(&turns).is_some_and(|rest| rest.matches('/').count() == 1);
            // A called pipeline has no outcome of its own, but its steps have.
            let within = format!("{}/", call.effect);
            let has_begun = || self.keys.range(within.clone()..).next().is_some_and(|key| key.starts_with(&within));
            if is_own && call.result.is_none() && !has_begun() {
                call.result = Some(ToolResult::terminal(NOT_MADE, "the call was refused before it was made"));
            }
        }
    }

    fn call(&mut self, effect: &str) -> Option<&mut TracedCall> {
        match self.events.get_mut(*self.by_effect.get(effect)?)? {
            Event::Call(call) => Some(call),
            Event::Said(_) | Event::Unreadable(_) => None,
        }
    }

    fn push(&mut self, call: TracedCall) {
        self.by_effect.insert(call.effect.clone(), self.events.len());
        self.events.push(Event::Call(Box::new(call)));
    }

    fn begun(&self, effect: String, tool: &str, arguments: &str) -> TracedCall {
        let arguments = match arguments.trim() {
            "" => json!({}),
            text => tree::parse_response(text).unwrap_or_else(|_| text.into()),
        };
        let origins = self.places.origins(&arguments);
        let (result, duration_ms) = (None, None);
        TracedCall { effect, tool: tool.to_owned(), arguments, approval: Approval::None, result, duration_ms, origins }
    }
}

impl TracedCall {
    /// JSON object of the call, with its result as text.
    pub fn to_json(&self) -> Value {
        let mut document = self.document();
        document["result"] = self.result.as_ref().map(|result| result.content.as_str()).into();
        document
    }

    /// Event of a trace (1.3) for the call, with its result as a value.
    pub fn to_trace(&self, effect_class: &str) -> Value {
        let mut document = self.document();
        document["effect_class"] = effect_class.into();
        document["approval"] = self.approval.word().into();
        document["duration_ms"] = self.duration_ms.into();
        let result = self.result.as_ref().filter(|result| result.error.is_none());
        document["result"] = result.map_or(Value::Null, |result| tree::composed(&result.content));
        document
    }

    fn document(&self) -> Value {
        let places =
            |places: &[ValuePlace]| places.iter().map(|place| json!({"from": place.from, "at": place.at})).collect();
        let origins: Map<String, Value> =
            self.origins.iter().map(|(path, seen)| (path.clone(), Value::Array(places(seen)))).collect();
        let error = self.result.as_ref().and_then(|result| result.error.as_ref());
        json!({
            "effect": self.effect, "tool": self.tool, "arguments": self.arguments, "origins": origins, "result": null,
            "error": error.map(|e| json!({"class": e.class.word(), "code": e.code, "message": e.message})),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-2, L-3: a call without an outcome in a conversation that continued was refused; a called pipeline has its steps, and
    /// the last calls may still be running.
    #[test]
    fn a_call_that_was_refused_is_an_error() {
        let keys = ["s/a/turn1", "s/a/turn1/Look[1]/get", "s/a/turn2"].map(str::to_owned);
        let (events, by_effect, held) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut reader = Reader { events, by_effect, keys: keys.into(), held, places: Places::default() };
        for effect in ["s/a/turn1/pay[0]", "s/a/turn1/Look[1]", "s/b/turn1/pay[0]", "s/a/turn1/get[2]"] {
            let call = reader.begun(effect.to_owned(), "pay", "{}");
            reader.push(call);
        }
        reader.call("s/a/turn1/get[2]").expect("a call").result = Some(ToolResult::ok("x"));
        reader.refuse_before("s/a/turn2");
        let code = |effect: &str, reader: &mut Reader| {
            let result = reader.call(effect).expect("a call").result.clone()?;
            result.error.map(|error| error.code)
        };
        assert_eq!(code("s/a/turn1/pay[0]", &mut reader).as_deref(), Some(NOT_MADE));
        for other in ["s/a/turn1/Look[1]", "s/b/turn1/pay[0]", "s/a/turn1/get[2]"] {
            assert_eq!(code(other, &mut reader), None, "{other}");
        }
    }
}
