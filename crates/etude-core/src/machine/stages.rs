//! State machines of stages (system B): the machine decides on the order, and a model works only inside each stage.
//!
//! `walk` goes from stage to stage, `siblings` runs several at once, and `execution` is one stage with its seven
//! phases. `envelope` decides on a stage's tool calls; `allowed` keeps permissions of people and rules until they are
//! used. Scripts are `hook`s: `stage_context` builds their input, `reply` parses their output, and `declared` replaces
//! scripts that a machine does not have. `audit` emits the events, and `fault` builds the failures.

mod allowed;
mod audit;
mod declared;
mod envelope;
mod execution;
mod fault;
mod grants;
pub mod guard;
mod hook;
mod probe;
mod reply;
mod resumption;
mod shared;
mod siblings;
mod stage_context;
mod walk;

use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use self::audit::emit;
pub(super) use self::fault::drift_rejected;
use self::fault::turn_cancelled;
use self::probe::Probe;
pub(super) use self::probe::refused_model;
use self::resumption::Resumption;
use self::shared::{Shared, View};
use self::walk::Walk;
use super::binding::{bind, unreadable};
use super::outcome_error::unexpected_outcome;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, PLACES_STAGES, Path, Task};
use crate::data::Json;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind};
use crate::outcome::Outcome;
use crate::plan::stages::StageMachine;
use crate::plan::{MachineCall, MachineInput};

/// The run of one stage machine.
#[derive(Debug)]
pub(super) struct MachineTask {
    machine: Arc<StageMachine>,
    input: Json,
    step_context: StepContext,
    may_skip: bool,
    state: State,
    /// Work that must be done before the stages can continue in this process.
    resumption: Option<Resumption>,
    /// Number of moves to another process.
    resumptions: u32,
    stopped: Option<Failure>,
}

#[derive(Debug)]
enum State {
    New,
    Opening(EffectId, Box<Shared>),
    Probing(Probe, Box<Shared>),
    Walking(Box<Walk>, Box<Shared>, View),
}

impl MachineTask {
    pub(super) fn new(
        call: &MachineCall,
        step: &str,
        step_context: &StepContext,
        values: &Values,
    ) -> Result<Self, Failure> {
        let machine = Arc::clone(&call.machine);
        let input = match &call.input {
            MachineInput::Same => values.input().clone(),
            MachineInput::Bound { values: bound, schema } => {
                bind(step, &format!("machine `{}`", machine.id), bound, schema, values)?
            }
        };
        let (step_context, may_skip) = (step_context.clone(), call.may_skip);
        let (state, resumption, resumptions, stopped) = (State::New, None, 0, None);
        Ok(Self { machine, input, step_context, may_skip, state, resumption, resumptions, stopped })
    }

    fn advance(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        loop {
            match &mut self.state {
                State::New => self.begin(cx)?,
                State::Opening(id, shared) => {
                    let tool_selection = Arc::clone(&shared.tool_selection);
                    let Poll::Ready(done) = cx.run_effect(id, || Effect::Open(tool_selection)) else {
                        return Poll::Pending;
                    };
                    cx.book(self.step_context.ledger, id, &done);
                    if let Some(why) = &self.stopped {
                        return Poll::Ready(Err(why.clone()));
                    }
                    let Outcome::Opened(tool_list) = done.outcome else {
                        return Poll::Ready(Err(unexpected_outcome(id)));
                    };
                    let State::Opening(_, mut shared) = std::mem::replace(&mut self.state, State::New) else {
                        return Poll::Pending;
                    };
                    let probe = Probe::new(&self.machine, &tool_list, shared.path.child("probe"));
                    shared.tool_list = *tool_list;
                    self.state = State::Probing(probe, shared);
                }
                State::Probing(probe, shared) => {
                    let Poll::Ready(can) = probe.poll(cx, shared, self.stopped.as_ref()) else {
                        return Poll::Pending;
                    };
                    can?;
                    parts(&shared.path, 0).iter().for_each(|part| cx.open_work.succeed(part));
                    let State::Probing(_, shared) = std::mem::replace(&mut self.state, State::New) else {
                        return Poll::Pending;
                    };
                    shared.emit_attached(cx, false);
                    cx.kept.push(self.machine.id.clone());
                    self.state = State::Walking(Box::new(Walk::new(&self.machine.entry, None)), shared, View::new());
                }
                State::Walking(..) if self.resumption.is_some() => {
                    if self.return_to_work(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                State::Walking(walk, shared, view) => {
                    let Poll::Ready(ended) = walk.poll(cx, shared, view) else { return Poll::Pending };
                    ended?;
                    return Poll::Ready(self.end());
                }
            }
        }
    }

    /// Completes the work before the stages continue. If that fails, the waiting stages are stopped with that failure.
    fn return_to_work(&mut self, cx: &mut Cx) -> Poll<()> {
        let (State::Walking(walk, shared, view), Some(resumption)) = (&mut self.state, &mut self.resumption) else {
            return Poll::Ready(());
        };
        let mut slots = vec![&mut view.slot];
        slots.extend(walk.slots());
        let Poll::Ready(done) = resumption.poll(cx, shared, &mut slots, self.stopped.as_ref()) else {
            return Poll::Pending;
        };
        self.resumption = None;
        match done {
            Ok(()) => {
                parts(&shared.path, self.resumptions).iter().for_each(|part| cx.open_work.succeed(part));
                shared.emit_attached(cx, true);
            }
            Err(why) if self.stopped.is_none() => {
                self.stopped = Some(why.clone());
                walk.stop(cx, shared, view, &why);
            }
            Err(_) => {}
        }
        Poll::Ready(())
    }

    fn begin(&mut self, cx: &mut Cx) -> Result<(), Failure> {
        if let Some(why) = &self.stopped {
            return Err(why.clone());
        }
        let input = self.input.value().map_err(|why| {
            let what = format!("the input of machine `{}`", self.machine.id);
            unreadable(&what, &why, FailureKind::InputInvalid, FailureKind::Environment, cx.facts.abi)
        })?;
        let shared = Shared::new(&self.machine, input, self.step_context.path.clone(), self.step_context.ledger, cx);
        cx.machines += 1;
        parts(&shared.path, 0).iter().for_each(|part| cx.open_work.begin(part));
        self.state = State::Opening(self.step_context.path.child("tools").attempt(1), Box::new(shared));
        Ok(())
    }

    /// The output of the machine: the result of the stage that finished last.
    fn end(&self) -> Result<Json, Failure> {
        let State::Walking(walk, shared, _) = &self.state else {
            return Err(Failure::new(FailureKind::Internal, "internal error: the machine ended before it started"));
        };
        let Some((stage, result)) = walk.last() else {
            return Err(Failure::new(FailureKind::Internal, "internal error: the machine ended without a stage"));
        };
        let verdict = result["verdict"].as_str().unwrap_or_default();
        if verdict == "ok" || (verdict == "skip" && self.may_skip) {
            return Ok(Json::of(result));
        }
        let why = result["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = match verdict {
            "skip" => format!("stage `{stage}` was skipped{why}"),
            _ => format!("stage `{stage}` failed{why}"),
        };
        let mut failure = Failure::new(FailureKind::StageFailed, message);
        failure.details = Some(Json::of(&json!({"stage": stage})));
        if shared.abi >= PLACES_STAGES {
            failure.origin = self.machine.stage(stage).map(|stage| stage.origin.clone());
        }
        Err(failure)
    }
}

/// Ids of the work before the stages, at the start or at the resumption of that number: another attempt repeats it if
/// it fails.
fn parts(path: &Path, resumptions: u32) -> [String; 3] {
    let tools = path.child("tools").attempt(resumptions + 1).as_str().to_owned();
    let probe = path.child("probe").incarnation(resumptions + 1).as_str().to_owned();
    [tools, probe, path.child(&format!("migrate{resumptions}")).as_str().to_owned()]
}

impl Task for MachineTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        let ended = self.advance(cx);
        if ended.is_ready() && !matches!(self.state, State::New) {
            cx.machines = cx.machines.saturating_sub(1);
            if matches!(self.state, State::Walking(..))
                && let Some(at) = cx.kept.iter().position(|id| *id == self.machine.id)
            {
                cx.kept.remove(at);
            }
        }
        ended.map_err(|failure| turn_cancelled(failure, ""))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.state {
            State::New => {}
            State::Opening(id, _) => cx.abandon(id),
            State::Probing(probe, _) => probe.stop(cx),
            State::Walking(walk, shared, view) => {
                self.resumption.iter().for_each(|resumption| resumption.stop(cx));
                walk.stop(cx, shared, view, why);
            }
        }
    }

    fn resumed(&mut self, cx: &mut Cx) {
        let (walk, shared) = match &mut self.state {
            _ if self.stopped.is_some() => return,
            State::New => return,
            State::Opening(_, shared) | State::Probing(_, shared) => return shared.take_form(cx),
            State::Walking(walk, shared, _) => (walk, shared),
        };
        emit(cx, "SessionResumed", shared.event(json!({"storeId": "journal"})));
        walk.resumed(cx, shared);
        self.resumptions += 1;
        let before = self.resumption.take();
        before.iter().for_each(|before| before.forget(cx));
        parts(&shared.path, self.resumptions).iter().for_each(|part| cx.open_work.begin(part));
        self.resumption = Some(Resumption::new(self.resumptions, &shared.path, before));
    }
}
