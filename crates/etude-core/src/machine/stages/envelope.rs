//! Admission of a stage's tool calls (`b-stages` §11): its envelope, then grants, then guards.
//!
//! | state    | event                                   | next                                           |
//! |----------|-----------------------------------------|------------------------------------------------|
//! | idle     | the tool is in `allowedTools`           | guarding                                       |
//! | idle     | an answer for this exact call is there  | guarding, or refused                           |
//! | idle     | anything else                           | policy, or the decision of one of its rules    |
//! | policy   | approve                                 | guarding, with a grant that is used at once    |
//! | policy   | deny, or it is broken                   | refused                                        |
//! | policy   | defer                                   | asking; with `--yolo` guarding                 |
//! | asking   | answered                                | the stage restarts, and finds the answer       |
//! | guarding | a guard denies, or is broken            | refused                                        |
//! | guarding | no guard is left                        | it runs                                        |
//!
//! A batch uses up answers and rules when all its calls are decided. If one of the calls must ask, no call of the batch
//! runs, and the batch returns them.

use std::task::Poll;

use serde_json::{Value, json};

use super::allowed::{Allowed, Answer};
use super::audit::emit;
use super::fault::HOST;
use super::grants::{Tuple, args_digest};
use super::guard;
use super::hook::Hook;
use super::reply::{Decided, decision};
use super::shared::{Shared, View};
use super::stage_context::StageContext;
use crate::data::{Json, overlaid};
use crate::document::Document;
use crate::effect::{Effect, EffectId, Gate, Subject};
use crate::failure::Failure;
use crate::machine::Cx;
use crate::machine::conversation::batch::{Admission, Gatekeeper, Proposal};
use crate::machine::outcome_error::unexpected_outcome;
use crate::outcome::Outcome;
use crate::plan::stages::{GrantDecision, Grants};
use crate::report::StageStatus;
use crate::tool::{ErrorClass, ToolResult, asked_arguments, exact_arguments, shown_arguments};

/// The decisions about the calls of one stage execution.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    state: State,
    /// Permissions of the stage's calls, until a batch of them runs.
    allowed: Allowed,
    /// True if a question was answered: the stage must restart.
    pub(super) is_answered: bool,
    stopped: Option<Failure>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Policy(Hook),
    Asking(EffectId),
    Guarding {
        source: &'static str,
        at: usize,
        hook: Option<Hook>,
    },
}

/// The envelope with the state that it decides by, while its conversation lasts.
#[derive(Debug)]
pub(super) struct Gatehouse<'a> {
    pub(super) envelope: &'a mut Envelope,
    pub(super) stage_context: &'a StageContext,
    pub(super) shared: &'a mut Shared,
    pub(super) view: &'a View,
}

impl Envelope {
    /// True if the envelope waits for a person.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// Abandons effects that died with their process; the answers stay.
    pub(super) fn forget(&mut self, cx: &mut Cx, shared: &mut Shared) {
        self.allowed.give_back(cx.facts.abi, &mut shared.rules_used);
        match &self.state {
            State::Policy(hook) | State::Guarding { hook: Some(hook), .. } => hook.forget(cx),
            State::Asking(id) => cx.forget(id),
            _ => {}
        }
        self.state = State::Idle;
        self.is_answered = false;
    }
}

impl Gatehouse<'_> {
    fn tuple(&self, call: &Proposal) -> Tuple {
        Tuple {
            stage_execution: self.stage_context.id.clone(),
            attempt: self.stage_context.attempt,
            proposal: call.path.as_str().to_owned(),
            tool: call.name.clone(),
            args_digest: self.args_digest(call),
        }
    }

    /// The digest of the arguments of a call, to which permissions are bound (B-GT5).
    fn args_digest(&self, call: &Proposal) -> String {
        args_digest(&call.arguments, self.shared.abi)
    }

    fn emit_approval(&self, cx: &mut Cx, call: &Proposal, decision: &str, source: &str, reason: Option<&str>) {
        let tuple = self.tuple(call);
        let payload = json!({
            "decision": decision, "source": source, "toolId": call.name,
            "approvalKey": self.shared.approval_key(&call.name, &call.arguments),
            "proposalId": tuple.proposal, "argsDigest": tuple.args_digest, "reason": reason,
        });
        emit(cx, "Approval", self.stage_context.event(self.shared, payload));
    }

    /// Refuses a call; the stage continues (B-AP3).
    fn refuse(&mut self, cx: &mut Cx, call: &Proposal, source: &str, why: &str) -> Admission {
        self.envelope.state = State::Idle;
        self.emit_approval(cx, call, "deny", source, Some(why));
        let result = ToolResult::denied(why);
        self.emit_failed(cx, call, "ToolTerminal", "ApprovalDenied", why, 0);
        Admission::Refuse(result)
    }

    fn emit_failed(&self, cx: &mut Cx, call: &Proposal, class: &str, code: &str, reason: &str, ms: u64) {
        let more = json!({"durationMs": ms, "errorClass": class, "errorCode": code, "reason": reason});
        emit(cx, "ToolInvocationFailed", self.invocation(call, more));
    }

    fn invocation(&self, call: &Proposal, more: Value) -> Value {
        let own = json!({"toolCallId": call.id, "toolName": call.name});
        self.stage_context.event(self.shared, overlaid(own, more))
    }

    /// Starts the guards of a call; without guards the call runs.
    fn guard(&mut self, source: &'static str) {
        self.envelope.state = State::Guarding { source, at: 0, hook: None };
    }

    /// Issues a grant and uses it up for the same call (B-GT4, B-GT8). `at` is the time of a person's answer. There is
    /// no clock here, so for a policy the caller that emits the event adds the time.
    fn grant(&mut self, cx: &mut Cx, call: &Proposal, at: Option<&str>) -> Option<Admission> {
        let tuple = self.tuple(call);
        self.shared.grants.issue(&tuple);
        let facts = json!({"tuple": tuple.json(), "decision": "approve", "issuedAt": at});
        emit(cx, "GrantIssued", self.stage_context.event(self.shared, facts));
        if let Err(code) = self.shared.grants.consume(&tuple) {
            return Some(self.refuse(cx, call, "sm-grant-token", code));
        }
        let facts = json!({"tuple": tuple.json()});
        emit(cx, "GrantConsumed", self.stage_context.event(self.shared, facts));
        self.guard("sm-grant-token");
        None
    }

    /// Begins the decision about a call.
    fn begin(&mut self, cx: &mut Cx, call: &Proposal) -> Option<Admission> {
        if !self.shared.is_tool(&call.name) {
            let why = format!("there is no tool `{}`", call.name);
            return Some(Admission::Refuse(ToolResult::terminal("ToolNotRegistered", &why)));
        }
        let args = asked_arguments(&call.arguments, self.shared.abi);
        emit(cx, "ToolInvocationProposed", self.invocation(call, json!({"args": args})));
        if self.stage_context.stage.allowed_tools.contains(&call.name) {
            self.guard("sm-envelope");
            return None;
        }
        if let Some(answer) = self.envelope.allowed.take(&call.name, &self.args_digest(call)) {
            if answer.approved {
                return self.grant(cx, call, Some(&answer.at));
            }
            let reason = answer.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let why = format!("the user did not allow `{}`{reason}", call.name);
            return Some(self.refuse(cx, call, "grantStageTool", &why));
        }
        let rule = match &self.shared.machine.grants {
            Grants::Script(_) => {
                self.ask_policy(call);
                return None;
            }
            Grants::Rules(_) => self.rule(call),
        };
        self.follow(cx, call, rule)
    }

    /// Decision of the policy's rules (B-GT3).
    fn rule(&mut self, call: &Proposal) -> GrantDecision {
        let Grants::Rules(rules) = &self.shared.machine.grants else { return GrantDecision::Defer };
        for (at, rule) in rules.iter().enumerate() {
            let used = self.shared.rules_used.get(&at).copied().unwrap_or(0);
            let is_here = rule.stage.as_ref().is_none_or(|stage| *stage == self.stage_context.stage.id);
            if is_here && (rule.tool == call.name || rule.tool == "*") && rule.times.is_none_or(|most| used < most) {
                self.envelope.allowed.use_rule(at, &mut self.shared.rules_used);
                return rule.decision;
            }
        }
        GrantDecision::Defer
    }

    fn ask_policy(&mut self, call: &Proposal) {
        let machine = std::sync::Arc::clone(&self.shared.machine);
        let Grants::Script(script) = &machine.grants else { return };
        let args = shown_arguments(&call.arguments);
        let more = json!({"tuple": self.tuple(call).json(), "tool": call.name, "args": args});
        let stdin = self.stage_context.document(self.shared, self.view, "grant", more);
        let stdin = self.with_digits(stdin, "/args", call);
        let path = call.path.child("grant");
        let hook = Hook::new(&path, path.as_str(), 1, script, &machine.dir, stdin);
        self.envelope.state = State::Policy(hook);
    }

    /// A script's input with the arguments at `pointer` as the tool gets them (B-GT5).
    fn with_digits(&self, stdin: Value, pointer: &str, call: &Proposal) -> Document {
        Document::from(stdin).with(pointer.to_owned(), exact_arguments(&call.arguments, self.shared.abi))
    }

    fn follow(&mut self, cx: &mut Cx, call: &Proposal, decision: GrantDecision) -> Option<Admission> {
        match decision {
            GrantDecision::Approve => self.grant(cx, call, None),
            GrantDecision::Deny => {
                let why =
                    format!("the machine does not allow `{}` in stage `{}`", call.name, self.stage_context.stage.id);
                Some(self.refuse(cx, call, "sm-policy", &why))
            }
            GrantDecision::Defer if self.shared.yolo => self.grant(cx, call, None),
            GrantDecision::Defer => {
                self.halt(cx, call);
                None
            }
        }
    }

    /// Halts the stage with a question, because no one is there to answer at once (B-HL1).
    fn halt(&mut self, cx: &mut Cx, call: &Proposal) {
        let id = call.path.aside("ask");
        self.stage_context.emit_raised(cx, self.shared, "grantStageTool", &id);
        self.emit_approval(cx, call, "halt", "headless", None);
        cx.stages.rows[self.stage_context.row].status = StageStatus::Halted;
        self.envelope.allowed.give_back(cx.facts.abi, &mut self.shared.rules_used);
        self.envelope.state = State::Asking(id);
    }

    fn question(&self, call: &Proposal) -> Gate {
        let args = asked_arguments(&call.arguments, self.shared.abi);
        let payload = json!({
            "toolId": call.name, "stageExecutionId": self.stage_context.id, "argsDigest": self.args_digest(call),
            "stageId": self.stage_context.stage.id, "args": args,
        });
        let message = format!(
            "stage `{}` wants to call `{}`, which is not in its `allowedTools`",
            self.stage_context.stage.id, call.name
        );
        let subject = Subject::Other { kind: "grantStageTool", payload: Json::of(&payload) };
        Gate { message, schema: None, approvers: Vec::new(), subject }
    }

    /// Waits for the answer, and keeps it until the stage proposes the call again.
    fn wait(&mut self, cx: &mut Cx, call: &Proposal, id: &EffectId) -> Result<(), Failure> {
        let Poll::Ready(done) = cx.run_effect(id, || Effect::Gate(self.question(call))) else { return Ok(()) };
        cx.book(self.shared.ledger, id, &done);
        let Outcome::Decided(decided) = done.outcome else { return Err(unexpected_outcome(id)) };
        self.stage_context.emit_answered(cx, self.shared, &decided);
        self.envelope.state = State::Idle;
        self.envelope.is_answered = true;
        let answer = Answer {
            tool: call.name.clone(),
            args_digest: self.args_digest(call),
            approved: decided.approved,
            reason: decided.reason,
            at: decided.at,
        };
        self.envelope.allowed.note(answer);
        Ok(())
    }

    /// The next guard: guards run one after the other (B-H1, B-H2).
    fn next_guard(&mut self, call: &Proposal, at: usize) -> Option<Hook> {
        let machine = std::sync::Arc::clone(&self.shared.machine);
        let guard = machine.guards.get(at)?;
        let args = shown_arguments(&call.arguments);
        let payload = json!({"toolId": call.name, "args": args, "decision": "approve"});
        let more = json!({"slot": guard::SLOT, "payload": payload, "correlationId": call.path.as_str()});
        let stdin = self.stage_context.document(self.shared, self.view, "guard", more);
        let stdin = self.with_digits(stdin, "/payload/args", call);
        let path = call.path.child(&format!("guard{}", at + 1));
        Some(Hook::new(&path, path.as_str(), 1, &guard.script, &guard.dir, stdin))
    }

    fn judge_guard(&mut self, cx: &mut Cx, call: &Proposal, at: usize, fields: Decided) -> Option<Admission> {
        let name = format!("guard{}", at + 1);
        let own = json!({"slot": guard::SLOT, "subKind": "guard", "extensionId": name, "toolId": call.name});
        let slot = |more: Value| overlaid(own.clone(), more);
        emit(cx, "HookFired", self.stage_context.event(self.shared, slot(json!({}))));
        match fields {
            Ok((word, _)) if word == "allow" => None,
            Ok((_, members)) => {
                let (code, reason) = guard::denial(&members);
                emit(
                    cx,
                    "HookGuardDenied",
                    self.stage_context.event(self.shared, slot(json!({"code": code, "reason": reason}))),
                );
                Some(self.refuse(cx, call, "guard", &guard::denied(&code, &reason)))
            }
            Err((why, facts)) => {
                let more = json!({"class": HOST, "code": "HookGuardFailed", "detail": why});
                let more = slot(overlaid(more, Value::Object(facts)));
                emit(cx, "HookGuardFailed", self.stage_context.event(self.shared, more));
                Some(self.refuse(cx, call, "guard", guard::UNDECIDED))
            }
        }
    }

    /// Takes one step; `Ready(None)` means that there are more.
    fn step(&mut self, cx: &mut Cx, call: &Proposal) -> Result<Poll<Option<Admission>>, Failure> {
        match &mut self.envelope.state {
            State::Idle if self.envelope.is_answered => Ok(Poll::Pending),
            State::Idle => Ok(Poll::Ready(self.begin(cx, call))),
            State::Policy(hook) => {
                let Poll::Ready(reply) = hook.poll(cx, self.shared.ledger) else { return Ok(Poll::Pending) };
                let Some(reply) = reply else { return Ok(Poll::Ready(Some(self.given_up()))) };
                match decision(reply, &["approve", "deny", "defer"]) {
                    Ok((word, _)) => {
                        let word = GrantDecision::from_word(&word).unwrap_or(GrantDecision::Deny);
                        Ok(Poll::Ready(self.follow(cx, call, word)))
                    }
                    Err((why, facts)) => {
                        let more = json!({"class": HOST, "code": "LifecycleFailure", "phase": "grant", "detail": why});
                        let more = overlaid(more, Value::Object(facts));
                        emit(cx, "LifecycleFailure", self.stage_context.event(self.shared, more));
                        let why = "the machine's policy could not decide, so the call is denied";
                        Ok(Poll::Ready(Some(self.refuse(cx, call, "sm-policy", why))))
                    }
                }
            }
            State::Asking(id) => {
                let id = id.clone();
                self.wait(cx, call, &id)?;
                // Applies even after an answer: the stage restarts, and no call of this batch runs.
                Ok(Poll::Pending)
            }
            State::Guarding { source, at, hook: None } => {
                let (source, at) = (*source, *at);
                match self.next_guard(call, at) {
                    Some(hook) => self.envelope.state = State::Guarding { source, at, hook: Some(hook) },
                    None => {
                        self.envelope.state = State::Idle;
                        self.emit_approval(cx, call, "approve", source, None);
                        return Ok(Poll::Ready(Some(Admission::Run { is_approved: true })));
                    }
                }
                Ok(Poll::Ready(None))
            }
            State::Guarding { source, at, hook: Some(hook) } => {
                let (source, at) = (*source, *at);
                let Poll::Ready(reply) = hook.poll(cx, self.shared.ledger) else { return Ok(Poll::Pending) };
                let Some(reply) = reply else { return Ok(Poll::Ready(Some(self.given_up()))) };
                let denied = self.judge_guard(cx, call, at, decision(reply, guard::WORDS));
                if denied.is_none() {
                    self.envelope.state = State::Guarding { source, at: at + 1, hook: None };
                }
                Ok(Poll::Ready(denied))
            }
        }
    }

    fn given_up(&mut self) -> Admission {
        self.envelope.state = State::Idle;
        Admission::Refuse(ToolResult::denied("the stage was stopped"))
    }
}

impl Gatekeeper for Gatehouse<'_> {
    fn admit(&mut self, cx: &mut Cx, call: &Proposal) -> Poll<Result<Admission, Failure>> {
        loop {
            if self.envelope.stopped.is_some() && matches!(self.envelope.state, State::Idle) {
                return Poll::Ready(Ok(self.given_up()));
            }
            match self.step(cx, call)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(admission)) => return Poll::Ready(Ok(admission)),
                Poll::Ready(None) => {}
            }
        }
    }

    fn decided(&mut self) {
        self.envelope.allowed.spend();
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.envelope.stopped = Some(why.clone());
        match &self.envelope.state {
            State::Policy(hook) | State::Guarding { hook: Some(hook), .. } => hook.stop(cx),
            State::Asking(id) => {
                cx.forget(id);
                self.envelope.state = State::Idle;
            }
            State::Guarding { .. } => self.envelope.state = State::Idle,
            State::Idle => {}
        }
    }

    fn began(&mut self, cx: &mut Cx, call: &Proposal) {
        let args = asked_arguments(&call.arguments, self.shared.abi);
        emit(cx, "ToolInvocationStarted", self.invocation(call, json!({"args": args})));
    }

    fn ended(&mut self, cx: &mut Cx, call: &Proposal, result: &ToolResult, elapsed_ms: u64) {
        match &result.error {
            None => emit(cx, "ToolInvocationSucceeded", self.invocation(call, json!({"durationMs": elapsed_ms}))),
            Some(error) if error.class == ErrorClass::Cancellation => {
                emit(cx, "ToolInvocationCancelled", self.invocation(call, json!({"durationMs": elapsed_ms})));
            }
            Some(error) => self.emit_failed(cx, call, error.class.word(), &error.code, &error.message, elapsed_ms),
        }
    }
}
