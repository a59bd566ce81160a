//! `$resolve` in schemas: a part of the schema that a tool returns (D-3.3, D-2.3).
//!
//! `{"$resolve": "list-regions"}` or `{"$resolve": {"ref": "list-regions", "args": {…}}}` stands for the result of that
//! tool.

use etude_core::pointer::escaped;
use serde_json::{Map, Value, json};

/// The key that marks a part to resolve.
pub const RESOLVE: &str = "$resolve";

/// A part of a schema that a tool returns.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// JSON pointer to the part.
    pub pointer: String,
    /// Name or path of the tool.
    pub reference: String,
    /// Arguments for the call of the tool.
    pub args: Value,
}

/// The first part of `schema` to resolve.
pub fn first(schema: &Value) -> Option<Part> {
    find(schema, String::new())
}

fn find(value: &Value, pointer: String) -> Option<Part> {
    match value {
        Value::Object(members) => match members.get(RESOLVE) {
            Some(wanted) => read(wanted).map(|(reference, args)| Part { pointer, reference, args }),
            None => members.iter().find_map(|(key, member)| find(member, format!("{pointer}/{}", escaped(key)))),
        },
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| find(item, format!("{pointer}/{at}"))),
        _ => None,
    }
}

fn read(wanted: &Value) -> Option<(String, Value)> {
    match wanted {
        Value::String(name) => Some((name.clone(), json!({}))),
        Value::Object(members) => {
            let args = members.get("args").cloned().unwrap_or_else(|| json!({}));
            members.get("ref").and_then(Value::as_str).map(|name| (name.to_owned(), args))
        }
        _ => None,
    }
}

/// Replaces a part by the tool's result. `None` means any value.
pub fn put(schema: &mut Value, part: &Part, given: Option<Value>) {
    if let Some(place) = schema.pointer_mut(&part.pointer) {
        *place = match given {
            // The result is data of a tool, not a definition, so a `$resolve` in it is not followed.
            Some(value) if first(&value).is_none() => value,
            _ => Value::Object(Map::new()),
        };
    }
}

/// Replaces every part by a schema for any value, for callers that cannot call tools.
pub fn without(schema: &Value) -> Value {
    let mut schema = schema.clone();
    while let Some(part) = first(&schema) {
        put(&mut schema, &part, None);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-3.3, D-2.3: parts are found at any depth and replaced by the results of their tools.
    #[test]
    fn parts_are_found_and_replaced() {
        let mut schema = json!({"properties": {"a/b": {"$resolve": "regions"}, "c": [{"$resolve": {"ref": "x", "args": {"n": 1}}}]}});
        let part = first(&schema).unwrap();
        assert_eq!((part.pointer.as_str(), part.reference.as_str()), ("/properties/a~1b", "regions"));
        put(&mut schema, &part, Some(json!({"enum": ["eu"]})));
        let part = first(&schema).unwrap();
        assert_eq!((part.reference.as_str(), &part.args), ("x", &json!({"n": 1})));
        put(&mut schema, &part, Some(json!({"$resolve": "x"})));
        assert_eq!(schema, json!({"properties": {"a/b": {"enum": ["eu"]}, "c": [{}]}}));
        assert_eq!(without(&json!({"x": {"$resolve": "y"}})), json!({"x": {}}));
    }
}
