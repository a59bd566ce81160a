//! Types of values that a schema describes.

use std::collections::BTreeSet;

use etude_core::schema::type_of;
use serde_json::{Value, json};

/// True if a value is an object or an array.
pub(super) fn is_composite(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// True if a `type` names `wanted`.
pub(super) fn allows(kind: Option<&Value>, wanted: &str) -> bool {
    match kind {
        Some(Value::String(kind)) => kind == wanted,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        _ => false,
    }
}

/// The common type of `values`, or the array of all their types.
pub(super) fn types_of(values: &[Value]) -> Value {
    let mut kinds: Vec<&str> = values.iter().map(type_of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        [one] => json!(one),
        _ => json!(kinds),
    }
}

/// True if no response matches two branches, judged by their types or constants.
pub(super) fn are_disjoint(branches: &[Value]) -> bool {
    let kinds: Vec<Option<&str>> = branches.iter().map(|branch| branch.get("type").and_then(Value::as_str)).collect();
    let distinct = |keys: &[String]| keys.iter().collect::<BTreeSet<_>>().len() == keys.len();
    let types: Vec<String> = kinds.iter().flatten().map(ToString::to_string).collect();
    // Every integer is a number.
    let numbers = types.iter().filter(|kind| matches!(kind.as_str(), "number" | "integer")).count();
    if types.len() == branches.len() && numbers < 2 && distinct(&types) {
        return true;
    }
    let Some(first) = branches.first().and_then(|branch| branch.get("properties")).and_then(Value::as_object) else {
        return false;
    };
    first.keys().any(|name| {
        let constants: Vec<String> = branches
            .iter()
            .filter(|b| {
                b.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name))
            })
            .filter_map(|branch| branch.pointer("/properties")?.get(name)?.get("const").map(Value::to_string))
            .collect();
        constants.len() == branches.len() && distinct(&constants)
    })
}
