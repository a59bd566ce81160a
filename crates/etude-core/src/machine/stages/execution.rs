//! One stage execution: Setup, Init, CheckGate, Act, Assert, Exit, Next (`b-stages` §5).
//!
//! | phase     | ends                     | next                                                              |
//! |-----------|--------------------------|-------------------------------------------------------------------|
//! | Setup     | well                     | Init                                                              |
//! | Init      | well                     | CheckGate                                                         |
//! | CheckGate | proceed                  | Act                                                               |
//! | CheckGate | defer, block             | as `resolutionPolicy` says: parked, Exit, or a question           |
//! | Act       | completed, at the cap    | Assert                                                            |
//! | Act       | a question was answered  | Setup, again                                                       |
//! | any       | its script asks somebody | Setup, again, when it is answered; Next only goes on               |
//! | Assert    | retry, attempts are left | Act, after a wait, in the same conversation                       |
//! | Assert    | anything else            | Exit                                                              |
//! | Exit      | well                     | Next                                                              |
//! | any       | with a failure           | over; neither Exit nor Next runs after it                         |

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
use crate::effect::EffectId;
use crate::failure::{Failure, FailureKind};
use crate::machine::{Cx, NAMES_FIRST_SIBLING, Path};
use crate::plan::stages::{GateOutcome, Next, Script, Stage, Verdict};
use crate::report::StageStatus;

/// One stage execution.
#[derive(Debug)]
pub(super) struct Execution {
    stage_context: StageContext,
    envelope: Envelope,
    state: State,
    /// The phase whose end has not been reported.
    open: Option<Phase>,
    act: Option<Act>,
    verdict: Verdict,
    reason: Option<String>,
    /// The answer to the question of the gate. It holds until the stage is parked.
    confirmed: Option<bool>,
    /// Answers to what scripts asked. They hold as long as the execution does.
    answers: Vec<(Question, Value)>,
    /// Its exit ends a turn of the session: it stands alone, or is a join (B-P14).
    ends_turn: bool,
    /// It is a sibling: any other verdict than `ok` ends it, and it cannot wait to be tried again (B-G7).
    must_succeed: bool,
    /// What the gate said when it parked the stage.
    suspended_by: GateOutcome,
    /// Its exit is done: it has a result, and only what comes next is still to be said.
    has_left: bool,
    stopped: Option<Failure>,
    /// What it came to by itself, although it was stopped.
    failed: Option<Failure>,
    /// It was stopped while its prompt was looked through for secrets: it goes on with what takes no time of its own (B-P12).
    is_settling: bool,
}

#[derive(Debug)]
enum State {
    Setup(Option<Hook>),
    /// Number of scanned parts of what the model will receive.
    Init(usize),
    Gate(Option<Hook>),
    /// A person is asked something.
    Asking(Box<Asking>),
    /// It waits for somebody to go on with the run.
    Suspended(EffectId),
    Act,
    Assert(Option<Hook>),
    Backoff(EffectId, u64),
    Exit(Option<Hook>),
    Next(Option<Hook>),
}

/// How far a step of the work has come.
enum Step {
    /// It waits for an effect.
    Waits,
    /// There is more to do.
    GoesOn,
    /// All phases are over.
    Over(Next),
}

/// What became of a script.
enum ScriptReply {
    Reply(Reply),
    /// No reply yet, or a question.
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
        let id = format!("{}/{}#{visit}", shared.run_id, stage.id);
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

    /// Its exit ends the compound turn that it belongs to.
    pub(super) fn closes_turn(&mut self) {
        self.ends_turn = true;
    }

    pub(super) fn stage(&self) -> &Arc<Stage> {
        &self.stage_context.stage
    }

    /// The beginning of the ids of its effects: another attempt at the run starts it again as a whole.
    pub(super) fn part(&self) -> &str {
        self.stage_context.base.as_str()
    }

    /// The StageResult, once Exit is done.
    pub(super) fn result(&self) -> Option<&Value> {
        self.stage_context.result.as_ref()
    }

    /// Advances until it waits; ready with what comes next.
    pub(super) fn poll(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Poll<Result<Next, Failure>> {
        loop {
            match self.step(cx, shared, view) {
                // A sibling that did not succeed ends the fan-out at once: no one asks what comes next (B-P8).
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

    /// Tells that a phase begins, once.
    fn enter(&mut self, cx: &mut Cx, shared: &Shared, phase: Phase) -> bool {
        if self.open == Some(phase) {
            return false;
        }
        self.open = Some(phase);
        emit(cx, "StagePreFired", self.stage_context.event(shared, json!({"phase": phase.word()})));
        true
    }

    /// Tells that the phase is over, also when it failed.
    fn leave(&mut self, cx: &mut Cx, shared: &Shared) {
        if let Some(phase) = self.open.take() {
            emit(cx, "StagePostFired", self.stage_context.event(shared, json!({"phase": phase.word()})));
        }
    }

    /// Ends with a failure: whatever phase was open is closed, and the row says what became of it.
    fn fail(&mut self, cx: &mut Cx, shared: &mut Shared, failure: Failure) -> Failure {
        if self.is_settling && failure.kind != FailureKind::Cancelled {
            self.failed = Some(failure.clone());
        }
        let failure = match &self.stopped {
            Some(why) => self.own_failure(cx, why).unwrap_or(why).clone(),
            None => failure,
        };
        self.leave(cx, shared);
        let is_cancelled = failure.kind == FailureKind::Cancelled;
        if self.has_left {
            // Its exit is done and reported: what failed is the machine's Next.
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

    /// What it came to by itself in the same instant in which a sibling failed (B-P12).
    fn own_failure(&self, cx: &Cx, why: &Failure) -> Option<&Failure> {
        let failed = self.act.as_ref().and_then(Act::failed).or(self.failed.as_ref());
        failed.filter(|_| self.is_beside(cx, why))
    }

    /// A sibling's failure is why it is stopped, and the first of the list is the one to name.
    fn is_beside(&self, cx: &Cx, why: &Failure) -> bool {
        self.must_succeed && why.message == SIBLING_FAILED && cx.facts.abi >= NAMES_FIRST_SIBLING
    }

    /// Asks it to end soon; it is polled on until whatever it has started is gone.
    pub(super) fn stop(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View, why: &Failure) {
        if self.stopped.is_some() {
            // What stops the run outranks a sibling (B-P11).
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

    /// The failure that ends it, if it was stopped and nothing of it is under way.
    fn check_stop(&self) -> Result<(), Failure> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// The same before what may take no time of its own: rules and values that etude itself reads. One that settles still does that.
    fn check_stop_before(&self, takes_no_time: bool) -> Result<(), Failure> {
        if takes_no_time && self.is_settling { Ok(()) } else { self.check_stop() }
    }

    /// The process that ran the run is gone: an execution that was at work restarts at Setup, with the same id (B-ST6,
    /// B-ID2). One that waits for an answer goes on waiting; one that has left goes on to what comes next.
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

    /// Begins again at Setup. Answers that were given stay.
    fn restart(&mut self, cx: &mut Cx) {
        self.stage_context.renew();
        self.act = None;
        self.open = None;
        (self.verdict, self.reason) = (Verdict::Ok, None);
        self.state = State::Setup(None);
        let row = &mut cx.stages.rows[self.stage_context.row];
        (row.status, row.attempt_count, row.cap_hit) = (StageStatus::Running, 0, false);
    }

    /// A script of this execution, as effect `name` of this attempt.
    fn hook(&self, shared: &Shared, view: &View, name: &str, script: &Script, more: Value) -> Hook {
        let stdin = self.stage_context.document(shared, view, name, more);
        let at = |path: &Path| match self.stage_context.attempt {
            1 => path.child(name),
            attempt => path.child(&format!("{name}{attempt}")),
        };
        let key = at(&self.stage_context.base);
        let path = at(&self.stage_context.path());
        Hook::new(&path, key.as_str(), self.stage_context.incarnation, script, &shared.machine.dir, &stdin)
    }

    /// Looks after the script of the current state: its reply, once there is one.
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
        // What a judge of a result prints is a verdict, however it exits.
        if let (Some(Reply::Broken { why, .. }), Some(phase)) =
            (&reply, self.open.filter(|open| *open != Phase::Assert))
            && self.stopped.is_some()
        {
            self.failed = Some(self.asked(phase).broken(why, reply.as_ref().map(Reply::fields).unwrap_or_default()));
        }
        self.check_stop()?;
        let Some(reply) = reply else {
            return Err(Failure::new(FailureKind::Cancelled, "the script was given up"));
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
