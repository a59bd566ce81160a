//! A step that is one call of a tool (L-43) or of a command of an Agent Application. It waits if a person must
//! confirm the call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use super::binding::{members, unresolved};
use super::conversation::batch::{Admission, Batch, BatchContext, Gatekeeper, Proposal};
use super::handover::Call;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::{Application, ToolStep};
use crate::tool::{APPLICATION_CALL, ToolError, ToolResult, ToolSelection};

#[derive(Debug)]
pub(super) struct CallTask {
    what: String,
    reads: Reads,
    step_context: StepContext,
    batch: Batch,
    batch_context: BatchContext,
    stopped: Option<Failure>,
    /// True if the call was running when the step was stopped.
    is_cut_off: bool,
    /// Record of a tool call, for an agent that takes over.
    kept: Option<Call>,
}

/// Gatekeeper for a call that the pipeline's author wrote: it always admits the call, and the host decides on approval.
#[derive(Debug)]
struct Written;

impl Gatekeeper for Written {
    fn admit(&mut self, _cx: &mut Cx, _call: &Proposal) -> Poll<Result<Admission, Failure>> {
        Poll::Ready(Ok(Admission::Run { is_approved: false }))
    }
}

/// Conversion of a result's text into the step's output.
#[derive(Debug, Clone, Copy)]
enum Reads {
    /// The text must be JSON.
    Document,
    /// A JSON object or array becomes that value, any other text a string.
    Value,
}

impl CallTask {
    /// The task for a command of an application.
    pub(super) fn of_application(
        application: &Application,
        step_context: &StepContext,
        values: &Values,
    ) -> Result<Self, Failure> {
        let args = application.args.iter().map(|arg| arg.render(values).map_err(|e| unresolved(&e)));
        let args = args.collect::<Result<Vec<String>, _>>()?;
        let (slug, command) = (&application.application, &application.command);
        let arguments = json!({"application": slug, "command": command, "args": args}).to_string();
        let (what, selection) = (format!("`{slug} {command}`"), Arc::default());
        Ok(Self::new(what, (APPLICATION_CALL, arguments), selection, Reads::Document, step_context))
    }

    pub(super) fn of_tool(call: &ToolStep, step_context: &StepContext, values: &Values) -> Result<Self, Failure> {
        let arguments = members(&call.args, values)?;
        let (what, selection) = (format!("`{}`", call.tool), Arc::clone(&call.tool_selection));
        let kept = Call {
            id: step_context.path.as_str().to_owned(),
            tool: call.tool.clone(),
            arguments: arguments.clone(),
            content: String::new(),
            error: None,
            is_cut_off: false,
            writes: call.writes,
        };
        Ok(Self { kept: Some(kept), ..Self::new(what, (&call.tool, arguments), selection, Reads::Value, step_context) })
    }

    fn new(
        what: String,
        (name, arguments): (&str, String),
        tool_selection: Arc<ToolSelection>,
        reads: Reads,
        step_context: &StepContext,
    ) -> Self {
        let proposal = Proposal {
            id: step_context.path.as_str().to_owned(),
            name: name.to_owned(),
            arguments,
            path: step_context.path.clone(),
            is_exclusive: true,
        };
        let batch_context = BatchContext {
            tool_selection,
            row: None,
            ledger: step_context.ledger,
            stage_execution: None,
            always: BTreeSet::new(),
        };
        let (step_context, batch) = (step_context.clone(), Batch::new(vec![proposal]));
        Self { what, reads, step_context, batch, batch_context, stopped: None, is_cut_off: false, kept: None }
    }

    fn judge(&self, result: &ToolResult) -> Result<Json, Failure> {
        let Some(error) = &result.error else {
            return match self.reads {
                Reads::Value => Ok(value_of(&result.content)),
                Reads::Document => Json::parse(&result.content).map_err(|why| {
                    let message = format!("the output of {} is not JSON: {why}", self.what);
                    Failure::new(FailureKind::StepOutputInvalid, message)
                }),
            };
        };
        let kind = match error.code.as_str() {
            "ApprovalDenied" => FailureKind::ApprovalDenied,
            "NotTrusted" => FailureKind::Environment,
            _ => FailureKind::StepFailed,
        };
        let failure = Failure::new(kind, format!("{}: {}", self.what, error.message));
        Err(match (self.reads, kind) {
            (Reads::Value, FailureKind::ApprovalDenied) => failure.because(Reason::Denied),
            (Reads::Value, FailureKind::StepFailed) if error.code == ToolResult::NOT_CONFIRMED => {
                failure.because(Reason::NotConfirmed)
            }
            (Reads::Value, FailureKind::StepFailed) => failure.because(Reason::ToolError),
            _ => failure,
        })
    }

    /// Keeps the call for an agent that takes over.
    fn keep(&mut self, cx: &mut Cx, result: &ToolResult) {
        let Some(call) = self.kept.take() else { return };
        // If no answer arrived in time, the effects of the call are unknown.
        let has_no_answer =
            |error: &ToolError| ["ExecutionTimeout", "ServerUnavailable"].contains(&error.code.as_str());
        cx.keep_call(Call {
            content: result.content.clone(),
            error: result.error.clone(),
            is_cut_off: self.is_cut_off || result.error.as_ref().is_some_and(has_no_answer),
            ..call
        });
    }
}

/// The value that a tool returned (`result` of a trace): text that is one JSON object or array is parsed, other text
/// becomes a string.
pub(super) fn value_of(content: &str) -> Json {
    let is_structure = content.trim_start().starts_with(['{', '[']);
    let value = is_structure.then(|| Json::parse(content).ok()).flatten();
    value.unwrap_or_else(|| Json::of(&content.into()))
}

impl Task for CallTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        let Poll::Ready(results) = self.batch.poll(cx, &mut Written, &mut self.batch_context, self.stopped.as_ref())
        else {
            return Poll::Pending;
        };
        cx.count_execution(self.step_context.row, self.step_context.ledger, 1);
        if self.is_cut_off {
            self.keep(cx, &ToolResult::cancelled());
        }
        let results = results?;
        let missing = || Failure::new(FailureKind::Internal, "a call without a result");
        let (_, result) = results.first().ok_or_else(missing)?;
        self.keep(cx, result);
        Poll::Ready(self.judge(result))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        let path = &self.step_context.path;
        self.is_cut_off = [1, 2].into_iter().any(|attempt| cx.is_started(&path.attempt(attempt)));
        self.batch.stop(cx);
    }
}
