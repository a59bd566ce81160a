//! The tree of a run: phases, steps, and the elements of a `for_each`.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude::inspect::{self, Inspected, Place};
use http::StatusCode;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond, json_response};
use crate::run::{blocking, engine_failed, rows_of, visible};

/// `GET /v1/runs/{id}/tree`.
pub(crate) async fn tree(call: Call) -> Respond {
    let limit = usize::try_from(call.query.number("limit", 1, 200, 100)?).unwrap_or(100);
    let (parent, after) = (call.query.get("parent").map(str::to_owned), call.query.get("after").map(str::to_owned));
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let document = blocking(move || {
        visible(&server, &caller, &id)?;
        let view = server.engine().view(&id).map_err(|e| engine_failed(&e))?;
        let steps = rows_of(&server, &view)?;
        let effects = inspect::effects(&view, &*server.engine().blobs());
        let nodes = match &parent {
            None => outline(&steps, &effects),
            Some(parent) => items(&steps, &effects, parent)?,
        };
        page(nodes, after.as_deref(), limit)
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// The phases and steps, in the order of the plan.
fn outline(steps: &[Value], effects: &[Inspected]) -> Vec<Value> {
    let mut nodes: Vec<Value> = Vec::new();
    for step in steps {
        let phase = step["phase"].as_str().unwrap_or_default();
        let of_phase = || steps.iter().filter(|other| other["phase"] == *phase);
        if !nodes.iter().any(|node| node["id"] == *phase) {
            let ms: u64 = of_phase().filter_map(|step| step["duration_ms"].as_u64()).sum();
            let mut node = blank(phase, Value::Null, "phase", phase, phase);
            node["status"] = phase_status(of_phase()).into();
            node["duration_ms"] = ms.into();
            node["children"] = of_phase().count().into();
            nodes.push(node);
        }
        let name = step["name"].as_str().unwrap_or_default();
        let mut node = blank(&format!("{phase}/{name}"), phase.into(), "step", name, phase);
        node["status"] = step["status"].clone();
        node["attempt"] = step["attempts"].clone();
        node["duration_ms"] = step["duration_ms"].clone();
        let counts = counts(name, effects);
        node["children"] = counts.values().sum::<u64>().into();
        if !counts.is_empty() {
            node["counts"] = json!(counts);
        }
        nodes.push(node);
    }
    nodes
}

fn blank(id: &str, parent: Value, kind: &str, name: &str, phase: &str) -> Value {
    json!({
        "id": id, "parent": parent, "kind": kind, "name": name, "phase": phase, "status": "running", "attempt": null,
        "started_at": null, "duration_ms": null, "usage": null, "model": null, "children": 0,
    })
}

fn phase_status<'s>(steps: impl Iterator<Item = &'s Value>) -> &'static str {
    let words: Vec<&str> = steps.filter_map(|step| step["status"].as_str()).collect();
    let has = |word: &str| words.contains(&word);
    match () {
        () if has("failed") => "failed",
        () if has("cancelled") => "cancelled",
        () if has("running") => "running",
        () if words.iter().all(|word| *word == "not_started") => "not_started",
        () if has("not_started") => "running",
        () => "succeeded",
    }
}

/// The elements of a step by their number: whether one of their effects failed.
fn elements(name: &str, effects: &[Inspected]) -> BTreeMap<usize, bool> {
    let mut elements = BTreeMap::new();
    for effect in effects.iter().filter(|effect| !effect.is_done_again) {
        if let Some(element) = Place::of(&effect.id, name).and_then(|place| place.element) {
            // The last outcome of an element counts.
            elements.insert(element, effect.is_failed);
        }
    }
    elements
}

fn counts(name: &str, effects: &[Inspected]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for is_failed in elements(name, effects).into_values() {
        *counts.entry(if is_failed { "failed" } else { "succeeded" }).or_default() += 1;
    }
    counts
}

/// The elements of the step `parent`.
fn items(steps: &[Value], effects: &[Inspected], parent: &str) -> Result<Vec<Value>, Problem> {
    let is_it = |step: &&Value| {
        let (phase, name) = (step["phase"].as_str().unwrap_or_default(), step["name"].as_str().unwrap_or_default());
        parent.strip_prefix(phase).and_then(|rest| rest.strip_prefix('/')) == Some(name)
    };
    let Some(step) = steps.iter().find(is_it) else {
        let phase: Vec<Value> = outline(steps, effects).into_iter().filter(|node| node["parent"] == *parent).collect();
        return if phase.is_empty() { Err(invalid("parent", "`parent` is the id of a node")) } else { Ok(phase) };
    };
    let phase = step["phase"].as_str().unwrap_or_default();
    let item = |(element, is_failed): (usize, bool)| {
        let mut node = blank(&format!("{parent}[{element}]"), parent.into(), "item", &element.to_string(), phase);
        node["status"] = if is_failed { "failed" } else { "succeeded" }.into();
        node
    };
    Ok(elements(step["name"].as_str().unwrap_or_default(), effects).into_iter().map(item).collect())
}

fn page(nodes: Vec<Value>, after: Option<&str>, limit: usize) -> Result<Value, Problem> {
    let unknown = || invalid("after", "`after` is the `next` of a page");
    let from = match after {
        None => 0,
        Some(after) => nodes.iter().position(|node| node["id"] == *after).ok_or_else(unknown)? + 1,
    };
    let shown: Vec<&Value> = nodes[from..].iter().take(limit).collect();
    let next = if from + shown.len() < nodes.len() { shown.last().map(|node| node["id"].clone()) } else { None };
    Ok(json!({"nodes": shown, "next": next}))
}
