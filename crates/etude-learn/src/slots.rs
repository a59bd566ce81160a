//! Slots: requests with their values replaced (2.9).

use etude_core::data::bare;
use etude_core::verbatim::{is_one_word, normal};
use serde_json::Value;

use crate::episode::Episode;
use crate::notation::places;
use crate::text::proves;

/// Request of a user with the values of calls replaced: users with equal skeletons ask for the same. `own` is not replaced.
pub(crate) fn skeleton(episode: &Episode<'_>, own: Option<&Value>) -> String {
    let mut slots: Vec<(String, String)> = Vec::new();
    for call in episode.writes.iter().chain(&episode.reads) {
        let arguments = crate::episode::leaves(&call.arguments).into_iter().filter(|(_, value)| Some(value) != own);
        slots.extend(arguments.flat_map(|(_, value)| texts(&value)).map(|text| (text, String::new())));
        named(&call.result, "", &mut slots);
    }
    slots.retain(|(value, _)| own.is_none_or(|own| bare(own) != *value));
    slots.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
    slots.dedup();
    slots.iter().fold(episode.said.as_str().to_owned(), |text, (value, _)| replaced(&text, &normal(value), "{}"))
}

/// Texts of a value that are long enough to prove their origin.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        value if proves(value) => vec![bare(value).into_owned()],
        _ => Vec::new(),
    }
}

/// Adds the texts of a result that name something, with their field names: a user's words may have them as well.
pub(crate) fn named(value: &Value, name: &str, slots: &mut Vec<(String, String)>) {
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

/// Replaces the number or day of a value in any notation, outside slots.
pub(crate) fn replaced_in_any_notation(text: &str, value: &Value, slot: &str) -> String {
    if let Value::Array(items) = value {
        return items.iter().fold(text.to_owned(), |text, item| replaced_in_any_notation(&text, item, slot));
    }
    let mut out = String::new();
    let mut done = 0;
    for place in places(&text.to_ascii_lowercase(), value) {
        if !is_in_slot(&text[..place.start]) {
            out.push_str(&text[done..place.start]);
            out.push_str(slot);
            done = place.end;
        }
    }
    out + &text[done..]
}

/// True if a slot is open at the end of a text.
fn is_in_slot(before: &str) -> bool {
    before.rfind('{') > before.rfind('}') && before.contains('{')
}

/// Replaces whole occurrences of a value, without case, outside slots.
pub(crate) fn replaced(text: &str, value: &str, slot: &str) -> String {
    if value.trim().is_empty() {
        return text.to_owned();
    }
    let (lower, wanted) = (text.to_ascii_lowercase(), value.to_ascii_lowercase());
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in lower.match_indices(&wanted) {
        let (before, after) = (&text[..at], &text[at + wanted.len()..]);
        let is_joined = |left: &str, right: &str| {
            left.chars().next_back().zip(right.chars().next()).is_some_and(|(left, right)| is_one_word(left, right))
        };
        let is_bound = is_joined(before, &wanted) || is_joined(&wanted, after);
        if at < done || is_bound || is_in_slot(before) {
            continue;
        }
        out.push_str(&text[done..at]);
        out.push_str(slot);
        done = at + wanted.len();
    }
    out + &text[done..]
}
