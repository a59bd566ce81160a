//! The walk that rewrites a schema into a dialect.

use std::collections::BTreeSet;

use etude_core::schema::type_of;
use serde_json::{Map, Value, json};

use super::keywords::{Fate, fate};
use super::kinds::{allows, are_disjoint, is_composite, types_of};
use super::references::is_recursive;
use super::{Dialect, allof, nullable};

/// A rewritten schema, and its differences from the original.
pub(super) struct Rewritten {
    pub(super) schema: Value,
    /// True if a constraint of the original is missing.
    pub(super) dropped: bool,
    /// True if optional properties became required and nullable.
    pub(super) nulled: bool,
}

/// Rewrites `root`. `None` if the dialect would exclude responses that `root` allows.
pub(super) fn rewrite(root: &Value, dialect: Dialect) -> Option<Rewritten> {
    let mut walk = Walk { root, dialect, dropped: false, nulled: false };
    if dialect == Dialect::Anthropic && is_recursive(root) {
        return None;
    }
    let mut schema = walk.node(root)?;
    let mut definitions = Map::new();
    for key in ["$defs", "definitions"] {
        for (name, definition) in root.get(key).and_then(Value::as_object).into_iter().flatten() {
            let rewritten = walk.node(definition)?;
            if definitions.insert(name.clone(), rewritten).is_some() {
                return None;
            }
        }
    }
    if !definitions.is_empty() {
        schema.as_object_mut()?.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Some(Rewritten { schema, dropped: walk.dropped, nulled: walk.nulled })
}

struct Walk<'a> {
    root: &'a Value,
    dialect: Dialect,
    dropped: bool,
    nulled: bool,
}

/// Keywords that shape a node, which the walk handles itself.
const STRUCTURE: &[&str] = &[
    "$ref", "$defs", "definitions", "type", "properties", "required", "additionalProperties", "items", "prefixItems",
    "anyOf", "oneOf", "allOf", "patternProperties",
];

impl Walk<'_> {
    fn node(&mut self, schema: &Value) -> Option<Value> {
        let object = match schema {
            Value::Bool(true) if self.dialect == Dialect::Gemini => return Some(json!({})),
            Value::Object(object) => object,
            _ => return None,
        };
        let merged;
        let object = if object.contains_key("allOf") {
            merged = allof::merge(object, self.root)?;
            &merged
        } else {
            object
        };
        if let Some(reference) = object.get("$ref") {
            return self.reference(reference, object);
        }
        let mut out = Map::new();
        self.types(object, &mut out)?;
        for (keyword, value) in object {
            if STRUCTURE.contains(&keyword.as_str()) {
                continue;
            }
            match fate(self.dialect, keyword, value) {
                Fate::Kept => {
                    out.insert(keyword.clone(), value.clone());
                }
                Fate::Silent => {}
                Fate::Dropped if self.dialect == Dialect::Gemini && matches!(keyword.as_str(), "enum" | "const") => {
                    self.gemini_choice(value, keyword, &mut out);
                }
                Fate::Dropped => self.dropped = true,
            }
        }
        let choices = object.get("enum").and_then(Value::as_array).into_iter().flatten().chain(object.get("const"));
        if self.dialect != Dialect::Gemini && choices.into_iter().any(is_composite) {
            return None;
        }
        self.alternatives(object, &mut out)?;
        self.object(object, &mut out)?;
        self.array(object, &mut out)?;
        Some(Value::Object(out))
    }

    /// Rewrites a reference. Providers refuse any keyword beside it, and only definitions of the same document can be named.
    fn reference(&mut self, reference: &Value, object: &Map<String, Value>) -> Option<Value> {
        let target = reference.as_str()?;
        let name = target.strip_prefix("#/$defs/").or_else(|| target.strip_prefix("#/definitions/"));
        let target = match name {
            Some(name) if !name.contains('/') => format!("#/$defs/{name}"),
            None if target == "#" => target.to_owned(),
            _ => return None,
        };
        for (keyword, value) in object {
            let own = matches!(keyword.as_str(), "$ref" | "$defs" | "definitions" | "title" | "description");
            if !own && fate(self.dialect, keyword, value) != Fate::Silent {
                self.dropped = true;
            }
        }
        Some(json!({ "$ref": target }))
    }

    /// Writes the `type`. The strict dialects require one on every schema, so a missing one is derived.
    fn types(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        if let Some(kind) = object.get("type") {
            out.insert("type".to_owned(), kind.clone());
            return Some(());
        }
        if object.contains_key("anyOf") || object.contains_key("oneOf") {
            if object.contains_key("properties") {
                out.insert("type".to_owned(), json!("object"));
            }
            return Some(());
        }
        let derived = if object.contains_key("properties") {
            Some(json!("object"))
        } else if object.contains_key("items") {
            Some(json!("array"))
        } else if let Some(constant) = object.get("const") {
            Some(json!(type_of(constant)))
        } else {
            object.get("enum").and_then(Value::as_array).map(|all| types_of(all))
        };
        match derived {
            Some(derived) => {
                out.insert("type".to_owned(), derived);
                Some(())
            }
            None => (self.dialect == Dialect::Gemini).then_some(()),
        }
    }

    /// Rewrites a choice for Gemini, which supports choices of texts and numbers only, and no constants.
    fn gemini_choice(&mut self, value: &Value, keyword: &str, out: &mut Map<String, Value>) {
        let all =
            if keyword == "const" { std::slice::from_ref(value) } else { value.as_array().map_or(&[][..], |v| v) };
        let plain: Vec<Value> = all.iter().filter(|one| one.is_string() || one.is_number()).cloned().collect();
        let rest_is_null = all.iter().all(|one| one.is_string() || one.is_number() || one.is_null());
        if plain.is_empty() || !rest_is_null {
            self.dropped = true;
        } else if plain.len() == all.len() {
            out.insert("enum".to_owned(), Value::Array(plain));
        } else {
            // A choice with null among its members becomes a choice or null.
            out.shift_remove("type");
            out.insert("anyOf".to_owned(), json!([{ "type": types_of(&plain), "enum": plain }, { "type": "null" }]));
        }
    }

    fn alternatives(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        let (branches, exclusive) = match (object.get("anyOf"), object.get("oneOf")) {
            (Some(branches), None) => (branches.as_array()?, false),
            (None, Some(branches)) => (branches.as_array()?, true),
            (None, None) => return Some(()),
            (Some(_), Some(_)) => return None,
        };
        let shaped = |branch: &Value| {
            ["type", "properties", "$ref", "enum", "const", "anyOf", "oneOf", "allOf", "items"]
                .iter()
                .any(|keyword| branch.get(keyword).is_some())
        };
        let beside = ["properties", "items", "enum", "const"].iter().any(|keyword| object.contains_key(*keyword));
        if beside {
            // Branches that only constrain their parent are treated as constraints.
            self.dropped = true;
            return (!branches.iter().any(|b| b.get("properties").is_some() || b.get("$ref").is_some())).then_some(());
        }
        if !branches.iter().all(shaped) && self.dialect != Dialect::Gemini {
            return None;
        }
        // Strict dialects have only `anyOf`. Exclusiveness is lost if a response could match two branches.
        if exclusive && !are_disjoint(branches) {
            self.dropped = true;
        }
        let rewritten = branches.iter().map(|branch| self.node(branch)).collect::<Option<Vec<_>>>()?;
        out.insert("anyOf".to_owned(), Value::Array(rewritten));
        // A type beside the alternatives narrows them, and the strict dialects refuse it there.
        if object.contains_key("type") && self.dialect != Dialect::Gemini {
            let narrowed =
                branches.iter().any(|branch| branch.get("type").is_some_and(|kind| Some(kind) != object.get("type")));
            let elsewhere =
                branches.iter().any(|branch| branch.get("type").is_none() && branch.get("properties").is_none());
            out.shift_remove("type");
            self.dropped |= narrowed || elsewhere;
        }
        Some(())
    }

    fn object(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        if !allows(out.get("type"), "object") {
            return Some(());
        }
        let empty = Map::new();
        let properties = object.get("properties").map_or(Some(&empty), Value::as_object)?;
        let required: BTreeSet<&str> =
            object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let extra = object.get("additionalProperties");
        let open = !matches!(extra, None | Some(Value::Bool(false)));
        let patterns = object.contains_key("patternProperties");
        if self.dialect == Dialect::Gemini {
            return self.open_object(object, properties, patterns, out);
        }
        let nothing_said = properties.is_empty() && extra.is_none();
        if open || patterns || nothing_said || required.iter().any(|name| !properties.contains_key(*name)) {
            return None;
        }
        let mut rewritten = Map::new();
        for (name, property) in properties {
            let mut schema = self.node(property)?;
            if self.dialect == Dialect::OpenAi && !required.contains(name.as_str()) {
                self.nulled |= nullable::make(&mut schema);
            }
            rewritten.insert(name.clone(), schema);
        }
        let names: Vec<&str> = match self.dialect {
            Dialect::OpenAi => properties.keys().map(String::as_str).collect(),
            _ => properties.keys().map(String::as_str).filter(|name| required.contains(name)).collect(),
        };
        out.insert("required".to_owned(), json!(names));
        out.insert("properties".to_owned(), Value::Object(rewritten));
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
        Some(())
    }

    /// Rewrites an object for a dialect that supports additional properties.
    fn open_object(
        &mut self,
        object: &Map<String, Value>,
        properties: &Map<String, Value>,
        patterns: bool,
        out: &mut Map<String, Value>,
    ) -> Option<()> {
        if !properties.is_empty() {
            let mut rewritten = Map::new();
            for (name, property) in properties {
                rewritten.insert(name.clone(), self.node(property)?);
            }
            out.insert("properties".to_owned(), Value::Object(rewritten));
        }
        if let Some(required) = object.get("required") {
            out.insert("required".to_owned(), required.clone());
        }
        match object.get("additionalProperties") {
            _ if patterns => self.dropped = true,
            Some(Value::Bool(extra)) => {
                out.insert("additionalProperties".to_owned(), json!(extra));
            }
            Some(extra) => {
                let extra = self.node(extra)?;
                out.insert("additionalProperties".to_owned(), extra);
            }
            None => {}
        }
        Some(())
    }

    fn array(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
        if !allows(out.get("type"), "array") {
            return Some(());
        }
        let (items, prefix) = match (object.get("items"), object.get("prefixItems")) {
            (Some(Value::Array(prefix)), None) => (object.get("additionalItems"), Some(prefix)),
            (items, prefix) => (items, prefix.and_then(Value::as_array)),
        };
        if self.dialect == Dialect::Gemini {
            if let Some(prefix) = prefix {
                let prefix = prefix.iter().map(|item| self.node(item)).collect::<Option<Vec<_>>>()?;
                out.insert("prefixItems".to_owned(), Value::Array(prefix));
            }
            match items {
                Some(Value::Bool(false)) => self.dropped = true,
                Some(items) => {
                    let items = self.node(items)?;
                    out.insert("items".to_owned(), items);
                }
                None => {}
            }
            return Some(());
        }
        if prefix.is_some() {
            return None;
        }
        let items = self.node(items?)?;
        out.insert("items".to_owned(), items);
        Some(())
    }
}
