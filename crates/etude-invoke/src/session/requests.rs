//! Requests of running functions.

use std::cmp::Ordering;

use crate::chain::{CallId, ContextId, Options, Outcome, Request, Throw, ThrowKind};
use etude_core::condition::compare_numbers;
use etude_spec::cascade::path;
use serde_json::{Number, Value, json};
use tokio::sync::oneshot;

use super::State;
use crate::call::HostCall;
use crate::middleware::GATEWAY;
use crate::script_host::Ask;

/// Valid levels of a log line.
const LEVELS: &[&str] = &["trace", "debug", "info", "warn", "error"];

impl State {
    /// Handles a request of a running function; the outcome arrives on the channel.
    pub(super) fn asked(&mut self, call: CallId, ask: Ask, as_caller: Option<ContextId>) -> oneshot::Receiver<Outcome> {
        let (reply, answer) = oneshot::channel();
        self.take_request(call, ask, as_caller, reply);
        answer
    }

    fn take_request(&mut self, call: CallId, ask: Ask, as_caller: Option<ContextId>, reply: oneshot::Sender<Outcome>) {
        let outcome = match ask {
            Ask::Next => return self.request(call, Request::Next, reply),
            Ask::Invoke { name, args } => {
                let options = Box::new(Options { caller: as_caller, ..Options::default() });
                return self.request(call, Request::Invoke { reference: name, args, options }, reply);
            }
            Ask::Question(question) => {
                let question = if question.is_object() { question } else { json!({ "question": question }) };
                let options = Box::new(Options { is_exempt: true, ..Options::default() });
                let reference = GATEWAY.to_owned();
                return self.request(call, Request::Invoke { reference, args: question, options }, reply);
            }
            Ask::Get(wanted) => self.get(call, &wanted),
            Ask::Set(wanted, value) => self.set(call, &wanted, value),
            Ask::Add { path, by, max } => self.add(call, &path, &by, max.as_ref()),
            Ask::Emit(topic, data) => {
                self.emit(call, &topic, None, data);
                Ok(None)
            }
            Ask::Log { level, text } => {
                let level = if LEVELS.contains(&level.as_str()) { level.as_str() } else { "info" };
                let name = self.machine.contexts_of(call).map(|(own, _)| own.tool.name.to_string());
                self.watch.log(name.as_deref().unwrap_or_default(), level, &text);
                Ok(None)
            }
        };
        // A script that closed its socket needs no reply.
        let _ = reply.send(outcome);
    }

    fn request(&mut self, call: CallId, request: Request, reply: oneshot::Sender<Outcome>) {
        match self.machine.request(call, request) {
            Some(token) => drop(self.replies.insert(token, reply)),
            None => drop(reply.send(Err(over()))),
        }
    }

    pub(super) fn get(&self, call: CallId, wanted: &str) -> Outcome {
        let (_, target) = self.machine.contexts_of(call).ok_or_else(over)?;
        let mut document = target.json(&self.machine.globals);
        // A path leads into a tree, so numbers that it would round are texts, as in questions.
        if let Some(digits) = HostCall::of(target).and_then(|call| call.checks.digits_of(&target.args)) {
            document["args"] = digits.shown.clone();
            for frame in target.frames_of(&target.args) {
                document["locals"]["history"][frame]["args"] = digits.shown.clone();
            }
        }
        Ok(path::get(&document, wanted).cloned())
    }

    /// Sets a value below `locals`, `nonlocals` and `run.tool` of the target's context, or below `globals`. Other paths are
    /// refused.
    fn set(&mut self, call: CallId, wanted: &str, value: Value) -> Outcome {
        let globals = &mut self.machine.globals;
        if wanted.starts_with("globals.") {
            let mut whole = json!({ "globals": std::mem::take(globals) });
            path::set(&mut whole, wanted, value);
            *globals = whole["globals"].take();
            return Ok(None);
        }
        let may = ["locals.", "nonlocals.", "run.tool."].iter().any(|start| wanted.starts_with(start));
        if !may || wanted.starts_with("locals.history") {
            let why = format!(
                "`{wanted}` cannot be set; only values under `locals`, `nonlocals`, `run.tool` and `globals` can"
            );
            return Err(Throw::new(ThrowKind::Failed, "host", why));
        }
        let (_, target) = self.machine.contexts_of(call).ok_or_else(over)?;
        let mut document = target.json(&self.machine.globals);
        path::set(&mut document, wanted, value);
        if let Some(target) = self.machine.target_mut(call) {
            target.take_over(&document);
        }
        Ok(None)
    }
}

impl State {
    /// Adds to a number. A session handles the requests of all programs one after the other, so the addition is atomic.
    fn add(&mut self, call: CallId, wanted: &str, by: &Number, max: Option<&Number>) -> Outcome {
        let known = match self.get(call, wanted)? {
            None | Some(Value::Null) => Number::from(0),
            Some(Value::Number(known)) => known,
            Some(_) => return Err(Throw::new(ThrowKind::Failed, "host", format!("`{wanted}` is not a number"))),
        };
        let sum = sum(&known, by);
        let sum =
            sum.ok_or_else(|| Throw::new(ThrowKind::Failed, "host", format!("`{wanted}` would become too large")))?;
        if let Some(max) = max.filter(|max| compare_numbers(&sum, max) == Some(Ordering::Greater)) {
            let why = format!("`{wanted}` is {known}: {by} more would exceed {max}");
            return Err(Throw::new(ThrowKind::NotAllowed, "host", why));
        }
        self.set(call, wanted, Value::Number(sum.clone()))?;
        Ok(Some(Value::Number(sum)))
    }
}

/// The sum of two numbers: a whole number for whole numbers. `None` if it is out of range.
fn sum(a: &Number, b: &Number) -> Option<Number> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.checked_add(b).map(Number::from),
        _ => Number::from_f64(a.as_f64()? + b.as_f64()?),
    }
}

fn over() -> Throw {
    Throw::new(ThrowKind::Failed, "host", "the call has ended")
}
