//! Merging of `allOf` into one schema, since no dialect has it.

use serde_json::{Map, Value};

/// Merges the members of `allOf` into the schema around them. `None` if two of them set the same keyword to different values.
pub(super) fn merge(schema: &Map<String, Value>, root: &Value) -> Option<Map<String, Value>> {
    merge_below(schema, root, 0)
}

/// Maximum depth of nesting. Deeper nesting is a reference that leads back to itself.
const MAX_DEPTH: usize = 16;

fn merge_below(schema: &Map<String, Value>, root: &Value, depth: usize) -> Option<Map<String, Value>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut out = schema.clone();
    let Some(Value::Array(members)) = out.shift_remove("allOf") else {
        return Some(out);
    };
    for member in &members {
        let mut member = resolve(member, root)?;
        if member.contains_key("allOf") {
            member = merge_below(&member, root, depth + 1)?;
        }
        if member.contains_key("$ref") {
            return None;
        }
        for (keyword, value) in member {
            add(&mut out, keyword, value)?;
        }
    }
    Some(out)
}

/// The member itself, or the target of its reference if it has nothing else.
fn resolve(member: &Value, root: &Value) -> Option<Map<String, Value>> {
    let object = member.as_object()?;
    match object.get("$ref").and_then(Value::as_str) {
        Some(reference) if object.len() == 1 => root.pointer(reference.strip_prefix('#')?)?.as_object().cloned(),
        _ => Some(object.clone()),
    }
}

fn add(out: &mut Map<String, Value>, keyword: String, value: Value) -> Option<()> {
    let Some(present) = out.get_mut(&keyword) else {
        // A closed object sees only its own properties, so merging would admit those of the others.
        if keyword == "additionalProperties" && value != Value::Bool(true) {
            return None;
        }
        out.insert(keyword, value);
        return Some(());
    };
    match (keyword.as_str(), present, value) {
        (_, present, value) if *present == value => Some(()),
        ("title" | "description" | "$comment" | "examples" | "default", _, _) => Some(()),
        ("required", Value::Array(all), Value::Array(more)) => {
            all.extend(more.into_iter().filter(|name| name.is_string()).collect::<Vec<_>>());
            all.sort_by_key(Value::to_string);
            all.dedup();
            Some(())
        }
        ("properties", Value::Object(all), Value::Object(more)) => {
            for (name, property) in more {
                match all.get(&name) {
                    Some(present) if *present != property => return None,
                    _ => all.insert(name, property),
                };
            }
            Some(())
        }
        _ => None,
    }
}
