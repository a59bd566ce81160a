//! A command of an Agent Application as a step: one tool call, which waits where a person has to confirm it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;

use serde_json::json;

use super::binding::unresolved;
use super::conversation::batch::{Admission, Batch, BatchContext, Gatekeeper, Proposal};
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::failure::{Failure, FailureKind};
use crate::plan::Application;
use crate::tool::{APPLICATION_CALL, ToolResult, ToolSelection};

#[derive(Debug)]
pub(super) struct ApplicationTask {
    what: String,
    step_context: StepContext,
    batch: Batch,
    batch_context: BatchContext,
    stopped: Option<Failure>,
}

/// The pipeline's author wrote the call down; whether it may be made is for the host to say.
#[derive(Debug)]
struct Written;

impl Gatekeeper for Written {
    fn admit(&mut self, _cx: &mut Cx, _call: &Proposal) -> Poll<Result<Admission, Failure>> {
        Poll::Ready(Ok(Admission::Run { is_approved: false }))
    }
}

impl ApplicationTask {
    pub(super) fn new(application: &Application, step_context: &StepContext, values: &Values) -> Result<Self, Failure> {
        let args = application.args.iter().map(|arg| arg.render(values).map_err(|e| unresolved(&e)));
        let args = args.collect::<Result<Vec<String>, _>>()?;
        let (slug, command) = (&application.application, &application.command);
        let arguments = json!({"application": slug, "command": command, "args": args}).to_string();
        let proposal = Proposal {
            id: step_context.path.as_str().to_owned(),
            name: APPLICATION_CALL.to_owned(),
            arguments,
            path: step_context.path.clone(),
            is_exclusive: true,
        };
        let batch_context = BatchContext {
            tool_selection: Arc::new(ToolSelection::default()),
            row: None,
            ledger: step_context.ledger,
            stage_execution: None,
            always: BTreeSet::new(),
        };
        let what = format!("`{slug} {command}`");
        Ok(Self {
            what,
            step_context: step_context.clone(),
            batch: Batch::new(vec![proposal]),
            batch_context,
            stopped: None,
        })
    }

    fn judge(&self, result: &ToolResult) -> Result<Json, Failure> {
        let Some(error) = &result.error else {
            return Json::parse(&result.content).map_err(|why| {
                Failure::new(
                    FailureKind::StepOutputInvalid,
                    format!("{} printed something else than JSON: {why}", self.what),
                )
            });
        };
        let kind = match error.code.as_str() {
            "ApprovalDenied" => FailureKind::ApprovalDenied,
            "NotTrusted" => FailureKind::Environment,
            _ => FailureKind::StepFailed,
        };
        Err(Failure::new(kind, format!("{}: {}", self.what, error.message)))
    }
}

impl Task for ApplicationTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        let Poll::Ready(results) = self.batch.poll(cx, &mut Written, &mut self.batch_context, self.stopped.as_ref())
        else {
            return Poll::Pending;
        };
        cx.count_attempt(self.step_context.ledger, 1);
        let results = results?;
        let missing = || Failure::new(FailureKind::Internal, "an application step without a result");
        let (_, result) = results.first().ok_or_else(missing)?;
        Poll::Ready(self.judge(result))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        self.batch.stop(cx);
    }
}
