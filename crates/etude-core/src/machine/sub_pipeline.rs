//! A pipeline as a step, without its constructor and destructor.

use std::sync::Arc;
use std::task::Poll;

use super::binding::bind;
use super::sequence::SequenceTask;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind};
use crate::plan::SubPipeline;

#[derive(Debug)]
pub(super) struct SubPipelineTask {
    sequence: SequenceTask,
    name: String,
    stopped: Option<Failure>,
}

impl SubPipelineTask {
    pub(super) fn new(
        call: &SubPipeline,
        step: &str,
        step_context: &StepContext,
        values: &Values,
    ) -> Result<Self, Failure> {
        let taker = format!("pipeline `{}`", call.sequence.name);
        let input = bind(step, &taker, &call.input, &call.schema, values)?;
        let values = values.for_sub_pipeline(input);
        let sequence = Arc::clone(&call.sequence);
        Ok(Self {
            sequence: SequenceTask::without_rows(sequence, step_context, values),
            name: call.sequence.name.clone(),
            stopped: None,
        })
    }
}

impl Task for SubPipelineTask {
    fn resumed(&mut self, cx: &mut Cx) {
        self.sequence.resumed(cx);
    }

    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        let Poll::Ready(result) = self.sequence.poll(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(result.map_err(|mut failure| match &self.stopped {
            Some(why) => why.clone(),
            None => {
                let below = |message: &str| format!("in pipeline `{}`: {message}", self.name);
                failure.message = below(&failure.message);
                failure.siblings.iter_mut().for_each(|sibling| sibling.message = below(&sibling.message));
                failure
            }
        }))
    }

    fn may_be_remembered(&self) -> bool {
        self.sequence.may_be_remembered()
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        // The calling step's timeout is not a timeout of the steps below.
        self.sequence.stop(cx, &Failure::new(FailureKind::Cancelled, why.message.clone()));
    }
}
