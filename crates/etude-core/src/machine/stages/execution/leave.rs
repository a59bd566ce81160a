//! Assert, Exit and Next: the verdict and result of a stage, and the choice of the next stages.

use std::task::Poll;

use serde_json::{Map, Value, json};

use super::act::Act;
use super::{Execution, ScriptReply, State, Step};
use crate::data::Json;
use crate::effect::Effect;
use crate::failure::Failure;
use crate::machine::stages::audit::emit;
use crate::machine::stages::declared;
use crate::machine::stages::fault::{Phase, lifecycle};
use crate::machine::stages::shared::{Shared, View};
use crate::machine::stages::stage_context::Sources;
use crate::machine::{Cx, NAMES_LAST_FAULTS, WARNS_OF_JOIN};
use crate::plan::stages::{Assert, Exit, Next, NextRule, Output, Verdict};
use crate::report::StageStatus;

/// Maximum size of a stage's `output`, in bytes (B-SR2).
const MAX_OUTPUT: usize = 1 << 20;

impl Execution {
    fn act_json(&self) -> Value {
        self.act.as_ref().map_or(Value::Null, |act| self.stage_context.act(act.system(), act.transcript()))
    }

    pub(super) fn assert(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View) -> Result<Step, Failure> {
        if !self.has_hook() {
            self.check_stop()?;
            self.enter(cx, shared, Phase::Assert);
            let act = || json!({"act": self.act_json()});
            match &self.stage_context.stage.assert {
                Assert::Rules(rules) => {
                    let sources = Sources { stage_context: &self.stage_context, shared, view };
                    let decided = declared::decide(&sources, rules).map(|rule| (rule.then, rule.reason.clone()));
                    // Without rules a completion is good, and a cap is not (B-R3).
                    let (verdict, reason) = match (decided, self.stage_context.cap_hit) {
                        (Some(decided), _) => decided,
                        (None, false) => (Verdict::Ok, None),
                        (None, true) => (Verdict::Retry, Some(self.not_completed(shared.abi))),
                    };
                    return Ok(self.judge(cx, shared, verdict, reason));
                }
                Assert::Script(script) | Assert::Validate(script) => {
                    let hook = self.hook(shared, view, "assert", script, act());
                    self.state = State::Assert(Some(hook));
                }
            }
        }
        let reply = match self.reply(cx, shared)? {
            ScriptReply::Reply(reply) => reply,
            ScriptReply::Not(step) => return Ok(step),
        };
        let asked = self.asked(Phase::Assert);
        let (verdict, reason) = match &self.stage_context.stage.assert {
            Assert::Validate(_) => asked.validate(reply)?,
            _ => asked.assert(reply)?,
        };
        Ok(self.judge(cx, shared, verdict, reason))
    }

    /// Reason of an attempt that ended at the turn limit. The last attempt names the faults of its last call: the model of an
    /// earlier one has read them, and reads the reason next.
    fn not_completed(&self, abi: u32) -> String {
        let stage = &self.stage_context.stage;
        let is_last = self.stage_context.attempt >= stage.max_attempts && abi >= NAMES_LAST_FAULTS;
        match self.act.as_ref().and_then(Act::parse_error).filter(|_| is_last) {
            Some(faults) => {
                let faults = faults.replacen(":\n- ", ": ", 1).replace("\n- ", "; ");
                format!("`{}` was not called correctly in {} turns: {faults}", stage.completion_tool, stage.turn_cap)
            }
            None => format!("`{}` was not called in time", stage.completion_tool),
        }
    }

    /// Applies the verdict on one attempt (B-R4, B-R7).
    fn judge(&mut self, cx: &mut Cx, shared: &Shared, verdict: Verdict, reason: Option<String>) -> Step {
        let stage_context = &mut self.stage_context;
        if let Some(attempt) = stage_context.attempts.last_mut() {
            attempt["verdict"] = json!(verdict.word());
            if let Some(reason) = &reason {
                attempt["reason"] = json!(reason);
            }
        }
        let mut facts = json!({"verdict": verdict.word(), "reason": reason, "capHit": stage_context.cap_hit});
        if let Some(parsed) = &stage_context.parsed {
            facts["parsed"] = parsed.clone();
        }
        emit(cx, "StageAssertOutcome", self.stage_context.event(shared, facts));
        self.leave(cx, shared);
        let stage_context = &mut self.stage_context;
        if verdict == Verdict::Retry && stage_context.attempt < stage_context.stage.max_attempts {
            let ms = stage_context.stage.backoff.after(stage_context.attempt);
            let id = stage_context.path().aside(&format!("backoff{}", stage_context.attempt));
            stage_context.attempt += 1;
            (stage_context.parsed, stage_context.cap_hit) = (None, false);
            if let Some(act) = &mut self.act {
                act.reenter(reason.as_deref().unwrap_or("That was not good enough. Try again."));
            }
            self.state = if ms == 0 { State::Act } else { State::Backoff(id, ms) };
            return Step::GoesOn;
        }
        self.verdict = if verdict == Verdict::Retry { Verdict::Fail } else { verdict };
        self.reason = reason;
        self.state = State::Exit(None);
        Step::GoesOn
    }

    pub(super) fn backoff(&mut self, cx: &mut Cx, shared: &Shared) -> Result<Step, Failure> {
        self.check_stop()?;
        let State::Backoff(id, ms) = &self.state else { return Ok(Step::GoesOn) };
        let (id, ms) = (id.clone(), *ms);
        let Poll::Ready(done) = cx.run_effect(&id, || Effect::Sleep { ms, deadline: false }) else {
            return Ok(Step::Waits);
        };
        cx.book(shared.ledger, &id, &done);
        self.state = State::Act;
        Ok(Step::GoesOn)
    }

    /// The StageResult without its output (`b-stages` §9).
    fn draft(&self) -> Value {
        let mut result = Map::new();
        result.insert("verdict".to_owned(), json!(self.verdict.word()));
        if let Some(reason) = &self.reason {
            result.insert("reason".to_owned(), json!(reason));
        }
        if let Some(parsed) = &self.stage_context.parsed {
            result.insert("parsed".to_owned(), parsed.clone());
        }
        result.insert("capHit".to_owned(), json!(self.stage_context.cap_hit));
        result.insert("attemptCount".to_owned(), json!(self.stage_context.attempts.len()));
        Value::Object(result)
    }

    pub(super) fn exit(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Result<Step, Failure> {
        if !self.has_hook() {
            self.check_stop_before(matches!(self.stage_context.stage.exit, Exit::Values { .. }))?;
            self.enter(cx, shared, Phase::Exit);
            self.stage_context.result = Some(self.draft());
            match &self.stage_context.stage.exit {
                Exit::Values { output, slot } => {
                    let sources = Sources { stage_context: &self.stage_context, shared, view };
                    let output = output.as_ref().map(|output| match output {
                        Output::Members(list) => Value::Object(declared::members(&sources, list)),
                        Output::Whole(source) => declared::value(&sources, source),
                    });
                    let laid = declared::members(&sources, slot);
                    let data = (!laid.is_empty()).then(|| {
                        let mut data = view.slot.as_object().cloned().unwrap_or_default();
                        data.extend(laid);
                        Value::Object(data)
                    });
                    return self.conclude(cx, shared, view, output, data);
                }
                Exit::Script(script) => {
                    let more = json!({"act": self.act_json(), "result": self.stage_context.result});
                    let hook = self.hook(shared, view, "exit", script, more);
                    self.state = State::Exit(Some(hook));
                }
            }
        }
        let reply = match self.reply(cx, shared)? {
            ScriptReply::Reply(reply) => reply,
            ScriptReply::Not(step) => return Ok(step),
        };
        let (output, slot) = self.asked(Phase::Exit).exit(reply)?;
        self.conclude(cx, shared, view, output, slot)
    }

    /// Stores the result and the slot, and emits the end of the execution.
    fn conclude(
        &mut self,
        cx: &mut Cx,
        shared: &mut Shared,
        view: &mut View,
        output: Option<Value>,
        slot: Option<Value>,
    ) -> Result<Step, Failure> {
        self.check_left(shared, output.as_ref(), slot.as_ref())?;
        if let Some(slot) = slot {
            view.slot = slot;
        }
        let mut result = self.draft();
        if let Some(output) = &output {
            result["output"] = output.clone();
        }
        view.steps.insert(self.stage_context.stage.id.clone(), json!({"output": output}));
        cx.stages.last = Some(Json::of(&result));
        self.stage_context.result = Some(result);
        shared.grants.expire(&self.stage_context.id);
        self.has_left = true;
        let row = &mut cx.stages.rows[self.stage_context.row];
        (row.status, row.verdict) = (StageStatus::Completed, Some(self.verdict.word()));
        self.leave(cx, shared);
        let mut facts = json!({
            "verdict": self.verdict.word(), "capHit": self.stage_context.cap_hit, "attemptCount": self.stage_context.attempts.len(),
            "hasOutput": output.is_some(),
        });
        if let Some(parsed) = &self.stage_context.parsed {
            facts["parsed"] = parsed.clone();
        }
        emit(cx, "StageExited", self.stage_context.event(shared, facts));
        let outcome = if self.verdict == Verdict::Fail { "failed" } else { "ok" };
        let facts = json!({"outcome": outcome, "capHit": self.stage_context.cap_hit});
        emit(cx, "StageExecution", self.stage_context.event(shared, facts));
        if self.ends_turn {
            emit(cx, "SessionTurnEnd", self.stage_context.event(shared, json!({})));
            shared.emit_persisted(cx);
        }
        self.state = State::Next(None);
        Ok(Step::GoesOn)
    }

    fn check_left(&self, shared: &Shared, output: Option<&Value>, slot: Option<&Value>) -> Result<(), Failure> {
        let stage = &self.stage_context.stage.id;
        let size = output.map_or(0, |output| output.to_string().len());
        if size > MAX_OUTPUT {
            let message = format!("the output of stage `{stage}` has {size} bytes; at most {MAX_OUTPUT} are taken");
            return Err(lifecycle(Phase::Exit, stage, &message, Map::new()));
        }
        // Data of an older form was checked when it was written, and is migrated on a resumption (B-ST3).
        let is_current = shared.slot_version == shared.machine.slot.version;
        let Some(slot) = slot.filter(|_| is_current) else { return Ok(()) };
        let faults = shared.machine.slot.schema.faults(slot);
        if faults.is_empty() {
            return Ok(());
        }
        let message = format!("the state slot after stage `{stage}` does not match its schema: {}", faults.join("; "));
        let mut facts = Map::new();
        facts.insert("errors".to_owned(), json!(faults));
        Err(lifecycle(Phase::Exit, stage, &message, facts))
    }

    pub(super) fn next(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View) -> Result<Step, Failure> {
        if !self.has_hook() {
            self.check_stop()?;
            self.enter(cx, shared, Phase::Next);
            match &self.stage_context.stage.next {
                NextRule::Cases(cases) => {
                    let sources = Sources { stage_context: &self.stage_context, shared, view };
                    let case = cases.iter().find(|case| declared::hold(&sources, &case.when));
                    let Some(next) = case.map(|case| case.next.clone()) else {
                        let stage = &self.stage_context.stage.id;
                        let message = format!("no case of `next` of stage `{stage}` is true");
                        return Err(lifecycle(Phase::Next, stage, &message, Map::new()));
                    };
                    return Ok(self.go_to(cx, shared, next));
                }
                NextRule::Script(script) => {
                    let more = json!({"result": self.stage_context.result});
                    let hook = self.hook(shared, view, "next", script, more);
                    self.state = State::Next(Some(hook));
                }
            }
        }
        let reply = match self.reply(cx, shared)? {
            ScriptReply::Reply(reply) => reply,
            ScriptReply::Not(step) => return Ok(step),
        };
        let (next, has_idle_join) = self.asked(Phase::Next).next(reply, &shared.machine)?;
        if has_idle_join && shared.abi >= WARNS_OF_JOIN {
            let detail = "`join` has no effect without `parallel`";
            let facts = json!({"phase": Phase::Next.word(), "path": "/join", "detail": detail});
            emit(cx, "StageWarning", self.stage_context.event(shared, facts));
        }
        Ok(self.go_to(cx, shared, next))
    }

    fn go_to(&mut self, cx: &mut Cx, shared: &Shared, next: Next) -> Step {
        self.leave(cx, shared);
        let targets = next.targets();
        let to = match targets.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        let facts = json!({"from": self.stage_context.stage.id, "to": to, "nextKind": next.word()});
        emit(cx, "SMTransition", self.stage_context.event(shared, facts));
        Step::Over(next)
    }
}
