//! State that all tasks of a machine share: effects in progress, the rows of the report, and the budget.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use super::handover::Call;
use super::open_work::OpenWork;
use super::{Aside, Budget, COUNTS_RESPONSES, Command, KEEPS_DENIALS, Limits, Paid};
use crate::digest::Digest;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind, Phase};
use crate::model::Usage;
use crate::outcome::{Completed, Outcome};
use crate::plan::stages::SlotForms;
use crate::report::{CallDeviation, Event, Stages, StepRow, StepStatus, is_below};
use crate::tool::ToolResult;

#[derive(Debug)]
pub(crate) struct Cx {
    commands: Vec<Command>,
    /// True if the caller executes no effect: commands that start one are left out.
    pub(crate) is_observed: bool,
    /// True if such a command was left out since the last poll.
    pub(crate) has_left_out: bool,
    started: BTreeMap<EffectId, Started>,
    arrived: BTreeMap<EffectId, (Completed, Paid)>,
    pub(crate) rows: Vec<StepRow>,
    /// The time at which each row was at work.
    spans: Vec<Span>,
    /// The run's own time, in milliseconds since it began: the time that its effects took. It stands still while no
    /// effect is in progress, and is the same in every replay.
    now_ms: u64,
    pub(crate) usage: Usage,
    limits: Limits,
    /// False in the destructor, where the budget does not hold: the destructor is guaranteed to run.
    pub(crate) is_limited: bool,
    /// True while outcomes of earlier attempts are still to come.
    pub(crate) expects_kept: bool,
    /// True while the constructor runs: none of its outcomes comes from earlier attempts.
    pub(crate) is_constructing: bool,
    /// True if an earlier attempt paid for the outcome that was taken last.
    is_paid: bool,
    pub(crate) facts: Facts,
    /// Executions of the stages of machines.
    pub(crate) stages: Stages,
    /// The parts of the run that began and did not succeed.
    pub(crate) open_work: OpenWork,
    /// Answers to closed questions that were asked together with an earlier one, by the path of their step (L-49); a
    /// failure if the model gave no valid answer.
    pub(crate) answers: BTreeMap<String, Result<serde_json::Value, Box<Failure>>>,
    /// Closed questions of groups that an earlier question is asking now, by the path of their step.
    pub(crate) asked: BTreeSet<String>,
    /// The calls of tool steps so far, if an agent may take over (L-68).
    pub(crate) calls: Vec<Call>,
    pub(crate) keeps_calls: bool,
    /// Calls of the pipeline that the agent that has taken over must not repeat (L-69).
    pub(crate) written: Vec<Call>,
    /// Calls of the pipeline that were denied, which that agent must not make either (L-69).
    pub(crate) denied: Vec<Call>,
    /// Pipelines that agents called as tools and that deviated.
    pub(crate) deviations: Vec<CallDeviation>,
    /// Number of stage machines at work.
    pub(crate) machines: u32,
    /// Ids of those machines at work that keep data in their slots.
    pub(crate) kept: Vec<String>,
}

/// Facts about the run for its tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) run_id: String,
    /// The version of the interpreter that began the run.
    pub(crate) abi: u32,
    pub(crate) app_dir: String,
    /// True if questions are answered with yes automatically.
    pub(crate) yolo: bool,
    /// Slot forms of the machines that the run has now (B-ST3).
    pub(crate) slots: SlotForms,
    /// The restarted parts of the pipeline, each with the last attempt that restarted it.
    pub(crate) restarts: BTreeMap<String, u32>,
}

impl Facts {
    /// The last attempt that restarted `part`, alone or with a part around it; 0 if none did.
    pub(crate) fn restarted(&self, part: &str) -> u32 {
        self.restarts.iter().filter(|(above, _)| is_below(part, above)).map(|(_, attempt)| *attempt).max().unwrap_or(0)
    }
}

/// An effect in progress.
#[derive(Debug)]
struct Started {
    request: Digest,
    is_given_up: bool,
    at_ms: u64,
}

/// Working time of a row. Children of a group that runs once per element share a row, several of them at a time.
#[derive(Debug, Default)]
struct Span {
    /// Number of tasks of the row at work.
    active: u32,
    /// Start of the current period in which `active` is not 0, in milliseconds of the run's own time.
    since_ms: u64,
    /// Number of tasks that are over, and how many of them used the output of an earlier run.
    ended: u32,
    cached: u32,
    /// True if the row's one attempt stands for steps of its pipeline, and no model has responded yet.
    has_no_response: bool,
}

impl Cx {
    pub(crate) fn new(limits: Limits, spent: Usage) -> Self {
        Self {
            commands: Vec::new(),
            is_observed: false,
            has_left_out: false,
            started: BTreeMap::new(),
            arrived: BTreeMap::new(),
            rows: Vec::new(),
            spans: Vec::new(),
            now_ms: 0,
            usage: spent,
            limits,
            is_limited: true,
            expects_kept: false,
            is_constructing: false,
            is_paid: false,
            facts: Facts::default(),
            stages: Stages::default(),
            open_work: OpenWork::default(),
            answers: BTreeMap::new(),
            asked: BTreeSet::new(),
            calls: Vec::new(),
            keeps_calls: false,
            written: Vec::new(),
            denied: Vec::new(),
            deviations: Vec::new(),
            machines: 0,
            kept: Vec::new(),
        }
    }

    /// Starts the effect on the first call, and is ready with its outcome once that has arrived.
    pub(crate) fn run_effect(&mut self, id: &EffectId, effect: impl FnOnce() -> Effect) -> Poll<Completed> {
        if let Poll::Ready(completed) = self.take(id) {
            return Poll::Ready(completed);
        }
        if !self.started.contains_key(id) {
            let effect = effect();
            self.start(id, effect.digest(), || effect);
        }
        Poll::Pending
    }

    /// Like [`Self::run_effect`], for a task that knows the effect's digest.
    pub(crate) fn run_known_effect(
        &mut self,
        id: &EffectId,
        request: Digest,
        effect: impl FnOnce() -> Effect,
    ) -> Poll<Completed> {
        if let Poll::Ready(completed) = self.take(id) {
            return Poll::Ready(completed);
        }
        if !self.started.contains_key(id) {
            self.start(id, request, effect);
        }
        Poll::Pending
    }

    fn start(&mut self, id: &EffectId, request: Digest, effect: impl FnOnce() -> Effect) {
        self.started.insert(id.clone(), Started { request, is_given_up: false, at_ms: self.now_ms });
        match self.is_observed {
            true => self.has_left_out = true,
            false => self.commands.push(Command::Start(id.clone(), effect())),
        }
    }

    /// The outcome of a started effect, once it has arrived.
    pub(crate) fn take(&mut self, id: &EffectId) -> Poll<Completed> {
        let Some((completed, paid)) = self.arrived.remove(id) else {
            return Poll::Pending;
        };
        self.is_paid = paid == Paid::Before;
        self.started.remove(id);
        Poll::Ready(completed)
    }

    /// True if any outcome has arrived that its task has not taken.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Abandons an effect. The task must still wait for it, with [`Cx::run_effect`].
    pub(crate) fn abandon(&mut self, id: &EffectId) {
        if self.arrived.contains_key(id) {
            return;
        }
        if let Some(started) = self.started.get_mut(id).filter(|started| !started.is_given_up) {
            started.is_given_up = true;
            self.commands.push(Command::Abandon(id.clone()));
        }
    }

    /// Abandons an effect for good: for timers and questions, which leave nothing behind.
    pub(crate) fn forget(&mut self, id: &EffectId) {
        self.abandon(id);
        self.started.remove(id);
        self.arrived.remove(id);
    }

    pub(crate) fn arrive(&mut self, id: &EffectId, completed: Completed, paid: Paid) {
        if self.is_outstanding(id) {
            let began_ms = self.started.get(id).map_or(self.now_ms, |started| started.at_ms);
            self.now_ms = self.now_ms.max(began_ms.saturating_add(completed.elapsed_ms));
            self.arrived.insert(id.clone(), (completed, paid));
        }
    }

    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    pub(crate) fn is_outstanding(&self, id: &EffectId) -> bool {
        self.started.contains_key(id) && !self.arrived.contains_key(id)
    }

    /// True from the start of an effect until its outcome is taken.
    pub(crate) fn is_started(&self, id: &EffectId) -> bool {
        self.started.contains_key(id)
    }

    /// Hash of the request of an effect in progress.
    pub(crate) fn request(&self, id: &EffectId) -> Option<Digest> {
        self.started.get(id).filter(|_| !self.arrived.contains_key(id)).map(|started| started.request)
    }

    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (&EffectId, Digest)> {
        self.started.iter().filter(|(id, _)| !self.arrived.contains_key(*id)).map(|(id, started)| (id, started.request))
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.commands.push(Command::Emit(event));
    }

    /// Keeps the call of a tool step for an agent that may take over.
    pub(crate) fn keep_call(&mut self, call: Call) {
        if self.keeps_calls {
            self.calls.push(call);
        }
    }

    /// Restricts an agent by the calls of a pipeline: calls that have written must not be repeated, and denied calls
    /// must not be made at all (L-69).
    pub(crate) fn hold_to(&mut self, calls: Vec<Call>) {
        let keeps_denials = self.facts.abi >= KEEPS_DENIALS;
        for call in calls {
            if call.has_written() {
                self.written.push(call);
            } else if keeps_denials && call.is_denied() {
                self.denied.push(call);
            }
        }
    }

    /// The refusal of a call that an agent proposes: the pipeline has already made it, or it was denied.
    pub(crate) fn refusal(&self, tool: &str, arguments: &str) -> Option<ToolResult> {
        let is_in = |calls: &[Call]| calls.iter().any(|call| call.is_same(tool, arguments, self.facts.abi));
        if is_in(&self.written) {
            let message = "the pipeline has made this call in this run already; it is not made again";
            return Some(ToolResult::terminal("AlreadyMade", message));
        }
        let message = "this call was denied in this run already; do not make it, and do not do the same in another way";
        is_in(&self.denied).then(|| ToolResult::denied(message))
    }

    /// Adds a row for a step that has not started.
    pub(crate) fn add_row(&mut self, phase: Phase, name: &str, kind: &'static str) -> usize {
        self.spans.push(Span::default());
        self.rows.push(StepRow::new(phase, name.to_owned(), kind));
        self.rows.len() - 1
    }

    /// Records the state of a step. If a group runs once per element, its children share a row, which keeps the worst
    /// of their states.
    pub(crate) fn set_status(&mut self, row: usize, status: StepStatus) {
        let rank = |status| match status {
            StepStatus::NotStarted => 0,
            StepStatus::Skipped => 1,
            StepStatus::Succeeded => 2,
            StepStatus::Running => 3,
            StepStatus::Cancelled => 4,
            StepStatus::Failed => 5,
        };
        let now = &mut self.rows[row].status;
        if *now == StepStatus::Running || rank(status) > rank(*now) {
            *now = status;
        }
    }

    /// Time of the run in milliseconds: the end of its latest effect.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Records that a task of the row begins its work.
    pub(crate) fn enter(&mut self, row: usize) {
        self.set_status(row, StepStatus::Running);
        let span = &mut self.spans[row];
        if span.active == 0 {
            span.since_ms = self.now_ms;
        }
        span.active += 1;
    }

    /// Records that a task of the row has ended its work.
    pub(crate) fn leave(&mut self, row: usize, is_cached: bool) {
        let (span, row) = (&mut self.spans[row], &mut self.rows[row]);
        span.active = span.active.saturating_sub(1);
        if span.active == 0 {
            row.duration_ms += self.now_ms.saturating_sub(span.since_ms);
        }
        span.ended += 1;
        span.cached += u32::from(is_cached);
        row.cached = span.cached == span.ended;
    }

    /// The rows as they are now. Rows at work include their time so far.
    pub(crate) fn rows_so_far(&self) -> Vec<StepRow> {
        let mut rows = self.rows.clone();
        for (row, span) in rows.iter_mut().zip(&self.spans).filter(|(_, span)| span.active > 0) {
            row.duration_ms += self.now_ms.saturating_sub(span.since_ms);
            // Another task of the row has already succeeded.
            if row.status == StepStatus::Succeeded {
                row.status = StepStatus::Running;
            }
        }
        rows
    }

    /// Books an attempt of a step, counted from 1: an execution, or the response of a model.
    pub(crate) fn count_attempt(&mut self, row: Option<usize>, attempt: u32) {
        if let Some(row) = row {
            let has_none = std::mem::take(&mut self.spans[row].has_no_response);
            self.rows[row].attempts += u32::from(!has_none);
            self.rows[row].retries += u32::from(attempt > 1);
        }
    }

    /// Books an execution of a step without a model. A step without its own row counts for the step or agent that
    /// called its pipeline. The attempts of that caller are the responses of models in the pipeline, or one if there
    /// are none.
    pub(crate) fn count_execution(&mut self, row: Option<usize>, ledger: Option<usize>, attempt: u32) {
        let called = ledger.filter(|_| row.is_none() && self.facts.abi >= COUNTS_RESPONSES);
        let Some(caller) = called else { return self.count_attempt(ledger, attempt) };
        if self.rows[caller].attempts == 0 {
            self.rows[caller].attempts = 1;
            self.spans[caller].has_no_response = true;
        }
    }

    /// Books an effect of a step that has ended.
    pub(crate) fn book(&mut self, row: Option<usize>, id: &EffectId, completed: &Completed) {
        let Some(row) = row else { return };
        let row = &mut self.rows[row];
        row.effects.push(id.clone());
        if let Outcome::Response(response) = &completed.outcome {
            row.model = Some(response.model.clone());
        }
    }

    /// Books the cost of the model call whose outcome was taken last.
    ///
    /// # Errors
    /// The run has now exceeded its budget.
    pub(crate) fn charge(&mut self, row: Option<usize>, usage: &Usage) -> Result<(), Failure> {
        if let Some(row) = row {
            self.rows[row].usage.add(usage);
        }
        if self.is_paid {
            return Ok(());
        }
        self.usage.add(usage);
        self.check_budget(|spent, limit| spent > limit)
    }

    /// Refuses a further model call if the budget is used up.
    ///
    /// # Errors
    /// The budget is used up.
    pub(crate) fn may_spend(&self) -> Result<(), Failure> {
        if self.expects_kept && !self.is_constructing {
            return Ok(());
        }
        self.check_budget(|spent, limit| spent >= limit)
    }

    /// Refuses to begin a run that has already exceeded its budget.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub(crate) fn may_begin(&self) -> Result<(), Failure> {
        self.check_budget(|spent, limit| spent > limit)
    }

    /// Books a model call that is not an effect.
    ///
    /// # Errors
    /// The run has now exceeded its budget, or the call was refused because the budget was used up.
    pub(crate) fn spend(&mut self, aside: &Aside) -> Result<(), Failure> {
        self.usage.add(&aside.usage);
        self.check_budget(|spent, limit| spent > limit || aside.is_refused && spent >= limit)
    }

    pub(crate) fn budget(&self) -> Budget {
        let limits = if self.is_limited { self.limits } else { Limits::default() };
        Budget { spent: self.usage, limits }
    }

    fn check_budget(&self, is_over: impl Fn(f64, f64) -> bool) -> Result<(), Failure> {
        let why = self.limits.exceeded(&self.usage, is_over).filter(|_| self.is_limited);
        why.map_or(Ok(()), |why| Err(Failure::new(FailureKind::BudgetExceeded, why)))
    }
}
