//! Steps that run one after the other.

use std::sync::Arc;
use std::task::Poll;

use super::binding::unresolved;
use super::step::StepTask;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Path, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind};
use crate::plan::{OutputOf, Sequence, StepKind};
use crate::report::Item;
use crate::template::{Reference, Segment};

#[derive(Debug)]
pub(super) struct SequenceTask {
    sequence: Arc<Sequence>,
    /// Row of the first step; `None` if the steps have no rows.
    row: Option<usize>,
    /// Row of the step that calls this pipeline, if the steps have no rows of their own.
    ledger: Option<usize>,
    path: Path,
    /// The element that the calling step works on.
    item: Option<Item>,
    values: Arc<Values>,
    next: usize,
    current: Option<StepTask>,
    stopped: Option<Failure>,
    /// True if the output of any step must not be cached for later runs.
    is_partial: bool,
}

impl SequenceTask {
    pub(super) fn new(sequence: Arc<Sequence>, first_row: usize, path: Path, values: Values) -> Self {
        let values = Arc::new(values);
        let (row, ledger) = (Some(first_row), None);
        Self {
            sequence,
            row,
            ledger,
            path,
            item: None,
            values,
            next: 0,
            current: None,
            stopped: None,
            is_partial: false,
        }
    }

    /// A sequence whose steps have no rows, as in a sub-pipeline: they are booked on the row of the calling step.
    pub(super) fn without_rows(sequence: Arc<Sequence>, caller: &StepContext, values: Values) -> Self {
        let (ledger, item) = (caller.ledger, caller.item.clone());
        Self { row: None, ledger, item, ..Self::new(sequence, 0, caller.path.clone(), values) }
    }

    /// The steps that succeeded, by their paths, with their outputs.
    pub(super) fn outputs(&self) -> Vec<(String, Json)> {
        let known = self.values.outputs();
        known.map(|(step, output)| (self.path.child(step).as_str().to_owned(), output.clone())).collect()
    }

    /// The step that ended last.
    pub(super) fn last_step(&self) -> Option<&str> {
        let last = self.next.checked_sub(1)?;
        self.sequence.steps.get(last).map(|step| step.name.as_str())
    }

    fn output(&self) -> Result<Json, Failure> {
        let missing =
            || Failure::new(FailureKind::Internal, format!("pipeline `{}` has no output", self.sequence.name));
        match &self.sequence.output {
            OutputOf::Last => {
                let last = self.sequence.steps.last().ok_or_else(missing)?;
                self.values.output(&last.name).cloned().ok_or_else(missing)
            }
            OutputOf::Step(name) => match self.values.output(name) {
                Some(output) => Ok(output.clone()),
                None => self.child_output(name).unwrap_or_else(|| Err(missing())),
            },
        }
    }

    /// The output of a group's child: a member of the group's output.
    fn child_output(&self, child: &str) -> Option<Result<Json, Failure>> {
        let group = self.sequence.steps.iter().find(
            |step| matches!(&step.kind, StepKind::Parallel(group) if group.steps.iter().any(|s| s.name == child)),
        )?;
        if self.values.output(&group.name)?.inline() == Some("null") {
            // The group was skipped, and its children with it.
            return Some(Ok(Json::null()));
        }
        let path = vec![Segment::Field(child.to_owned())];
        let output = Reference::Output { step: group.name.clone(), path }.resolve(&*self.values);
        Some(output.map_err(|why| unresolved(&why)))
    }
}

impl Task for SequenceTask {
    fn resumed(&mut self, cx: &mut Cx) {
        if let (Some(current), None) = (&mut self.current, &self.stopped) {
            current.resumed(cx);
        }
    }

    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        loop {
            if let Some(current) = &mut self.current {
                let Poll::Ready(result) = current.poll(cx) else {
                    return Poll::Pending;
                };
                self.is_partial |= !current.may_be_remembered();
                self.current = None;
                let step = Arc::clone(&self.sequence.steps[self.next]);
                self.next += 1;
                self.row = self.row.map(|row| row + step.rows());
                match result {
                    Ok(output) => Arc::make_mut(&mut self.values).push(&step.name, output),
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
            let Some(step) = self.sequence.steps.get(self.next) else {
                return Poll::Ready(self.output());
            };
            // A pipeline whose last step has succeeded cannot be stopped.
            if let Some(why) = &self.stopped {
                return Poll::Ready(Err(why.clone()));
            }
            let path = self.path.child(&step.name);
            let (row, ledger) = (self.row, self.row.or(self.ledger));
            let step_context =
                StepContext { row, ledger, path, dir: self.sequence.dir.as_str().into(), item: self.item.clone() };
            self.current = Some(StepTask::new(Arc::clone(step), step_context, Arc::clone(&self.values)));
        }
    }

    fn may_be_remembered(&self) -> bool {
        !self.is_partial
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        if let Some(current) = &mut self.current {
            current.stop(cx, why);
        }
    }
}
