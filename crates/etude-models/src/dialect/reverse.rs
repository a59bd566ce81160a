//! Conversion of a provider's response back to the form of the caller's schema.
//!
//! The text is parsed only where needed: numbers, texts and blanks of the unchanged parts are passed on as the model wrote
//! them.

use std::sync::Arc;

use etude_core::schema::root::unwrapped;
use etude_core::tree;
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

/// Changes to the schema that must be undone in the response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reversal {
    /// True if the response is below the property `value`.
    pub(crate) wrapped: bool,
    /// The original schema, if optional properties of it became nullable: their nulls stand for absent properties.
    pub(crate) nulled: Option<Arc<Value>>,
}

impl Reversal {
    /// Converts a response to the form of the caller's schema. Text that is not JSON, or not of the requested form, stays as
    /// it is: the caller reports the fault.
    pub(crate) fn apply(&self, text: String) -> String {
        // Text with more values than the limit stays unchanged: each reader refuses it.
        if (!self.wrapped && self.nulled.is_none()) || tree::exceeds(text.as_bytes(), tree::MAX_RESPONSE_VALUES) {
            return text;
        }
        let Ok(raw) = serde_json::from_str::<&RawValue>(&text) else {
            return text;
        };
        let inner = if self.wrapped { unwrapped(raw.get()) } else { None };
        let response = inner.as_deref().unwrap_or(raw);
        let stripped = self.nulled.as_deref().and_then(|schema| strip(response, schema, schema));
        match (stripped, inner) {
            (Some(stripped), _) => stripped,
            (None, Some(inner)) => inner.get().to_owned(),
            (None, None) => text,
        }
    }
}

type Members = IndexMap<String, Box<RawValue>>;

/// `raw` without the nulls that stand for absent properties; `None` if there are none.
fn strip(raw: &RawValue, schema: &Value, root: &Value) -> Option<String> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => strip_object(&serde_json::from_str::<Members>(text).ok()?, schema, root),
        Some(b'[') => strip_array(&serde_json::from_str::<Vec<Box<RawValue>>>(text).ok()?, schema, root),
        _ => None,
    }
}

fn strip_object(members: &Members, schema: &Value, root: &Value) -> Option<String> {
    let mut parts = Vec::new();
    flatten(schema, root, members, &mut parts, &mut Vec::new());
    let mut changed = false;
    let mut out = Vec::with_capacity(members.len());
    for (name, raw) in members {
        let property = parts.iter().find_map(|part| part.get("properties")?.get(name));
        if raw.get() == "null"
            && property.is_some_and(|property| !accepts_null(property, root, &mut Vec::new()))
            && !requires(&parts, name)
        {
            changed = true;
            continue;
        }
        let inner = property.and_then(|property| strip(raw, property, root));
        changed |= inner.is_some();
        let value = inner.unwrap_or_else(|| raw.get().to_owned());
        out.push(format!("{}:{value}", Value::from(name.as_str())));
    }
    changed.then(|| format!("{{{}}}", out.join(",")))
}

fn strip_array(items: &[Box<RawValue>], schema: &Value, root: &Value) -> Option<String> {
    let schemas = candidates(schema, root);
    let item_schema = schemas.iter().find_map(|schema| schema.get("items"))?;
    let stripped: Vec<Option<String>> = items.iter().map(|item| strip(item, item_schema, root)).collect();
    if stripped.iter().all(Option::is_none) {
        return None;
    }
    let texts: Vec<String> =
        stripped.into_iter().zip(items).map(|(new, old)| new.unwrap_or_else(|| old.get().to_owned())).collect();
    Some(format!("[{}]", texts.join(",")))
}

/// Schemas around the current one, with references resolved.
type Path<'a> = Vec<&'a Value>;

/// Enters a schema; false if a reference leads back to it, or the nesting is deeper than a useful schema has.
fn enter<'a>(path: &mut Path<'a>, schema: &'a Value) -> bool {
    const MAX_DEPTH: usize = 32;
    let is_new = path.len() <= MAX_DEPTH && !path.iter().any(|outer| std::ptr::eq(*outer, schema));
    if is_new {
        path.push(schema);
    }
    is_new
}

fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

fn branches<'a>(schema: &'a Value, keys: &[&str]) -> impl Iterator<Item = &'a Value> {
    let found: Vec<&Value> =
        keys.iter().filter_map(|key| schema.get(*key)).filter_map(Value::as_array).flatten().collect();
    found.into_iter()
}

/// The schema, with references resolved, and all its alternatives, each once.
fn candidates<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![resolve(schema, root)];
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        for branch in branches(schema, &["anyOf", "oneOf", "allOf"]) {
            let branch = resolve(branch, root);
            if !found.iter().any(|known| std::ptr::eq(*known, branch)) {
                found.push(branch);
            }
        }
        at += 1;
    }
    found
}

/// Collects the schemas that describe the properties of this object; of alternatives, the one that the object was written for.
/// A strict provider writes every property of a branch and no other, so the names decide, or else the constants.
fn flatten<'a>(schema: &'a Value, root: &'a Value, members: &Members, out: &mut Vec<&'a Value>, path: &mut Path<'a>) {
    let schema = resolve(schema, root);
    if !enter(path, schema) {
        return;
    }
    if schema.get("properties").is_some() {
        out.push(schema);
    }
    for member in branches(schema, &["allOf"]) {
        flatten(member, root, members, out, path);
    }
    for branch in branches(schema, &["anyOf", "oneOf"]) {
        let mut inner = Vec::new();
        flatten(branch, root, members, &mut inner, path);
        if !inner.is_empty() && fits(&inner, members) {
            out.append(&mut inner);
            break;
        }
    }
    path.pop();
}

fn fits(parts: &[&Value], members: &Members) -> bool {
    let properties = |name: &str| parts.iter().find_map(|part| part.get("properties")?.get(name));
    let all = parts.iter().filter_map(|part| part.get("properties")?.as_object()).flat_map(|object| object.keys());
    let complete = all.into_iter().all(|name| members.contains_key(name));
    complete
        && members.iter().all(|(name, raw)| {
            let Some(property) = properties(name) else { return false };
            if raw.get() == "null" && !requires(parts, name) {
                return true;
            }
            let value = || serde_json::from_str::<Value>(raw.get()).unwrap_or(Value::Null);
            let constant = property.get("const").is_none_or(|constant| *constant == value());
            let choice = property.get("enum").and_then(Value::as_array);
            constant && choice.is_none_or(|all| all.contains(&value()))
        })
}

fn requires(parts: &[&Value], name: &str) -> bool {
    let names = parts.iter().filter_map(|part| part.get("required")?.as_array()).flatten();
    names.into_iter().any(|required| required == name)
}

/// True if an original schema accepts null.
fn accepts_null<'a>(schema: &'a Value, root: &'a Value, path: &mut Path<'a>) -> bool {
    let schema = resolve(schema, root);
    if *schema == Value::Bool(true) || !enter(path, schema) {
        return true;
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        _ => true,
    };
    let choice = schema.get("enum").and_then(Value::as_array).is_none_or(|all| all.contains(&Value::Null));
    let constant = schema.get("const").is_none_or(Value::is_null);
    let mut any = |key| match schema.get(key).and_then(Value::as_array) {
        Some(all) => all.iter().any(|branch| accepts_null(branch, root, path)),
        None => true,
    };
    let any = any("anyOf") && any("oneOf");
    let all = branches(schema, &["allOf"]).all(|member| accepts_null(member, root, path));
    path.pop();
    let objects_only = schema.get("properties").is_some() && schema.get("type").is_none();
    kind && choice && constant && any && all && !objects_only
}
