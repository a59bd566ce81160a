//! What a model thought, on its way back to it.
//!
//! Every API has a form of its own, which is kept as it came. Where thoughts stand between texts and calls, what is kept is
//! the order of the whole message: texts and calls, which the conversation has, are named in it by a word.

use etude_core::model::{Message, Part};
use etude_core::tree;
use serde_json::Value;

use super::Ask;

/// Stands for the texts of the message.
pub(super) const TEXT: &str = "text";
/// Stands for the next call of the message.
pub(super) const CALL: &str = "call";

/// What the model that is asked thought in `message`, if it wrote it.
pub(super) fn of(message: &Message, ask: Ask<'_>) -> Option<Value> {
    message.parts.iter().find_map(|part| match part {
        Part::Reasoning(reasoning) if reasoning.model == ask.id => tree::of_answer(&*reasoning.json).ok(),
        _ => None,
    })
}

/// True if another model than the one that is asked thought in `message`.
pub(super) fn is_foreign(message: &Message, ask: Ask<'_>) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Reasoning(reasoning) if reasoning.model != ask.id))
}

/// The order of a message, if it has more in it than texts and calls.
pub(super) fn order(parts: Vec<Value>) -> Option<Value> {
    parts.iter().any(|part| !part.is_string()).then_some(Value::Array(parts))
}

/// A message in its order: its thoughts with its texts and calls between them. Texts that the order has itself are not
/// repeated; calls that it lacks come last.
pub(super) fn in_order(order: &Value, mut texts: Vec<Value>, calls: Vec<Value>) -> Vec<Value> {
    let mut calls = calls.into_iter();
    let mut out = Vec::new();
    for part in order.as_array().into_iter().flatten() {
        match part.as_str() {
            Some(TEXT) => out.append(&mut texts),
            Some(_) => out.extend(calls.next()),
            None => out.push(part.clone()),
        }
    }
    out.extend(calls);
    out
}
