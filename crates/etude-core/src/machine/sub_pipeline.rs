//! Another pipeline's steps, without its constructor and destructor.

use std::sync::Arc;
use std::task::Poll;

use serde_json::value::RawValue;

use super::sequence::SequenceTask;
use super::step::{StepContext, unresolved};
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind};
use crate::plan::{Binding, SubPipeline};
use crate::schema::Schema;

#[derive(Debug)]
pub(super) struct SubPipelineTask {
    sequence: SequenceTask,
    /// The pipeline's name.
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

/// The input that a step gives to a pipeline or a machine, checked against what that takes.
pub(super) fn bind(
    step: &str,
    taker: &str,
    bound: &[(String, Binding)],
    schema: &Schema,
    values: &Values,
) -> Result<Json, Failure> {
    let mut members = indexmap::IndexMap::new();
    for (name, binding) in bound {
        let value = binding.resolve(values).map_err(|e| unresolved(&e))?;
        let text = value.text().map_err(|e| Failure::new(FailureKind::Environment, e.to_string()))?;
        let raw =
            RawValue::from_string(text.to_string()).map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))?;
        members.insert(name.as_str(), raw);
    }
    let text = serde_json::to_string(&members).map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))?;
    let input = Json::trusted(text);
    let tree = input.value().map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))?;
    let violations = schema.faults(&tree);
    if violations.is_empty() {
        return Ok(input);
    }
    let message = format!("step `{step}` gives {taker} an input that it does not take: {}", violations.join("; "));
    Err(Failure::new(FailureKind::InputInvalid, message))
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
                failure.message = format!("in pipeline `{}`: {}", self.name, failure.message);
                failure
            }
        }))
    }

    fn may_be_remembered(&self) -> bool {
        self.sequence.may_be_remembered()
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        // The calling step's timeout is not that of the steps below.
        self.sequence.stop(cx, &Failure::new(FailureKind::Cancelled, why.message.clone()));
    }
}
