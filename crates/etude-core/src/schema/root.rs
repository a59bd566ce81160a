//! Root schemas for providers, which accept only objects for tools and structured outputs.

use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The member that holds a value that is not an object.
const MEMBER: &str = "value";

/// Keywords that providers refuse beside `type` at the root.
const REFUSED_AT_ROOT: &[&str] = &["anyOf", "oneOf", "allOf", "not", "enum"];

/// Keywords with data as their value, not schemas.
const DATA: &[&str] = &["enum", "const", "default", "examples", "required"];

/// True for an object schema that providers accept as a root.
pub fn is_plain_object(schema: &Value) -> bool {
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    is_object && REFUSED_AT_ROOT.iter().all(|keyword| schema.get(keyword).is_none())
}

/// Wraps `inner` below the property `value` of an object. Definitions stay at the root, where references find them;
/// other references into the root are redirected to its new place.
pub fn wrapped(mut inner: Value) -> Value {
    // In a schema with an address of its own, references are relative to that address.
    let has_address = |schema: &Value| schema.get("$id").is_some();
    if has_address(&inner) {
        return object_of(inner);
    }
    let mut definitions = inner.as_object_mut().and_then(|object| object.shift_remove("$defs"));
    redirect(&mut inner);
    if let Some(definitions) = definitions.as_mut().and_then(Value::as_object_mut) {
        definitions.values_mut().filter(|definition| !has_address(definition)).for_each(redirect);
    }
    let mut root = object_of(inner);
    if let Some(definitions) = definitions {
        root["$defs"] = definitions;
    }
    root
}

/// The value below `value`, with its text unchanged; `None` if `text` has another form.
pub fn unwrapped(text: &str) -> Option<Box<RawValue>> {
    let mut members: IndexMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    if members.len() == 1 { members.shift_remove(MEMBER) } else { None }
}

/// Calls `visit` with every `$ref` of `schema`.
pub fn for_each_reference(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                match value {
                    Value::String(reference) if keyword == "$ref" => visit(reference),
                    _ if DATA.contains(&keyword.as_str()) && !value.is_object() => {}
                    _ => for_each_reference(value, visit),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| for_each_reference(one, visit)),
        _ => {}
    }
}

fn object_of(inner: Value) -> Value {
    json!({ "type": "object", "properties": { MEMBER: inner }, "required": [MEMBER], "additionalProperties": false })
}

fn redirect(schema: &mut Value) {
    for_each_reference(schema, &mut |reference| {
        if let Some(rest) = reference.strip_prefix('#')
            && (rest.is_empty() || rest.starts_with('/') && !rest.starts_with("/$defs/"))
        {
            *reference = format!("#/properties/{MEMBER}{rest}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-14, A-4.3: references have the same targets after the schema was put below `value`.
    #[test]
    fn references_follow_a_schema_below_its_member() {
        let schema = json!({
            "type": "array", "items": { "$ref": "#/$defs/a" }, "contains": { "$ref": "#/items" },
            "$defs": { "a": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] }, "far": { "$id": "x:", "not": { "$ref": "#" } } },
        });
        let expected = json!({
            "type": "object",
            "properties": { "value": {
                "type": "array", "items": { "$ref": "#/$defs/a" }, "contains": { "$ref": "#/properties/value/items" },
            } },
            "required": ["value"], "additionalProperties": false,
            "$defs": {
                "a": { "anyOf": [{ "$ref": "#/properties/value" }, { "type": "null" }] },
                "far": { "$id": "x:", "not": { "$ref": "#" } },
            },
        });
        assert_eq!(wrapped(schema), expected);
    }

    /// D-14: an unwrapped value keeps its text.
    #[test]
    fn an_unwrapped_value_keeps_its_text() {
        let text = |text| unwrapped(text).map(|raw| raw.get().to_owned());
        assert_eq!(text(r#"{"value": 1.50}"#).as_deref(), Some("1.50"));
        assert_eq!([text(r#"{"value": 1, "b": 2}"#), text("1"), text(r#"{"b": 1}"#)], [None, None, None]);
    }
}
