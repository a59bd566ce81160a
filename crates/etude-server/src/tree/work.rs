//! Attempts, turns and tool calls, derived from the ids of effects.

use std::collections::BTreeMap;

use etude_core::model::Usage;
use etude_runs::inspect::{EffectPlace, Inspected};
use serde_json::{Value, json};

use super::blank;

/// An effect at its place in a step.
pub(super) struct Work<'e> {
    pub(super) place: EffectPlace,
    pub(super) effect: &'e Inspected,
}

/// The reasons of rejected attempts: by step, element and attempt.
#[derive(Debug, Default)]
pub(super) struct Rejections(BTreeMap<(String, Option<u64>, u64), Value>);

impl Rejections {
    /// Reads the events of a run, and the attempts of its errors: the last attempt has no event.
    pub(super) fn new(events: &[Value], errors: &[Value]) -> Self {
        let mut all = BTreeMap::new();
        let step = |of: &Value| {
            format!("{}/{}", of["phase"].as_str().unwrap_or_default(), of["step"].as_str().unwrap_or_default())
        };
        let why = |of: &Value| json!({"rejected_by": of["rejected_by"], "errors": of["errors"]});
        for event in events {
            let attempt = event["attempt"].as_u64().unwrap_or(1);
            all.insert((step(event), event["item"]["index"].as_u64(), attempt), why(event));
        }
        for error in errors {
            for (attempt, rejected) in (1..).zip(error["attempts"].as_array().into_iter().flatten()) {
                all.entry((step(error), error["details"]["item"].as_u64(), attempt)).or_insert_with(|| why(rejected));
            }
        }
        Self(all)
    }

    fn get(&self, step: &str, element: Option<usize>, attempt: u32) -> Option<&Value> {
        self.0.get(&(step.to_owned(), element.map(|element| element as u64), u64::from(attempt)))
    }
}

/// Fills a node with the times, usage and model of its effects.
pub(super) fn fill<'w, 'e: 'w>(node: &mut Value, works: impl Iterator<Item = &'w Work<'e>>, began_at_ms: i64) {
    let (mut span, mut usage): (Option<(u64, u64)>, Option<Usage>) = (None, None);
    for Work { effect, .. } in works {
        if let Some(end) = effect.ended_at_ms {
            let start = end.saturating_sub(effect.elapsed_ms);
            span = Some(span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        }
        if let Some(more) = &effect.usage {
            usage.get_or_insert_default().add(more);
        }
        if let Some(model) = &effect.model {
            node["model"] = model.as_str().into();
        }
    }
    if let Some((start, end)) = span {
        node["started_at"] = etude_runtime::clock::rfc3339(began_at_ms.saturating_add_unsigned(start)).into();
        node["duration_ms"] = (end - start).into();
    }
    if let Some(usage) = usage {
        node["usage"] = json!({
            "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cached_tokens": usage.cached_tokens,
            "cost_usd": usage.cost_usd,
        });
    }
}

/// The parent of attempt nodes: a step, or an element of one.
pub(super) struct Parent<'p> {
    pub(super) id: &'p str,
    pub(super) phase: &'p str,
    /// `PHASE/STEP`.
    pub(super) step: &'p str,
    pub(super) element: Option<usize>,
    /// The status of the step or the element.
    pub(super) status: &'p str,
}

/// True if a step's attempts have nodes: those of models, and of a retried code step.
pub(super) fn has_attempts<'w, 'e: 'w>(is_llm: bool, mut works: impl Iterator<Item = &'w Work<'e>>) -> bool {
    let first = works.next();
    first.is_some_and(|first| is_llm || first.place.attempt > 1 || works.any(|work| work.place.attempt > 1))
}

/// The nodes of attempts, each with its turns and their tool calls.
pub(super) fn attempts(
    parent: &Parent<'_>,
    works: &[&Work<'_>],
    rejections: &Rejections,
    began_at_ms: i64,
) -> Vec<Value> {
    let mut nodes = Vec::new();
    let last = works.iter().map(|work| work.place.attempt).max().unwrap_or(1);
    let mut numbers: Vec<u32> = works.iter().map(|work| work.place.attempt).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let own: Vec<&Work<'_>> = works.iter().copied().filter(|work| work.place.attempt == number).collect();
        let id = format!("{}#{number}", parent.id);
        let mut node = blank(&id, parent.id.into(), "attempt", &format!("attempt {number}"), parent.phase);
        node["attempt"] = number.into();
        let rejected = rejections.get(parent.step, parent.element, number);
        node["status"] = match (rejected, number < last) {
            (Some(_), _) => "rejected",
            (None, true) => "failed",
            (None, false) => parent.status,
        }
        .into();
        if let Some(why) = rejected {
            node["error"] = why.clone();
        }
        fill(&mut node, own.iter().copied(), began_at_ms);
        let inner = turns(&id, parent.phase, &own, began_at_ms);
        node["children"] = inner.iter().filter(|turn| turn["parent"] == *id).count().into();
        nodes.push(node);
        nodes.extend(inner);
    }
    nodes
}

/// The tool call of a turn that an effect belongs to: its own effect, one of its guards, or work of the agent that it started.
fn call_of(place: &EffectPlace) -> Option<&str> {
    let call = place.part.split('/').next().unwrap_or_default();
    (!call.is_empty() && !call.contains('!')).then_some(call)
}

/// The nodes of turns, each with its tool calls.
pub(super) fn turns(parent: &str, phase: &str, works: &[&Work<'_>], began_at_ms: i64) -> Vec<Value> {
    let mut nodes = Vec::new();
    let last = works.iter().filter_map(|work| work.place.turn).max().unwrap_or(0);
    for number in 1..=last {
        let own = || works.iter().copied().filter(move |work| work.place.turn == Some(number));
        let id = format!("{parent}/turn{number}");
        let mut node = blank(&id, parent.into(), "turn", &format!("turn {number}"), phase);
        let is_call = |work: &&Work<'_>| work.place.part.is_empty();
        let is_any = |status: &str| own().filter(is_call).any(|work| work.effect.status() == status);
        node["status"] = ["failed", "cancelled"].into_iter().find(|word| is_any(word)).unwrap_or("succeeded").into();
        fill(&mut node, own().filter(is_call), began_at_ms);
        let mut calls: Vec<&str> = own().filter_map(|work| call_of(&work.place)).collect();
        calls.dedup();
        node["children"] = calls.len().into();
        nodes.push(node);
        for call in calls {
            let mut node = blank(&format!("{id}/{call}"), id.as_str().into(), "tool", call, phase);
            if let Some(work) = own().find(|work| work.place.part == call) {
                node["status"] = work.effect.status().into();
            }
            fill(&mut node, own().filter(|work| call_of(&work.place) == Some(call)), began_at_ms);
            nodes.push(node);
        }
    }
    nodes
}

/// The part of a node's id below its attempt or stage: the turn and the tool call.
pub(super) fn turn_of(place: &EffectPlace) -> String {
    match (place.turn, call_of(place)) {
        (None, _) => String::new(),
        (Some(turn), None) => format!("/turn{turn}"),
        (Some(turn), Some(call)) => format!("/turn{turn}/{call}"),
    }
}

/// The id of the node for an effect at `place`. `base` is the id of its step.
pub(super) fn node_of(base: &str, place: &EffectPlace, has_attempts: bool) -> String {
    let mut id = base.to_owned();
    if let Some(element) = place.element {
        id.push_str(&format!("[{element}]"));
    }
    if !has_attempts {
        return id;
    }
    id.push_str(&format!("#{}", place.attempt));
    id.push_str(&turn_of(place));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element's last rejected attempt has no event: it is found by the error's element (ADR 0144).
    #[test]
    fn the_last_rejection_of_an_element_is_found() {
        let error = json!({
            "phase": "business", "step": "ask", "details": {"item": 2},
            "attempts": [{"rejected_by": "schema", "errors": ["no"]}],
        });
        let rejections = Rejections::new(&[], &[error]);
        let why = rejections.get("business/ask", Some(2), 1).expect("a reason");
        assert_eq!(why["rejected_by"], "schema");
        assert_eq!(rejections.get("business/ask", None, 1), None);
    }
}
