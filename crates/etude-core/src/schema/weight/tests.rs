use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

fn is_refused(document: &Value, resources: &BTreeMap<String, Value>) -> bool {
    match Schema::compile("s", document.clone(), resources.clone()) {
        Ok(_) => false,
        Err(why) => {
            assert!(why.contains("multiply"), "{why}");
            true
        }
    }
}

fn is_too_much(document: &Value) -> bool {
    is_refused(document, &BTreeMap::new())
}

/// A schema tower: each floor applies the floor below `each` times. `refer` makes the reference to a floor, `mark`
/// marks a floor.
fn built(floors: usize, each: usize, refer: impl Fn(usize) -> Value, mark: impl Fn(usize, &mut Value)) -> Value {
    let mut defs = serde_json::Map::new();
    for at in 0..=floors {
        let mut floor = match at {
            0 => json!({"type": "string"}),
            _ => json!({"allOf": vec![refer(at - 1); each]}),
        };
        mark(at, &mut floor);
        defs.insert(format!("d{at}"), floor);
    }
    let mut document = json!({"allOf": [refer(floors)]});
    document["$defs"] = Value::Object(defs);
    document
}

fn tower(floors: usize, each: usize) -> Value {
    built(floors, each, |at| json!({"$ref": format!("#/$defs/d{at}")}), |_, _| {})
}

/// schemas that refer to each other are accepted; a tower that multiplies them is too heavy.
#[test]
fn towers_are_too_heavy_and_lists_are_not() {
    assert!(is_too_much(&tower(30, 10)));
    assert!(!is_too_much(&tower(3, 10)));
    assert!(!is_too_much(&tower(40, 1)));
}

/// a reference leads to the same schema in every spelling.
#[test]
fn towers_are_seen_however_their_floors_are_referred_to() {
    let to = |prefix: &str| {
        let prefix = prefix.to_owned();
        move |at: usize| json!({"$ref": format!("{prefix}{at}")})
    };
    let none = |_: usize, _: &mut Value| {};
    let mark = |keyword: &'static str, prefix: &'static str| {
        move |at: usize, floor: &mut Value| floor[keyword] = json!(format!("{prefix}{at}"))
    };
    let mut relative = built(30, 10, to("x/../d"), mark("$id", "app:///floors/d"));
    relative["$id"] = json!("app:///floors/all");
    let dynamic = |at: usize| json!({"$dynamicRef": format!("#a{at}")});
    for (what, tower) in [
        ("percent-encoded", built(30, 10, to("#/%24defs/d"), none)),
        ("anchors", built(30, 10, to("#a"), mark("$anchor", "a"))),
        ("dynamic anchors", built(30, 10, dynamic, mark("$dynamicAnchor", "a"))),
        ("ids", built(30, 10, to("app:///floors/d"), mark("$id", "app:///floors/d"))),
        ("relative paths", relative),
    ] {
        assert!(is_too_much(&tower), "{what}: {tower}");
    }
}

/// the heaviest possible target of a dynamic reference counts.
#[test]
fn dynamic_references_count_for_the_heaviest_they_may_lead_to() {
    let floor = |at: usize| json!({"$dynamicAnchor": format!("a{at}"), "allOf": vec![json!({"$ref": format!("stub#/$defs/u{}", at - 1)}); 10]});
    let mut defs = serde_json::Map::from_iter((1..30).map(|at| (format!("f{at}"), floor(at))));
    let stubs = (0..30).map(|at| (format!("s{at}"), json!({"$dynamicAnchor": format!("a{at}")})));
    let uses = (0..30).map(|at| (format!("u{at}"), json!({"$dynamicRef": format!("#a{at}")})));
    defs.insert("stub".to_owned(), json!({"$id": "app:///stub", "$defs": Value::Object(stubs.chain(uses).collect())}));
    let document = json!({"$id": "app:///root", "$ref": "stub#/$defs/u29", "$defs": defs});
    assert!(is_too_much(&document));
}

/// a chain of schemas that is too long for a thread's stack is refused.
#[test]
fn chains_of_references_have_an_end() {
    assert!(is_too_much(&tower(2 * MAX_DEPTH, 1)));
    assert!(is_too_much(&built(5_000, 1, |at| json!({"$ref": format!("#/$defs/d{at}")}), |_, _| {})));
    let mut nested = json!({});
    for _ in 0..2 * MAX_DEPTH {
        nested = json!({"not": nested});
    }
    assert!(is_too_heavy(&[(jsonschema::uri::from_str("a").unwrap(), &nested)], None));
}

#[test]
fn what_refers_to_itself_or_lies_deeper_adds_nothing() {
    let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "allOf": [{"$ref": "#"}]});
    assert!(!is_too_much(&tree));
    assert!(!is_too_much(&json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})));
}

/// schemas that all apply each other are walked in every order.
#[test]
fn rings_that_multiply_are_seen() {
    let ring = |of: usize| {
        let all = |but: usize| (0..of).filter(move |at| *at != but).map(|at| json!({"$ref": format!("#/$defs/d{at}")}));
        let defs = (0..of).map(|at| (format!("d{at}"), json!({"allOf": all(at).collect::<Vec<_>>()})));
        json!({"$ref": "#/$defs/d0", "$defs": Value::Object(defs.collect())})
    };
    assert!(is_too_much(&ring(12)));
    assert!(!is_too_much(&ring(4)));
}

/// files are found by their whole path, relative to the referring file.
#[test]
fn towers_of_files_are_seen() {
    let floor = |below: &str| json!({"allOf": vec![json!({"$ref": below}); 100]});
    let mut resources = BTreeMap::from([
        ("app:///schemas/a.json".to_owned(), floor("b.json")),
        ("app:///schemas/b.json".to_owned(), floor("deep/c.json#/x")),
        ("app:///schemas/deep/c.json".to_owned(), json!({"x": floor("../d.json")})),
        ("app:///schemas/d.json".to_owned(), json!({"type": "string"})),
    ]);
    let document = json!({"$id": "app:///schemas/s.json", "properties": {"k": {"$ref": "a.json"}}});
    // A light schema with the same file name, which is found first.
    for light in ["app:///a/b.json", "app:///a/c.json"] {
        resources.insert(light.to_owned(), json!({"x": {}}));
    }
    assert!(is_refused(&document, &resources));
}
