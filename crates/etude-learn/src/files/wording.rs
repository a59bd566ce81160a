//! `description` and `triggers`: requests with values replaced by slots (2.9).

use std::collections::BTreeSet;

use super::pipeline::Wording;
use crate::episode::Episode;
use crate::program::Program;
use crate::slots::{named, replaced, texts};

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
