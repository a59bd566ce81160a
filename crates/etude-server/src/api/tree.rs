//! The tree of a run, by pages.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::tagged;

/// `GET /v1/runs/{id}/tree`.
pub(crate) async fn show(call: Call) -> Respond {
    let limit = usize::try_from(call.query.number("limit", 1, 200, 100)?).unwrap_or(100);
    let (parent, after) = (call.query.get("parent").map(str::to_owned), call.query.get("after").map(str::to_owned));
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let readings = call.readings.clone();
    let document = blocking(move || {
        server.context().visible(&caller, &id)?;
        let reading = readings.of(server.context(), &id)?;
        let story = reading.tree(server.context(), server.stories());
        let nodes = match &parent {
            None => story.outline(),
            Some(parent) => story.below(parent)?,
        };
        page(nodes, after.as_deref(), limit)
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
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
