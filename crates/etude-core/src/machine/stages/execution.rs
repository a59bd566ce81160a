//! One stage execution: Setup, Init, CheckGate, Act, Assert, Exit, Next (`b-stages` §5).
//!
//! | phase     | ends                     | next                                                              |
//! |-----------|--------------------------|-------------------------------------------------------------------|
//! | Setup     | well                     | Init                                                              |
//! | Init      | well                     | CheckGate                                                         |
//! | CheckGate | proceed                  | Act                                                               |
//! | CheckGate | defer, block             | as `resolutionPolicy` says: parked, Exit, or a question           |
//! | Act       | completed, at the cap    | Assert                                                            |
//! | Act       | a question was answered  | Setup, again                                                      |
//! | any       | its script asks a person | Setup, again, when it is answered; Next only continues            |
//! | Assert    | retry, attempts are left | Act, after a wait, in the same conversation                       |
//! | Assert    | anything else            | Exit                                                              |
//! | Exit      | well                     | Next                                                              |
//! | any       | with a failure           | over, without Exit and Next                                       |

mod act;
mod asking;
mod entry;
mod leave;

use std::sync::Arc;
use std::task::Poll;

use serde_json::{Map, Value, json};

use self::act::Act;
use self::asking::{Asking, Question};
use super::audit::emit;
use super::envelope::Envelope;
use super::fault::{Phase, cause, turn_cancelled};
use super::hook::{Hook, Reply};
use super::reply::Asked;
use super::shared::{Shared, View, add_row};
use super::siblings::SIBLING_FAILED;
use super::stage_context::StageContext;
use crate::document::Document;
use crate::effect::EffectId;
use crate::failure::{Failure, FailureKind};
use crate::machine::{Cx, NAMES_FIRST_SIBLING, PLACES_STAGES, Path};
use crate::plan::stages::{GateOutcome, Next, Script, Stage, Verdict};
use crate::report::StageStatus;

/// One stage execution.
#[derive(Debug)]
pub(super) struct Execution {
    stage_context: StageContext,
    envelope: Envelope,
    state: State,
    /// The phase whose end has not been reported yet.
    open: Option<Phase>,
    act: Option<Act>,
    verdict: Verdict,
    reason: Option<String>,
    /// The answer to the question at the gate. It is valid until the stage is suspended.
    confirmed: Option<bool>,
    /// Answers to the questions of scripts. They are valid for the whole execution.
    answers: Vec<(Question, Value)>,
    /// True if the exit ends a turn of the session: the stage stands alone, or is a join (B-P14).
    ends_turn: bool,
    /// True for a sibling: any verdict other than `ok` ends it, and it cannot wait for another attempt (B-G7).
    must_succeed: bool,
    /// The gate outcome that suspended the stage.
    suspended_by: GateOutcome,
    /// True after Exit: there is a result, and only Next is still missing.
    has_left: bool,
    stopped: Option<Failure>,
    /// Failure of the stage itself, although it was stopped.
    failed: Option<Failure>,
    /// True if it was stopped during the scan of its prompt: it continues with work that takes no time of its own (B-P12).
    is_settling: bool,
}

#[derive(Debug)]
enum State {
    Setup(Option<Hook>),
    /// Number of scanned parts of the model's input.
    Init(usize),
    Gate(Option<Hook>),
    /// A person is asked.
    Asking(Box<Asking>),
    /// The stage waits until a person continues the run.
    Suspended(EffectId),
    Act,
    Assert(Option<Hook>),
    Backoff(EffectId, u64),
    Exit(Option<Hook>),
    Next(Option<Hook>),
}

/// Progress of one step of the work.
enum Step {
    /// The step waits for an effect.
    Waits,
    /// There are more steps.
    GoesOn,
    /// All phases are over.
    Over(Next),
}

/// State of a script's reply.
enum ScriptReply {
    Reply(Reply),
    /// No reply yet, or a question instead.
    Not(Step),
}

impl Execution {
    pub(super) fn new(
        stage: &Arc<Stage>,
        upstream: Vec<Value>,
        compound: Option<String>,
        must_succeed: bool,
        shared: &mut Shared,
        cx: &mut Cx,
    ) -> Self {
        let visit = shared.visit(&stage.id);
        let id = format!("{}/{}#{visit}", shared.prefix(), stage.id);
        let row = add_row(cx, &stage.id, &id);
        let base = shared.path.child(&format!("{}#{visit}", stage.id));
        cx.open_work.begin(base.as_str());
        let stage_is_alone = compound.is_none();
        let stage_context = StageContext {
            stage: Arc::clone(stage),
            base,
            id,
            incarnation: 1,
            upstream,
            compound,
            ctx: Map::new(),
            attempts: Vec::new(),
            attempt: 1,
            parsed: None,
            cap_hit: false,
            result: None,
            row,
        };
        Self {
            stage_context,
            envelope: Envelope::default(),
            state: State::Setup(None),
            open: None,
            act: None,
            verdict: Verdict::Ok,
            reason: None,
            confirmed: None,
            answers: Vec::new(),
            suspended_by: GateOutcome::Defer,
            ends_turn: stage_is_alone,
            must_succeed,
            has_left: false,
            stopped: None,
            failed: None,
            is_settling: false,
        }
    }

    /// Marks the exit of this stage as the end of its compound turn.
    pub(super) fn closes_turn(&mut self) {
        self.ends_turn = true;
    }

    pub(super) fn stage(&self) -> &Arc<Stage> {
        &self.stage_context.stage
    }

    /// Prefix of the execution's effect ids: another attempt at the run restarts it as a whole.
    pub(super) fn part(&self) -> &str {
        self.stage_context.base.as_str()
    }

    /// The StageResult; `None` before Exit is done.
    pub(super) fn result(&self) -> Option<&Value> {
        self.stage_context.result.as_ref()
    }

    /// Advances until the execution waits; ready with the next stages.
    pub(super) fn poll(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Poll<Result<Next, Failure>> {
        loop {
            match self.step(cx, shared, view) {
                // A failed sibling ends the fan-out at once, so its Next is not needed (B-P8).
                Ok(Step::GoesOn) if self.is_lost() => return Poll::Ready(Ok(Next::Terminal)),
                Ok(Step::GoesOn) => {}
                Ok(Step::Waits) => return Poll::Pending,
                Ok(Step::Over(next)) => return Poll::Ready(Ok(next)),
                Err(failure) => return Poll::Ready(Err(self.fail(cx, shared, failure))),
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.must_succeed && matches!(self.state, State::Next(None)) && self.verdict != Verdict::Ok
    }

    fn step(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Result<Step, Failure> {
        match self.state {
            State::Setup(_) => self.setup(cx, shared, view),
            State::Init(_) => self.init(cx, shared),
            State::Gate(_) => self.gate(cx, shared, view),
            State::Asking(_) => self.asking(cx, shared),
            State::Suspended(_) => self.suspended(cx, shared),
            State::Act => self.acting(cx, shared, view),
            State::Assert(_) => self.assert(cx, shared, view),
            State::Backoff(..) => self.backoff(cx, shared),
            State::Exit(_) => self.exit(cx, shared, view),
            State::Next(_) => self.next(cx, shared, view),
        }
    }

    /// Emits the start of a phase, once. Returns true the first time.
    fn enter(&mut self, cx: &mut Cx, shared: &Shared, phase: Phase) -> bool {
        if self.open == Some(phase) {
            return false;
        }
        self.open = Some(phase);
        emit(cx, "StagePreFired", self.stage_context.event(shared, json!({"phase": phase.word()})));
        true
    }

    /// Emits the end of the open phase, also after a failure.
    fn leave(&mut self, cx: &mut Cx, shared: &Shared) {
        if let Some(phase) = self.open.take() {
            emit(cx, "StagePostFired", self.stage_context.event(shared, json!({"phase": phase.word()})));
        }
    }

    /// Ends the execution with a failure: closes the open phase, and sets the status of the row.
    fn fail(&mut self, cx: &mut Cx, shared: &mut Shared, failure: Failure) -> Failure {
        if self.is_settling && failure.kind != FailureKind::Cancelled {
            self.failed = Some(failure.clone());
        }
        let failure = match &self.stopped {
            Some(why) => self.own_failure(cx, why).unwrap_or(why).clone(),
            None => failure,
        };
        let phase = self.open;
        self.leave(cx, shared);
        let is_cancelled = failure.kind == FailureKind::Cancelled;
        let failure = if shared.abi >= PLACES_STAGES { self.placed(failure, phase) } else { failure };
        if self.has_left {
            // Exit is done and reported: the failure is that of the machine's Next.
            return turn_cancelled(failure, &self.stage_context.stage.id);
        }
        shared.grants.expire(&self.stage_context.id);
        let row = &mut cx.stages.rows[self.stage_context.row];
        row.status = match row.status {
            _ if is_cancelled => StageStatus::Cancelled,
            // A sibling: its fan-out cannot wait for it (B-G7).
            StageStatus::Suspended if self.stopped.is_none() || self.is_settling => StageStatus::Suspended,
            _ => StageStatus::Failed,
        };
        let outcome = if is_cancelled { "cancelled" } else { "failed" };
        let facts = json!({"outcome": outcome, "capHit": self.stage_context.cap_hit, "cause": cause(&failure)});
        emit(cx, "StageExecution", self.stage_context.event(shared, facts));
        turn_cancelled(failure, &self.stage_context.stage.id)
    }

    /// The failure with the place of the phase's hook, or of the stage.
    fn placed(&self, mut failure: Failure, phase: Option<Phase>) -> Failure {
        let Stage { hooks, origin, .. } = &*self.stage_context.stage;
        let hook = match phase {
            Some(Phase::Setup) => &hooks.setup,
            Some(Phase::CheckGate) => &hooks.gate,
            Some(Phase::Assert) => &hooks.assert,
            Some(Phase::Exit) => &hooks.exit,
            Some(Phase::Next) => &hooks.next,
            Some(Phase::Init | Phase::Act) | None => &None,
        };
        if failure.origin.is_none() && failure.kind != FailureKind::Cancelled {
            failure.origin = Some(hook.as_ref().unwrap_or(origin).clone());
        }
        failure
    }

    /// The failure of this stage itself in the same instant in which a sibling failed (B-P12).
    fn own_failure(&self, cx: &Cx, why: &Failure) -> Option<&Failure> {
        let failed = self.act.as_ref().and_then(Act::failed).or(self.failed.as_ref());
        failed.filter(|_| self.is_beside(cx, why))
    }

    /// True if the stage was stopped because of a sibling's failure. The first failed stage of the list is reported.
    fn is_beside(&self, cx: &Cx, why: &Failure) -> bool {
        self.must_succeed && why.message == SIBLING_FAILED && cx.facts.abi >= NAMES_FIRST_SIBLING
    }

    /// Asks the execution to end soon; it is polled until everything that it has started is gone.
    pub(super) fn stop(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View, why: &Failure) {
        if self.stopped.is_some() {
            // A stop of the whole run outranks the failure of a sibling (B-P11).
            if let State::Init(part) = self.state
                && std::mem::take(&mut self.is_settling)
            {
                cx.abandon(&self.scan_id(part));
            }
            return;
        }
        self.stopped = Some(why.clone());
        self.is_settling = matches!(self.state, State::Init(_)) && self.is_beside(cx, why);
        match &self.state {
            State::Setup(Some(hook))
            | State::Gate(Some(hook))
            | State::Assert(Some(hook))
            | State::Exit(Some(hook))
            | State::Next(Some(hook)) => hook.stop(cx),
            State::Suspended(id) | State::Backoff(id, _) => cx.forget(id),
            State::Asking(asking) => cx.forget(&asking.id),
            State::Act => self.stop_acting(cx, shared, view, why),
            State::Init(part) if !self.is_settling => cx.abandon(&self.scan_id(*part)),
            _ => {}
        }
    }

    /// Returns the failure of a stopped execution that has no effect in progress.
    fn check_stop(&self) -> Result<(), Failure> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Like [`Self::check_stop`], before work that may take no time of its own: rules and values that etude itself
    /// reads. A settling execution still does that work.
    fn check_stop_before(&self, takes_no_time: bool) -> Result<(), Failure> {
        if takes_no_time && self.is_settling { Ok(()) } else { self.check_stop() }
    }

    /// Handles the loss of the run's process. An execution at work restarts at Setup, with the same id (B-ST6, B-ID2).
    /// An execution that waits for an answer keeps waiting, and one after Exit continues with its Next.
    pub(super) fn resumed(&mut self, cx: &mut Cx, shared: &mut Shared) {
        let waits = matches!(self.state, State::Asking(_)) || self.envelope.is_asking();
        if waits || self.has_left || self.stopped.is_some() {
            return;
        }
        match &self.state {
            State::Setup(Some(hook))
            | State::Gate(Some(hook))
            | State::Assert(Some(hook))
            | State::Exit(Some(hook)) => hook.forget(cx),
            State::Suspended(id) | State::Backoff(id, _) => cx.forget(id),
            State::Init(part) => cx.forget(&self.scan_id(*part)),
            _ => {}
        }
        if let Some(act) = self.act.take() {
            act.forget(cx);
        }
        self.envelope.forget(cx, shared);
        self.restart(cx);
    }

    /// Restarts at Setup. Answers stay valid.
    fn restart(&mut self, cx: &mut Cx) {
        self.stage_context.renew();
        self.act = None;
        self.open = None;
        (self.verdict, self.reason) = (Verdict::Ok, None);
        self.state = State::Setup(None);
        let row = &mut cx.stages.rows[self.stage_context.row];
        (row.status, row.attempt_count, row.cap_hit) = (StageStatus::Running, 0, false);
    }

    /// A script of this execution, as effect `name` of the current attempt.
    fn hook(&self, shared: &Shared, view: &View, name: &str, script: &Script, more: Value) -> Hook {
        let mut stdin = Document::from(self.stage_context.document(shared, view, name, more));
        if let Some(act) = &self.act {
            stdin = StageContext::with_calls(stdin, act.transcript(), shared.abi);
        }
        let at = |path: &Path| match self.stage_context.attempt {
            1 => path.child(name),
            attempt => path.child(&format!("{name}{attempt}")),
        };
        let key = at(&self.stage_context.base);
        let path = at(&self.stage_context.path());
        Hook::new(&path, key.as_str(), self.stage_context.incarnation, script, &shared.machine.dir, stdin)
    }

    /// Advances the script of the current state, and returns its reply when there is one.
    fn reply(&mut self, cx: &mut Cx, shared: &Shared) -> Result<ScriptReply, Failure> {
        let (State::Setup(hook) | State::Gate(hook) | State::Assert(hook) | State::Exit(hook) | State::Next(hook)) =
            &mut self.state
        else {
            return Ok(ScriptReply::Not(Step::Waits));
        };
        let Some(mut call) = hook.take() else { return Ok(ScriptReply::Not(Step::Waits)) };
        let Poll::Ready(reply) = call.poll(cx, shared.ledger) else {
            *hook = Some(call);
            return Ok(ScriptReply::Not(Step::Waits));
        };
        // The output of an Assert script is a verdict, whatever the exit status.
        if let (Some(Reply::Broken { why, .. }), Some(phase)) =
            (&reply, self.open.filter(|open| *open != Phase::Assert))
            && self.stopped.is_some()
        {
            self.failed = Some(self.asked(phase).broken(why, reply.as_ref().map(Reply::fields).unwrap_or_default()));
        }
        self.check_stop()?;
        let Some(reply) = reply else {
            return Err(Failure::new(FailureKind::Cancelled, "the script was cancelled"));
        };
        if let Reply::Value(value) = &reply {
            for line in value.get("audit").and_then(Value::as_array).into_iter().flatten() {
                emit(cx, "HookAudit", self.stage_context.event(shared, line.clone()));
            }
        }
        self.take_question(cx, shared, call, reply)
    }

    const fn has_hook(&self) -> bool {
        matches!(
            self.state,
            State::Setup(Some(_))
                | State::Gate(Some(_))
                | State::Assert(Some(_))
                | State::Exit(Some(_))
                | State::Next(Some(_))
        )
    }

    fn asked(&self, phase: Phase) -> Asked<'_> {
        Asked { phase, stage: &self.stage_context.stage.id }
    }
}
