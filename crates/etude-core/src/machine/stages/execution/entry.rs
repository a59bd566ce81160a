//! Setup, Init and CheckGate: the phases before the work of a stage.

use std::task::Poll;

use serde_json::{Map, Value, json};

use super::act::{Act, PARTS};
use super::{Execution, ScriptReply, State, Step};
use crate::data::Json;
use crate::effect::{Effect, EffectId, Gate as Question, Scan, Subject};
use crate::failure::Failure;
use crate::machine::outcome_error::unexpected_outcome;
use crate::machine::stages::audit::emit;
use crate::machine::stages::declared;
use crate::machine::stages::fault::{HOST, Phase, VALIDATION, cause, fault, leak};
use crate::machine::stages::shared::{Shared, View};
use crate::machine::stages::stage_context::Sources;
use crate::machine::{Cx, KEEPS_ENTRY};
use crate::outcome::Outcome;
use crate::plan::stages::{Gate, GateOutcome, Resolution, Setup, Verdict};
use crate::report::StageStatus;

/// Context fields that only etude itself sets (`b-stages` §8).
const RESERVED: [&str; 5] = ["workflowRunId", "stageExecutionId", "upstream", "attempts", "host"];

impl Execution {
    pub(super) fn setup(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View) -> Result<Step, Failure> {
        if !self.has_hook() {
            self.check_stop()?;
            self.begin(cx, shared);
            self.check_inputs().inspect_err(|failure| self.emit_init_failed(cx, shared, Phase::Setup, failure))?;
            match &self.stage_context.stage.setup {
                Setup::Set(list) => {
                    let sources = Sources { stage_context: &self.stage_context, shared, view };
                    let fields = declared::members(&sources, list);
                    return self.take_fields(cx, shared, fields);
                }
                Setup::Script(script) => {
                    let hook = self.hook(shared, view, "setup", script, json!({}));
                    self.state = State::Setup(Some(hook));
                }
            }
        }
        let reply = match self.reply(cx, shared)? {
            ScriptReply::Reply(reply) => reply,
            ScriptReply::Not(step) => return Ok(step),
        };
        let fields = self.asked(Phase::Setup).setup(reply);
        let fields = fields.inspect_err(|failure| {
            // A crash shows in the failure; a wrong value is the author's fault, and is audited.
            if cause(failure)["class"] == VALIDATION {
                self.emit_init_failed(cx, shared, Phase::Setup, failure);
            }
        })?;
        self.take_fields(cx, shared, fields)
    }

    /// Emits that the execution begins (B-L9).
    fn begin(&mut self, cx: &mut Cx, shared: &Shared) {
        if self.open == Some(Phase::Setup) {
            return;
        }
        if self.stage_context.compound.is_none() {
            emit(cx, "SessionTurnStart", self.stage_context.event(shared, json!({})));
        }
        emit(cx, "StageExecutionSpanStart", self.stage_context.event(shared, json!({})));
        self.enter(cx, shared, Phase::Setup);
    }

    /// Checks that each predecessor's result fits the stage's `inputsSchema` (B-F21).
    fn check_inputs(&self) -> Result<(), Failure> {
        let Some(schema) = &self.stage_context.stage.inputs_schema else { return Ok(()) };
        for (index, result) in self.stage_context.upstream.iter().enumerate() {
            let faults = schema.faults(result);
            if !faults.is_empty() {
                let stage = &self.stage_context.stage.id;
                let message = format!(
                    "`ctx.upstream[{index}]` of stage `{stage}` does not fit its `inputsSchema`: {}",
                    faults.join("; ")
                );
                let context = json!({"index": index, "path": format!("/upstream/{index}"), "errors": faults});
                return Err(fault(VALIDATION, "StageInputInvalid", stage, &message, context));
            }
        }
        Ok(())
    }

    fn emit_init_failed(&self, cx: &mut Cx, shared: &Shared, phase: Phase, failure: &Failure) {
        let mut facts = json!({"phase": phase.word(), "detail": failure.message});
        let details = failure.details.as_ref().and_then(|details| details.value().ok()).unwrap_or_default();
        facts["class"] = details["class"].clone();
        facts["code"] = details["code"].clone();
        if let Some(path) = details["context"].get("path") {
            facts["path"] = path.clone();
        }
        facts["context"] = details["context"].clone();
        emit(cx, "StageInitFailed", self.stage_context.event(shared, facts));
    }

    /// Sets the fields of the context, which is then fixed (B-L4).
    fn take_fields(&mut self, cx: &mut Cx, shared: &Shared, fields: Map<String, Value>) -> Result<Step, Failure> {
        if let Some(name) = fields.keys().find(|name| RESERVED.contains(&name.as_str())) {
            let stage = &self.stage_context.stage.id;
            let message = format!("the setup of stage `{stage}` wrote `{name}`, which is reserved for etude");
            let failure =
                fault(VALIDATION, "ContextMutationForbidden", stage, &message, json!({"name": name, "phase": "Setup"}));
            self.emit_init_failed(cx, shared, Phase::Setup, &failure);
            return Err(failure);
        }
        self.stage_context.ctx = fields;
        self.leave(cx, shared);
        self.state = State::Init(0);
        Ok(Step::GoesOn)
    }

    /// Renders the prompt once, checks the tools, and scans the model's input (B-T7, B-F13, B-D14).
    pub(super) fn init(&mut self, cx: &mut Cx, shared: &Shared) -> Result<Step, Failure> {
        if self.act.is_none() {
            self.check_stop()?;
            self.enter(cx, shared, Phase::Init);
            self.check_tools(shared).inspect_err(|failure| self.emit_init_failed(cx, shared, Phase::Init, failure))?;
            self.warn_of_missing_results(cx, shared);
            let stage = &self.stage_context.stage;
            let system = stage.body.render(&self.stage_context.context(shared), &stage.front);
            self.act = Some(Act::new(&self.stage_context, shared, system));
        }
        let State::Init(part) = self.state else { return Ok(Step::GoesOn) };
        let Some(act) = &self.act else { return Ok(Step::Waits) };
        let Some((name, text)) = PARTS.get(part) else {
            self.leave(cx, shared);
            self.state = State::Gate(None);
            return Ok(Step::GoesOn);
        };
        let id = self.scan_id(part);
        let scan = || Effect::Scan(Box::new(Scan { text: text(act), typed: shared.typed.to_string() }));
        let Poll::Ready(done) = cx.run_effect(&id, scan) else { return Ok(Step::Waits) };
        cx.book(shared.ledger, &id, &done);
        let is_scanned = matches!(done.outcome, Outcome::Scanned(_));
        self.check_stop_before(is_scanned)?;
        let Outcome::Scanned(secrets) = done.outcome else { return Err(unexpected_outcome(&id)) };
        if let Some(secret) = secrets.first() {
            let failure = leak(&self.stage_context.stage.id, name, secret);
            self.emit_init_failed(cx, shared, Phase::Init, &failure);
            return Err(failure);
        }
        self.state = State::Init(part + 1);
        Ok(Step::GoesOn)
    }

    /// Warns of placeholders for missing results, which become empty (B-T10).
    fn warn_of_missing_results(&self, cx: &mut Cx, shared: &Shared) {
        let count = self.stage_context.upstream.len();
        for path in self.stage_context.stage.body.beyond(count) {
            let has = match count {
                0 => "no result".to_owned(),
                1 => "1 result".to_owned(),
                count => format!("{count} results"),
            };
            let detail = format!("`{{{{{path}}}}}` is empty: `ctx.upstream` has {has}");
            let facts = json!({"phase": Phase::Init.word(), "path": format!("/body#{path}"), "detail": detail});
            emit(cx, "StageWarning", self.stage_context.event(shared, facts));
        }
    }

    /// Id of the effect that scans a part of the model's input for secrets.
    pub(super) fn scan_id(&self, part: usize) -> EffectId {
        self.stage_context.path().aside(&format!("scan{}", part + 1))
    }

    fn check_tools(&self, shared: &Shared) -> Result<(), Failure> {
        let stage = &self.stage_context.stage;
        if shared.is_tool(&stage.completion_tool) {
            let message = format!(
                "the `completionTool` of stage `{}` has the name of a tool: `{}`",
                stage.id, stage.completion_tool
            );
            let context = json!({"tool": stage.completion_tool, "path": "/completionTool"});
            return Err(fault(VALIDATION, "CompletionToolCollision", &stage.id, &message, context));
        }
        if let Some(index) = stage.allowed_tools.iter().position(|tool| !shared.is_tool(tool)) {
            let tool = &stage.allowed_tools[index];
            let known: Vec<&str> =
                shared.tool_list.tools.iter().map(|available| available.tool.name.as_str()).collect();
            let message = format!(
                "`allowedTools` of stage `{}` names `{tool}`, which is not an available tool; tools are {}",
                stage.id,
                known.join(", ")
            );
            let context = json!({"tool": tool, "path": format!("/allowedTools/{index}")});
            return Err(fault(VALIDATION, "AllowedToolUnknown", &stage.id, &message, context));
        }
        Ok(())
    }

    pub(super) fn gate(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View) -> Result<Step, Failure> {
        if !self.has_hook() {
            self.check_stop_before(matches!(self.stage_context.stage.gate, Gate::Rules(_)))?;
            self.enter(cx, shared, Phase::CheckGate);
            match &self.stage_context.stage.gate {
                Gate::Rules(rules) => {
                    let sources = Sources { stage_context: &self.stage_context, shared, view };
                    let decided = declared::decide(&sources, rules).map(|rule| (rule.then, rule.reason.clone()));
                    let (outcome, reason) = decided.unwrap_or((GateOutcome::Proceed, None));
                    return self.resolve(cx, shared, outcome, reason);
                }
                Gate::Script(script) => {
                    let hook = self.hook(shared, view, "gate", script, json!({}));
                    self.state = State::Gate(Some(hook));
                }
            }
        }
        let reply = match self.reply(cx, shared)? {
            ScriptReply::Reply(reply) => reply,
            ScriptReply::Not(step) => return Ok(step),
        };
        let (outcome, reason) = self.asked(Phase::CheckGate).gate(reply)?;
        self.resolve(cx, shared, outcome, reason)
    }

    /// Follows the outcome of the gate (B-G5).
    fn resolve(
        &mut self,
        cx: &mut Cx,
        shared: &Shared,
        outcome: GateOutcome,
        reason: Option<String>,
    ) -> Result<Step, Failure> {
        let policy = self.stage_context.stage.resolution;
        let effect = match (outcome, policy) {
            (GateOutcome::Proceed, _) => "act",
            (_, Resolution::RetryLater) => "park",
            (_, Resolution::Skip) => "skip",
            (_, Resolution::Fail) => "fail",
            (_, Resolution::Ask) => "ask",
        };
        let facts = json!({"outcome": outcome.word(), "reason": reason, "policy": policy.word(), "effect": effect});
        emit(cx, "StageGateOutcome", self.stage_context.event(shared, facts));
        self.leave(cx, shared);
        match effect {
            "act" => self.state = State::Act,
            "park" => return self.suspend(cx, outcome, reason),
            "skip" => self.pass_over(Verdict::Skip, reason),
            "fail" => self.pass_over(Verdict::Fail, reason),
            _ => match self.answer_of_entry(shared.abi).or(shared.yolo.then_some(true)) {
                Some(true) => self.state = State::Act,
                Some(false) => self.pass_over(Verdict::Fail, reason),
                None => {
                    self.check_stop()?;
                    self.confirm(cx, shared, reason);
                }
            },
        }
        Ok(Step::GoesOn)
    }

    /// The answer to the question whether to run although the gate is not open. It is valid until the stage leaves or
    /// is suspended. In runs of an earlier `abi` the stage asks again after each restart.
    fn answer_of_entry(&mut self, abi: u32) -> Option<bool> {
        if abi < KEEPS_ENTRY { self.confirmed.take() } else { self.confirmed }
    }

    /// Skips Act and Assert and continues at Exit (B-G3).
    fn pass_over(&mut self, verdict: Verdict, reason: Option<String>) {
        (self.verdict, self.reason) = (verdict, reason);
        self.act = None;
        self.state = State::Exit(None);
    }

    fn suspend(&mut self, cx: &mut Cx, outcome: GateOutcome, reason: Option<String>) -> Result<Step, Failure> {
        cx.stages.rows[self.stage_context.row].status = StageStatus::Suspended;
        self.reason = reason;
        if self.must_succeed {
            // A fan-out cannot wait for one of its stages (B-G7).
            let stage = &self.stage_context.stage.id;
            let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let message = format!("stage `{stage}` was parked inside a fan-out{why}");
            let context = json!({"outcome": outcome.word(), "reason": self.reason, "parked": true});
            return Err(fault(HOST, "StageParked", stage, &message, context));
        }
        self.confirmed = None;
        self.suspended_by = outcome;
        self.state = State::Suspended(self.stage_context.path().aside("parked"));
        Ok(Step::GoesOn)
    }

    /// Waits outside any process until a person continues the run.
    pub(super) fn suspended(&mut self, cx: &mut Cx, shared: &Shared) -> Result<Step, Failure> {
        self.check_stop()?;
        let State::Suspended(id) = &self.state else { return Ok(Step::GoesOn) };
        let id = id.clone();
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Gate(self.suspended_question(shared))) else {
            return Ok(Step::Waits);
        };
        cx.book(shared.ledger, &id, &done);
        self.restart(cx);
        Ok(Step::GoesOn)
    }

    fn suspended_question(&self, shared: &Shared) -> Question {
        let stage = &self.stage_context.stage;
        let payload = json!({
            "stageId": stage.id, "stageExecutionId": self.stage_context.id, "outcome": self.suspended_by.word(),
            "reason": self.reason, "retryable": self.suspended_by == GateOutcome::Defer,
        });
        let why = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message =
            format!("stage `{}` is parked{why}; resume it with `etude runs resume {}`", stage.id, shared.run_id);
        let subject = Subject::Other { kind: "parked", payload: Json::of(&payload) };
        Question { message, schema: None, approvers: Vec::new(), subject }
    }
}
