//! Makes a rewritten schema nullable.

use serde_json::{Value, json};

/// Makes `schema` accept null. False if it already did.
pub(super) fn make(schema: &mut Value) -> bool {
    if accepts(schema) {
        return false;
    }
    let null = json!({ "type": "null" });
    let Some(object) = schema.as_object_mut() else {
        return false;
    };
    if let Some(Value::Array(branches)) = object.get_mut("anyOf") {
        branches.push(null);
        return true;
    }
    let simple = !object.contains_key("const") && !object.contains_key("$ref");
    match object.get_mut("type") {
        Some(Value::String(kind)) if simple => {
            let kinds = json!([kind, "null"]);
            object.insert("type".to_owned(), kinds);
        }
        Some(Value::Array(kinds)) if simple => kinds.push(json!("null")),
        _ => {
            let inner = schema.take();
            *schema = json!({ "anyOf": Value::Array(vec![inner, null]) });
            return true;
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("enum") {
        choices.push(Value::Null);
    }
    true
}

/// True if a rewritten schema already accepts null.
fn accepts(schema: &Value) -> bool {
    if let Some(Value::Array(branches)) = schema.get("anyOf") {
        return branches.iter().any(accepts);
    }
    if schema.get("const").is_some_and(|constant| !constant.is_null()) {
        return false;
    }
    if let Some(Value::Array(choices)) = schema.get("enum")
        && !choices.contains(&Value::Null)
    {
        return false;
    }
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        _ => false,
    }
}
