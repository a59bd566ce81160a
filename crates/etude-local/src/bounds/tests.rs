//! Tests of the added limits, and of schemas that must stay unchanged.

use super::*;

#[test]
fn texts_and_lists_without_limits_get_them_and_others_keep_theirs() {
    let schema = json!({"type": "object", "properties": {
        "free": {"type": "string"},
        "short": {"type": ["string", "null"], "maxLength": 3},
        "date": {"type": "string", "format": "date"},
        "list": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2},
        "kind": {"enum": ["a", "b"]},
    }});
    let want = json!({"type": "object", "properties": {
        "free": {"type": "string", "maxLength": 400},
        "short": {"type": ["string", "null"], "maxLength": 3},
        "date": {"type": "string", "format": "date"},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 400}, "maxItems": 32},
        "pair": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2},
        "kind": {"enum": ["a", "b"]},
    }, "additionalProperties": false});
    assert_eq!(narrowed(&schema), want);
}

#[test]
fn a_bound_leaves_room_for_the_largest_minimum() {
    let schema = json!({"type": "array", "minItems": 40, "items": {"type": "string", "minLength": 1000}});
    let got = narrowed(&schema);
    assert_eq!(got["maxItems"], 72);
    assert_eq!(got["items"]["maxLength"], 1400);
}

#[test]
fn numbers_get_the_limits_that_they_lack() {
    let schema = json!({"type": "number", "exclusiveMinimum": 0});
    assert_eq!(narrowed(&schema)["maximum"], AMOUNT);
    assert_eq!(narrowed(&schema).get("minimum"), None);
    let far = json!({"type": "integer", "minimum": 9_000_000_000_000_000_000_i64});
    assert_eq!(narrowed(&far), far);
}

#[test]
fn objects_that_several_schemas_describe_stay_open() {
    for schema in [
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}},
                         {"type": "object", "properties": {"b": {"type": "null"}}}]}),
        json!({"type": "object", "properties": {"a": {"type": "null"}},
               "anyOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]}]}),
        json!({"type": "object", "properties": {"a": {"type": "null"}}, "$ref": "#/$defs/b",
               "$defs": {"b": {"type": "object", "properties": {"b": {"type": "null"}}}}}),
    ] {
        assert!(!mentions(&narrowed(&schema), "additionalProperties"), "{schema}");
    }
}

#[test]
fn alternatives_of_their_own_are_closed() {
    let schema = json!({"oneOf": [{"type": "object", "properties": {"a": {"type": "null"}}}, {"type": "null"}]});
    assert_eq!(narrowed(&schema)["oneOf"][0]["additionalProperties"], false);
}

#[test]
fn anything_at_all_is_nested_at_most_once() {
    for schema in [json!(true), json!({}), json!({"description": "whatever"})] {
        let got = narrowed(&schema);
        assert_eq!(got["anyOf"].as_array().map(Vec::len), Some(3), "{schema}");
    }
    let free = narrowed(&json!({"type": "object"}));
    assert_eq!(free["maxProperties"], 16);
    assert!(free["additionalProperties"]["anyOf"].is_array());
}

#[test]
fn a_schema_that_means_a_kind_says_so() {
    assert_eq!(narrowed(&json!({"properties": {"a": {"minimum": 1}}}))["type"], "object");
    assert_eq!(narrowed(&json!({"properties": {"a": {"minimum": 1}}}))["properties"]["a"]["type"], "number");
    assert_eq!(narrowed(&json!({"items": {"type": "null"}}))["type"], "array");
}

#[test]
fn members_that_are_required_but_not_described_stay_possible() {
    let got = narrowed(&json!({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}));
    assert!(got["additionalProperties"].is_object());
}
