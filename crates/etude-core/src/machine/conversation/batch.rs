//! The tool calls of one response. Each is admitted or refused, in order, before any of them runs. Then they run, side
//! by side if they change nothing, and their results go back in the order of the calls.
//!
//! | state    | event                               | next                                   |
//! |----------|-------------------------------------|----------------------------------------|
//! | proposed | the gatekeeper refuses              | over, with the refusal                 |
//! | proposed | the gatekeeper admits it            | admitted                               |
//! | admitted | all calls are decided, it may start | running, or a pipeline                  |
//! | pipeline | its steps are over                  | over                                   |
//! | running  | a result                            | over                                   |
//! | running  | a person must decide                | held                                   |
//! | held     | approved                            | running, with the approval             |
//! | held     | denied                              | over, with the denial                  |
//! | any      | the conversation is stopped         | over, once all running calls are gone  |

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use crate::data::Json;
use crate::effect::{Effect, EffectId, Gate, Subject};
use crate::failure::Failure;
use crate::machine::outcome_error::unexpected_outcome;
use crate::machine::pipeline_tool::PipelineCall;
use crate::machine::{Cx, Path};
use crate::outcome::{Decision, Outcome};
use crate::report::Event;
use crate::tool::{ToolCall, ToolError, ToolReply, ToolResult, ToolSelection, asked_arguments};

/// A call that a model proposes.
#[derive(Debug, Clone)]
pub(in crate::machine) struct Proposal {
    /// The model's id for the call.
    pub(in crate::machine) id: String,
    pub(in crate::machine) name: String,
    /// The arguments as the model wrote them.
    pub(in crate::machine) arguments: String,
    /// The call's position in its run: `…/turn3/Read[0]`.
    pub(in crate::machine) path: Path,
    /// True if the call must not run beside others.
    pub(in crate::machine) is_exclusive: bool,
}

/// Decision about a proposal.
#[derive(Debug)]
pub(in crate::machine) enum Admission {
    /// The call runs; the policy is not asked if `is_approved`.
    Run { is_approved: bool },
    /// The call is a pipeline, whose steps run (L-77). No other call runs beside it.
    Pipeline(Box<PipelineCall>),
    /// The call does not run; the model receives this result.
    Refuse(ToolResult),
}

/// Decides which calls of an agent may run.
pub(in crate::machine) trait Gatekeeper: fmt::Debug + Send {
    /// Decides about one call. Calls come in the order of their batch, each after the decision about the one before.
    /// The gatekeeper is polled until it is ready, and may run effects meanwhile.
    fn admit(&mut self, cx: &mut Cx, call: &Proposal) -> Poll<Result<Admission, Failure>>;

    /// Called when all calls of the batch are decided and the admitted ones begin; possibly more than once.
    fn decided(&mut self) {}

    /// Abandons every open question. The gatekeeper is polled until that is gone.
    fn stop(&mut self, _cx: &mut Cx, _why: &Failure) {}

    /// Called when a call begins.
    fn began(&mut self, _cx: &mut Cx, _call: &Proposal) {}

    /// Called with the result of a call.
    fn ended(&mut self, _cx: &mut Cx, _call: &Proposal, _result: &ToolResult, _elapsed_ms: u64) {}
}

/// State that all batches of a conversation share.
#[derive(Debug)]
pub(in crate::machine) struct BatchContext {
    pub(in crate::machine) tool_selection: Arc<ToolSelection>,
    pub(in crate::machine) row: Option<usize>,
    pub(in crate::machine) ledger: Option<usize>,
    /// Id of the stage execution that makes the calls. Its calls run side by side even if they change things (B-AP2).
    pub(in crate::machine) stage_execution: Option<String>,
    /// Tool and approval key of questions that were answered once for all later calls.
    pub(in crate::machine) always: BTreeSet<(String, String)>,
}

#[derive(Debug)]
pub(in crate::machine) struct Batch {
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    proposal: Proposal,
    state: State,
}

#[derive(Debug)]
enum State {
    Proposed,
    Admitted { is_approved: bool },
    AdmittedPipeline(Box<PipelineCall>),
    Pipeline { call: Box<PipelineCall>, has_begun: bool },
    Running { id: EffectId, is_approved: bool, key: Option<String> },
    Held { key: String, question: String, is_once: bool, is_asking: bool },
    Over(ToolResult),
}

impl Batch {
    pub(in crate::machine) fn new(proposals: Vec<Proposal>) -> Self {
        Self { calls: proposals.into_iter().map(|proposal| Call { proposal, state: State::Proposed }).collect() }
    }

    /// Advances until the batch waits; ready with the results in the order of the calls.
    pub(in crate::machine) fn poll(
        &mut self,
        cx: &mut Cx,
        gate: &mut dyn Gatekeeper,
        batch_context: &mut BatchContext,
        stopped: Option<&Failure>,
    ) -> Poll<Result<Vec<(Proposal, ToolResult)>, Failure>> {
        let Poll::Ready(()) = self.admit(cx, gate, batch_context, stopped)? else {
            return Poll::Pending;
        };
        gate.decided();
        loop {
            if stopped.is_none() {
                self.start(batch_context);
            }
            let mut is_changed = false;
            for call in &mut self.calls {
                is_changed |= call.advance(cx, gate, batch_context, stopped)?;
            }
            if let (None, false) = (stopped, is_changed) {
                is_changed = self.ask(cx, gate, batch_context)?;
            }
            if !is_changed {
                break;
            }
        }
        if let Some(why) = stopped {
            for call in &mut self.calls {
                call.leave_held(cx, gate);
            }
            let is_running = |call: &Call| matches!(call.state, State::Running { .. } | State::Pipeline { .. });
            let is_running = self.calls.iter().any(is_running);
            return if is_running { Poll::Pending } else { Poll::Ready(Err(why.clone())) };
        }
        if !self.calls.iter().all(|call| matches!(call.state, State::Over(_))) {
            return Poll::Pending;
        }
        let results = self.calls.drain(..).filter_map(|call| match call.state {
            State::Over(result) => Some((call.proposal, result)),
            _ => None,
        });
        Poll::Ready(Ok(results.collect()))
    }

    /// Lets the gatekeeper decide on every call, in order, before any of them runs.
    fn admit(
        &mut self,
        cx: &mut Cx,
        gate: &mut dyn Gatekeeper,
        batch_context: &BatchContext,
        stopped: Option<&Failure>,
    ) -> Poll<Result<(), Failure>> {
        for call in self.calls.iter_mut().filter(|call| matches!(call.state, State::Proposed)) {
            let Poll::Ready(admission) = gate.admit(cx, &call.proposal) else {
                return Poll::Pending;
            };
            if let Some(why) = stopped {
                return Poll::Ready(Err(why.clone()));
            }
            call.state = match admission? {
                Admission::Run { is_approved } => State::Admitted { is_approved },
                Admission::Pipeline(pipeline) => State::AdmittedPipeline(pipeline),
                Admission::Refuse(result) => {
                    if let Some(row) = batch_context.row {
                        let (effect, name) = (call.proposal.path.attempt(1), call.proposal.name.clone());
                        let error = result.error.as_ref().map(ToolError::to_string);
                        cx.emit(Event::ToolEnded { row, effect, name, error, elapsed_ms: 0 });
                    }
                    State::Over(result)
                }
            };
        }
        Poll::Ready(Ok(()))
    }

    /// Starts the calls that may begin: calls that change things run alone, and in order.
    fn start(&mut self, batch_context: &BatchContext) {
        let mut is_other_before = false;
        for call in &mut self.calls {
            let is_exclusive = call.proposal.is_exclusive && batch_context.stage_execution.is_none();
            match call.state {
                State::Over(_) => continue,
                State::AdmittedPipeline(_) if !is_other_before => {
                    if let State::AdmittedPipeline(pipeline) = std::mem::replace(&mut call.state, State::Proposed) {
                        call.state = State::Pipeline { call: pipeline, has_begun: false };
                    }
                    return;
                }
                State::AdmittedPipeline(_) | State::Pipeline { .. } => return,
                State::Admitted { is_approved } if !(is_exclusive && is_other_before) => {
                    let id = call.proposal.path.attempt(1);
                    call.state = State::Running { id, is_approved, key: None };
                }
                _ => {}
            }
            is_other_before = true;
            if is_exclusive {
                return;
            }
        }
    }

    /// Asks the first open question; the others wait for their turn. Returns true if it is answered.
    fn ask(
        &mut self,
        cx: &mut Cx,
        gate: &mut dyn Gatekeeper,
        batch_context: &mut BatchContext,
    ) -> Result<bool, Failure> {
        let Some(call) = self.calls.iter_mut().find(|call| matches!(call.state, State::Held { .. })) else {
            return Ok(false);
        };
        let State::Held { key, question, is_once, is_asking } = &mut call.state else { return Ok(false) };
        let approved = call.proposal.path.attempt(2);
        let covers = (call.proposal.name.clone(), key.clone());
        if !*is_once && batch_context.always.contains(&covers) {
            call.state = State::Running { id: approved, is_approved: true, key: Some(covers.1) };
            return Ok(true);
        }
        *is_asking = true;
        let (id, abi) = (call.proposal.path.aside("ask"), cx.facts.abi);
        let Poll::Ready(done) =
            cx.run_effect(&id, || Effect::Gate(question_about(&call.proposal, (key, question), *is_once, abi)))
        else {
            return Ok(false);
        };
        cx.book(batch_context.ledger, &id, &done);
        let Outcome::Decided(decision) = done.outcome else {
            return Err(unexpected_outcome(&id));
        };
        if decision.approved {
            let key = Some(covers.1.clone());
            if !*is_once && is_for_ever(&decision) {
                batch_context.always.insert(covers);
            }
            call.state = State::Running { id: approved, is_approved: true, key };
        } else {
            let result = ToolResult::denied_by_user(&call.proposal.name, Some(key), decision.reason.as_deref());
            cx.open_work.succeed(call.proposal.path.as_str());
            gate.ended(cx, &call.proposal, &result, done.elapsed_ms);
            if let Some(row) = batch_context.row {
                let (effect, name) = (call.proposal.path.attempt(1), call.proposal.name.clone());
                let error = result.error.as_ref().map(ToolError::to_string);
                cx.emit(Event::ToolEnded { row, effect, name, error, elapsed_ms: done.elapsed_ms });
            }
            call.state = State::Over(result);
        }
        Ok(true)
    }

    /// Abandons effects in progress whose process is gone, without waiting for them.
    pub(super) fn forget(&self, cx: &mut Cx) {
        for call in &self.calls {
            match &call.state {
                State::Running { id, .. } => cx.forget(id),
                State::Held { is_asking: true, .. } => cx.forget(&call.proposal.path.aside("ask")),
                _ => {}
            }
        }
    }

    /// Abandons effects in progress; their end must be awaited.
    pub(in crate::machine) fn stop(&mut self, cx: &mut Cx) {
        for call in &mut self.calls {
            match &call.state {
                State::Running { id, .. } => cx.abandon(id),
                State::Held { is_asking: true, .. } => cx.forget(&call.proposal.path.aside("ask")),
                _ => {}
            }
        }
    }
}

impl Call {
    /// Ends a call whose question will not be answered: the call has begun, so it gets an end event.
    fn leave_held(&mut self, cx: &mut Cx, gate: &mut dyn Gatekeeper) {
        if matches!(self.state, State::Held { .. }) {
            gate.ended(cx, &self.proposal, &ToolResult::cancelled(), 0);
            self.state = State::Over(ToolResult::default());
        }
    }

    /// Advances a call in progress. Returns true if its state has changed.
    fn advance(
        &mut self,
        cx: &mut Cx,
        gate: &mut dyn Gatekeeper,
        batch_context: &BatchContext,
        stopped: Option<&Failure>,
    ) -> Result<bool, Failure> {
        if matches!(self.state, State::Pipeline { .. }) {
            return self.advance_pipeline(cx, gate, batch_context, stopped);
        }
        let State::Running { id, is_approved, key } = &self.state else { return Ok(false) };
        let (id, is_approved, key) = (id.clone(), *is_approved, key.clone());
        let is_new = !cx.is_started(&id);
        if is_new && stopped.is_some() {
            self.state = State::Over(ToolResult::default());
            return Ok(true);
        }
        // An approved call has begun before it was held: it is reported once, under its first id.
        let first = self.proposal.path.attempt(1);
        if is_new {
            cx.open_work.begin(first.as_str());
        }
        let begins = is_new && id == first;
        if begins {
            gate.began(cx, &self.proposal);
        }
        let effect = || Effect::Tool(Box::new(self.proposal.call(batch_context, is_approved, key.clone())));
        let ended = cx.run_effect(&id, effect);
        if let (true, Some(row)) = (begins, batch_context.row) {
            let (name, arguments) = (self.proposal.name.clone(), self.proposal.arguments.clone());
            cx.emit(Event::ToolStarted { row, effect: first.clone(), name, arguments });
        }
        let Poll::Ready(done) = ended else { return Ok(false) };
        cx.book(batch_context.ledger, &id, &done);
        if stopped.is_some() {
            gate.ended(cx, &self.proposal, &ToolResult::cancelled(), done.elapsed_ms);
            self.state = State::Over(ToolResult::default());
            return Ok(true);
        }
        let Outcome::Tool(reply) = done.outcome else {
            return Err(unexpected_outcome(&id));
        };
        self.state = match *reply {
            ToolReply::Held { key, question, is_once } => State::Held { key, question, is_once, is_asking: false },
            ToolReply::Done(result) => {
                cx.open_work.succeed(first.as_str());
                gate.ended(cx, &self.proposal, &result, done.elapsed_ms);
                if let Some(row) = batch_context.row {
                    let error = result.error.as_ref().map(ToolError::to_string);
                    let (name, elapsed_ms) = (self.proposal.name.clone(), done.elapsed_ms);
                    cx.emit(Event::ToolEnded { row, effect: first, name, error, elapsed_ms });
                }
                State::Over(result)
            }
        };
        Ok(true)
    }
}

impl Call {
    /// Advances a pipeline in progress. Returns true if it ended.
    fn advance_pipeline(
        &mut self,
        cx: &mut Cx,
        gate: &mut dyn Gatekeeper,
        batch_context: &BatchContext,
        stopped: Option<&Failure>,
    ) -> Result<bool, Failure> {
        let State::Pipeline { call, has_begun } = &mut self.state else { return Ok(false) };
        let (name, effect) = (self.proposal.name.clone(), self.proposal.path.attempt(1));
        match (&*has_begun, stopped) {
            (false, Some(_)) => {
                self.state = State::Over(ToolResult::default());
                return Ok(true);
            }
            (true, Some(why)) => call.stop(cx, why),
            (false, None) => {
                gate.began(cx, &self.proposal);
                if let Some(row) = batch_context.row {
                    let (name, effect, arguments) = (name.clone(), effect.clone(), self.proposal.arguments.clone());
                    cx.emit(Event::ToolStarted { row, effect, name, arguments });
                }
                *has_begun = true;
            }
            (true, None) => {}
        }
        let Poll::Ready(result) = call.poll(cx) else { return Ok(false) };
        if stopped.is_some() {
            gate.ended(cx, &self.proposal, &ToolResult::cancelled(), 0);
            self.state = State::Over(ToolResult::default());
            return Ok(true);
        }
        let result = result?;
        gate.ended(cx, &self.proposal, &result, 0);
        if let Some(row) = batch_context.row {
            let error = result.error.as_ref().map(ToolError::to_string);
            cx.emit(Event::ToolEnded { row, effect, name, error, elapsed_ms: 0 });
        }
        self.state = State::Over(result);
        Ok(true)
    }
}

impl Proposal {
    fn call(&self, batch_context: &BatchContext, is_approved: bool, approved_key: Option<String>) -> ToolCall {
        ToolCall {
            tool_selection: Arc::clone(&batch_context.tool_selection),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            id: self.id.clone(),
            key: self.path.as_str().to_owned(),
            is_approved,
            is_confirmed: approved_key.is_some(),
            approved_key,
            stage_execution: batch_context.stage_execution.clone(),
        }
    }
}

/// The approval question about a call.
fn question_about(call: &Proposal, (key, question): (&str, &str), is_once: bool, abi: u32) -> Gate {
    let payload = json!({"tool": call.name, "arguments": asked_arguments(&call.arguments, abi), "key": key});
    Gate {
        message: question.to_owned(),
        schema: None,
        approvers: Vec::new(),
        subject: Subject::Other { kind: if is_once { "Confirm" } else { "tool" }, payload: Json::of(&payload) },
    }
}

/// True for the answer `"always"`, which covers later calls of the run with the same key.
fn is_for_ever(decision: &Decision) -> bool {
    decision.answer.inline() == Some("\"always\"")
}
