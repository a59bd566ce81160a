//! JSON Schemas for editors, built from the same tables as the checks (`etude schema`).

use serde_json::{Map, Value, json};

use crate::fields::{Field, FieldKind, Object, package, pipeline, test};

/// Dialect of these schemas.
pub(crate) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The JSON Schema of pipeline.yaml, draft 2020-12.
pub fn pipeline_schema() -> Value {
    let mut schema = object(&pipeline::PIPELINE);
    let mut defs = Map::new();
    defs.insert("step".to_owned(), step());
    for (word, table) in pipeline::steps() {
        defs.insert(format!("{word}_step"), object(table));
    }
    defs.insert("condition".to_owned(), condition());
    defs.insert("parameter".to_owned(), parameter());
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".to_owned(), json!(DIALECT));
        members.insert("title".to_owned(), json!("pipeline.yaml"));
        members.insert("$defs".to_owned(), Value::Object(defs));
    }
    schema
}

/// The JSON Schema of tests/*.yaml, draft 2020-12.
pub fn test_schema() -> Value {
    let mut schema = titled(&test::TEST, "tests/*.yaml");
    schema["oneOf"] = json!([{"required": ["pipeline"]}, {"required": ["machine"]}]);
    schema
}

/// The JSON Schema of the frontmatter of APP.md, draft 2020-12.
pub fn application_schema() -> Value {
    titled(&package::APPLICATION, "APP.md")
}

/// The JSON Schema of the frontmatter of SKILL.md, draft 2020-12. Clients may add their own fields.
pub fn skill_schema() -> Value {
    let mut schema = titled(&package::SKILL, "SKILL.md");
    schema["additionalProperties"] = json!(true);
    schema
}

/// Schema of a whole file.
fn titled(table: &Object, title: &str) -> Value {
    let mut schema = object(table);
    schema["$schema"] = DIALECT.into();
    schema["title"] = title.into();
    schema
}

/// Schema of a step: its type decides which fields it has.
fn step() -> Value {
    let branches: Vec<Value> = pipeline::steps()
        .map(|(word, _)| {
            json!({
                "if": {"properties": {"type": {"const": word}}, "required": ["type"]},
                "then": {"$ref": format!("#/$defs/{word}_step")},
            })
        })
        .collect();
    json!({
        "type": "object",
        "required": ["name", "type"],
        "properties": {"type": {"enum": pipeline::STEP_TYPES}},
        "allOf": branches,
    })
}

/// Schema of a condition.
fn condition() -> Value {
    json!({
        "description": "A template, a comparison, or a list of conditions that must all hold.",
        "anyOf": [
            {"type": ["string", "boolean"]},
            {"type": "array", "items": {"$ref": "#/$defs/condition"}},
            object(&pipeline::COMPARISON),
        ],
    })
}

/// Schema of a parameter, in the short or the long form.
pub(crate) fn parameter() -> Value {
    json!({
        "anyOf": [
            {"enum": pipeline::INPUT_TYPES},
            {
                "type": "object",
                "description": pipeline::PARAMETER.doc,
                "properties": {
                    // A list is the `required` of JSON Schema itself.
                    "required": {"type": ["boolean", "array"], "description": description(&pipeline::PARAMETER, "required")},
                    "default": {"description": description(&pipeline::PARAMETER, "default")},
                },
            },
        ],
    })
}

fn description(table: &Object, field: &str) -> &'static str {
    table.field(field).map_or("", |field| field.doc)
}

/// Schema of a field table.
pub(crate) fn object(table: &Object) -> Value {
    let mut properties = Map::new();
    for field in table.iter() {
        properties.insert(field.name.to_owned(), property(field));
    }
    let required: Vec<_> = table.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema =
        json!({"type": "object", "description": table.doc, "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn property(field: &Field) -> Value {
    let mut schema = value(&field.kind);
    if let Some(members) = schema.as_object_mut() {
        let text = match field.extension {
            Some(clause) => format!("{} Extension beyond the protocol ({clause}).", field.doc),
            None => field.doc.to_owned(),
        };
        members.insert("description".to_owned(), json!(text));
        if let Some(default) = written(field.default) {
            members.insert("default".to_owned(), default);
        }
        if let Some(example) = written(field.example) {
            members.insert("examples".to_owned(), json!([example]));
        }
    }
    schema
}

/// Parses a value that the tables write as YAML.
fn written(yaml: &str) -> Option<Value> {
    let file = crate::source::SourceFile::new("", yaml);
    let (root, _) = crate::yaml::parse(&file);
    serde_json::from_str(&root?.to_json().ok()?).ok()
}

fn value(kind: &FieldKind) -> Value {
    match kind {
        FieldKind::Text | FieldKind::Prose | FieldKind::Template | FieldKind::ArgsTemplate | FieldKind::Path => {
            json!({"type": "string", "minLength": 1})
        }
        FieldKind::Schema => json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}),
        FieldKind::Bool => json!({"type": "boolean"}),
        FieldKind::Integer(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        FieldKind::Number(min, max) => json!({"type": "number", "minimum": min, "maximum": max}),
        FieldKind::Duration => json!({
            "anyOf": [{"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?\\s*(ms|s|m|h)?$"}, {"type": "number", "minimum": 0}],
        }),
        FieldKind::LongDuration => json!({
            "anyOf": [{"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?\\s*(ms|s|m|h|d)?$"}, {"type": "number", "minimum": 0}],
        }),
        FieldKind::Word(words) => json!({"enum": words}),
        FieldKind::List(of) => json!({"type": "array", "items": value(of)}),
        // An environment variable may be empty.
        FieldKind::Entries(of) if crate::check::may_be_template(of) => {
            json!({"type": "object", "additionalProperties": {"anyOf": [{"const": ""}, value(of)]}})
        }
        FieldKind::Entries(of) => json!({"type": "object", "additionalProperties": value(of)}),
        FieldKind::Object(table) => object(table),
        FieldKind::Either(kinds) => json!({"anyOf": kinds.iter().map(value).collect::<Vec<_>>()}),
        FieldKind::Steps => json!({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}),
        FieldKind::Inputs => json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/parameter"}}),
        FieldKind::Condition => json!({"$ref": "#/$defs/condition"}),
        FieldKind::Any | FieldKind::Literal | FieldKind::Data => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;

    fn accepts(schema: &Value, yaml: &str) -> bool {
        let file = SourceFile::new("", yaml);
        let instance = crate::yaml::parse(&file).0.unwrap().to_json().unwrap();
        let validator = jsonschema::validator_for(schema).unwrap();
        validator.is_valid(&serde_json::from_str(&instance).unwrap())
    }

    #[test]
    fn the_editor_schema_is_a_schema_and_knows_each_type() {
        let schema = pipeline_schema();
        assert!(jsonschema::meta::is_valid(&schema));
        let with = |step: &str| accepts(&schema, &format!("name: p\ndescription: d\nsteps:\n- {step}\n"));
        assert!(with("{name: a, type: code, command: x, timeout: 5m, retry: {max: 2, on: [timeout]}}"));
        assert!(with(
            "{name: a, type: parallel, steps: [{name: b, type: llm, prompt: x, when: [{value: y, equals: 1}]}]}"
        ));
        assert!(!with("{name: a, type: code, command: x, prompt: y}"));
        assert!(!with("{name: a, type: llm, prompt: x, retry: -1}"));
        assert!(!with("{name: a, type: cod, command: x}"));
        assert!(with("{name: a, type: code, command: x, worker: python}"));
        assert!(with("{name: a, type: code, command: x, env: {CI: '', SHA: '{{a.output}}', KEY: {from_env: KEY}}}"));
        assert!(!with("{name: a, type: code, command: x, env: {CI: [x]}}"));
        assert!(with("{name: a, type: llm, prompt: x, schema: {type: object}, validate: {command: x}}"));
        assert!(!with("{name: a, type: llm, prompt: x, schema: [object], validate: x}"));
        assert!(!with("{name: a, type: llm, prompt: x, validate: {comand: x}}"));
        assert!(!with("{name: a, type: code, command: x, worker: ruby}"));
        assert!(accepts(
            &schema,
            "{name: p, description: d, input: {a: string, b: {type: integer, default: 1}}, steps: [{name: a, type: code, command: x}]}"
        ));
        assert!(!accepts(
            &schema,
            "{name: p, description: d, input: {a: int}, steps: [{name: a, type: code, command: x}]}"
        ));
    }

    /// Valid tests, packages and skills fit their schemas, and a misspelt field does not.
    #[test]
    fn tests_packages_and_skills_have_schemas() {
        let schemas = [test_schema(), application_schema(), skill_schema()];
        assert!(schemas.iter().all(jsonschema::meta::is_valid));
        let [test, application, skill] = schemas;
        assert!(accepts(&test, "{name: n, pipeline: p, input: {a: 1}, expect: {status: failed, output: {/a: [1]}}}"));
        assert!(!accepts(&test, "{pipeline: p, machine: m}"));
        assert!(!accepts(&test, "{pipeline: p, expect: {stats: failed}}"));
        let package = "name: n, description: d, version: 1.0.0, entry: {command: ./app}, commands: [a], skills: []";
        assert!(accepts(&application, &format!("{{{package}, confirmationRequired: [a], metadata: {{x: 1}}}}")));
        assert!(!accepts(&application, &format!("{{{package}, comands: [a]}}")));
        assert!(accepts(&skill, "{name: n, description: d, allowed-tools: [Read], argument-hint: x}"));
        assert!(!accepts(&skill, "{name: n, allowed-tools: Read}"));
    }

    /// Every example and default in the tables fits the schema of its field.
    #[test]
    fn examples_and_defaults_fit_their_fields() {
        let tables =
            [&pipeline::PIPELINE, &pipeline::CACHE, &pipeline::RETRY, &pipeline::COMPARISON, &pipeline::SANDBOX];
        let others = [&test::TEST, &test::EXPECT, &package::APPLICATION, &package::ENTRY, &package::SKILL];
        let machines = crate::fields::stage_machine::TABLES.iter().copied();
        for table in tables.into_iter().chain(others).chain(machines).chain(pipeline::steps().map(|(_, table)| table)) {
            for field in table.iter() {
                let mut schema = value(&field.kind);
                schema["$defs"] = pipeline_schema()["$defs"].clone();
                assert!(accepts(&schema, field.example), "{} {}", table.name, field.name);
                assert!(field.default.is_empty() || accepts(&schema, field.default), "{} {}", table.name, field.name);
            }
        }
    }
}
