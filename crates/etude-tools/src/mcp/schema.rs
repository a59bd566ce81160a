//! Input schemas of servers in the form for models: bounded, and without characters that hide text.

use etude_core::hidden::hides;
use serde_json::{Value, json};

use super::server::MAX_DESCRIPTION;
use crate::bound;

/// Maximum size of the schema of one tool, in bytes.
const MAX_SCHEMA: usize = 64 * 1024;

/// Maximum total size of the schemas of a server, in bytes.
pub(super) const MAX_SCHEMAS: usize = 1024 * 1024;

/// Keys whose values are literal: they are sent back unchanged, or not shown.
const LITERAL: &[&str] = &["enum", "const", "default", "examples", "pattern", "required"];

/// A schema with cleaned texts for the model. It becomes a plain object schema if it is too long for a tool or for the
/// remaining `room`, or if a call would have to repeat hidden characters. The server checks the arguments.
pub(super) fn clean(mut schema: Value, room: &mut usize) -> Value {
    let unknown = || json!({"type": "object"});
    if !is_clean(&mut schema, false) {
        return unknown();
    }
    let length = schema.to_string().len();
    match room.checked_sub(length).filter(|_| length <= MAX_SCHEMA) {
        Some(rest) => {
            *room = rest;
            schema
        }
        None => unknown(),
    }
}

/// Cleans titles and descriptions. False if anything else contains hidden characters.
fn is_clean(value: &mut Value, is_literal: bool) -> bool {
    match value {
        Value::String(text) => !hides(text),
        Value::Array(items) => items.iter_mut().all(|item| is_clean(item, is_literal)),
        Value::Object(members) => members.iter_mut().all(|(key, value)| {
            let is_text = matches!(key.as_str(), "title" | "description" | "$comment") && !is_literal;
            match value {
                Value::String(text) if is_text => {
                    *text = bound::plain(text, MAX_DESCRIPTION);
                    true
                }
                value => !hides(key) && is_clean(value, is_literal || LITERAL.contains(&key.as_str())),
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "A tool server (MCP)": a model sees what a person would see, in the schemas as well.
    #[test]
    fn schemas_hide_nothing() {
        let hidden = "\u{e0049}\u{202e}\u{1b}";
        let text = |text: &str| format!("{text}{hidden}");
        let schema = json!({
            "type": "object", "title": text("T"),
            "properties": {"title": {"type": "string", "description": text("D"), "enum": ["a", "b"]}},
        });
        let mut room = MAX_SCHEMAS;
        let cleaned = clean(schema.clone(), &mut room);
        assert_eq!((&cleaned["title"], &cleaned["properties"]["title"]["description"]), (&json!("T"), &json!("D")));
        assert_eq!(cleaned["properties"]["title"]["enum"], json!(["a", "b"]));
        assert_eq!(room, MAX_SCHEMAS - cleaned.to_string().len());
        for (pointer, value) in
            [("/properties/title/enum/0", json!(text("a"))), ("/properties/title", json!({(text("k")): 1}))]
        {
            let mut schema = schema.clone();
            *schema.pointer_mut(pointer).expect("it is there") = value;
            assert_eq!(clean(schema, &mut room), json!({"type": "object"}), "{pointer}");
        }
        let long = json!({"description": "x".repeat(MAX_SCHEMA)});
        assert!(clean(long, &mut room).to_string().len() < MAX_SCHEMA);
    }

    /// SECURITY.md, "A tool server (MCP)": the total size of a server's schemas is bounded.
    #[test]
    fn schemas_of_a_server_are_bounded_together() {
        let schema = json!({"type": "object", "required": vec!["x".repeat(100); 500]});
        let mut room = MAX_SCHEMAS;
        let cleaned = std::iter::repeat_with(|| clean(schema.clone(), &mut room)).take(100);
        let all: usize = cleaned.map(|schema| schema.to_string().len()).sum();
        assert!(all <= MAX_SCHEMAS + 100 * 20, "{all}");
    }
}
