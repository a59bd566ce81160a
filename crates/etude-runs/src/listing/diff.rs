//! Differences between two runs.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::exact::Exact;
use serde_json::{Value, json};

/// Maximum number of listed differences of one value.
const MAX_CHANGES: usize = 100;

/// One of two runs in a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Members of the run's `runs show` document: `run_id`, `status`, `pipeline`, `definition`, `steps`, `usage`,
    /// `duration_ms`.
    pub document: Value,
    /// The run's input; `None` if it cannot be read.
    pub input: Option<Exact>,
    /// The run's output; `None` if it has none or it is too large to compare.
    pub output: Option<Exact>,
    /// Printed outputs of the run's steps, by the ids of their effects.
    pub outputs: BTreeMap<String, Vec<u8>>,
}

/// Differences between `a` and `b`, as a document: `definition` (files), `input` and `output` (JSON pointers), `steps`
/// (members that differ, and effects whose outputs differ), and both sides' status, usage and duration.
pub fn diff(a: &Side, b: &Side) -> Value {
    let head = |side: &Side| {
        let member = |name: &str| side.document[name].clone();
        json!({
            "run_id": member("run_id"), "pipeline": member("pipeline"), "status": member("status"),
            "duration_ms": member("duration_ms"), "usage": member("usage"), "started_at": member("started_at"),
        })
    };
    json!({
        "a": head(a), "b": head(b),
        "definition": files(&a.document["definition"], &b.document["definition"]),
        "input": values(a.input.as_ref(), b.input.as_ref()),
        "steps": steps(a, b),
        "output": values(a.output.as_ref(), b.output.as_ref()),
    })
}

/// True if only time, tokens and cost differ.
pub fn is_same(diff: &Value) -> bool {
    let is_empty = |name: &str| diff[name].as_array().is_none_or(Vec::is_empty);
    ["definition", "input", "steps", "output"].into_iter().all(is_empty) && diff["a"]["status"] == diff["b"]["status"]
}

fn files(a: &Value, b: &Value) -> Vec<Value> {
    let hashes = |pins: &Value| -> BTreeMap<String, Value> {
        let pins = pins.as_array().into_iter().flatten();
        pins.filter_map(|pin| Some((pin["path"].as_str()?.to_owned(), pin["blake3"].clone()))).collect()
    };
    let (a, b) = (hashes(a), hashes(b));
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let change = |path: &String| match (a.get(path), b.get(path)) {
        (Some(before), Some(after)) if before == after => None,
        (Some(_), Some(_)) => Some("changed"),
        (Some(_), None) => Some("removed"),
        _ => Some("added"),
    };
    paths.into_iter().filter_map(|path| Some(json!({"file": path, "change": change(path)?}))).collect()
}

/// The compared members of steps.
const MEMBERS: [&str; 6] = ["status", "attempts", "retries", "items", "cached", "model"];

fn steps(a: &Side, b: &Side) -> Vec<Value> {
    let rows = |side: &Side| -> Vec<((String, String), Value)> {
        let rows = side.document["steps"].as_array().into_iter().flatten();
        let key = |row: &Value| Some((row["phase"].as_str()?.to_owned(), row["name"].as_str()?.to_owned()));
        rows.filter_map(|row| Some((key(row)?, row.clone()))).collect()
    };
    let (rows_a, rows_b) = (rows(a), rows(b));
    let find = |rows: &[((String, String), Value)], key: &(String, String)| {
        rows.iter().find(|(known, _)| known == key).map_or(Value::Null, |(_, row)| row.clone())
    };
    let mut keys: Vec<&(String, String)> = rows_a.iter().map(|(key, _)| key).collect();
    keys.extend(rows_b.iter().map(|(key, _)| key).filter(|key| rows_a.iter().all(|(known, _)| known != *key)));
    let mut out = Vec::new();
    for key in keys {
        let (row_a, row_b) = (find(&rows_a, key), find(&rows_b, key));
        let members: serde_json::Map<String, Value> = MEMBERS
            .into_iter()
            .filter(|name| row_a[*name] != row_b[*name])
            .map(|name| (name.to_owned(), json!([row_a[name], row_b[name]])))
            .collect();
        let outputs = outputs(a, b, &key.1);
        if !members.is_empty() || !outputs.is_empty() {
            out.push(json!({"phase": key.0, "name": key.1, "members": members, "outputs": outputs}));
        }
    }
    out
}

/// The effects of a step whose outputs differ, or which only one of the runs has.
fn outputs(a: &Side, b: &Side, step: &str) -> Vec<Value> {
    let of_step = |side: &Side| -> BTreeSet<String> {
        let ids = side.outputs.keys();
        ids.filter(|id| crate::inspect::EffectPlace::of(id, step).is_some()).cloned().collect()
    };
    let ids: BTreeSet<String> = of_step(a).union(&of_step(b)).cloned().collect();
    let change = |id: &String| match (a.outputs.get(id), b.outputs.get(id)) {
        (Some(a), Some(b)) if a == b => None,
        (Some(a), Some(b)) => Some(match (exact(a), exact(b)) {
            (Some(a), Some(b)) => json!({"effect": id, "change": "changed", "values": values(Some(&a), Some(&b))}),
            _ => json!({"effect": id, "change": "changed"}),
        }),
        (Some(_), None) => Some(json!({"effect": id, "change": "removed"})),
        _ => Some(json!({"effect": id, "change": "added"})),
    };
    ids.iter().filter_map(change).take(MAX_CHANGES).collect()
}

/// The JSON value in `text` with all digits of its numbers; `None` if it is not JSON, or too large to compare.
fn exact(text: &[u8]) -> Option<Exact> {
    Exact::parse(std::str::from_utf8(text).ok()?).ok()
}

/// JSON pointers at which two values differ, with both values. Numbers that a tree would round are texts of their digits.
fn values(a: Option<&Exact>, b: Option<&Exact>) -> Vec<Value> {
    let mut out = Vec::new();
    compare(a, b, &mut String::new(), &mut out);
    out
}

fn compare(a: Option<&Exact>, b: Option<&Exact>, path: &mut String, out: &mut Vec<Value>) {
    if a == b || out.len() >= MAX_CHANGES {
        return;
    }
    let mut below = |step: &str, a: Option<&Exact>, b: Option<&Exact>| {
        let before = path.len();
        path.push('/');
        path.push_str(&etude_core::pointer::escaped(step));
        compare(a, b, path, out);
        path.truncate(before);
    };
    match (a, b) {
        (Some(Exact::Members(a)), Some(Exact::Members(b))) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().for_each(|name| below(name, a.get(name), b.get(name)));
        }
        (Some(Exact::List(a)), Some(Exact::List(b))) => {
            (0..a.len().max(b.len())).for_each(|at| below(&at.to_string(), a.get(at), b.get(at)));
        }
        (Some(a), Some(b)) => {
            out.push(json!({"path": path.as_str(), "change": "changed", "a": a.shown(), "b": b.shown()}));
        }
        (Some(a), None) => out.push(json!({"path": path.as_str(), "change": "removed", "a": a.shown()})),
        (None, Some(b)) => out.push(json!({"path": path.as_str(), "change": "added", "b": b.shown()})),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(input: Value, status: &str, output: &str) -> Side {
        Side {
            document: json!({
                "run_id": "r", "status": status, "pipeline": "p",
                "definition": [{"path": "p.yaml", "blake3": input.to_string()}, {"path": "s.sh", "blake3": "1"}],
                "steps": [
                    {"phase": "business", "name": "same", "status": "succeeded", "attempts": 1, "duration_ms": 5},
                    {"phase": "business", "name": "ask", "status": status, "attempts": 1, "duration_ms": 5},
                ],
            }),
            input: exact(input.to_string().as_bytes()),
            output: exact(output.as_bytes()),
            outputs: BTreeMap::from([
                ("p/same".to_owned(), b"1".to_vec()),
                ("p/ask".to_owned(), output.as_bytes().to_vec()),
            ]),
        }
    }

    #[test]
    fn what_differs_is_named_and_what_is_the_same_is_not() {
        let (a, b) =
            (side(json!({"k": 1, "z": 0}), "succeeded", r#"{"n":[1]}"#), side(json!({"k": 2}), "failed", "[]"));
        let found = diff(&a, &b);
        assert_eq!(found["definition"], json!([{"file": "p.yaml", "change": "changed"}]));
        assert_eq!(
            found["input"],
            json!([{"path": "/k", "change": "changed", "a": 1, "b": 2}, {"path": "/z", "change": "removed", "a": 0}])
        );
        let steps = found["steps"].as_array().expect("a list");
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0]["members"], json!({"status": ["succeeded", "failed"]}));
        assert_eq!(steps[0]["outputs"][0]["effect"], "p/ask");
        assert_eq!(found["output"], json!([{"path": "", "change": "changed", "a": {"n": [1]}, "b": []}]));
        assert!(!is_same(&found));
        assert!(is_same(&diff(&a, &a)));
    }

    #[test]
    fn an_output_of_only_one_run_is_shown() {
        let (with, without) = (side(json!({}), "succeeded", "[1]"), side(json!({}), "failed", ""));
        assert_eq!(diff(&without, &with)["output"], json!([{"path": "", "change": "added", "b": [1]}]));
        assert_eq!(diff(&with, &without)["output"], json!([{"path": "", "change": "removed", "a": [1]}]));
    }

    /// A-3.3: numbers are compared by value to the last digit, also those that a tree rounds.
    #[test]
    fn numbers_are_compared_to_the_last_digit() {
        let outputs =
            [r#"{"id":12345678901234567890123,"n":1,"t":"5"}"#, r#"{"id":12345678901234567890124,"n":1.0,"t":5}"#];
        let [a, b] = outputs.map(|output| side(json!({}), "succeeded", output));
        let expected = json!([
            {"path": "/id", "change": "changed", "a": "12345678901234567890123", "b": "12345678901234567890124"},
            {"path": "/t", "change": "changed", "a": "5", "b": 5},
        ]);
        let found = diff(&a, &b);
        assert_eq!(found["output"], expected);
        assert_eq!(found["steps"][0]["outputs"][0]["values"], expected);
    }
}
