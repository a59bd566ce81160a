//! Facts about a step, for people and for programs.

use etude_core::plan::{OnFailure, Step, StepKind};
use etude_core::report::duration;
use serde_json::{Map, Value, json};

use crate::describe;

/// Maximum length of a fact, in characters: a drawing is an overview.
const MAX_LENGTH: usize = 48;

/// Facts as lines for people, and as members of a document.
pub(super) fn of(step: &Step) -> (Vec<String>, Map<String, Value>) {
    let mut facts = Facts { lines: Vec::new(), members: Map::new() };
    facts.body(step);
    if let Some(each) = &step.for_each {
        let items = describe::binding(&each.items);
        let at_once = if each.max_parallel > 1 { format!(", {} at once", each.max_parallel) } else { String::new() };
        facts.say(format!("for each of {items}{at_once}"));
        facts.put("for_each", json!({"items": items, "max_items": each.max_items, "max_parallel": each.max_parallel}));
    }
    if let Some(when) = &step.when {
        let when = describe::condition(when);
        facts.say(format!("when {when}"));
        facts.put("when", json!(when));
    }
    if let Some(require) = &step.require {
        let require = describe::condition(&require.condition);
        facts.say(format!("requires {require}"));
        facts.put("require", json!(require));
    }
    if let Some(ms) = step.timeout_ms {
        facts.say(format!("at most {}", duration(ms)));
        facts.put("timeout_ms", json!(ms));
    }
    if step.cache.is_some() {
        facts.say("reuses earlier outputs");
        facts.put("cache", json!(true));
    }
    if step.effects {
        facts.say("changes the outside world");
        facts.put("effects", json!(true));
    }
    (facts.lines, facts.members)
}

struct Facts {
    lines: Vec<String>,
    members: Map<String, Value>,
}

impl Facts {
    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(etude_core::report::clip(&line.into(), MAX_LENGTH));
    }

    fn put(&mut self, name: &str, value: Value) {
        self.members.insert(name.to_owned(), value);
    }

    fn retries(&mut self, retry: u32) {
        match retry {
            0 => {}
            1 => self.say("1 retry"),
            many => self.say(format!("{many} retries")),
        }
        self.put("retry", json!(retry));
    }

    fn schema(&mut self, schema: Option<&str>) {
        if let Some(name) = schema {
            self.say(format!("schema {}", name.rsplit('/').next().unwrap_or(name)));
            self.put("schema", json!(name));
        }
    }

    fn body(&mut self, step: &Step) {
        match &step.kind {
            StepKind::Code(code) => {
                let command = describe::command(&code.command);
                self.say(command.lines().next().unwrap_or_default());
                self.put("command", json!(command));
                self.retries(code.retry.as_ref().map_or(0, |retry| retry.max));
                self.schema(code.schema.as_ref().map(|schema| schema.name()));
            }
            StepKind::Llm(llm) => {
                self.say(format!("tier {}", llm.tier));
                self.put("tier", json!(llm.tier.word()));
                self.retries(llm.retry);
                self.schema(llm.schema.as_ref().map(|schema| schema.name()));
                if let Some(validator) = llm.validate.as_ref().map(describe::command) {
                    self.say(format!("validated by {validator}"));
                    self.put("validate", json!(validator));
                }
            }
            StepKind::Application(call) => {
                self.say(format!("runs {} {}", call.application, call.command));
                self.put("application", json!(call.application));
                self.put("command", json!(call.command));
            }
            StepKind::Tool(call) => {
                self.say(format!("calls {}", call.tool));
                self.put("tool", json!(call.tool));
            }
            StepKind::Skill(agent) => {
                self.say(format!("follows skill {}", agent.skill));
                self.say(format!("tier {}", agent.tier));
                self.put("skill", json!(agent.skill));
                self.put("tier", json!(agent.tier.word()));
                self.put("max_turns", json!(agent.turn_cap));
                self.schema(agent.schema.as_ref().map(|schema| schema.name()));
            }
            StepKind::Machine(call) => {
                self.say(format!("enters {}", call.machine.entry));
                self.say(format!("tier {}", call.machine.tier));
                self.put("machine", json!(call.machine.id));
                self.put("tier", json!(call.machine.tier.word()));
            }
            StepKind::Parallel(group) => {
                match group.max_parallel {
                    Some(most) => self.say(format!("{most} at once")),
                    None => self.say("all at once"),
                }
                self.put("max_parallel", json!(group.max_parallel));
                self.put("on_failure", json!(if group.on_failure == OnFailure::Stop { "stop" } else { "wait" }));
            }
            StepKind::Pipeline(sub) => {
                self.say(format!("runs pipeline {}", sub.sequence.name));
                self.put("pipeline", json!(sub.sequence.name));
            }
            StepKind::Approval(approval) => {
                match approval.approvers.as_slice() {
                    [] => self.say("waits for a decision"),
                    names => self.say(format!("waits for {}", names.join(", "))),
                }
                self.put("approvers", json!(approval.approvers));
                self.schema(approval.schema.as_ref().map(|schema| schema.name()));
            }
        }
    }
}
