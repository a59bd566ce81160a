//! `description` and `triggers`: requests with values replaced by slots (2.9).

use std::collections::BTreeSet;

use serde_json::Value;

use super::pipeline::Wording;
use crate::episode::Episode;
use crate::program::Program;
use crate::slots::{named, replaced, replaced_in_any_notation, texts};

/// Maximum number of requests that become triggers.
const MAX_TRIGGERS: usize = 5;
/// Maximum number of requests that each request is compared with.
const MAX_COMPARED: usize = 200;
/// Maximum length of a request in a trigger, in characters.
const MAX_CHARS: usize = 240;

/// The wording without a model: the most central request first.
pub(super) fn wording(program: &Program, episodes: &[Episode<'_>], family: &str) -> Wording {
    let mut requests: Vec<String> = episodes.iter().map(|episode| slotted(program, episode)).collect();
    // A run may have inputs alone, and no request.
    requests.retain(|text| !text.is_empty());
    requests.sort();
    requests.dedup();
    let bags: Vec<BTreeSet<String>> = requests.iter().map(|text| words(text)).collect();
    let compared: Vec<&BTreeSet<String>> = bags.iter().step_by(bags.len().div_ceil(MAX_COMPARED).max(1)).collect();
    let closeness = |n: usize| -> usize {
        let share = |other: &BTreeSet<String>| {
            let common = bags[n].intersection(other).count();
            1000 * common / bags[n].union(other).count().max(1)
        };
        compared.iter().map(|other| share(other)).sum()
    };
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_cached_key(|n| (std::cmp::Reverse(closeness(*n)), requests[*n].len(), requests[*n].clone()));
    let triggers: Vec<String> = order.into_iter().map(|n| requests[n].clone()).take(MAX_TRIGGERS).collect();
    Wording { description: description(&triggers, family), triggers }
}

fn description(triggers: &[String], family: &str) -> String {
    triggers.first().cloned().unwrap_or_else(|| family.replace(['_', '-'], " "))
}

fn words(text: &str) -> BTreeSet<String> {
    text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// A text without its slots, whose words are names of arguments.
fn unslotted(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| format!("{out} {}", part.split_once('}').map_or(part, |(_, after)| after)))
}

impl Wording {
    /// Wording of a definition, which is `pipeline.yaml` as JSON.
    pub fn of(definition: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let triggers = definition["triggers"].as_array().into_iter().flatten().filter_map(text);
        Self { description: text(&definition["description"]).unwrap_or_default(), triggers: triggers.collect() }
    }

    /// Wording without the texts that have a word of `request` alone, in none of the `others` (L-40); `None` if there are no
    /// such texts.
    pub fn without(&self, request: &str, others: &[String], family: &str) -> Option<Self> {
        let common: BTreeSet<String> = others.iter().flat_map(|other| words(other)).collect();
        let own: BTreeSet<String> = words(request).difference(&common).cloned().collect();
        let is_kept = |text: &str| words(&unslotted(text)).is_disjoint(&own);
        let triggers: Vec<String> = self.triggers.iter().filter(|text| is_kept(text)).cloned().collect();
        if is_kept(&self.description) {
            let is_same = triggers.len() == self.triggers.len();
            return (!is_same).then(|| Self { description: self.description.clone(), triggers });
        }
        Some(Self { description: description(&triggers, family), triggers })
    }
}

/// A request with its values replaced by slots: `return {order_id}`.
fn slotted(program: &Program, episode: &Episode<'_>) -> String {
    let mut values: Vec<(Value, String)> = Vec::new();
    for param in &program.params {
        values.extend(param.argument.value(episode).map(|value| (value, param.name.clone())));
    }
    let calls = || episode.writes.iter().chain(&episode.reads);
    for call in calls() {
        let arguments = crate::episode::leaves(&call.arguments).into_iter();
        values.extend(arguments.map(|(path, value)| (value, path.last().cloned().unwrap_or_default())));
    }
    let of_value =
        |(value, name): &(Value, String)| texts(value).into_iter().map(|text| (text, name.clone())).collect::<Vec<_>>();
    let mut slots: Vec<(String, String)> = values.iter().flat_map(of_value).collect();
    calls().for_each(|call| named(&call.result, "value", &mut slots));
    // The longest value first, so that no slot is cut out of another value.
    slots.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    let mut text = episode.trace.request.split_whitespace().collect::<Vec<_>>().join(" ");
    for (value, name) in slots {
        text = replaced(&text, &value, &format!("{{{name}}}"));
    }
    for (value, name) in values {
        text = replaced_in_any_notation(&text, &value, &format!("{{{name}}}"));
    }
    match text.char_indices().nth(MAX_CHARS) {
        None => text,
        Some((at, _)) => text[..at].rsplit_once(' ').map_or(&text[..at], |(head, _)| head).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-40: words of a forgotten request alone are in no trigger and no description; words that others say as well stay.
    #[test]
    fn words_of_one_request_are_taken_out() {
        let triggers = ["Refund {ref} for my secret surgery bill", "Refund {ref} now", "Please refund {ref}"];
        let wording = |n: usize| Wording {
            description: triggers[n].to_owned(),
            triggers: triggers.iter().map(|text| (*text).to_owned()).collect(),
        };
        let others = ["refund REF-01 now".to_owned(), "Please refund REF-03".to_owned()];
        let forgotten = "Refund REF-02 for my secret surgery bill";
        let left = Wording { description: triggers[1].to_owned(), triggers: wording(0).triggers.split_off(1) };
        assert_eq!(wording(0).without(forgotten, &others, "do_refund"), Some(left.clone()));
        assert_eq!(wording(1).without(forgotten, &others, "do_refund"), Some(left.clone()));
        assert_eq!(left.without(forgotten, &others, "do_refund"), None);
        let none = Wording { description: "do refund".to_owned(), triggers: Vec::new() };
        assert_eq!(wording(2).without("refund now please for my secret surgery bill", &[], "do_refund"), Some(none));
    }
}
