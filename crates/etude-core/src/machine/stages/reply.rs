//! Replies of scripts (`b-stages` §20.4): the words of each hook, and nothing else.

use serde_json::{Map, Value, json};

use super::fault::{HOST, Phase, VALIDATION, fault, lifecycle};
use super::hook::Reply;
use crate::failure::Failure;
use crate::machine::validator;
use crate::plan::stages::{FanOutFault, GateOutcome, Next, StageMachine, Verdict};

/// The hook that replies, for messages about its reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) phase: Phase,
    pub(super) stage: &'a str,
}

impl Asked<'_> {
    pub(super) fn broken(&self, why: &str, facts: Map<String, Value>) -> Failure {
        let message = format!("the {} script of stage `{}` {why}", self.word(), self.stage);
        lifecycle(self.phase, self.stage, &message, facts)
    }

    const fn word(&self) -> &'static str {
        match self.phase {
            Phase::Setup => "setup",
            Phase::CheckGate => "gate",
            Phase::Assert => "assert",
            Phase::Exit => "exit",
            _ => "next",
        }
    }

    fn wrong_word(&self, field: &str, found: Option<&Value>, known: &str) -> Failure {
        let found = found.map_or("nothing".to_owned(), Value::to_string);
        self.broken(&format!("printed {found} as `{field}`; it must be {known}"), Reply::facts(Some(0), ""))
    }

    /// The members of a reply, which must be an object.
    fn object(&self, reply: Reply) -> Result<Map<String, Value>, Failure> {
        let may_be_empty = matches!(self.phase, Phase::Setup | Phase::Exit);
        let members = match reply {
            Reply::Nothing if may_be_empty => Map::new(),
            Reply::Nothing => return Err(self.broken("printed nothing", Reply::facts(Some(0), ""))),
            Reply::Value(Value::Object(members)) => members,
            Reply::Value(other) => {
                let start: String = other.to_string().chars().take(80).collect();
                let why = format!("must print one JSON object, not {start}");
                return Err(self.broken(&why, Reply::facts(Some(0), "")));
            }
            Reply::Broken { why, exit_code, stderr_tail, .. } => {
                return Err(self.broken(&why, Reply::facts(exit_code, &stderr_tail)));
            }
        };
        if self.phase != Phase::Setup && members.contains_key("ctx") {
            let message = format!(
                "the {} script of stage `{}` printed `ctx`, which only a setup can write",
                self.word(),
                self.stage
            );
            let context = json!({"phase": self.phase.word(), "stageId": self.stage});
            return Err(fault(VALIDATION, "ContextMutationForbidden", self.stage, &message, context));
        }
        Ok(members)
    }

    /// The fields of the context in a setup's reply.
    pub(super) fn setup(&self, reply: Reply) -> Result<Map<String, Value>, Failure> {
        match self.object(reply)?.shift_remove("ctx") {
            None => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields),
            Some(_) => {
                let message =
                    format!("the setup script of stage `{}` printed a `ctx` that is not an object", self.stage);
                let context = json!({"phase": "Setup", "stageId": self.stage});
                Err(fault(VALIDATION, "ContextMutationForbidden", self.stage, &message, context))
            }
        }
    }

    /// Outcome and reason in a gate's reply.
    pub(super) fn gate(&self, reply: Reply) -> Result<(GateOutcome, Option<String>), Failure> {
        let members = self.object(reply)?;
        let outcome = members.get("outcome").and_then(Value::as_str).and_then(GateOutcome::from_word);
        let outcome = outcome
            .ok_or_else(|| self.wrong_word("outcome", members.get("outcome"), "`proceed`, `defer` or `block`"))?;
        Ok((outcome, text(&members, "reason")))
    }

    /// Verdict and reason in an assert's reply.
    pub(super) fn assert(&self, reply: Reply) -> Result<(Verdict, Option<String>), Failure> {
        let members = self.object(reply)?;
        let verdict = members.get("verdict").and_then(Value::as_str).and_then(Verdict::from_word);
        let verdict = verdict
            .ok_or_else(|| self.wrong_word("verdict", members.get("verdict"), "`ok`, `retry`, `fail` or `skip`"))?;
        Ok((verdict, text(&members, "reason")))
    }

    /// Verdict and reason in the reply of a content validator, whose protocol is that of pipelines.
    pub(super) fn validate(&self, reply: Reply) -> Result<(Verdict, Option<String>), Failure> {
        let (printed, ended_well) = match &reply {
            Reply::Value(value) => (Some(value), true),
            Reply::Broken { stdout, exit_code, .. } => (stdout.as_ref(), *exit_code == Some(0)),
            Reply::Nothing => (None, true),
        };
        match (validator::verdict(printed, ended_well), &reply) {
            (validator::Verdict::Good, _) => Ok((Verdict::Ok, None)),
            (validator::Verdict::Bad(reasons), _) => Ok((Verdict::Retry, Some(reasons.join("\n")))),
            (validator::Verdict::Contradiction, Reply::Broken { why, .. }) => {
                let why = format!("contradicts itself: it printed `{{\"valid\": true}}`, but {why}");
                Err(self.broken(&why, reply.fields()))
            }
            (validator::Verdict::Missing, Reply::Broken { why, .. }) => Err(self.broken(why, reply.fields())),
            (_, Reply::Nothing) => Err(self.broken("printed nothing", reply.fields())),
            (_, Reply::Value(_)) => {
                let why = "must print `{\"valid\": true}`, or `{\"valid\": false, \"errors\": […]}`";
                Err(self.broken(why, reply.fields()))
            }
        }
    }

    /// The output and the new data of the slot in an exit's reply.
    pub(super) fn exit(&self, reply: Reply) -> Result<(Option<Value>, Option<Value>), Failure> {
        let mut members = self.object(reply)?;
        let mut take = |name: &str| members.shift_remove(name).filter(|value| !value.is_null());
        Ok((take("output"), take("slot")))
    }

    /// The next stages (B-N1 to B-N5). True with them if the reply has a `join` without effect.
    pub(super) fn next(&self, reply: Reply, machine: &StageMachine) -> Result<(Next, bool), Failure> {
        let mut members = self.object(reply)?;
        if let (Some(Value::Object(inner)), false) = (members.get("output"), members.contains_key("execution")) {
            members = inner.clone();
        }
        let names = |field: &str| -> Result<Option<Vec<String>>, Failure> {
            match members.get(field) {
                None | Some(Value::Null) => Ok(None),
                Some(list) => serde_json::from_value(list.clone())
                    .map(Some)
                    .map_err(|_| self.wrong_word(field, Some(list), "a list of stage ids")),
            }
        };
        let list = match (names("nextStages")?, names("stages")?) {
            (Some(next), Some(stages)) if next != stages => {
                let why = "printed different `nextStages` and `stages`";
                return Err(self.broken(why, Reply::facts(Some(0), "")));
            }
            (next, stages) => next.or(stages).unwrap_or_default(),
        };
        let join = text(&members, "join");
        let has_join = join.is_some();
        let next = match members.get("execution").and_then(Value::as_str) {
            Some("terminate") => Next::Terminal,
            Some("sequential") if list.is_empty() => Next::Terminal,
            Some("sequential") => Next::Sequential(list),
            Some("parallel") => self.fan_out(list, join, machine)?,
            _ => {
                let known = "`sequential`, `parallel` or `terminate`";
                return Err(self.wrong_word("execution", members.get("execution"), known));
            }
        };
        if let Some(unknown) = next.targets().into_iter().find(|id| machine.stage(id).is_none()) {
            let mut facts = Reply::facts(Some(0), "");
            facts.insert("unknownStage".to_owned(), json!(unknown));
            return Err(self.broken(&format!("named the stage `{unknown}`, which does not exist"), facts));
        }
        let is_idle = has_join && !matches!(next, Next::Parallel { .. });
        Ok((next, is_idle))
    }

    fn fan_out(&self, list: Vec<String>, join: Option<String>, machine: &StageMachine) -> Result<Next, Failure> {
        let context = json!({"stageId": self.stage, "nextStages": list, "join": join});
        let outside = machine.policy.join_outside_next_stages;
        Next::parallel(list, join, outside).map_err(|why| {
            let (class, code, why) = match why {
                FanOutFault::DanglingJoin => {
                    (VALIDATION, "StageJoinDangling", "a `join` that is not in its fan-out list")
                }
                FanOutFault::TooFew => (HOST, "InvalidParallelPlan", "a fan-out of fewer than two entries"),
                FanOutFault::Twice => (HOST, "InvalidParallelPlan", "a fan-out that lists a stage twice"),
            };
            let message = format!("the next script of stage `{}` printed {why}", self.stage);
            fault(class, code, self.stage, &message, context)
        })
    }
}

/// The word of a decision with the whole reply, or the reason why there is none, with facts about that.
pub(super) type Decided = Result<(String, Map<String, Value>), (String, Map<String, Value>)>;

/// The decision in the reply of a policy or a guard.
pub(super) fn decision(reply: Reply, known: &[&str]) -> Decided {
    let well = || Reply::facts(Some(0), "");
    match reply {
        Reply::Value(Value::Object(members)) => {
            let word = members.get("decision").and_then(Value::as_str).map(str::to_owned);
            if members.contains_key("ctx") {
                return Err(("printed `ctx`, which only a setup can write".to_owned(), well()));
            }
            match word.filter(|word| known.contains(&word.as_str())) {
                Some(word) => Ok((word, members)),
                None => Err((format!("printed no valid `decision`; it must be one of {}", known.join(", ")), well())),
            }
        }
        Reply::Value(_) => Err(("must print one JSON object".to_owned(), well())),
        Reply::Nothing => Err(("printed nothing".to_owned(), well())),
        Reply::Broken { why, exit_code, stderr_tail, .. } => Err((why, Reply::facts(exit_code, &stderr_tail))),
    }
}

pub(super) fn text(members: &Map<String, Value>, name: &str) -> Option<String> {
    members.get(name).and_then(Value::as_str).map(str::to_owned)
}
