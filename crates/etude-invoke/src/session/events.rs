//! Topics of events, with their handlers, queues and past events (D-15).
//!
//! Handlers are kept in `globals.internals.events`, where the middleware `event` puts them, too. Queues and past events belong
//! to the session; only the tools `event-*` read them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::chain::{CallId, Options, Outcome, Throw, ThrowKind};
use etude_spec::cascade::strategy::Unacknowledged;
use serde_json::{Value, json};

use super::State;
use crate::handlers::{add_handler, handlers_of};
use etude_runtime::run_id;

/// Number of past events per topic that are kept for replay.
const KEPT: usize = 100;

/// Maximum length of a queue; then the oldest event is dropped.
const MAX_LENGTH: usize = 10_000;

/// The queue of calls that name none.
const DEFAULT_QUEUE: &str = "default";

/// The queues and past events of a session.
#[derive(Debug, Default)]
pub(super) struct Events {
    past: BTreeMap<String, VecDeque<Value>>,
    queues: BTreeMap<(String, String), VecDeque<Value>>,
    /// Delivered but unacknowledged events with their queues, by event id.
    pending: BTreeMap<String, ((String, String), Value)>,
    waiting: Vec<Waiting>,
}

/// A call that waits at a queue.
#[derive(Debug)]
struct Waiting {
    call: CallId,
    queue: (String, String),
    acknowledges: bool,
}

/// Names of the tools in this module.
const TOOLS: &[&str] = &["event-emit", "event-subscribe", "event-unsubscribe", "event-wait", "event-ack"];

pub(super) fn is_tool(name: &str) -> bool {
    TOOLS.contains(&name)
}

impl Events {
    /// Keeps an event for replay, and puts it into every queue of its topic.
    fn add(&mut self, topic: &str, event: &Value) {
        let past = self.past.entry(topic.to_owned()).or_default();
        past.push_back(event.clone());
        if past.len() > KEPT {
            past.pop_front();
        }
        for (_, queue) in self.queues.iter_mut().filter(|((of, _), _)| of == topic) {
            queue.push_back(event.clone());
            if queue.len() > MAX_LENGTH {
                queue.pop_front();
            }
        }
    }

    /// The waiting calls that get an event now, in the order of their arrival.
    fn served(&mut self, kept: Unacknowledged) -> Vec<(CallId, Value)> {
        let mut served = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        for one in waiting {
            match self.queues.get_mut(&one.queue).and_then(VecDeque::pop_front) {
                Some(event) => {
                    if !one.acknowledges && kept == Unacknowledged::Kept {
                        let id = event["id"].as_str().unwrap_or_default().to_owned();
                        self.pending.insert(id, (one.queue.clone(), event.clone()));
                    }
                    served.push((one.call, event));
                }
                None => self.waiting.push(one),
            }
        }
        served
    }
}

impl State {
    /// Runs a tool of this module.
    pub(super) fn begin_event(&mut self, call: CallId, name: &str, args: &Value) {
        let text = |key: &str| args.get(key).and_then(Value::as_str);
        let topic = text("topic").unwrap_or_default().to_owned();
        let queue = (topic.clone(), text("queue").unwrap_or(DEFAULT_QUEUE).to_owned());
        let outcome: Outcome = match name {
            "event-emit" => {
                let data = args.get("data").cloned().unwrap_or(Value::Null);
                Ok(Some(json!(self.emit(call, &topic, text("type"), data))))
            }
            "event-subscribe" => {
                self.subscribe(&queue, args);
                Ok(None)
            }
            "event-unsubscribe" => {
                self.unsubscribe(&topic, text("ref"));
                Ok(None)
            }
            "event-wait" => {
                let acknowledges = args.get("ack") != Some(&Value::Bool(false));
                self.events.queues.entry(queue.clone()).or_default();
                self.events.waiting.push(Waiting { call, queue, acknowledges });
                // A timeout too large for a duration counts as none.
                let timeout = args.get("timeout").and_then(Value::as_f64);
                let after = timeout.and_then(|ms| Duration::try_from_secs_f64(ms.max(0.0) / 1e3).ok());
                let (given_up, own) = (self.token_of(call), self.own.clone());
                let waits = tokio::spawn(async move {
                    let late = async {
                        match after {
                            Some(after) => tokio::time::sleep(after).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = given_up.cancelled() => {}
                        () = late => {}
                    }
                    own.update(|state| state.waited_long_enough(call));
                });
                self.beside.entry(call).or_default().push(waits);
                return self.serve_events();
            }
            _ => self.acknowledge(text("id").unwrap_or_default(), args.get("nack") == Some(&Value::Bool(true))),
        };
        self.end(call, outcome);
        self.serve_events();
    }

    /// Ends a wait whose timeout has passed.
    pub(super) fn waited_long_enough(&mut self, call: CallId) {
        if let Some(at) = self.events.waiting.iter().position(|waiting| waiting.call == call) {
            self.events.waiting.remove(at);
            self.end(call, Ok(None));
        }
    }

    /// Ends all waits, because the session is stopping.
    pub(super) fn stop_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.events.waiting) {
            self.end(waiting.call, Err(Throw::new(ThrowKind::Failed, "event-wait", "it was stopped")));
        }
    }

    fn serve_events(&mut self) {
        for (call, event) in self.events.served(self.table.shared.strategy.unacknowledged) {
            self.end(call, Ok(Some(event)));
        }
    }

    /// Notifies the observer, queues the event and invokes the topic's handlers. Only the end of the session waits for those
    /// (D-15). Returns the event's id.
    pub(super) fn emit(&mut self, call: CallId, topic: &str, kind: Option<&str>, data: Value) -> String {
        let source = self.machine.contexts_of(call).map(|(own, _)| own.tool.name.to_string());
        let id: String = run_id::new().chars().take(8).collect();
        let event = json!({
            "id": id, "topic": topic, "type": kind.unwrap_or(topic), "source": source, "data": data,
            "timestamp": etude_runtime::clock::now_ms(),
        });
        self.watch.emitted(&event);
        self.events.add(topic, &event);
        self.serve_events();
        let handlers = self.machine.globals["internals"]["events"].get(topic).and_then(Value::as_array).cloned();
        for handler in handlers.unwrap_or_default() {
            self.handle(&handler, &event);
        }
        id
    }

    fn handle(&mut self, handler: &Value, event: &Value) {
        let Some(reference) = handler.get("ref").and_then(Value::as_str) else { return };
        let mut args = handler.get("args").filter(|args| args.is_object()).cloned().unwrap_or_else(|| json!({}));
        args["event"] = event.clone();
        let id = self.machine.invoke(&mut self.table, reference, args, Options::default());
        self.handlers.push(id);
    }

    /// Subscribes a handler or a queue; a repeated subscription has no effect.
    fn subscribe(&mut self, queue: &(String, String), args: &Value) {
        let topic = &queue.0;
        let past: Vec<Value> = match args.get("replay") {
            Some(Value::Bool(true)) => self.events.past.get(topic).into_iter().flatten().cloned().collect(),
            _ => Vec::new(),
        };
        let Some(reference) = args.get("ref").and_then(Value::as_str) else {
            if !self.events.queues.contains_key(queue) {
                self.events.queues.insert(queue.clone(), past.into());
            }
            return;
        };
        let handler = match args.get("args") {
            Some(args) => json!({"ref": reference, "args": args}),
            None => json!({"ref": reference}),
        };
        if add_handler(&mut self.machine.globals, topic, &handler) {
            past.iter().for_each(|event| self.handle(&handler, event));
        }
    }

    fn unsubscribe(&mut self, topic: &str, reference: Option<&str>) {
        let is_its = |handler: &Value| reference.is_none_or(|wanted| handler["ref"].as_str() == Some(wanted));
        if let Some(known) = handlers_of(&mut self.machine.globals, topic) {
            known.retain(|handler| !is_its(handler));
        }
        if reference.is_none() {
            self.events.queues.retain(|(of, _), _| of != topic);
        }
    }

    fn acknowledge(&mut self, id: &str, puts_back: bool) -> Outcome {
        let Some((queue, event)) = self.events.pending.remove(id) else {
            let why = format!("there is no unacknowledged event `{id}`");
            return Err(Throw::new(ThrowKind::Failed, "event-ack", why));
        };
        if puts_back {
            self.events.queues.entry(queue).or_default().push_front(event);
        }
        Ok(None)
    }
}
