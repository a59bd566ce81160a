//! Reasoning of a model, on its way back to it.
//!
//! Each API has its own form, which is kept unchanged. Where reasoning stands between texts and calls, the order of the whole
//! message is kept. It refers to texts and calls, which are in the conversation already, by a word.

use etude_core::model::{Message, Part};
use etude_core::tree;
use serde_json::Value;

use super::Ask;

/// Placeholder for the texts of the message.
pub(super) const TEXT: &str = "text";
/// Placeholder for the next call of the message.
pub(super) const CALL: &str = "call";

/// The reasoning in `message`, if the called model wrote it.
pub(super) fn of(message: &Message, ask: Ask<'_>) -> Option<Value> {
    message.parts.iter().find_map(|part| match part {
        Part::Reasoning(reasoning) if reasoning.model == ask.id => tree::parse_response(&*reasoning.json).ok(),
        _ => None,
    })
}

/// True if `message` has reasoning of another model than the called one.
pub(super) fn is_foreign(message: &Message, ask: Ask<'_>) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Reasoning(reasoning) if reasoning.model != ask.id))
}

/// The order of a message; `None` if it has nothing but texts and calls.
pub(super) fn order(parts: Vec<Value>) -> Option<Value> {
    parts.iter().any(|part| !part.is_string()).then_some(Value::Array(parts))
}

/// Arranges a message in its order: its reasoning with its texts and calls between. Texts that the order contains itself are
/// not repeated; calls that it lacks come last.
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
