//! Schemas of tool arguments in a form that every service accepts.
//!
//! Services require an object at the root, without alternatives. The tool checks each call against the original schema.

use std::borrow::Cow;
use std::sync::Arc;

use etude_core::model::{Request, Tool};
use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::kind::ProviderKind;

/// Keywords that the services refuse at the root.
const REFUSED: [&str; 6] = ["oneOf", "anyOf", "allOf", "not", "enum", "const"];

/// Maximum depth of alternatives within alternatives.
const MAX_DEPTH: usize = 8;

/// Maximum number of schemas that are read: references can multiply them without end.
const MAX_BRANCHES: usize = 500;

/// Maximum length of a tool's description, in bytes. Some services refuse a longer one.
const MAX_DESCRIPTION: usize = 1024;

/// Rewrites the tool schemas of a request for providers of `kind`.
pub(crate) fn with_plain_tools(request: &Request, kind: ProviderKind) -> Cow<'_, Request> {
    // The grammar of the local model supports every schema.
    if kind == ProviderKind::Local || request.tools.iter().all(|tool| is_plain(&tool.parameters, kind)) {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    for tool in request.tools.iter_mut().filter(|tool| !is_plain(&tool.parameters, kind)) {
        flatten(tool);
    }
    Cow::Owned(request)
}

fn is_plain(schema: &Value, kind: ProviderKind) -> bool {
    let Some(root) = schema.as_object() else { return false };
    // OpenAI's own service requires `properties` even if it is empty.
    let is_complete =
        !matches!(kind, ProviderKind::OpenAi | ProviderKind::OpenAiChat) || root.contains_key("properties");
    is_complete
        && root.get("type").is_some_and(|kind| kind == "object")
        && !root.contains_key("$ref")
        && REFUSED.iter().all(|keyword| !root.contains_key(*keyword))
}

/// Turns the root into one object with the properties of all alternatives, and their common requirements. The lost keywords go
/// to the model in words.
fn flatten(tool: &mut Tool) {
    let root = tool.parameters.as_object().cloned().unwrap_or_default();
    let mut flat = Object::default();
    flat.merge(&root, &mut Within { root: &root, left: MAX_BRANCHES }, MAX_DEPTH);
    let is_kept = |keyword: &str| keyword != "$ref" && !REFUSED.contains(&keyword);
    let (mut kept, mut lost): (Map<String, Value>, Map<String, Value>) =
        root.into_iter().partition(|(keyword, _)| is_kept(keyword));
    // The object already contains the target of the reference.
    lost.shift_remove("$ref");
    kept.insert("type".to_owned(), json!("object"));
    kept.insert("properties".to_owned(), Value::Object(flat.properties()));
    if !flat.required.is_empty() {
        kept.insert("required".to_owned(), json!(flat.required));
    }
    if !lost.is_empty() {
        let said = format!("The arguments must also match this JSON Schema: {}", Value::Object(lost));
        if tool.description.len() + said.len() + 2 <= MAX_DESCRIPTION {
            tool.description = format!("{}\n\n{said}", tool.description);
        } else {
            let own = kept.get("description").and_then(Value::as_str).map(|own| format!("{own}\n\n"));
            kept.insert("description".to_owned(), json!(own.unwrap_or_default() + &said));
        }
    }
    tool.parameters = Arc::new(Value::Object(kept));
}

/// Targets of references, and the number of schemas that may still be read.
struct Within<'a> {
    root: &'a Map<String, Value>,
    left: usize,
}

/// Properties and requirements collected for an object.
#[derive(Debug, Default)]
struct Object {
    /// All schemas of each property.
    properties: IndexMap<String, Vec<Value>>,
    required: Vec<String>,
}

impl Object {
    /// Adds the properties and requirements of `schema`.
    fn merge(&mut self, schema: &Map<String, Value>, within: &mut Within<'_>, depth: usize) {
        for (name, form) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.add(name, form);
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        required.filter_map(Value::as_str).for_each(|name| self.require(name));
        within.left = within.left.saturating_sub(1);
        if depth == 0 || within.left == 0 {
            return;
        }
        let target = schema.get("$ref").and_then(|target| referred(within.root, target));
        for branch in target.into_iter().chain(branches(schema, "allOf")) {
            self.merge(branch, within, depth - 1);
        }
        for keyword in ["oneOf", "anyOf"] {
            self.merge_any(branches(schema, keyword), within, depth - 1);
        }
    }

    /// Adds the properties of all `branches`, and requires those that each of them requires.
    fn merge_any<'a>(
        &mut self,
        branches: impl Iterator<Item = &'a Map<String, Value>>,
        within: &mut Within<'_>,
        depth: usize,
    ) {
        let mut common: Option<Vec<String>> = None;
        for branch in branches {
            let mut object = Self::default();
            object.merge(branch, within, depth);
            for (name, forms) in &object.properties {
                forms.iter().for_each(|form| self.add(name, form));
            }
            common = Some(match common {
                None => object.required,
                Some(common) => common.into_iter().filter(|name| object.required.contains(name)).collect(),
            });
        }
        common.unwrap_or_default().iter().for_each(|name| self.require(name));
    }

    fn add(&mut self, name: &str, form: &Value) {
        let forms = self.properties.entry(name.to_owned()).or_default();
        if !forms.contains(form) {
            forms.push(form.clone());
        }
    }

    fn require(&mut self, name: &str) {
        if !self.required.iter().any(|known| known == name) {
            self.required.push(name.to_owned());
        }
    }

    fn properties(&mut self) -> Map<String, Value> {
        let either = |mut forms: Vec<Value>| match forms.len() {
            1 => forms.swap_remove(0),
            _ => json!({ "anyOf": forms }),
        };
        std::mem::take(&mut self.properties).into_iter().map(|(name, forms)| (name, either(forms))).collect()
    }
}

/// The branches of `keyword` that may describe an object.
fn branches<'a>(schema: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'a Map<String, Value>> {
    let all = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_object).filter(|branch| {
        let kind = branch.get("type");
        kind.is_none_or(|kind| kind == "object" || kind.as_array().is_some_and(|all| all.contains(&json!("object"))))
    })
}

/// The target of a reference within the schema.
fn referred<'a>(root: &'a Map<String, Value>, target: &Value) -> Option<&'a Map<String, Value>> {
    let mut keys = target.as_str()?.strip_prefix("#/")?.split('/');
    let first = root.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(parameters: Value, kind: ProviderKind) -> Tool {
        let tool = Tool { name: "t".to_owned(), description: "Does.".to_owned(), parameters: Arc::new(parameters) };
        let request = Request { tools: vec![tool], ..Request::default() };
        with_plain_tools(&request, kind).tools[0].clone()
    }

    #[test]
    fn alternatives_at_the_root_become_one_object_and_a_sentence() {
        let page = json!({ "type": "object", "properties": { "page": { "type": "string" }, "n": { "type": "integer" } },
            "required": ["page", "n"] });
        let base =
            json!({ "properties": { "base": { "$ref": "#/$defs/id" }, "n": { "type": "string" } }, "required": ["n"] });
        let defs = json!({ "id": { "type": "string" }, "base": base });
        let choice = json!([page, { "$ref": "#/$defs/base" }, { "type": "null" }, false]);
        let tool = plain(json!({ "oneOf": choice, "$defs": defs }), ProviderKind::Anthropic);
        let expected = json!({
            "$defs": defs,
            "type": "object",
            "properties": {
                "page": { "type": "string" },
                "n": { "anyOf": [{ "type": "integer" }, { "type": "string" }] },
                "base": { "$ref": "#/$defs/id" },
            },
            "required": ["n"],
        });
        assert_eq!(*tool.parameters, expected);
        let said = format!("Does.\n\nThe arguments must also match this JSON Schema: {}", json!({ "oneOf": choice }));
        assert_eq!(tool.description, said);
    }

    #[test]
    fn all_of_several_schemas_is_required() {
        let parts = json!([{ "required": ["a"] }, { "properties": { "b": {} }, "required": ["b"] }]);
        let own = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "allOf": parts });
        let tool = plain(own, ProviderKind::OpenAiCompatible);
        let expected =
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": {} }, "required": ["a", "b"] });
        assert_eq!(*tool.parameters, expected);
    }

    #[test]
    fn references_without_end_end() {
        let again: Vec<Value> = (0..50).map(|_| json!({ "$ref": "#/$defs/x" })).collect();
        let endless = json!({ "anyOf": again, "$defs": { "x": { "properties": { "a": {} }, "anyOf": again } } });
        assert_eq!(plain(endless, ProviderKind::Gemini).parameters["properties"], json!({ "a": {} }));
    }

    #[test]
    fn a_long_condition_stands_in_the_schema() {
        let values: Vec<String> = (0..300).map(|n| format!("value-{n}")).collect();
        let own = json!({ "type": "object", "description": "Own.", "anyOf": [{ "properties": { "a": { "enum": values } } }] });
        let tool = plain(own, ProviderKind::OpenAi);
        assert_eq!(tool.description, "Does.");
        let said = tool.parameters["description"].as_str().expect("a description");
        assert!(said.starts_with("Own.\n\nThe arguments must also match"), "{said}");
    }

    #[test]
    fn what_every_service_takes_is_left_as_it_is() {
        let plain_one =
            json!({ "type": "object", "properties": { "a": { "anyOf": [{}, {}] } }, "additionalProperties": false });
        for kind in ProviderKind::ALL {
            assert_eq!(*plain(plain_one.clone(), kind).parameters, plain_one, "{kind}");
        }
        let bare = json!({ "type": "object" });
        assert_eq!(
            *plain(bare.clone(), ProviderKind::OpenAi).parameters,
            json!({ "type": "object", "properties": {} })
        );
        assert_eq!(*plain(bare.clone(), ProviderKind::OpenAiCompatible).parameters, bare);
        let whole = json!({ "$ref": "#/$defs/x", "$defs": { "x": { "properties": { "a": {} } } } });
        assert_eq!(plain(whole.clone(), ProviderKind::Gemini).parameters["properties"], json!({ "a": {} }));
        assert_eq!(*plain(whole.clone(), ProviderKind::Local).parameters, whole);
    }
}
