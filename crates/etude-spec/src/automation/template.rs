//! Values with references in double braces, for a server to fill in.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A piece of a text.
enum Piece<'t> {
    Text(&'t str),
    Reference(&'t str),
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((reference, end)) = after.split_once("}}") else { break };
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Reference(reference.trim()));
        rest = end;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// References in all texts of `value`, including members of arrays and objects.
pub fn references(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => {
            let reference = |piece| match piece {
                Piece::Reference(reference) => Some(str::to_owned(reference)),
                Piece::Text(_) => None,
            };
            pieces(text).into_iter().filter_map(reference).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(members) => members.values().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// True for the references of a webhook: `raw`, `body`, `body.PATH` and `header.NAME`.
pub fn is_of_request(reference: &str) -> bool {
    let has_name = |prefix: &str| reference.strip_prefix(prefix).is_some_and(|name| !name.is_empty());
    matches!(reference, "raw" | "body") || has_name("body.") || has_name("header.")
}

/// The value at a path of names and numbers, such as `commits.0.id`.
pub fn at_path<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })
}

/// Fills in the references of the members and returns a JSON object as text. `lookup` returns the text of a JSON value.
/// A text that is exactly one reference becomes that value as written, so numbers keep their digits. A member whose
/// whole text has no value is left out.
///
/// # Errors
/// A reference inside a longer text has no value.
pub fn fill(members: &Map<String, Value>, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = Vec::new();
    for (name, value) in members {
        if let Some(value) = fill_value(value, lookup)? {
            filled.push(format!("{}:{value}", Value::from(name.as_str())));
        }
    }
    Ok(format!("{{{}}}", filled.join(",")))
}

fn fill_value(value: &Value, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    Ok(Some(match value {
        Value::String(text) => match pieces(text).as_slice() {
            [Piece::Reference(reference)] => return Ok(lookup(reference)),
            pieces => {
                let mut out = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => out.push_str(text),
                        Piece::Reference(reference) => {
                            out.push_str(&plain(lookup(reference).ok_or_else(|| (*reference).to_owned())?));
                        }
                    }
                }
                Value::String(out).to_string()
            }
        },
        Value::Array(items) => {
            let filled = items.iter().map(|item| Ok(fill_value(item, lookup)?.unwrap_or_else(|| "null".to_owned())));
            format!("[{}]", filled.collect::<Result<Vec<_>, String>>()?.join(","))
        }
        Value::Object(members) => fill(members, lookup)?,
        other => other.to_string(),
    }))
}

/// A JSON value inside a longer text: a string without its quotes, a number as written.
fn plain(text: String) -> String {
    match serde_json::from_str(&text) {
        Ok(Value::String(text)) => text,
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value.to_string(),
        _ => text,
    }
}

/// Text of the value at a path of names and numbers, inside the text of a JSON value.
pub fn text_at_path<'t>(text: &'t str, path: &str) -> Option<&'t str> {
    path.split('.').try_fold(text, |text, name| {
        let found = match text.trim_start().starts_with('[') {
            true => *serde_json::from_str::<Vec<&RawValue>>(text).ok()?.get(name.parse::<usize>().ok()?)?,
            false => *serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?.get(name)?,
        };
        Some(found.get())
    })
}
