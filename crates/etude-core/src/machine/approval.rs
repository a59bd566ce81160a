//! A question to people (X-3). The run waits outside any process until a person answers.

use std::task::Poll;

use serde_json::json;

use super::binding::unresolved;
use super::outcome_error::unexpected_outcome;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, Task};
use crate::data::Json;
use crate::effect::{Effect, EffectId, Gate, Subject};
use crate::failure::{Failure, FailureKind};
use crate::outcome::{Decision, Outcome};
use crate::plan::{Approval, OnTimeout};

#[derive(Debug)]
pub(super) struct ApprovalTask {
    id: EffectId,
    row: Option<usize>,
    ledger: Option<usize>,
    gate: Gate,
    on_timeout: OnTimeout,
    continue_on_deny: bool,
    stopped: Option<Failure>,
}

impl ApprovalTask {
    pub(super) fn new(approval: &Approval, step_context: &StepContext, values: &Values) -> Result<Self, Failure> {
        let gate = Gate {
            message: approval.message.render(values).map_err(|e| unresolved(&e))?,
            schema: approval.schema.as_ref().map(|schema| schema.bundled()),
            approvers: approval.approvers.clone(),
            subject: match &approval.effects[..] {
                [] => Subject::Approval,
                effects => Subject::Before { effects: effects.to_vec() },
            },
        };
        Ok(Self {
            id: step_context.path.attempt(1),
            row: step_context.row,
            ledger: step_context.ledger,
            gate,
            on_timeout: approval.on_timeout,
            continue_on_deny: approval.continue_on_deny,
            stopped: None,
        })
    }

    /// Turns a decision into the step's output. `abi` is the version that began the run: before version 6, a decision
    /// without a time had an empty string instead.
    fn decide(&self, decision: &Decision, abi: u32) -> Result<Json, Failure> {
        if !decision.approved && !self.continue_on_deny {
            let reason = decision.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default();
            return Err(Failure::new(FailureKind::ApprovalDenied, format!("denied by {}{reason}", decision.by)));
        }
        let answer = decision.answer.text().map_err(|e| Failure::new(FailureKind::Environment, e.to_string()))?;
        let (by, at) = (json!(decision.by), json!((abi < 6 || !decision.at.is_empty()).then_some(&decision.at)));
        Ok(Json::trusted(format!(r#"{{"approved":{},"answer":{answer},"by":{by},"at":{at}}}"#, decision.approved)))
    }

    /// Result of an approval that no one answered in time.
    fn without_answer(&self, why: &Failure, abi: u32) -> Result<Json, Failure> {
        let approved = match (why.kind, self.on_timeout) {
            (FailureKind::StepTimeout, OnTimeout::Approve) => true,
            (FailureKind::StepTimeout, OnTimeout::Deny) => false,
            _ => return Err(why.clone()),
        };
        let reason = Some("no one answered in time".to_owned());
        // There is no clock here, so a decision by timeout has no time.
        let (by, at) = ("timeout".to_owned(), String::new());
        self.decide(&Decision { approved, answer: Json::null(), by, at, reason }, abi)
    }
}

impl Task for ApprovalTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if let Some(why) = &self.stopped {
            return Poll::Ready(self.without_answer(why, cx.facts.abi));
        }
        let gate = &self.gate;
        let Poll::Ready(done) = cx.run_effect(&self.id, || Effect::Gate(gate.clone())) else {
            return Poll::Pending;
        };
        cx.count_execution(self.row, self.ledger, 1);
        cx.book(self.ledger, &self.id, &done);
        match done.outcome {
            Outcome::Decided(decision) => Poll::Ready(self.decide(&decision, cx.facts.abi)),
            _ => Poll::Ready(Err(unexpected_outcome(&self.id))),
        }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        // A withdrawn question leaves nothing to wait for.
        cx.forget(&self.id);
    }
}
