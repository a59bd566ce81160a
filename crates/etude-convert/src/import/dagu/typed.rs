//! Parameters of a DAG with types: a list of mappings with `name` and a description of their values.

use std::collections::BTreeMap;

use etude_core::schema::Schema;
use etude_spec::yaml::Node;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::super::{is_name, text_of};
use super::head::Declaration;

/// Types of values.
const TYPES: [&str; 4] = ["string", "integer", "number", "boolean"];

/// Parameter with a type or other settings; `None` if the item is something else.
pub(super) fn declaration(item: &Node<'_>) -> Option<Result<Declaration, String>> {
    let map = item.as_map().filter(|map| map.0.len() > 1)?;
    let json = |node: &Node<'_>| node.to_json().ok().and_then(|json| serde_json::from_str::<Value>(&json).ok());
    let members = map.0.iter().filter_map(|(key, value)| Some((key.as_text()?.to_owned(), json(value)?)));
    let default = map.get("default").and_then(text_of);
    Some(read(members.collect(), default))
}

fn read(members: Map<String, Value>, default: Option<String>) -> Result<Declaration, String> {
    let name = members.get("name").and_then(Value::as_str).map(str::trim).filter(|name| is_name(name));
    let name = name.ok_or("a parameter with settings must have a `name` that is a valid variable name")?.to_owned();
    let fault = |what: &str| format!("{what} of the parameter `{name}` has no equivalent");
    let kind = members.get("type").map_or(Some("string"), Value::as_str).map(str::trim);
    let kind = kind.filter(|kind| TYPES.contains(kind)).ok_or_else(|| fault("the type"))?;
    let mut schema = json!({"type": kind});
    for (key, value) in &members {
        let (member, value) = match (key.as_str(), value) {
            ("name" | "type" | "required" | "default", _) => continue,
            ("min_length", Value::Number(_)) => ("minLength", value.clone()),
            ("max_length", Value::Number(_)) => ("maxLength", value.clone()),
            ("minimum" | "maximum", Value::Number(_)) => (key.as_str(), value.clone()),
            ("description", Value::String(_)) => ("description", value.clone()),
            ("pattern", Value::String(text)) if Regex::new(text).is_ok() => ("pattern", value.clone()),
            ("enum", Value::Array(all)) => {
                let all: Option<Vec<Value>> = all.iter().map(|one| of_type(kind, &text(one)?)).collect();
                ("enum", all.ok_or_else(|| fault("`enum`"))?.into())
            }
            _ => return Err(fault(&format!("`{key}`"))),
        };
        schema[member] = value;
    }
    let is_required = members.get("required") == Some(&Value::Bool(true));
    // An unset variable is empty in shell text. If the type does not permit an empty value, the parameter must be given.
    let is_free =
        kind == "string" && ["enum", "pattern", "minLength"].iter().all(|member| schema.get(*member).is_none());
    let default = default.or_else(|| (!is_required && is_free).then(String::new));
    Ok(Declaration { name: Some(name), schema, default })
}

/// A scalar as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Value of a type, which a DAG may write with or without quotes.
fn of_type(kind: &str, text: &str) -> Option<Value> {
    match kind {
        "string" => Some(text.into()),
        "integer" => text.trim().parse::<i64>().ok().map(Value::from),
        "boolean" => text.trim().parse::<bool>().ok().map(Value::from),
        _ => serde_json::from_str::<serde_json::Number>(text.trim()).ok().map(Value::from),
    }
}

/// Parameter in the form of `input`.
///
/// # Errors
/// The default does not fit the schema of the parameter.
pub(super) fn with_default(name: &str, mut schema: Value, default: Option<&str>) -> Result<Value, String> {
    let Some(default) = default else { return Ok(schema) };
    let value = of_type(schema["type"].as_str().unwrap_or_default(), default);
    let fits = |value: &Value| Schema::lazy(name, schema.clone(), BTreeMap::new()).faults(value).is_empty();
    let value = value.filter(fits).ok_or_else(|| format!("the default of the parameter `{name}` is not valid"))?;
    schema["default"] = value;
    Ok(schema)
}
