//! Narrowing of schemas, so that every response ends.
//!
//! A small model that is bound to a grammar does not stop by itself. Where a schema allows a longer text or one more item, the
//! model may repeat itself until its tokens are used up. The additions here only narrow a schema: a value that satisfies the
//! result satisfies the original.

use serde_json::{Map, Value, json};

/// Maximum length of a text whose schema has no `maxLength`, in characters.
pub(crate) const TEXT_CHARS: u64 = 400;
/// Maximum number of items of an array whose schema has no `maxItems`.
pub(crate) const ITEMS: u64 = 32;
/// Maximum absolute value of a number whose schema has no limit. Without one, a number may have any exponent, and be too large
/// for any program.
const AMOUNT: i64 = 1_000_000_000_000_000;
/// Maximum number of members of an object that may have any.
const MEMBERS: u64 = 16;

/// Keywords whose value is a schema.
const ONE: &[&str] = &["items", "additionalProperties", "additionalItems", "contains", "unevaluatedItems"];
/// Keywords whose value is a list of schemas.
const MANY: &[&str] = &["prefixItems", "items", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is an object of schemas.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that describe the same value in another schema: closing the object beside them would exclude members.
const COMBINING: &[&str] = &[
    "allOf", "anyOf", "oneOf", "not", "if", "$ref", "patternProperties", "unevaluatedProperties", "dependentSchemas",
    "additionalProperties",
];

/// True if a text in `value`, a response to the narrowed `schema`, has the maximum length that was added: it was cut off there,
/// and the missing part is unknown.
pub(crate) fn is_cut(schema: &Value, value: &Value) -> bool {
    has_text_of(text_limit(schema), value)
}

fn has_text_of(length: u64, value: &Value) -> bool {
    match value {
        Value::String(text) => u64::try_from(text.chars().count()).is_ok_and(|chars| chars == length),
        Value::Array(items) => items.iter().any(|item| has_text_of(length, item)),
        Value::Object(fields) => fields.values().any(|field| has_text_of(length, field)),
        _ => false,
    }
}

/// Maximum length of a text of `schema` without `maxLength`, in characters.
fn text_limit(schema: &Value) -> u64 {
    TEXT_CHARS.saturating_add(largest(schema, "minLength"))
}

/// `schema` with limits for texts and lists that have none, so that generation ends.
pub(crate) fn narrowed(schema: &Value) -> Value {
    let limits = Limits {
        text: text_limit(schema),
        items: ITEMS.saturating_add(largest(schema, "minItems")),
        has_merged: mentions(schema, "allOf") || has_referring_object(schema),
    };
    limits.narrow(schema, false)
}

struct Limits {
    text: u64,
    items: u64,
    /// True if several schemas of the document may describe the same value, in places that are not searched here.
    has_merged: bool,
}

impl Limits {
    /// Narrows a schema. `is_part`: another schema describes the same value.
    fn narrow(&self, schema: &Value, is_part: bool) -> Value {
        let Value::Object(fields) = schema else {
            return if *schema == Value::Bool(true) { self.anything() } else { schema.clone() };
        };
        if !is_part && fields.keys().all(|key| is_annotation(key)) {
            return self.annotated(fields);
        }
        let mut out = self.children(fields);
        if fields.contains_key("enum") || fields.contains_key("const") {
            return Value::Object(out);
        }
        self.name_type(&mut out, is_part);
        let may_be = |out: &Map<String, Value>, kind: &str| match out.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
            _ => false,
        };
        let is_bound_text = ["maxLength", "pattern", "format"].iter().any(|key| out.contains_key(*key));
        if may_be(&out, "string") && !is_bound_text {
            out.insert("maxLength".into(), self.text.into());
        }
        if (may_be(&out, "number") || may_be(&out, "integer")) && !self.has_merged {
            limit_amount(&mut out);
        }
        if may_be(&out, "array") {
            if !out.contains_key("maxItems") {
                out.insert("maxItems".into(), self.items.into());
            }
            let has_items = ["items", "prefixItems"].iter().any(|key| out.contains_key(*key));
            if !has_items && !is_part {
                out.insert("items".into(), self.scalar());
            }
        }
        if may_be(&out, "object") && !is_part && !self.has_merged {
            close(&mut out, self);
        }
        Value::Object(out)
    }

    fn children(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let has_more = fields.keys().any(|key| !is_annotation(key) && !["anyOf", "oneOf", "type"].contains(&&**key));
        let mut out = Map::new();
        for (key, value) in fields {
            let is_part = matches!(key.as_str(), "allOf") || (has_more && ["anyOf", "oneOf"].contains(&&**key));
            let narrowed = match value {
                Value::Array(list) if MANY.contains(&&**key) => {
                    list.iter().map(|one| self.narrow(one, is_part)).collect()
                }
                Value::Object(named) if NAMED.contains(&&**key) => {
                    let named = named.iter().map(|(name, one)| (name.clone(), self.narrow(one, false)));
                    Value::Object(named.collect())
                }
                one if ONE.contains(&&**key) => self.narrow(one, false),
                other => other.clone(),
            };
            out.insert(key.clone(), narrowed);
        }
        out
    }

    /// Adds the type that the keywords of a schema imply: otherwise, the schema would allow any other type, too.
    fn name_type(&self, out: &mut Map<String, Value>, is_part: bool) {
        if is_part || out.contains_key("type") || COMBINING[..6].iter().any(|key| out.contains_key(*key)) {
            return;
        }
        let has = |keys: &[&str]| keys.iter().any(|key| out.contains_key(*key));
        let kind = if has(&["properties", "required", "additionalProperties", "patternProperties"]) {
            "object"
        } else if has(&["items", "prefixItems", "minItems", "maxItems"]) {
            "array"
        } else if has(&["pattern", "format", "minLength", "maxLength"]) {
            "string"
        } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
            "number"
        } else {
            return;
        };
        out.insert("type".into(), kind.into());
    }

    /// The schema of a value without nesting.
    fn scalar(&self) -> Value {
        json!({"anyOf": [
            {"type": "string", "maxLength": self.text}, {"type": "number", "minimum": -AMOUNT, "maximum": AMOUNT},
            {"type": "boolean"}, {"type": "null"},
        ]})
    }

    /// The schema of any value, nested at most once.
    fn anything(&self) -> Value {
        let members = json!({"type": "object", "additionalProperties": self.scalar(), "maxProperties": MEMBERS});
        let items = json!({"type": "array", "items": self.scalar(), "maxItems": self.items});
        json!({"anyOf": [self.scalar(), members, items]})
    }

    fn annotated(&self, fields: &Map<String, Value>) -> Value {
        let mut out = fields.clone();
        if let Value::Object(anything) = self.anything() {
            out.extend(anything);
        }
        Value::Object(out)
    }
}

/// Adds the missing limits of a number, beyond the existing ones.
fn limit_amount(out: &mut Map<String, Value>) {
    let given =
        |out: &Map<String, Value>, keys: [&str; 2]| keys.iter().find_map(|key| out.get(*key).and_then(Value::as_f64));
    let (low, high) = (given(out, ["minimum", "exclusiveMinimum"]), given(out, ["maximum", "exclusiveMaximum"]));
    let is_ordinary = |limit: Option<f64>| limit.is_none_or(|limit| limit.abs() < AMOUNT as f64);
    if !is_ordinary(low) || !is_ordinary(high) {
        return;
    }
    if low.is_none() {
        out.insert("minimum".into(), (-AMOUNT).into());
    }
    if high.is_none() {
        out.insert("maximum".into(), AMOUNT.into());
    }
}

/// Closes an object, so that a model cannot invent members.
fn close(out: &mut Map<String, Value>, limits: &Limits) {
    if COMBINING.iter().any(|key| out.contains_key(*key)) {
        return;
    }
    let names = out.get("properties").and_then(Value::as_object);
    let is_named = |name: &Value| name.as_str().is_some_and(|name| names.is_some_and(|names| names.contains_key(name)));
    let requires_others = out.get("required").and_then(Value::as_array).is_some_and(|all| !all.iter().all(is_named));
    let needs_more =
        out.get("minProperties").and_then(Value::as_u64).unwrap_or(0) > names.map_or(0, |names| names.len() as u64);
    if names.is_some_and(|names| !names.is_empty()) && !requires_others && !needs_more {
        out.insert("additionalProperties".into(), false.into());
    } else {
        out.insert("additionalProperties".into(), limits.scalar());
        if !requires_others && !needs_more && !out.contains_key("maxProperties") {
            out.insert("maxProperties".into(), MEMBERS.into());
        }
    }
}

fn is_annotation(key: &str) -> bool {
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"]
        .contains(&key)
}

/// The largest number under the keyword `key` anywhere in `schema`.
fn largest(schema: &Value, key: &str) -> u64 {
    match schema {
        Value::Array(list) => list.iter().map(|one| largest(one, key)).max().unwrap_or(0),
        Value::Object(fields) => {
            let own = fields.get(key).and_then(Value::as_u64).unwrap_or(0);
            fields.values().map(|one| largest(one, key)).fold(own, u64::max)
        }
        _ => 0,
    }
}

fn mentions(schema: &Value, key: &str) -> bool {
    match schema {
        Value::Array(list) => list.iter().any(|one| mentions(one, key)),
        Value::Object(fields) => fields.contains_key(key) || fields.values().any(|one| mentions(one, key)),
        _ => false,
    }
}

/// True if a reference is beside members of the same object anywhere.
fn has_referring_object(schema: &Value) -> bool {
    match schema {
        Value::Array(list) => list.iter().any(has_referring_object),
        Value::Object(fields) => {
            (fields.contains_key("$ref") && fields.contains_key("properties"))
                || fields.values().any(has_referring_object)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
