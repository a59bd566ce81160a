//! JSON document of a dry run.

use etude_core::data::ReadError;
use etude_core::effect::Command;
use etude_core::machine::Limits;
use etude_core::plan::OnTimeout;
use serde_json::{Map, Value, json};

use super::{Bound, DryRun, StepFacts, Work, WorstCase};
use crate::describe;

impl DryRun {
    /// Document that `etude run --dry-run --format json` prints, on one line. It has `limits` if there are any. The input
    /// keeps all of its digits.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn document(&self, limits: &Limits) -> Result<String, ReadError> {
        let mut members = json!({
            "steps": self.steps.iter().map(StepFacts::json).collect::<Vec<_>>(),
            "worst_case": self.worst_case.json(),
        });
        if limits.max_cost_usd.is_some() || limits.max_tokens.is_some() {
            members["limits"] = self.worst_case.limits_json(limits);
        }
        let (name, input, rest) = (Value::from(&*self.pipeline), self.input.text()?, members.to_string());
        let rest = rest.strip_prefix('{').unwrap_or(&rest);
        Ok(format!(r#"{{"pipeline":{name},"input":{input},{rest}"#))
    }
}

impl WorstCase {
    fn json(&self) -> Value {
        json!({"model_calls": self.model_calls, "max_output_tokens": self.max_output_tokens, "cost_usd": self.cost_usd})
    }
}

impl Bound {
    fn json(&self) -> Value {
        json!({
            "elements": self.elements, "calls_per_element": self.calls, "max_output_tokens_per_call": self.max_tokens,
            "output_usd_per_million": self.usd_per_million, "derivation": self.text(), "unknown": self.unknown,
        })
    }
}

impl WorstCase {
    /// Member `limits`: true if a bound exceeds the limit of the run; `null` if that is unknown.
    pub(super) fn limits_json(&self, limits: &Limits) -> Value {
        let (tokens, cost) = (limits.max_tokens, limits.max_cost_usd);
        json!({
            "max_tokens": tokens,
            "may_exceed_max_tokens": tokens.zip(self.max_output_tokens).map(|(most, written)| written > most),
            "max_cost_usd": cost,
            "may_exceed_max_cost": cost.zip(self.cost_usd).map(|(most, cost)| cost > most),
        })
    }
}

impl StepFacts {
    /// Word for the step's type in a pipeline file.
    pub const fn word(&self) -> &'static str {
        match self.work {
            Work::Code { .. } => "code",
            Work::Llm(_) => "llm",
            Work::Application { .. } => "application",
            Work::Tool { .. } => "tool",
            Work::Skill { .. } => "skill",
            Work::Machine { is_stage: true, .. } => "stage",
            Work::Machine { .. } => "machine",
            Work::Parallel { .. } => "parallel",
            Work::Pipeline { .. } => "pipeline",
            Work::Approval { .. } => "approval",
        }
    }

    fn json(&self) -> Value {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
        put("phase", self.phase.word().into());
        put("inside", json!(self.inside));
        put("name", json!(self.name));
        put("type", self.word().into());
        put("file", json!(self.origin.file));
        put("line", self.origin.line.into());
        put("effects", self.has_effects.into());
        put("cache", self.is_cached.into());
        put("timeout_ms", json!(self.timeout_ms));
        put("when", json!(self.when.as_ref().map(|when| json!({"condition": when.text, "holds": when.holds}))));
        if let Some(require) = &self.require {
            put("require", json!({"condition": require.text, "holds": require.holds}));
        }
        let for_each = self.for_each.as_ref().map(|each| {
            json!({"items": each.items, "count": each.count, "max_items": each.max_items, "max_parallel": each.max_parallel})
        });
        put("for_each", json!(for_each));
        put("model_calls", self.worst_case.model_calls.into());
        if let Some(bound) = &self.bound {
            put("bound", bound.json());
        }
        if let Value::Object(work) = work(&self.work) {
            members.extend(work);
        }
        Value::Object(members)
    }
}

fn work(work: &Work) -> Value {
    let object = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
    };
    match work {
        Work::Code { command, dir, env, schema, retry, sandbox } => {
            let argv = match command {
                Command::Direct(words) => Some(words),
                Command::Shell(_) | Command::Script(_) => None,
            };
            json!({
                "command": describe::command(command), "argv": argv, "shell": matches!(command, Command::Shell(_)),
                "directory": dir, "env": object(env), "schema": schema, "retry": retry,
                "sandbox": sandbox.as_ref().map(|asked| {
                    json!({"network": asked.network, "read": asked.read, "write": asked.write})
                }),
            })
        }
        Work::Llm(ask) => json!({
            "tier": ask.tier.word(), "system": ask.system, "prompt": ask.prompt, "images": ask.images, "schema": ask.schema,
            "validate": ask.validate, "retry": ask.retry, "max_tokens": ask.max_tokens,
        }),
        Work::Application { application, command, args } => {
            json!({"application": application, "command": command, "args": args})
        }
        Work::Tool { tool, args } => json!({"tool": tool, "args": object(args)}),
        Work::Skill { skill, tier, prompt, allowed, schema, max_turns } => json!({
            "skill": skill, "tier": tier.word(), "prompt": prompt, "allowed_tools": allowed, "schema": schema,
            "max_turns": max_turns,
        }),
        Work::Machine { machine, tier, stages, max_executions, .. } => json!({
            "machine": machine, "tier": tier.word(), "stages": stages, "max_executions": max_executions,
        }),
        Work::Parallel { max_parallel } => json!({ "max_parallel": max_parallel }),
        Work::Pipeline { name, input } => json!({"pipeline": name, "input": object(input)}),
        Work::Approval { message, schema, approvers, on_timeout } => json!({
            "message": message, "schema": schema, "approvers": approvers,
            "on_timeout": match on_timeout {
                OnTimeout::Fail => "fail",
                OnTimeout::Deny => "deny",
                OnTimeout::Approve => "approve",
            },
        }),
    }
}
