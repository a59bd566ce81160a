//! Event handlers in `globals.internals.events`, which skills and the middleware `event` put there (D-15).

use serde_json::{Value, json};

/// The handlers of a topic in `globals.internals.events`. Skills can change that value freely, so a non-list becomes an empty
/// list, and a non-object on the way an empty object.
pub(crate) fn handlers_of<'g>(globals: &'g mut Value, topic: &str) -> Option<&'g mut Vec<Value>> {
    let mut at = globals;
    for key in ["internals", "events"] {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut()?.entry(key).or_insert_with(|| json!({}));
    }
    if !at.is_object() {
        *at = json!({});
    }
    let list = at.as_object_mut()?.entry(topic).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// Adds a handler `{ref, args?}`, unless it is there already. True if it is new.
pub(crate) fn add_handler(globals: &mut Value, topic: &str, handler: &Value) -> bool {
    match handlers_of(globals, topic) {
        Some(known) if !known.contains(handler) => {
            known.push(handler.clone());
            true
        }
        _ => false,
    }
}
