//! Whether the model can do what stages need (`b-stages` §12): calls of tools that arrive as such.

use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use super::fault::incapable;
use super::shared::Shared;
use crate::data::Json;
use crate::digest::{Digest, Hasher};
use crate::effect::{Effect, EffectId};
use crate::failure::Failure;
use crate::machine::code::not_an_answer;
use crate::machine::llm::call_failed;
use crate::machine::{Cx, Path};
use crate::model::{Message, Request, Tool};
use crate::outcome::Outcome;
use crate::tool::{Offer, ToolCalling};

/// How old the answer to a probe may be: a week, in milliseconds.
const GOOD_FOR_MS: u64 = 7 * 24 * 3_600_000;

/// The name of the tool that a probe asks for.
const PROBE_TOOL: &str = "report_ready";

/// Finds out whether the model calls tools.
#[derive(Debug)]
pub(super) struct Probe {
    path: Path,
    state: State,
}

#[derive(Debug)]
enum State {
    Known(bool),
    Recalling(EffectId),
    Asking(EffectId),
    Remembering(EffectId),
}

impl Probe {
    /// What is claimed decides, unless it has to be tried (B-CN5). Its effects are named below `path`.
    pub(super) fn new(offer: &Offer, path: Path) -> Self {
        let state = match offer.tool_calling {
            ToolCalling::Hard => State::Known(true),
            ToolCalling::Preferred | ToolCalling::Absent => State::Known(false),
            ToolCalling::Probed => State::Recalling(path.aside("recall")),
        };
        Self { path, state }
    }

    /// Ready when it is known; a failure if the model cannot.
    pub(super) fn poll(
        &mut self,
        cx: &mut Cx,
        shared: &Shared,
        stopped: Option<&Failure>,
    ) -> Poll<Result<(), Failure>> {
        if let Some(missing) = shared.machine.requires.first() {
            let model = &shared.offer.model;
            return Poll::Ready(Err(incapable(&shared.machine.id, model, missing, ToolCalling::Absent.word())));
        }
        loop {
            let id = match &self.state {
                State::Known(true) => return Poll::Ready(stopped.map_or(Ok(()), |why| Err(why.clone()))),
                State::Known(false) => {
                    let (model, claim) = (&shared.offer.model, shared.offer.tool_calling.word());
                    return Poll::Ready(Err(incapable(&shared.machine.id, model, "toolCalling", claim)));
                }
                State::Recalling(id) | State::Asking(id) | State::Remembering(id) => id.clone(),
            };
            let Poll::Ready(done) = cx.perform(&id, || self.effect(shared)) else { return Poll::Pending };
            cx.book(shared.ledger, &id, &done);
            if let Outcome::Answer(answer) = &done.outcome {
                cx.count_attempt(shared.ledger);
                cx.charge(shared.ledger, &answer.usage)?;
            }
            if let Some(why) = stopped {
                return Poll::Ready(Err(why.clone()));
            }
            self.state = match (&self.state, done.outcome) {
                (State::Recalling(_), Outcome::Recalled(Some(known))) => State::Known(known.inline() == Some("true")),
                (State::Recalling(_), Outcome::Recalled(None)) => State::Asking(self.path.attempt(1)),
                (State::Asking(_), Outcome::Answer(answer)) => {
                    let can = matches!(&answer.tool_calls[..], [call]
                        if call.name == PROBE_TOOL && crate::tool::arguments(&call.arguments).is_some());
                    // A failure may have been an accident: only what works is remembered.
                    if can { State::Remembering(self.path.aside("remember")) } else { State::Known(false) }
                }
                (State::Asking(_), Outcome::CallFailed(failure)) => {
                    return Poll::Ready(Err(call_failed("the probe of tool calls", &failure)));
                }
                (State::Remembering(_), Outcome::Remembered) => State::Known(true),
                _ => return Poll::Ready(Err(not_an_answer(&id))),
            };
        }
    }

    fn effect(&self, shared: &Shared) -> Effect {
        match &self.state {
            State::Recalling(_) => Effect::Recall { key: key(shared), ttl_ms: Some(GOOD_FOR_MS) },
            State::Remembering(_) => Effect::Remember { key: key(shared), output: Json::trusted("true") },
            State::Asking(_) | State::Known(_) => Effect::Model(Box::new(request(shared))),
        }
    }

    /// Gives up for good what died with its process.
    pub(super) fn forget(&self, cx: &mut Cx) {
        match &self.state {
            State::Recalling(id) | State::Asking(id) | State::Remembering(id) => cx.forget(id),
            State::Known(_) => {}
        }
    }

    pub(super) fn stop(&self, cx: &mut Cx) {
        match &self.state {
            State::Recalling(id) | State::Asking(id) => cx.abandon(id),
            State::Known(_) | State::Remembering(_) => {}
        }
    }
}

fn key(shared: &Shared) -> Digest {
    let mut hasher = Hasher::new("capability");
    hasher.field(b"toolCalling").field(shared.offer.model.as_bytes());
    hasher.finish()
}

fn request(shared: &Shared) -> Request {
    let parameters = json!({"type": "object", "required": ["ready"], "properties": {"ready": {"type": "boolean"}}});
    let tool = Tool {
        name: PROBE_TOOL.to_owned(),
        description: "Reports whether you are ready. Call it once.".to_owned(),
        parameters: Arc::new(parameters),
    };
    Request {
        tier: shared.machine.tier,
        messages: vec![Message::user(format!("Call the tool `{PROBE_TOOL}` with `ready` set to true."))],
        tools: vec![tool],
        ..Request::default()
    }
}
