use serde_json::json;

use super::*;

fn schema(value: Value) -> ResponseSchema {
    ResponseSchema { name: "answer".to_owned(), schema: Arc::new(value) }
}

/// The provider schema, true if the provider enforces it, and true if the instructions repeat it.
fn prepared(value: Value, dialect: Dialect) -> (Option<Value>, bool, bool) {
    let prepared = prepare(&schema(value), dialect);
    let strict = prepared.provider_schema.as_ref().is_some_and(|provider_schema| provider_schema.strict);
    (prepared.provider_schema.map(|provider_schema| provider_schema.schema), strict, prepared.reported)
}

fn closed(properties: Value, required: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn object(properties: Value, required: Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Checks both strict dialects at once, for schemas that they rewrite alike.
fn check_strict(written: Value, expected: Value, reported: bool) {
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        let found = prepared(written.clone(), dialect);
        assert_eq!(found, (Some(expected.clone()), true, reported), "{dialect:?}: {written}");
    }
}

/// A-4.3: constraints that a strict provider refuses are rewritten, and those that it cannot express go into the instructions.
#[test]
fn strict_dialects_close_objects_and_drop_what_they_lack() {
    let text = json!({ "type": "string" });
    check_strict(object(json!({ "a": text }), json!(["a"])), closed(json!({ "a": text }), json!(["a"])), false);
    let annotated = json!({ "type": "string", "default": "x", "examples": ["y"], "$comment": "c", "description": "d" });
    let kept = json!({ "type": "string", "description": "d" });
    check_strict(object(json!({ "a": annotated }), json!(["a"])), closed(json!({ "a": kept }), json!(["a"])), false);
    for (keyword, value) in [
        ("minLength", json!(2)),
        ("not", json!({ "const": "x" })),
        ("if", json!({})),
        ("pattern", json!("(?=x)y")),
        ("format", json!("iban")),
    ] {
        let mut written = text.clone();
        written[keyword] = value;
        check_strict(object(json!({ "a": written }), json!(["a"])), closed(json!({ "a": text }), json!(["a"])), true);
    }
    let items = json!({ "type": "array", "items": object(json!({}), json!([])), "uniqueItems": true });
    assert_eq!(prepared(object(json!({ "a": items }), json!(["a"])), Dialect::Anthropic).0, None, "an open object");
}

#[test]
fn bounds_stay_only_where_the_provider_has_them() {
    let number = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
    let list = json!({ "type": "array", "items": number, "minItems": 2 });
    let written = object(json!({ "a": list }), json!(["a"]));
    let (openai, _, reported) = prepared(written.clone(), Dialect::OpenAi);
    assert_eq!((openai, reported), (Some(closed(json!({ "a": list }), json!(["a"]))), false));
    let bare = json!({ "type": "array", "items": { "type": "integer" } });
    let (anthropic, _, reported) = prepared(written.clone(), Dialect::Anthropic);
    assert_eq!((anthropic, reported), (Some(closed(json!({ "a": bare }), json!(["a"]))), true));
    assert_eq!(prepared(written.clone(), Dialect::Gemini), (Some(written), true, false));
}

#[test]
fn keywords_as_names_of_properties_are_names() {
    let text = json!({ "type": "string" });
    let names = json!({ "minLength": text, "enum": text, "$ref": text, "required": text, "properties": text });
    let all = json!(["minLength", "enum", "$ref", "required", "properties"]);
    check_strict(object(names.clone(), all.clone()), closed(names, all), false);
}

/// A-4.3: optional properties become nullable ones for OpenAI, whatever their schema.
#[test]
fn optional_properties_become_nullable_for_openai() {
    let cases = [
        (json!({ "type": "string" }), json!({ "type": ["string", "null"] })),
        (json!({ "type": ["string", "integer"] }), json!({ "type": ["string", "integer", "null"] })),
        (json!({ "type": ["string", "null"] }), json!({ "type": ["string", "null"] })),
        (json!({ "enum": ["a", "b"] }), json!({ "type": ["string", "null"], "enum": ["a", "b", null] })),
        (json!({ "const": 1 }), json!({ "anyOf": [{ "type": "integer", "const": 1 }, { "type": "null" }] })),
        (json!({ "$ref": "#/$defs/d" }), json!({ "anyOf": [{ "$ref": "#/$defs/d" }, { "type": "null" }] })),
        (
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }] }),
        ),
    ];
    for (written, expected) in cases {
        let definitions = json!({ "d": { "type": "boolean" } });
        let mut root = object(json!({ "a": written }), json!([]));
        root["$defs"] = definitions.clone();
        let mut wanted = closed(json!({ "a": expected }), json!(["a"]));
        wanted["$defs"] = definitions.clone();
        assert_eq!(prepared(root.clone(), Dialect::OpenAi), (Some(wanted), true, false), "{written}");
        let (anthropic, _, _) = prepared(root, Dialect::Anthropic);
        let required = anthropic.as_ref().and_then(|schema| schema.get("required"));
        assert_eq!(required, Some(&json!([])), "Anthropic takes optional properties as they are");
    }
}

/// A-4.3: a schema whose meaning a strict form would narrow is not sent as strict.
#[test]
fn what_cannot_be_expressed_strictly_is_not_expressed_strictly() {
    let open = [
        json!({ "type": "object" }),
        json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
        json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": true }),
        json!({ "type": "object", "properties": {}, "patternProperties": { "^x": {} } }),
        object(json!({ "a": {} }), json!(["a"])),
        object(json!({ "a": { "type": "array" } }), json!(["a"])),
        object(json!({ "a": { "type": "string" } }), json!(["b"])),
        object(json!({ "a": { "$ref": "other.json" } }), json!(["a"])),
        object(json!({ "a": { "enum": [[1], "x"] } }), json!(["a"])),
    ];
    for written in open {
        assert_eq!(prepared(written.clone(), Dialect::OpenAi), (Some(written.clone()), false, true), "{written}");
        assert_eq!(prepared(written.clone(), Dialect::Anthropic), (None, false, true), "{written}");
    }
    for written in [json!(true), json!({}), json!({ "type": "array" })] {
        assert_eq!(prepared(written.clone(), Dialect::OpenAi), (None, false, true), "{written}");
    }
}

#[test]
fn recursion_goes_to_openai_and_not_to_anthropic() {
    let list = json!({ "type": "array", "items": { "$ref": "#" } });
    let tree = object(json!({ "kids": list }), json!(["kids"]));
    assert_eq!(prepared(tree.clone(), Dialect::OpenAi).0, Some(closed(json!({ "kids": list }), json!(["kids"]))));
    assert_eq!(prepared(tree, Dialect::Anthropic), (None, false, true));
}

#[test]
fn a_root_that_is_no_object_is_wrapped() {
    let text = json!({ "type": "string" });
    check_strict(text.clone(), closed(json!({ "value": text }), json!(["value"])), false);
    let list = json!({ "type": "array", "items": { "$ref": "#/definitions/d" }, "definitions": { "d": text } });
    let inner = json!({ "type": "array", "items": { "$ref": "#/$defs/d" } });
    let mut wanted = closed(json!({ "value": inner }), json!(["value"]));
    wanted["$defs"] = json!({ "d": text });
    check_strict(list, wanted, false);

    let nested = json!({ "anyOf": [text, { "type": "array", "items": { "$ref": "#" } }] });
    let (wrapped, _, _) = prepared(nested, Dialect::OpenAi);
    let reference = wrapped.as_ref().and_then(|schema| schema.pointer("/properties/value/anyOf/1/items/$ref"));
    assert_eq!(reference, Some(&json!("#/properties/value")));
}

#[test]
fn one_of_becomes_any_of_and_is_reported_where_it_may_overlap() {
    let branch = |kind: &str| object(json!({ "kind": { "type": "string", "const": kind } }), json!(["kind"]));
    let shut = |kind: &str| closed(json!({ "kind": { "type": "string", "const": kind } }), json!(["kind"]));
    let apart = json!({ "oneOf": [branch("a"), branch("b")] });
    let wanted = json!({ "anyOf": [shut("a"), shut("b")] });
    check_strict(apart, closed(json!({ "value": wanted }), json!(["value"])), false);
    let overlapping = json!({ "oneOf": [{ "type": "number" }, { "type": "integer" }] });
    let wanted = json!({ "anyOf": [{ "type": "number" }, { "type": "integer" }] });
    check_strict(overlapping, closed(json!({ "value": wanted }), json!(["value"])), true);
}

#[test]
fn all_of_is_merged_where_its_members_agree() {
    let text = json!({ "type": "string" });
    let base = object(json!({ "a": text }), json!(["a"]));
    let merged = json!({
        "allOf": [{ "$ref": "#/$defs/base" }, { "properties": { "b": text }, "required": ["b"] }],
        "$defs": { "base": base },
    });
    let mut wanted = closed(json!({ "a": text, "b": text }), json!(["a", "b"]));
    wanted["$defs"] = json!({ "base": closed(json!({ "a": text }), json!(["a"])) });
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        assert_eq!(prepared(merged.clone(), dialect), (Some(wanted.clone()), true, false));
    }
    let torn = json!({ "allOf": [{ "type": "string", "maxLength": 3 }, { "maxLength": 5 }] });
    assert_eq!(prepared(torn, Dialect::OpenAi), (None, false, true));
}

#[test]
fn gemini_gets_open_objects_and_choices_of_texts_and_numbers() {
    let written = json!({
        "type": "object", "additionalProperties": { "type": "integer" },
        "properties": { "a": { "const": "x" }, "b": { "enum": ["y", null] }, "c": true, "d": { "enum": [true] } },
    });
    let (found, _, reported) = prepared(written, Dialect::Gemini);
    let choice = json!({ "anyOf": [{ "type": "string", "enum": ["y"] }, { "type": "null" }] });
    let expected = json!({
        "type": "object", "additionalProperties": { "type": "integer" },
        "properties": { "a": { "type": "string", "enum": ["x"] }, "b": choice, "c": {}, "d": { "type": "boolean" } },
    });
    assert_eq!((found, reported), (Some(expected), true));
}

fn returned(written: Value, response: &str) -> String {
    prepare(&schema(written), Dialect::OpenAi).reversal.apply(response.to_owned())
}

/// A-4.3: nulls that stand for absent properties are removed, and everything else stays byte for byte.
#[test]
fn nulls_leave_only_where_the_schema_has_no_room_for_them() {
    let text = json!({ "type": "string" });
    let maybe = json!({ "type": ["string", "null"] });
    let inner = object(json!({ "x": text, "y": maybe }), json!([]));
    let written = object(
        json!({ "a": text, "b": maybe, "c": { "type": "array", "items": inner }, "d": { "$ref": "#/$defs/d" } }),
        json!(["b"]),
    );
    let mut written = written;
    written["$defs"] = json!({ "d": inner });
    for (response, expected) in [
        (r#"{ "a": "x", "b": null, "c": [], "d": {} }"#, r#"{ "a": "x", "b": null, "c": [], "d": {} }"#),
        (r#"{"a":null,"b":null,"c":null,"d":null}"#, r#"{"b":null}"#),
        (
            r#"{"a":"1e2 \u00e9","b":null,"c":[{"x":null,"y":null}],"d":null}"#,
            r#"{"a":"1e2 \u00e9","b":null,"c":[{"y":null}]}"#,
        ),
        (r#"{"a":"","b":null,"c":[],"d":{"x":null,"y":"z"}}"#, r#"{"a":"","b":null,"c":[],"d":{"y":"z"}}"#),
        ("no JSON", "no JSON"),
        ("[1, 2]", "[1, 2]"),
    ] {
        assert_eq!(returned(written.clone(), response), expected);
    }
}

#[test]
fn the_branch_that_a_response_was_written_for_decides_about_its_nulls() {
    let branch = |kind: &str, x: Value, required: Value| object(json!({ "kind": { "const": kind }, "x": x }), required);
    let written = json!({ "oneOf": [
        branch("a", json!({ "type": "string" }), json!(["kind"])),
        branch("b", json!({ "type": ["string", "null"] }), json!(["kind", "x"])),
    ] });
    assert_eq!(returned(written.clone(), r#"{"value":{"kind":"a","x":null}}"#), r#"{"kind":"a"}"#);
    assert_eq!(returned(written, r#"{"value":{"kind":"b","x":null}}"#), r#"{"kind":"b","x":null}"#);
}

#[test]
fn alternatives_that_lead_back_to_themselves_are_each_read_once() {
    let itself = json!({ "$ref": "#/$defs/a" });
    let mut written = object(json!({ "x": itself, "y": { "type": "string" } }), json!(["x"]));
    let all = ["allOf", "anyOf", "oneOf"].map(|key| (key.to_owned(), json!([itself, itself])));
    written["$defs"] = json!({ "a": Value::Object(all.into_iter().collect()) });
    for (response, expected) in [
        (r#"{"x":{"z":null},"y":null}"#, r#"{"x":{"z":null}}"#),
        (r#"{"x":[{"z":null}],"y":null}"#, r#"{"x":[{"z":null}]}"#),
        (r#"{"x":null,"y":null}"#, r#"{"x":null}"#),
    ] {
        let reversal = super::reverse::Reversal { wrapped: false, nulled: Some(written.clone().into()) };
        assert_eq!(reversal.apply(response.to_owned()), expected);
    }
}

#[test]
fn a_wrapped_response_is_unwrapped_to_the_character() {
    let numbers = json!({ "type": "array", "items": { "type": "number" } });
    assert_eq!(
        returned(numbers.clone(), r#"{"value": [1.0, 1e400, 12345678901234567890123]}"#),
        "[1.0, 1e400, 12345678901234567890123]"
    );
    assert_eq!(returned(numbers, "[1]"), "[1]", "a server that does not wrap is taken as it is");
}
