//! `description` and `triggers`: requests with values replaced by slots (2.9).

use std::collections::BTreeSet;

use serde_json::Value;

use super::pipeline::Wording;
use crate::episode::Episode;
use crate::program::Program;
use crate::text::{plain, proves};

/// How many requests are triggers.
const MAX_TRIGGERS: usize = 5;
/// With how many requests each is compared.
const MAX_COMPARED: usize = 200;
/// How many characters of a request are kept.
const MAX_CHARS: usize = 240;

/// The wording without a model: the most central request first.
pub(super) fn wording(program: &Program, episodes: &[Episode<'_>], family: &str) -> Wording {
    let mut requests: Vec<String> = episodes.iter().map(|episode| slotted(program, episode)).collect();
    requests.sort();
    requests.dedup();
    let words = |text: &str| -> BTreeSet<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
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
    let description = triggers.first().cloned().unwrap_or_else(|| family.replace(['_', '-'], " "));
    Wording { description, triggers }
}

/// A request with its values replaced by slots: `return {order_id}`.
fn slotted(program: &Program, episode: &Episode<'_>) -> String {
    let mut slots: Vec<(String, String)> = Vec::new();
    for param in &program.params {
        if let Some(value) = param.argument.value(episode) {
            slots.extend(texts(&value).into_iter().map(|text| (text, param.name.clone())));
        }
    }
    let calls = episode.writes.iter().chain(&episode.reads);
    for call in calls {
        for (path, value) in crate::episode::leaves(&call.arguments) {
            let name = path.last().cloned().unwrap_or_default();
            slots.extend(texts(&value).into_iter().map(|text| (text, name.clone())));
        }
        named(&call.result, "value", &mut slots);
    }
    // The longest value first, so that no slot is cut out of another value.
    slots.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    let mut text = episode.trace.request.split_whitespace().collect::<Vec<_>>().join(" ");
    for (value, name) in slots {
        text = replaced(&text, &value, &format!("{{{name}}}"));
    }
    match text.char_indices().nth(MAX_CHARS) {
        None => text,
        Some((at, _)) => text[..at].rsplit_once(' ').map_or(&text[..at], |(head, _)| head).to_owned(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        value if proves(value) => vec![plain(value)],
        _ => Vec::new(),
    }
}

/// Values of results that name something: a user's words may have them as well.
fn named(value: &Value, name: &str, slots: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, inner)| named(inner, name, slots)),
        Value::Array(items) => items.iter().for_each(|inner| named(inner, name, slots)),
        Value::String(text) => {
            let is_name = text.contains(|c: char| c.is_ascii_digit() || c == '@') || text.contains(' ');
            if is_name && proves(value) && text.chars().count() <= 60 {
                slots.push((text.clone(), name.to_owned()));
            }
        }
        _ => {}
    }
}

/// Replaces whole occurrences, without case, outside slots.
fn replaced(text: &str, value: &str, slot: &str) -> String {
    if value.trim().is_empty() {
        return text.to_owned();
    }
    let (lower, wanted) = (text.to_ascii_lowercase(), value.to_ascii_lowercase());
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in lower.match_indices(&wanted) {
        let (before, after) = (&text[..at], &text[at + wanted.len()..]);
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_in_slot = before.rfind('{') > before.rfind('}') && before.contains('{');
        let is_bound = is_part(wanted.chars().next()) && is_part(before.chars().next_back())
            || is_part(wanted.chars().next_back()) && is_part(after.chars().next());
        if at < done || is_bound || is_in_slot {
            continue;
        }
        out.push_str(&text[done..at]);
        out.push_str(slot);
        done = at + wanted.len();
    }
    out + &text[done..]
}
