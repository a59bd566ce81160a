//! The common frame of all steps: `when`, `require`, `for_each`, `timeout`, `cache`, and their row in the report.

use std::sync::Arc;
use std::task::Poll;

use super::agent::AgentTask;
use super::approval::ApprovalTask;
use super::binding::undecided;
use super::cached::single;
use super::call::CallTask;
use super::code::CodeTask;
use super::deviation;
use super::fan_out::FanOut;
use super::llm::{ChooseTask, LlmTask};
use super::open_work::AtomicTask;
use super::stages::MachineTask;
use super::step_context::StepContext;
use super::sub_pipeline::SubPipelineTask;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind};
use crate::plan::{Step, StepKind};
use crate::report::{Event, StepStatus, duration};

/// A step with its conditions, its timeout and its row.
#[derive(Debug)]
pub(super) struct StepTask {
    step: Arc<Step>,
    step_context: StepContext,
    values: Arc<Values>,
    state: State,
    timer: Option<EffectId>,
    stopped: Option<Failure>,
    /// True if the step's own timeout stopped it, not its surroundings.
    is_timed_out: bool,
    /// Time at which the start of the step was reported; `None` before that.
    begun_ms: Option<u64>,
}

#[derive(Debug)]
enum State {
    New,
    Working(Box<dyn Task>),
}

impl StepTask {
    pub(super) fn new(step: Arc<Step>, step_context: StepContext, values: Arc<Values>) -> Self {
        Self {
            step,
            step_context,
            values,
            state: State::New,
            timer: None,
            stopped: None,
            is_timed_out: false,
            begun_ms: None,
        }
    }

    fn begin(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if let Some(when) = &self.step.when {
            match when.holds(&*self.values) {
                Ok(true) => {}
                Ok(false) => {
                    // All children are skipped as well.
                    let rows = self.step_context.row.into_iter().flat_map(|row| row..row + self.step.rows());
                    rows.for_each(|row| cx.set_status(row, StepStatus::Skipped));
                    self.emit_end(cx, StepStatus::Skipped);
                    return Poll::Ready(Ok(Json::null()));
                }
                Err(why) => return Poll::Ready(Err(undecided(&self.step.name, "when", &why, &self.values))),
            }
        }
        if let Some(require) = &self.step.require {
            let name = &self.step.name;
            match require.condition.is_met(&*self.values) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(deviation::of_requirement(name, require, &self.values))),
                Err(why) => return Poll::Ready(Err(undecided(name, "require", &why, &self.values))),
            }
        }
        self.begun_ms = Some(cx.now_ms());
        if let Some(row) = self.step_context.row {
            cx.enter(row);
            cx.emit(Event::StepStarted { row, item: self.step_context.item.clone() });
        }
        self.timer = self.step.timeout_ms.map(|_| self.step_context.path.aside("timeout"));
        if let Some(timer) = &self.timer {
            cx.open_work.begin(timer.as_str());
        }
        self.state = State::Working(self.whole()?);
        Poll::Pending
    }

    /// The task for the step's work: once, or once per element. The cache applies to each element.
    fn whole(&self) -> Result<Box<dyn Task>, Failure> {
        match &self.step.for_each {
            None => single(&self.step, &self.step_context, &self.values),
            Some(for_each) => Ok(Box::new(FanOut::over_items(&self.step, for_each, &self.step_context, &self.values)?)),
        }
    }

    fn watch_timer(&mut self, cx: &mut Cx) {
        let (Some(id), Some(ms)) = (&self.timer, self.step.timeout_ms) else {
            return;
        };
        if cx.run_effect(id, || Effect::Sleep { ms, deadline: true }).is_ready() {
            self.timer = None;
            self.is_timed_out = self.stopped.is_none();
            let message =
                format!("{} step `{}` exceeded its timeout of {}", self.step.kind.word(), self.step.name, duration(ms));
            self.stop(cx, &Failure::new(FailureKind::StepTimeout, message));
        }
    }

    fn advance(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if matches!(self.state, State::New)
            && let Poll::Ready(result) = self.begin(cx)
        {
            return Poll::Ready(result);
        }
        match &mut self.state {
            State::New => Poll::Pending,
            State::Working(body) => body.poll(cx),
        }
    }

    fn emit_end(&self, cx: &mut Cx, status: StepStatus) {
        if let Some(row) = self.step_context.row {
            let duration_ms = self.begun_ms.map_or(0, |begun_ms| cx.now_ms().saturating_sub(begun_ms));
            cx.emit(Event::StepEnded { row, item: self.step_context.item.clone(), status, duration_ms });
        }
    }

    /// Records the end in the report, and adds the step to its failure.
    fn end(&mut self, cx: &mut Cx, result: Result<Json, Failure>) -> Result<Json, Failure> {
        if let Some(id) = self.timer.take() {
            cx.forget(&id);
        }
        let result = result.map_err(|failure| self.sign(failure));
        let status = match &result {
            Ok(_) => {
                // Applies even if elements failed and were collected.
                cx.open_work.succeed(self.step_context.path.as_str());
                StepStatus::Succeeded
            }
            Err(_) if self.stopped.is_some() && !self.is_timed_out => StepStatus::Cancelled,
            Err(_) => StepStatus::Failed,
        };
        if let Some(row) = self.step_context.row {
            cx.set_status(row, status);
        }
        if let Some(row) = self.step_context.row.filter(|_| self.begun_ms.is_some()) {
            cx.leave(row, self.is_cached());
        }
        self.emit_end(cx, status);
        result
    }

    /// Adds step and origin to a failure, unless they are set: so the innermost step with a row and the innermost
    /// definition are named. The message names the pipelines in between.
    fn sign(&self, mut failure: Failure) -> Failure {
        if self.step_context.row.is_some() && failure.step.is_none() {
            failure.step = Some(self.step.name.clone());
        }
        failure.origin.get_or_insert_with(|| self.step.origin.clone());
        failure.siblings = failure.siblings.into_iter().map(|sibling| self.sign(sibling)).collect();
        failure
    }
}

impl Task for StepTask {
    fn resumed(&mut self, cx: &mut Cx) {
        if let (State::Working(body), None) = (&mut self.state, &self.stopped) {
            body.resumed(cx);
        }
    }

    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if let (State::New, Some(why)) = (&self.state, &self.stopped) {
            return Poll::Ready(Err(why.clone()));
        }
        self.watch_timer(cx);
        match self.advance(cx) {
            Poll::Pending => {
                // Starts the timer of a step that has only just begun.
                self.watch_timer(cx);
                Poll::Pending
            }
            // A skipped step: its row is already set.
            Poll::Ready(Ok(output)) if matches!(self.state, State::New) => Poll::Ready(Ok(output)),
            Poll::Ready(result) => Poll::Ready(self.end(cx, result)),
        }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        if self.stopped.is_some() {
            return;
        }
        self.stopped = Some(why.clone());
        if let State::Working(body) = &mut self.state {
            body.stop(cx, why);
        }
    }

    fn may_be_remembered(&self) -> bool {
        match &self.state {
            State::New => true,
            State::Working(body) => body.may_be_remembered(),
        }
    }

    fn is_cached(&self) -> bool {
        matches!(&self.state, State::Working(body) if body.is_cached())
    }
}

/// The task for one execution of a step's work, without cache.
pub(super) fn body(
    step: &Arc<Step>,
    step_context: &StepContext,
    values: &Arc<Values>,
) -> Result<Box<dyn Task>, Failure> {
    let path = &step_context.path;
    Ok(match &step.kind {
        StepKind::Code(_) => {
            Box::new(AtomicTask::new(CodeTask::new(Arc::clone(step), step_context.clone(), Arc::clone(values))?, path))
        }
        StepKind::Llm(llm) if llm.choose.is_some() => {
            Box::new(AtomicTask::new(ChooseTask::new(Arc::clone(step), step_context.clone(), Arc::clone(values)), path))
        }
        StepKind::Llm(_) => {
            Box::new(AtomicTask::new(LlmTask::new(Arc::clone(step), step_context.clone(), Arc::clone(values))?, path))
        }
        StepKind::Parallel(group) => Box::new(FanOut::over_group(group, step_context, values)),
        StepKind::Pipeline(call) => Box::new(SubPipelineTask::new(call, &step.name, step_context, values)?),
        StepKind::Approval(approval) => {
            Box::new(AtomicTask::new(ApprovalTask::new(approval, step_context, values)?, path))
        }
        StepKind::Application(application) => {
            Box::new(AtomicTask::new(CallTask::of_application(application, step_context, values)?, path))
        }
        StepKind::Tool(call) => Box::new(AtomicTask::new(CallTask::of_tool(call, step_context, values)?, path)),
        StepKind::Machine(call) => Box::new(MachineTask::new(call, &step.name, step_context, values)?),
        StepKind::Skill(_) => Box::new(AgentTask::new(Arc::clone(step), step_context.clone(), values)?),
    })
}
