//! A scope: constructor, pipeline, destructor (A-5).
//!
//! | state  | ends                   | next                                               |
//! |--------|------------------------|----------------------------------------------------|
//! | before | well                   | body, which ends at once if the run was cancelled  |
//! | before | failed, cancelled      | over: neither body nor after runs (A-5.2)          |
//! | body   | deviated               | skill mode, if the pipeline says so (L-67)         |
//! | body   | well, failed, stopped  | after, whatever happened (A-5.3)                   |
//! | skill  | well, failed, stopped  | after, whatever happened (A-5.3)                   |
//! | after  | well, failed           | over, with both failures, the body's first (A-5.4) |

use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use super::handover::Handover;
use super::sequence::SequenceTask;
use super::values::Values;
use super::{Attempt, Cx, LIFTS_DENIALS, Path, Start, Task};
use crate::data::Json;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind, Phase, Reason};
use crate::plan::{Fallback, Plan, Sequence, Step, StepKind};
use crate::report::{Event, FellBack, Remains, RunResult, Status, StepRow, error_json};
use crate::template::compact;

#[derive(Debug)]
pub(super) struct ScopeTask {
    input: Json,
    request: Option<String>,
    run_id: String,
    attempt: Attempt,
    before: Option<Part>,
    body: Part,
    /// Skill mode after a deviation, with the pipeline's description.
    fallback: Option<(Part, String)>,
    after: Option<Part>,
    timeout: Option<(EffectId, u64)>,
    phase: Phase,
    /// Phase of the body in reports.
    body_phase: Phase,
    current: Option<SequenceTask>,
    outcome: Option<Result<Json, Failure>>,
    stopped: Option<Failure>,
    killed: Option<Failure>,
    /// Set if the run has continued in skill mode, with the first message to its agent.
    fallen: Option<(FellBack, Arc<str>)>,
}

/// A sequence of the scope with the rows of its steps in the report.
#[derive(Debug, Clone)]
struct Part {
    sequence: Arc<Sequence>,
    first_row: usize,
}

impl ScopeTask {
    pub(super) fn new(plan: &Plan, start: &Start, cx: &mut Cx) -> Self {
        let before = plan.before.as_ref().map(|s| Part::new(s, Phase::Constructor, cx));
        let body = Part::new(&plan.body, plan.phase, cx);
        let fallback = plan.fallback.as_ref();
        let fallback = fallback.map(|f| (Part::new(&f.sequence, Phase::Skill, cx), f.description.clone()));
        cx.keeps_calls = fallback.is_some();
        let after = plan.after.as_ref().map(|s| Part::new(s, Phase::Destructor, cx));
        let phase = if before.is_some() { Phase::Constructor } else { Phase::Business };
        Self {
            input: start.input.clone(),
            request: start.request.clone(),
            run_id: start.run_id.clone(),
            attempt: start.attempt,
            before,
            body,
            fallback,
            after,
            timeout: start.limits.timeout_ms.map(|ms| (super::time_budget(plan), ms)),
            phase,
            body_phase: plan.phase,
            current: None,
            outcome: None,
            stopped: None,
            killed: None,
            fallen: None,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Cx) -> Poll<RunResult> {
        loop {
            self.watch_timeout(cx);
            if self.current.is_none() {
                self.enter(cx);
            }
            let Some(current) = &mut self.current else {
                return Poll::Ready(self.finish(cx, None));
            };
            let Poll::Ready(result) = current.poll(cx) else {
                return Poll::Pending;
            };
            let ended = self.current.take();
            if let (Err(failure), Some(ended)) = (&result, ended)
                && let Some(reason) = self.deviates(failure)
            {
                self.fall_back(cx, failure, reason, &ended);
                continue;
            }
            let result = result.map_err(|mut failure| {
                failure.phase.get_or_insert(self.reported_phase());
                failure
            });
            match (self.phase, result) {
                // A completed constructor needs its destructor, even if the run was cancelled meanwhile.
                (Phase::Constructor, Ok(_)) if self.killed.is_none() => self.phase = Phase::Business,
                (Phase::Constructor, result) => {
                    self.outcome = Some(Err(self.blame(result.err())));
                    return Poll::Ready(self.finish(cx, None));
                }
                (Phase::Business, result) => {
                    self.outcome = Some(match (&self.stopped, result) {
                        (Some(_), result) => Err(self.blame(result.err())),
                        (None, result) => result,
                    });
                    self.leave_limits(cx);
                    if self.after.is_none() || self.killed.is_some() {
                        return Poll::Ready(self.finish(cx, None));
                    }
                    self.phase = Phase::Destructor;
                }
                (_, result) => return Poll::Ready(self.finish(cx, result.err())),
            }
        }
    }

    /// The current phase in reports.
    fn reported_phase(&self) -> Phase {
        match self.phase {
            Phase::Business if self.fallen.is_some() => Phase::Skill,
            Phase::Business => self.body_phase,
            phase => phase,
        }
    }

    /// The reason of the deviation, if the run continues in skill mode because of this failure.
    fn deviates(&self, failure: &Failure) -> Option<Reason> {
        let is_open = self.phase == Phase::Business && self.fallen.is_none() && self.stopped.is_none();
        failure.reason.filter(|_| is_open && self.fallback.is_some())
    }

    /// Leaves the pipeline: its effects remain, and an agent continues from there (L-68).
    fn fall_back(&mut self, cx: &mut Cx, failure: &Failure, reason: Reason, ended: &SequenceTask) {
        let Some((_, description)) = &self.fallback else { return };
        // Another attempt deviates in the same way, with the same outcomes.
        cx.open_work.succeed(&self.body.sequence.name);
        let calls = std::mem::take(&mut cx.calls);
        let fell_back = FellBack {
            pipeline: self.body.sequence.name.clone(),
            step: failure.step.clone().unwrap_or_default(),
            reason,
            writes_done: calls.iter().filter(|call| call.has_written()).count(),
        };
        let handover = Handover {
            request: self.request.as_deref(),
            description,
            input: &self.input,
            fell_back: &fell_back,
            failure,
            calls: &calls,
            outputs: &ended.outputs(),
            abi: cx.facts.abi,
        };
        let text = handover.text().into();
        cx.hold_to(calls);
        cx.emit(Event::FellBack { fell_back: fell_back.clone(), message: failure.message.clone() });
        self.fallen = Some((fell_back, text));
    }

    /// The transition into skill mode; `None` if there was none.
    pub(super) fn fell_back(&self) -> Option<&FellBack> {
        self.fallen.as_ref().map(|(fell_back, _)| fell_back)
    }

    /// The rows of the report. Skill mode has a row only after a deviation.
    pub(super) fn shown(&self, mut rows: Vec<StepRow>) -> Vec<StepRow> {
        if let (Some((part, _)), None) = (&self.fallback, &self.fallen) {
            rows.remove(part.first_row);
        }
        rows
    }

    /// Stops the constructor or the pipeline. The destructor is guaranteed to run, and is not stopped.
    pub(super) fn cancel(&mut self, cx: &mut Cx, why: &Failure) {
        if self.phase == Phase::Destructor || self.stopped.is_some() {
            return;
        }
        self.stopped = Some(why.clone());
        if let Some(current) = &mut self.current {
            current.stop(cx, why);
        }
    }

    /// Handles the move of the run to another process.
    pub(super) fn resumed(&mut self, cx: &mut Cx) {
        if let (Some(current), None) = (&mut self.current, &self.stopped) {
            current.resumed(cx);
        }
    }

    /// Stops the current phase, and starts nothing more.
    pub(super) fn kill(&mut self, cx: &mut Cx, why: &Failure) {
        self.killed = Some(why.clone());
        self.stopped.get_or_insert_with(|| why.clone());
        if let Some(current) = &mut self.current {
            current.stop(cx, why);
        }
    }

    fn watch_timeout(&mut self, cx: &mut Cx) {
        let Some((id, ms)) = self.timeout.clone() else { return };
        if cx.run_effect(&id, || Effect::Sleep { ms, deadline: true }).is_ready() {
            self.timeout = None;
            let message = format!("the run was stopped after its time budget of {}", crate::report::duration(ms));
            self.cancel(cx, &Failure::new(FailureKind::BudgetExceeded, message));
        }
    }

    /// Lifts the time budget, the other limits and the refusal of the pipeline's calls, which do not hold in the
    /// destructor.
    fn leave_limits(&mut self, cx: &mut Cx) {
        cx.is_limited = false;
        cx.written.clear();
        if cx.facts.abi >= LIFTS_DENIALS {
            cx.denied.clear();
        }
        if let Some((id, _)) = self.timeout.take() {
            cx.forget(&id);
        }
    }

    /// Begins the sequence of the current phase.
    fn enter(&mut self, cx: &mut Cx) {
        let part = match self.phase {
            Phase::Constructor => self.before.clone(),
            Phase::Business if self.fallen.is_some() => self.fallback.as_ref().map(|(part, _)| part.clone()),
            Phase::Business => Some(self.body.clone()),
            _ => self.after.clone(),
        };
        let Some(part) = part else { return };
        // Effect ids differ between attempts, except in the pipeline: outcomes that succeeded there are kept.
        let (run, attempt) = match self.phase {
            Phase::Business => (String::new(), 1),
            Phase::Constructor => (format!(r#","run":{}"#, self.facts(self.attempt.scope)), self.attempt.scope),
            _ => {
                let run = self.facts(self.attempt.number);
                (format!(r#","run":{run},{}"#, self.verdict()), self.attempt.number)
            }
        };
        cx.is_constructing = self.phase == Phase::Constructor;
        cx.emit(Event::PhaseStarted(self.reported_phase()));
        let request = part.sequence.description.as_ref().map(|description| self.request(description).into());
        let values = Values::new(self.input.clone(), run.into()).begun_by(cx.facts.abi);
        let (path, values) = match &self.fallen {
            Some((_, text)) if self.phase == Phase::Business => {
                (Path::root(&Fallback::root(&self.body.sequence.name)), values.with_request(Some(Arc::clone(text))))
            }
            _ => (Path::root(&part.sequence.name).incarnation(attempt), values.with_request(request)),
        };
        let mut task = SequenceTask::new(part.sequence, part.first_row, path, values);
        // A stop before the first step must still keep the constructor or the pipeline from running.
        if let Some(why) = self.stopped.as_ref().filter(|_| self.phase != Phase::Destructor) {
            task.stop(cx, why);
        }
        self.current = Some(task);
    }

    /// The request; without one, the pipeline's description with its input (L-49).
    fn request(&self, description: &str) -> String {
        let input = || self.input.text().map(|text| compact(&text)).unwrap_or_default();
        self.request.clone().unwrap_or_else(|| format!("{description}\n{}", input()))
    }

    /// The facts about the run for constructor and destructor. They include the number of the attempt from the second
    /// one on: the first has the exact form of A-5.1 (A-5.6).
    fn facts(&self, attempt: u32) -> String {
        let mut run = json!({"id": self.run_id, "pipeline": self.body.sequence.name});
        if attempt > 1 {
            run["attempt"] = attempt.into();
        }
        run.to_string()
    }

    /// Status and error of the run, for the destructor (A-5.1).
    fn verdict(&self) -> String {
        match &self.outcome {
            Some(Err(failure)) => {
                let status = if failure.kind == FailureKind::Cancelled { Status::Cancelled } else { Status::Failed };
                format!(r#""status":"{}","error":{}"#, status.word(), error_json(failure))
            }
            _ => format!(r#""status":"{}","error":null"#, Status::Succeeded.word()),
        }
    }

    /// The failure of a stopped run, with the step that was stopped if it is known.
    fn blame(&self, failure: Option<Failure>) -> Failure {
        match (&self.stopped, failure) {
            (None, Some(failure)) => failure,
            (Some(why), Some(failure)) if failure.kind == why.kind => failure,
            // The step failed for another reason just before the stop: the run ends with the reason of the stop.
            (Some(why), failure) => {
                let mut why = why.clone();
                why.phase = Some(self.reported_phase());
                (why.step, why.origin) = failure.map(|f| (f.step, f.origin)).unwrap_or_default();
                why
            }
            (None, None) => Failure::new(FailureKind::Internal, "a phase ended without a result"),
        }
    }

    fn finish(&mut self, cx: &mut Cx, destructor: Option<Failure>) -> RunResult {
        if let Some((id, _)) = self.timeout.take() {
            cx.forget(&id);
        }
        let (output, mut errors) = match self.outcome.take() {
            Some(Ok(output)) => (Some(output), Vec::new()),
            Some(Err(failure)) => (None, failure.with_siblings()),
            None => (None, Vec::new()),
        };
        let status = match errors.first() {
            Some(failure) if failure.kind == FailureKind::Cancelled => Status::Cancelled,
            Some(_) => Status::Failed,
            None if destructor.is_some() => Status::Failed,
            None => Status::Succeeded,
        };
        errors.extend(destructor.into_iter().flat_map(Failure::with_siblings));
        RunResult {
            status,
            output,
            errors,
            steps: self.shown(cx.rows.clone()),
            usage: cx.usage,
            stages: cx.stages.clone(),
            attempt: self.attempt.number,
            remains: self.remains(cx),
            fell_back: self.fell_back().cloned(),
            deviations: cx.deviations.clone(),
        }
    }

    pub(super) const fn attempt(&self) -> u32 {
        self.attempt.number
    }

    pub(super) fn is_past_constructor(&self) -> bool {
        self.phase != Phase::Constructor
    }

    /// Work left for another attempt.
    pub(super) fn remains(&self, cx: &Cx) -> Remains {
        let is_scope_over = matches!(self.phase, Phase::Constructor | Phase::Destructor);
        Remains { unfinished: cx.open_work.below(&self.body.sequence.name), is_scope_over }
    }
}

impl Part {
    fn new(sequence: &Arc<Sequence>, phase: Phase, cx: &mut Cx) -> Self {
        let first_row = cx.rows.len();
        for step in &sequence.steps {
            add_rows(step, phase, cx);
        }
        Self { sequence: Arc::clone(sequence), first_row }
    }
}

/// Adds a row for the step, then one for each child of a group: the order in which
/// [`Step::rows`](crate::plan::Step::rows) counts.
fn add_rows(step: &Step, phase: Phase, cx: &mut Cx) {
    cx.add_row(phase, &step.name, step.kind.word());
    if let StepKind::Parallel(group) = &step.kind {
        for child in &group.steps {
            add_rows(child, phase, cx);
        }
    }
}
