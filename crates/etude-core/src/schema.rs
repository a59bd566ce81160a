//! JSON Schemas, compiled once on first use.

mod patterns;
pub mod root;
mod weight;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

pub use patterns::MAX_BYTES as MAX_PATTERN_BYTES;

/// A JSON Schema (draft 2020-12 unless `$schema` says otherwise, A-4.3), with the documents it refers to.
pub struct Schema {
    name: String,
    document: Arc<Value>,
    resources: BTreeMap<String, Value>,
    compiled: OnceLock<Result<jsonschema::Validator, String>>,
}

/// The JSON Schema type of a value, as a word. A number is an integer only if it is written without fraction and exponent.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A violation of a schema by a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer of the faulty part; empty for the whole value.
    pub pointer: String,
    /// Description of the fault.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.pointer, self.message)
        }
    }
}

impl Schema {
    /// A schema that is compiled at its first use. `name` identifies it for people, such as its file; `resources` are
    /// documents that it may refer to, by URI.
    pub fn lazy(name: impl Into<String>, document: Value, resources: BTreeMap<String, Value>) -> Self {
        Self { name: name.into(), document: Arc::new(document), resources, compiled: OnceLock::new() }
    }

    /// Compiles a schema, so that it is known to be valid.
    ///
    /// # Errors
    /// The reason why `document` is not a JSON Schema.
    pub fn compile(
        name: impl Into<String>,
        document: Value,
        resources: BTreeMap<String, Value>,
    ) -> Result<Self, String> {
        Self::compile_within(name, document, resources, &mut { MAX_PATTERN_BYTES })
    }

    /// Compiles one of several schemas, whose patterns together may take `left` bytes, and takes its share.
    ///
    /// # Errors
    /// The reason why `document` is not a JSON Schema, or that its patterns are too large.
    pub fn compile_within(
        name: impl Into<String>,
        document: Value,
        resources: BTreeMap<String, Value>,
        left: &mut usize,
    ) -> Result<Self, String> {
        let schema = Self::lazy(name, document, resources);
        let validator = build(&schema.document, &schema.resources, left)?;
        Ok(Self { compiled: OnceLock::from(Ok(validator)), ..schema })
    }

    /// Name of the schema for people, such as its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The schema's own document, without the documents it refers to.
    pub fn document(&self) -> &Arc<Value> {
        &self.document
    }

    /// The schema as one document: the documents it refers to are in its `$defs`. For consumers that take a schema as data.
    pub fn bundled(&self) -> Arc<Value> {
        if self.resources.is_empty() {
            return Arc::clone(&self.document);
        }
        let mut document = (*self.document).clone();
        if let Some(object) = document.as_object_mut() {
            let defs = object.entry("$defs").or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Some(defs) = defs.as_object_mut() {
                for (uri, resource) in &self.resources {
                    let mut resource = resource.clone();
                    if let Some(resource) = resource.as_object_mut() {
                        resource.insert("$id".to_owned(), Value::from(uri.as_str()));
                    }
                    defs.insert(uri.clone(), resource);
                }
            }
        }
        Arc::new(document)
    }

    /// The faults of `value`, in the order of its parts, at most 100; empty if it satisfies the schema.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        match self.validator() {
            // Most values are valid, and checking that alone builds no messages.
            Ok(validator) if validator.is_valid(value) => Vec::new(),
            Ok(validator) => validator
                .iter_errors(value)
                .take(MAX_VIOLATIONS)
                .map(|error| Violation {
                    pointer: error.instance_path().to_string(),
                    message: shorten(&error.to_string()),
                })
                .collect(),
            Err(why) => vec![Violation {
                pointer: String::new(),
                message: format!("`{}` is not a JSON Schema: {why}", self.name),
            }],
        }
    }

    /// The faults of `value` as sentences: see [`Self::violations`].
    pub fn faults(&self, value: &Value) -> Vec<String> {
        self.violations(value).iter().map(ToString::to_string).collect()
    }

    fn validator(&self) -> Result<&jsonschema::Validator, &str> {
        let compile = || build(&self.document, &self.resources, &mut { MAX_PATTERN_BYTES });
        self.compiled.get_or_init(compile).as_ref().map_err(String::as_str)
    }
}

/// Maximum number of reported faults: more do not help to correct a value.
const MAX_VIOLATIONS: usize = 100;

/// Shortens a fault that quotes a long value, which would drown the reason.
fn shorten(message: &str) -> String {
    const LIMIT: usize = 500;
    if message.chars().count() <= LIMIT {
        return message.to_owned();
    }
    let head: String = message.chars().take(LIMIT / 2).collect();
    let tail: String = message.chars().skip(message.chars().count() - LIMIT / 2).collect();
    format!("{head} … {tail}")
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.name)
    }
}

fn build(
    document: &Value,
    resources: &BTreeMap<String, Value>,
    left: &mut usize,
) -> Result<jsonschema::Validator, String> {
    // A back-tracking pattern could hang the run on a hostile response; the linear engine cannot.
    let options =
        jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex()).should_validate_formats(true);
    let uri = uri_of(document)?;
    if !weight::refers(document) {
        if weight::is_too_heavy(&[(uri, document)], None) {
            return Err(too_heavy());
        }
        if !patterns::fit([document], left) {
            return Err(too_many_patterns());
        }
        return options.build(document).map_err(|e| e.to_string());
    }
    let mut registry = jsonschema::Registry::new();
    let mut documents = vec![(uri.clone(), document)];
    for (uri, resource) in resources {
        registry = registry.add(uri, resource).map_err(|e| e.to_string())?;
        documents.push((jsonschema::uri::from_str(uri).map_err(|e| e.to_string())?, resource));
    }
    let registry = registry.prepare().map_err(|e| e.to_string())?;
    let whole = registry.add(uri.as_str(), document).and_then(jsonschema::RegistryBuilder::prepare);
    if let Ok(whole) = &whole
        && weight::is_too_heavy(&documents, Some(whole))
    {
        return Err(too_heavy());
    }
    if !patterns::fit(documents.iter().map(|(_, document)| *document), left) {
        return Err(too_many_patterns());
    }
    let validator = options.with_registry(&registry).build(document).map_err(|e| e.to_string())?;
    // The validator refuses dangling references, too, with a better message.
    whole.map(|_| validator).map_err(|e| e.to_string())
}

/// The URI of a schema in the validator.
fn uri_of(document: &Value) -> Result<jsonschema::Uri<String>, String> {
    let draft = jsonschema::Draft::default().detect(document);
    let resource = draft.create_resource_ref(document);
    jsonschema::uri::from_str(resource.id().unwrap_or("json-schema:///")).map_err(|e| e.to_string())
}

fn too_heavy() -> String {
    let (most, deepest) = (weight::MAX_COUNT, weight::MAX_DEPTH);
    format!(
        "it applies more than {most} schemas to one value because its references multiply, or nests references more \
         than {deepest} levels deep"
    )
}

fn too_many_patterns() -> String {
    let most = MAX_PATTERN_BYTES >> 20;
    format!("compiled patterns of schemas take at most {most} MiB together, and its patterns exceed that")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// all errors are collected with their JSON pointers.
    #[test]
    fn every_violation_is_reported_with_its_pointer() {
        let schema = Schema::compile(
            "s",
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "l": {"items": {"enum": ["a"]}}}, "required": ["n", "k"]}),
            BTreeMap::new(),
        )
        .unwrap();
        let found: Vec<_> =
            schema.violations(&json!({"n": "x", "l": ["a", "b"]})).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|v| v.starts_with("/n: ")), "{found:?}");
        assert!(found.iter().any(|v| v.starts_with("/l/1: ")), "{found:?}");
        assert!(found.iter().any(|v| v.contains("\"k\"")), "{found:?}");
    }

    #[test]
    fn of_very_many_violations_the_first_are_reported() {
        let schema = Schema::compile("s", json!({"items": {"type": "string"}}), BTreeMap::new()).unwrap();
        let found = schema.violations(&Value::from(vec![0; 10_000]));
        assert_eq!((found.len(), found[99].pointer.as_str()), (MAX_VIOLATIONS, "/99"));
    }

    #[test]
    fn a_schema_that_multiplies_itself_is_refused() {
        let mut defs = serde_json::Map::from_iter([("d0".to_owned(), json!({}))]);
        for floor in 1..30 {
            defs.insert(
                format!("d{floor}"),
                json!({"anyOf": vec![json!({"$ref": format!("#/$defs/d{}", floor - 1)}); 10]}),
            );
        }
        let why = Schema::compile("s", json!({"$ref": "#/$defs/d29", "$defs": defs}), BTreeMap::new()).unwrap_err();
        assert!(why.contains("multiply"), "{why}");
    }

    #[test]
    fn patterns_of_all_schemas_share_a_limit() {
        // A pattern that a single schema could not have even once counts as 16 MiB.
        let of = |count: usize| {
            let property = |i| (format!("p{i}"), json!({"pattern": format!("^a{{1000}}{{{}}}$", 1000 - i)}));
            json!({ "properties": (0..count).map(property).collect::<serde_json::Map<_, _>>() })
        };
        let why = Schema::compile("s", of(17), BTreeMap::new()).unwrap_err();
        assert!(why.contains("256 MiB"), "{why}");
        let mut left = 16 << 10;
        let mut compile =
            |text: &str| Schema::compile_within("s", json!({ "pattern": text }), BTreeMap::new(), &mut left).map(drop);
        assert_eq!([compile("^[a-z]+$"), compile("^[a-f]+$")], [Ok(()), Ok(())]);
        assert!(compile("^(a{1,90}b?){1,9}$").unwrap_err().contains("256 MiB"));
        assert!(compile("^[a-z]+$").unwrap_err().contains("256 MiB"));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        let why = Schema::compile("s", json!({"type": "strin"}), BTreeMap::new()).unwrap_err();
        assert!(why.contains("strin"), "{why}");
    }

    #[test]
    fn references_find_the_given_resources() {
        let resources = BTreeMap::from([("app:///schemas/n.json".to_owned(), json!({"type": "integer"}))]);
        let document = json!({"$id": "app:///schemas/a.json", "properties": {"n": {"$ref": "n.json"}}});
        let schema = Schema::compile("a", document, resources).unwrap();
        assert_eq!(schema.violations(&json!({"n": "x"})).len(), 1);
        assert_eq!(schema.violations(&json!({"n": 1})), []);
    }
}
