//! Questions of a stage to people: whether to run although the gate is not open, and the questions of scripts.
//!
//! A person answers outside any process. Then the stage restarts, and uses the answer when it reaches the same question
//! (B-HL3).

use std::task::Poll;

use serde_json::{Value, json};

use super::{Execution, ScriptReply, State, Step};
use crate::data::{Json, overlaid};
use crate::digest::Digest;
use crate::effect::{Effect, EffectId, Gate, Subject};
use crate::failure::Failure;
use crate::machine::Cx;
use crate::machine::outcome_error::unexpected_outcome;
use crate::machine::stages::audit::emit;
use crate::machine::stages::fault::Phase;
use crate::machine::stages::hook::{Hook, Reply};
use crate::machine::stages::shared::Shared;
use crate::outcome::{Decision, Outcome};
use crate::report::StageStatus;

/// A question that halts the stage.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: EffectId,
    gate: Gate,
    about: About,
}

#[derive(Debug)]
enum About {
    /// The question whether to run although the gate is not open.
    Entry,
    /// A question of a script.
    Script { call: Box<Hook>, question: Question },
}

/// Identity of a script's question: an answer is valid only for the same script and the same request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// The script's key, which stays the same if the stage restarts.
    script: String,
    request: Digest,
}

impl Execution {
    /// Asks whether the stage should run although its gate is not open.
    pub(super) fn confirm(&mut self, cx: &mut Cx, shared: &Shared, reason: Option<String>) {
        let stage = &self.stage_context.stage;
        let payload = json!({"stageId": stage.id, "stageExecutionId": self.stage_context.id, "reason": reason});
        let why = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let message = format!("the gate of stage `{}` is not open{why}: shall it run all the same?", stage.id);
        let subject = Subject::Other { kind: "Confirm", payload: Json::of(&payload) };
        let gate = Gate { message, schema: None, approvers: Vec::new(), subject };
        self.reason = reason;
        self.raise(cx, shared, Asking { id: self.stage_context.path().aside("confirm"), gate, about: About::Entry });
    }

    /// Handles the question in a script's reply: the script is called again when the answer is there (B-20.4).
    pub(super) fn take_question(
        &mut self,
        cx: &mut Cx,
        shared: &Shared,
        call: Hook,
        reply: Reply,
    ) -> Result<ScriptReply, Failure> {
        let Reply::Value(value) = &reply else { return Ok(ScriptReply::Reply(reply)) };
        let Some(request) = value.get("ask").filter(|request| !request.is_null()) else {
            return Ok(ScriptReply::Reply(reply));
        };
        let phase = self.open.unwrap_or(Phase::Setup);
        if call.is_answered() {
            let why = "asked again after the answer; the answer is in `answer` of its stdin";
            return Err(self.asked(phase).broken(why, reply.fields()));
        }
        let Some(gate) = self.gate_of(request) else {
            let why = "gave an invalid `ask`: `{\"kind\": \"Confirm\" or \"Ask\", \"message\": TEXT, \"schema\": …}`";
            return Err(self.asked(phase).broken(why, reply.fields()));
        };
        let question = Question { script: call.key().to_owned(), request: Digest::of(request.to_string().as_bytes()) };
        let known = self.answers.iter().find(|(known, _)| *known == question).map(|(_, answer)| answer.clone());
        let answer = known.or_else(|| shared.yolo.then(|| json!({"approved": true, "value": null, "reason": null})));
        match answer {
            Some(answer) => self.call_again(&call, &answer),
            None => {
                let id = call.question_id();
                let about = About::Script { question, call: Box::new(call) };
                self.raise(cx, shared, Asking { id, gate, about });
            }
        }
        Ok(ScriptReply::Not(Step::GoesOn))
    }

    fn call_again(&mut self, call: &Hook, answer: &Value) {
        if let State::Setup(hook) | State::Gate(hook) | State::Assert(hook) | State::Exit(hook) | State::Next(hook) =
            &mut self.state
        {
            *hook = Some(call.answered(answer));
        }
    }

    /// The gate for a script's question; `None` if the request is malformed.
    fn gate_of(&self, request: &Value) -> Option<Gate> {
        let message = request.get("message")?.as_str()?.to_owned();
        let kind = match request.get("kind").map(Value::as_str) {
            None | Some(Some("Confirm")) => "Confirm",
            Some(Some("Ask")) => "Ask",
            _ => return None,
        };
        let schema = request.get("schema").filter(|schema| schema.is_object()).cloned().map(std::sync::Arc::new);
        let own = json!({"stageId": self.stage_context.stage.id, "stageExecutionId": self.stage_context.id});
        let subject = Subject::Other { kind, payload: Json::of(&overlaid(request.clone(), own)) };
        Some(Gate { message, schema, approvers: Vec::new(), subject })
    }

    fn raise(&mut self, cx: &mut Cx, shared: &Shared, asking: Asking) {
        let kind = asking.gate.subject.word();
        self.stage_context.emit_raised(cx, shared, kind, &asking.id);
        let facts = json!({"decision": "halt", "source": "headless", "requestKind": kind});
        emit(cx, "Approval", self.stage_context.event(shared, facts));
        if !self.has_left {
            cx.stages.rows[self.stage_context.row].status = StageStatus::Halted;
        }
        self.state = State::Asking(Box::new(asking));
    }

    /// Waits for the answer.
    pub(super) fn asking(&mut self, cx: &mut Cx, shared: &Shared) -> Result<Step, Failure> {
        self.check_stop()?;
        let State::Asking(asking) = &self.state else { return Ok(Step::GoesOn) };
        let (id, gate) = (asking.id.clone(), &asking.gate);
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Gate(gate.clone())) else { return Ok(Step::Waits) };
        cx.book(shared.ledger, &id, &done);
        let Outcome::Decided(decided) = done.outcome else { return Err(unexpected_outcome(&id)) };
        self.stage_context.emit_answered(cx, shared, &decided);
        let has_left = self.has_left;
        let State::Asking(asking) = std::mem::replace(&mut self.state, State::Setup(None)) else {
            return Ok(Step::GoesOn);
        };
        match asking.about {
            About::Entry => self.confirmed = Some(decided.approved),
            About::Script { call, .. } if has_left => {
                // Exit is done: only Next is still missing.
                self.state = State::Next(Some(call.answered(&reported(&decided))));
                return Ok(Step::GoesOn);
            }
            About::Script { question, .. } => self.answers.push((question, reported(&decided))),
        }
        self.restart(cx);
        Ok(Step::GoesOn)
    }
}

/// An answer in the form for scripts.
fn reported(decided: &Decision) -> Value {
    let value = decided.answer.value().unwrap_or_default();
    json!({"approved": decided.approved, "value": value, "reason": decided.reason})
}
