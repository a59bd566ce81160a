//! Input schemas in the form that clients accept: an object at the root, and no references.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// Maximum depth of references. A recursive schema accepts anything below.
const MAX_DEPTH: usize = 16;

/// The input schema of a definition, with all references replaced. Each parameter is a separate document, to which its references
/// are relative; any other reference accepts all values.
pub(crate) fn inlined(schema: &Value) -> Value {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let properties: Map<String, Value> =
        properties.iter().map(|(name, parameter)| (name.clone(), resolved(parameter, parameter, 0))).collect();
    let mut out = json!({"type": "object", "properties": properties});
    if schema["required"].as_array().is_some_and(|required| !required.is_empty()) {
        out["required"] = schema["required"].clone();
    }
    out["additionalProperties"] = (schema["additionalProperties"] == true).into();
    out
}

fn resolved(value: &Value, document: &Value, depth: usize) -> Value {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').filter(|_| depth < MAX_DEPTH);
                let target =
                    pointer.and_then(|pointer| document.pointer(&percent_decode_str(pointer).decode_utf8_lossy()));
                let target = target.map_or_else(|| json!({}), |target| resolved(target, document, depth + 1));
                return merge(target, members, document, depth);
            }
            let kept = members.iter().filter(|(name, _)| !is_for_references(name));
            kept.map(|(name, value)| (name.clone(), resolved(value, document, depth))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| resolved(item, document, depth)).collect(),
        other => other.clone(),
    }
}

fn is_for_references(name: &str) -> bool {
    matches!(
        name,
        "$defs" | "definitions" | "$id" | "$schema" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$comment"
    )
}

/// The target of a reference, merged with the members beside `$ref`.
fn merge(target: Value, members: &Map<String, Value>, document: &Value, depth: usize) -> Value {
    let Value::Object(mut target) = target else { return target };
    for (name, value) in members.iter().filter(|(name, _)| *name != "$ref" && !is_for_references(name)) {
        target.insert(name.clone(), resolved(value, document, depth));
    }
    target.into()
}

/// The schema of every result of a run.
pub(crate) fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run_id": {"type": ["string", "null"]},
            "status": {"type": "string"},
            "output": {},
            "errors": {"type": "array"},
            "usage": {"type": ["object", "null"]},
            "url": {"type": ["string", "null"]},
            "message": {"type": "string"},
            "waiting": {"type": "array"},
            "output_cut": {"type": "object"},
        },
        "required": ["run_id", "status", "output", "errors", "usage", "url"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_reference(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.contains_key("$ref") || members.values().any(has_reference),
            Value::Array(items) => items.iter().any(has_reference),
            _ => false,
        }
    }

    /// S-142: the root is an object without references, and references inside are replaced.
    #[test]
    fn references_are_replaced() {
        let schema = json!({
            "type": "object", "required": ["tree"], "additionalProperties": false,
            "properties": {
                "tree": {
                    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
                    "$ref": "#/$defs/node", "description": "a tree",
                },
                "other": {"$ref": "other.json"},
                "percent": {"definitions": {"a b": {"type": "string"}}, "$ref": "#/definitions/a%20b"},
            },
        });
        let inlined = inlined(&schema);
        assert!(!has_reference(&inlined), "{inlined}");
        assert_eq!(inlined["type"], "object");
        assert_eq!(inlined["additionalProperties"], false);
        assert_eq!(inlined["properties"]["tree"]["description"], "a tree");
        assert_eq!(inlined["properties"]["tree"]["properties"]["next"]["type"], "object");
        assert_eq!(inlined["properties"]["other"], json!({}));
        assert_eq!(inlined["properties"]["percent"], json!({"type": "string"}));
    }
}
