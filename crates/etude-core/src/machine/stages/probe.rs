//! Check of the model capability that stages need (`b-stages` §12): tool calls that arrive as such.

use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use super::fault::incapable;
use super::shared::Shared;
use crate::data::Json;
use crate::digest::{Digest, Hasher};
use crate::effect::{Effect, EffectId};
use crate::failure::Failure;
use crate::machine::outcome_error::call_failed;
use crate::machine::outcome_error::unexpected_outcome;
use crate::machine::{Cx, Path};
use crate::model::{Message, Request, Tool};
use crate::outcome::Outcome;
use crate::plan::stages::StageMachine;
use crate::tool::{ToolCalling, ToolList};

/// Maximum age of the result of a probe: a week, in milliseconds.
const GOOD_FOR_MS: u64 = 7 * 24 * 3_600_000;

/// The name of the tool that a probe asks for.
const PROBE_TOOL: &str = "report_ready";

/// Test whether the model calls tools.
#[derive(Debug)]
pub(super) struct Probe {
    path: Path,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The model can call tools, or the failure that it cannot.
    Known(Result<(), Box<Failure>>),
    Recalling(EffectId),
    Asking(EffectId),
    Remembering(EffectId),
}

impl Probe {
    /// A claim decides, unless the model must be probed (B-CN5). Effects get paths below `path`.
    pub(super) fn new(machine: &StageMachine, tool_list: &ToolList, path: Path) -> Self {
        let state = match refused_model(machine, &tool_list.model, tool_list.tool_calling) {
            Some(refused) => State::Known(Err(Box::new(refused))),
            None if tool_list.tool_calling == ToolCalling::Probed => State::Recalling(path.aside("recall")),
            None => State::Known(Ok(())),
        };
        Self { path, state }
    }

    /// Ready when the capability is known; a failure if the model does not have it.
    pub(super) fn poll(
        &mut self,
        cx: &mut Cx,
        shared: &Shared,
        stopped: Option<&Failure>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            let id = match &self.state {
                State::Known(known) => {
                    return Poll::Ready(match known {
                        Ok(()) => stopped.cloned().map_or(Ok(()), Err),
                        Err(why) => Err((**why).clone()),
                    });
                }
                State::Recalling(id) | State::Asking(id) | State::Remembering(id) => id.clone(),
            };
            let Poll::Ready(done) = cx.run_effect(&id, || self.effect(shared)) else { return Poll::Pending };
            cx.book(shared.ledger, &id, &done);
            if let Outcome::Response(response) = &done.outcome {
                cx.count_attempt(shared.ledger, 1);
                cx.charge(shared.ledger, &response.usage)?;
            }
            if let Some(why) = stopped {
                return Poll::Ready(Err(why.clone()));
            }
            let failed = || {
                let claim = ToolCalling::Probed.word();
                State::Known(Err(Box::new(incapable(
                    &shared.machine.id, &shared.tool_list.model, "toolCalling", claim,
                ))))
            };
            self.state = match (&self.state, done.outcome) {
                (State::Recalling(_), Outcome::Recalled(Some(known))) if known.inline() == Some("true") => {
                    State::Known(Ok(()))
                }
                (State::Recalling(_), Outcome::Recalled(Some(_))) => failed(),
                (State::Recalling(_), Outcome::Recalled(None)) => State::Asking(self.path.attempt(1)),
                (State::Asking(_), Outcome::Response(response)) => {
                    let can = matches!(&response.tool_calls[..], [call]
                        if call.name == PROBE_TOOL && crate::tool::arguments(&call.arguments).is_some());
                    // A failure may have been an accident, so only a success is cached.
                    if can { State::Remembering(self.path.aside("remember")) } else { failed() }
                }
                (State::Asking(_), Outcome::CallFailed(failure)) => {
                    return Poll::Ready(Err(call_failed("the probe of tool calls", &failure)));
                }
                (State::Remembering(_), Outcome::Remembered) => State::Known(Ok(())),
                _ => return Poll::Ready(Err(unexpected_outcome(&id))),
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

    /// Abandons effects that died with their process.
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

/// The failure of a machine that cannot work with a model that claims `claim` (B-CN3); `None` if it can. A model that
/// must be probed is accepted.
pub(crate) fn refused_model(machine: &StageMachine, model: &str, claim: ToolCalling) -> Option<Failure> {
    if let Some(missing) = machine.requires.first() {
        return Some(incapable(&machine.id, model, missing, ToolCalling::Absent.word()));
    }
    let is_refused = matches!(claim, ToolCalling::Preferred | ToolCalling::Absent);
    is_refused.then(|| incapable(&machine.id, model, "toolCalling", claim.word()))
}

fn key(shared: &Shared) -> Digest {
    let mut hasher = Hasher::new("capability");
    hasher.field(b"toolCalling").field(shared.tool_list.model.as_bytes());
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
