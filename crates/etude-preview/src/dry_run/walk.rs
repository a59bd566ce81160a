//! Walk through a plan, step by step.

use etude_core::effect::Sandbox;
use etude_core::failure::Phase;
use etude_core::model::Tier;
use std::sync::Arc;

use etude_core::plan::stages::Stage;
use etude_core::plan::{Binding, ForEach, Sequence, Step, StepKind};
use etude_core::report::number;
use etude_core::template::Template;
use serde_json::value::RawValue;

use super::known::Known;
use super::{Bound, PriceOf, Question, Repeat, StepFacts, When, Work, WorstCase};
use crate::describe;

/// Walk that collects the facts about steps.
pub(super) struct Walk<'a> {
    pub(super) steps: Vec<StepFacts>,
    pub(super) prices: Option<PriceOf<'a>>,
}

/// Position of the walk in the plan.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) phase: Phase,
    pub(super) inside: Vec<String>,
    /// Maximum number of executions of a step at this position.
    pub(super) times: u64,
    /// Facts that make that number a guess.
    pub(super) unknown: Vec<String>,
}

impl Walk<'_> {
    pub(super) fn sequence(&mut self, sequence: &Sequence, known: &Known, place: &Place) {
        for step in &sequence.steps {
            self.step(step, &sequence.dir, known, place);
        }
    }

    fn step(&mut self, step: &Step, dir: &str, known: &Known, place: &Place) {
        let stated = |condition| When { text: describe::condition(condition), holds: known.decides(condition) };
        let when = step.when.as_ref().map(stated);
        let require = step.require.as_ref().map(|require| stated(&require.condition));
        let for_each = step.for_each.as_ref().map(|each| repeat(each, known));
        let is_skipped = when.as_ref().is_some_and(|when| when.holds == Some(false));
        let times = match &for_each {
            _ if is_skipped => 0,
            None => place.times,
            // A longer array fails before anything runs.
            Some(Repeat { count: Some(count), max_items, .. }) if count > max_items => 0,
            Some(each) => place.times.saturating_mul(each.count.unwrap_or(each.max_items)),
        };
        let mut unknown = place.unknown.clone();
        if let Some(Repeat { count: None, max_items, items, .. }) = &for_each {
            let most = number(*max_items);
            unknown.push(format!("the number of elements of {items}; `max_items` ({most}) is used"));
        }
        let asked = match &step.kind {
            StepKind::Llm(llm) => Some((llm.tier, u64::from(llm.retry) + 1, llm.max_tokens)),
            StepKind::Skill(agent) => Some((agent.tier, u64::from(agent.turn_cap), None)),
            StepKind::Machine(call) => {
                let machine = &call.machine;
                let turns = |stage: &Arc<Stage>| u64::from(stage.turn_cap) * u64::from(stage.max_attempts);
                let most = machine.stages.iter().map(turns).max().unwrap_or(0);
                let executions = u64::from(machine.max_executions);
                Some((machine.tier, executions.saturating_mul(most), None))
            }
            _ => None,
        };
        let bound = asked.map(|(tier, calls, max_tokens)| self.bound(tier, (times, calls), max_tokens, &unknown));
        let worst_case = bound.as_ref().map_or_else(WorstCase::default, Bound::worst_case);
        self.steps.push(StepFacts {
            phase: place.phase,
            inside: place.inside.clone(),
            name: step.name.clone(),
            work: work(step, dir, known),
            when,
            require,
            for_each,
            timeout_ms: step.timeout_ms,
            is_cached: step.cache.is_some(),
            has_effects: step.effects,
            origin: step.origin.clone(),
            worst_case,
            bound: bound.filter(|_| worst_case.model_calls > 0),
        });
        let mut inner = Place { times, unknown, ..place.clone() };
        inner.inside.push(step.name.clone());
        match &step.kind {
            StepKind::Parallel(group) => group.steps.iter().for_each(|child| self.step(child, dir, known, &inner)),
            StepKind::Pipeline(sub) => self.sequence(&sub.sequence, &known.of_sub_pipeline(sub), &inner),
            _ => {}
        }
    }

    fn bound(&self, tier: Tier, (elements, calls): (u64, u64), max_tokens: Option<u32>, guesses: &[String]) -> Bound {
        let price = self.prices.and_then(|prices| prices(tier));
        let mut unknown = guesses.to_vec();
        if max_tokens.is_none() {
            unknown.push("the length of an answer: the step has no `max_tokens`".to_owned());
        }
        if price.is_none() {
            unknown.push(format!("the price of the model for tier {tier}"));
        }
        Bound { elements, calls, max_tokens, usd_per_million: price.map(|price| price.output), unknown }
    }
}

impl Bound {
    fn worst_case(&self) -> WorstCase {
        let model_calls = self.elements.saturating_mul(self.calls);
        if model_calls == 0 {
            return WorstCase::default();
        }
        let max_output_tokens = self.max_tokens.map(|most| model_calls.saturating_mul(u64::from(most)));
        let price = max_output_tokens.zip(self.usd_per_million);
        WorstCase { model_calls, max_output_tokens, cost_usd: price.map(|(tokens, usd)| tokens as f64 * usd / 1e6) }
    }
}

fn repeat(each: &ForEach, known: &Known) -> Repeat {
    let list = each.items.resolve(known).ok().and_then(|list| list.text().ok());
    let elements =
        list.and_then(|text| serde_json::from_str::<Vec<&RawValue>>(&text).ok().map(|list| list.len() as u64));
    Repeat {
        items: describe::binding(&each.items),
        count: elements,
        max_items: each.max_items as u64,
        max_parallel: each.max_parallel as u64,
    }
}

fn work(step: &Step, dir: &str, known: &Known) -> Work {
    let render = |template: &Template| known.text(template);
    match &step.kind {
        StepKind::Code(code) => Work::Code {
            command: code.command.clone(),
            dir: dir.to_owned(),
            env: code
                .env
                .iter()
                .map(|(name, value)| (name.clone(), render(value)))
                .chain(code.env_from.iter().map(|(name, source)| (name.clone(), format!("{{from_env: {source}}}"))))
                .collect(),
            schema: code.schema.as_ref().map(|schema| schema.name().to_owned()),
            retry: code.retry.as_ref().map_or(0, |retry| retry.max),
            sandbox: code.sandbox.as_ref().map(|rules| {
                let (read, write) = (rules.read.iter().map(render).collect(), rules.write.iter().map(render).collect());
                Box::new(Sandbox { network: rules.network, read, write })
            }),
        },
        StepKind::Llm(llm) => Work::Llm(Box::new(Question {
            tier: llm.tier,
            system: llm.system.as_ref().map(render),
            prompt: render(&llm.prompt),
            images: llm.images.iter().map(render).collect(),
            schema: llm.schema.as_ref().map(|schema| schema.name().to_owned()),
            validate: llm.validate.as_ref().map(describe::command),
            retry: llm.retry,
            max_tokens: llm.max_tokens,
        })),
        StepKind::Application(call) => Work::Application {
            application: call.application.clone(),
            command: call.command.clone(),
            args: call.args.iter().map(render).collect(),
        },
        StepKind::Tool(call) => Work::Tool {
            tool: call.tool.clone(),
            args: call.args.iter().map(|(name, value)| (name.clone(), given(value, known))).collect(),
        },
        StepKind::Skill(agent) => Work::Skill {
            skill: agent.skill.clone(),
            tier: agent.tier,
            prompt: render(&agent.prompt),
            allowed: agent.tool_selection.allowed.clone(),
            schema: agent.schema.as_ref().map(|schema| schema.name().to_owned()),
            max_turns: agent.turn_cap,
        },
        StepKind::Machine(call) => Work::Machine {
            machine: call.machine.id.clone(),
            tier: call.machine.tier,
            stages: call.machine.stages.iter().map(|stage| stage.id.clone()).collect(),
            max_executions: call.machine.max_executions,
            is_stage: call.is_stage,
        },
        StepKind::Parallel(group) => Work::Parallel { max_parallel: group.max_parallel.map(|most| most as u64) },
        StepKind::Pipeline(sub) => Work::Pipeline {
            name: sub.sequence.name.clone(),
            input: sub.input.iter().map(|(name, value)| (name.clone(), given(value, known))).collect(),
        },
        StepKind::Approval(approval) => Work::Approval {
            message: render(&approval.message),
            schema: approval.schema.as_ref().map(|schema| schema.name().to_owned()),
            approvers: approval.approvers.clone(),
            on_timeout: approval.on_timeout,
        },
    }
}

/// Input for another pipeline: JSON if it is known, otherwise in written form.
fn given(value: &Binding, known: &Known) -> String {
    let resolved = known.value(value).and_then(|json| json.text().ok().map(|text| text.to_string()));
    resolved.unwrap_or_else(|| match value {
        Binding::Reference(reference) => format!("{{{{{reference}}}}}"),
        _ => describe::binding(value),
    })
}
