//! A learned pipeline that an agent calls as a tool (L-77).
//!
//! Its steps run as if the request had been routed to it, and ask the same questions. A deviation is an error of the
//! tool, with the results so far.

use std::sync::Arc;
use std::task::Poll;

use serde_json::{Map, Value};

use super::conversation::batch::Proposal;
use super::handover::{Call, cut, of_tool, reason_of};
use super::sequence::SequenceTask;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Path, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind};
use crate::plan::PipelineTool;
use crate::report::{CallDeviation, is_below};
use crate::tool::ToolResult;
use crate::tree;

/// Maximum size of an output for the model, in bytes.
const MAX_OUTPUT: usize = 64 * 1024;

/// A call in progress.
#[derive(Debug)]
pub(super) struct PipelineCall {
    name: String,
    sequence: SequenceTask,
    path: Path,
    is_stopped: bool,
}

impl PipelineCall {
    /// The call that a model proposes. `request` is the prompt of its agent.
    ///
    /// # Errors
    /// The arguments do not fit the parameters. The error is the result for the model.
    pub(super) fn new(
        pipeline: &PipelineTool,
        proposal: &Proposal,
        (caller, values, request): (&StepContext, &Values, &str),
    ) -> Result<Self, ToolResult> {
        let input = input(pipeline, &proposal.arguments)?;
        let step_context = StepContext { path: proposal.path.clone(), row: None, ..caller.clone() };
        let values = values.for_sub_pipeline(input).with_request(Some(request.into()));
        Ok(Self {
            name: pipeline.tool.name.clone(),
            sequence: SequenceTask::without_rows(Arc::clone(&pipeline.sequence), &step_context, values),
            path: proposal.path.clone(),
            is_stopped: false,
        })
    }

    /// Advances until the call waits.
    ///
    /// # Errors
    /// A failure that ends the run: of its budget, its cancellation, its environment, or an internal error.
    pub(super) fn poll(&mut self, cx: &mut Cx) -> Poll<Result<ToolResult, Failure>> {
        // No other call runs beside this one, so all calls kept meanwhile are its own.
        let kept_before = std::mem::replace(&mut cx.keeps_calls, true);
        let polled = self.sequence.poll(cx);
        cx.keeps_calls = kept_before;
        let Poll::Ready(result) = polled else { return Poll::Pending };
        let own = |call: &Call| is_below(&call.id, self.path.as_str());
        let calls: Vec<Call> = cx.calls.iter().filter(|call| own(call)).cloned().collect();
        cx.calls.retain(|call| !own(call));
        Poll::Ready(match result {
            Ok(output) => output
                .text()
                .map(|text| ToolResult::ok(shown(&text)))
                .map_err(|error| Failure::new(FailureKind::Environment, error.to_string())),
            Err(failure) if self.is_stopped || ends_the_run(&failure) => Err(failure),
            Err(mut failure) => {
                failure.step = failure.step.or_else(|| self.sequence.last_step().map(str::to_owned));
                // The agent continues: another attempt at the run yields the same outcomes for the same steps.
                cx.open_work.succeed(self.path.as_str());
                cx.deviations.push(CallDeviation {
                    pipeline: self.name.clone(),
                    step: failure.step.clone().unwrap_or_default(),
                    reason: reason_of(&failure),
                });
                let content = of_tool(&self.name, &failure, &calls, &self.sequence.outputs(), cx.facts.abi);
                cx.hold_to(calls);
                let message = format!("pipeline `{}` deviated: {}", self.name, failure.message);
                Ok(ToolResult { content, ..ToolResult::terminal("Deviated", &message) })
            }
        })
    }

    /// Asks the call to end soon. It is polled until everything that it has started is gone.
    pub(super) fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        if !self.is_stopped {
            self.is_stopped = true;
            self.sequence.stop(cx, why);
        }
    }
}

/// The input from the arguments that a model wrote, with defaults for missing members.
fn input(pipeline: &PipelineTool, arguments: &str) -> Result<Json, ToolResult> {
    let name = &pipeline.tool.name;
    let invalid = |why: String| ToolResult::terminal("InputInvalid", &format!("the arguments of `{name}` {why}"));
    let mut members: Map<String, Value> = match arguments.trim() {
        "" => Map::new(),
        text => match tree::parse_response(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err(invalid("are not a JSON object".to_owned())),
            Err(error) => return Err(invalid(format!("are not JSON: {error}"))),
        },
    };
    for (name, default) in &pipeline.defaults {
        if let (false, Ok(default)) = (members.contains_key(name), default.value()) {
            members.insert(name.clone(), default);
        }
    }
    let input = Value::Object(members);
    match &pipeline.input.faults(&input)[..] {
        [] => Ok(Json::of(&input)),
        faults => Err(invalid(format!("do not fit: {}", faults.join("; ")))),
    }
}

/// An output for the model: a string as plain text, everything else as JSON.
fn shown(text: &str) -> String {
    let plain = serde_json::from_str::<String>(text);
    cut(plain.as_deref().unwrap_or(text), MAX_OUTPUT)
}

/// True for a failure that no other tool can avoid.
fn ends_the_run(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::BudgetExceeded | FailureKind::Cancelled | FailureKind::Environment | FailureKind::Internal
    )
}
