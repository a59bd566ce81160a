//! Pipelines and machines of an app: definition, input schema, graph.

use std::collections::HashMap;
use std::sync::Arc;

use etude::definition::Definition;
use etude_core::plan::StepKind;
use etude_preview::graph::{self, Graph};
use etude_runs::target::Target;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::app::NotLoaded;
use crate::blocking::blocking;
use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::tagged;

/// The definition that the path names.
async fn load(call: &Call) -> Result<Definition, Problem> {
    let target = match (call.param("pipeline"), call.param("machine")) {
        ("", machine) => Target::Machine(machine.to_owned()),
        (pipeline, _) => Target::Pipeline(pipeline.to_owned()),
    };
    let name = target.pipeline().or(target.machine()).unwrap_or_default().to_owned();
    let none = || Problem::not_found("there is no such pipeline or machine");
    let app = call.server.context().app(call.param("app")).cloned().ok_or_else(none)?;
    if !call.caller()?.covers(&name) {
        return Err(none());
    }
    let server = Arc::clone(&call.server);
    blocking(move || match server.apps().load(&app.dir, &target) {
        Ok((_, definition)) => Ok(definition),
        Err(NotLoaded::Unknown { .. }) => Err(none()),
        Err(error) => Err(crate::app::not_loaded(error, "", &name)),
    })
    .await
}

fn graph_of(definition: &Definition) -> Graph {
    match definition.plan.body.steps.first().map(|step| &step.kind) {
        Some(StepKind::Machine(call)) if definition.target.machine().is_some() => graph::stages::of(&call.machine),
        _ => graph::of(&definition.plan),
    }
}

/// `GET /v1/apps/{app}/pipelines/{pipeline}` and `…/machines/{machine}`.
pub(crate) async fn show(call: Call) -> Respond {
    let definition = load(&call).await?;
    let document = json!({
        "app": call.param("app"), "pipeline": definition.target.pipeline(), "machine": definition.target.machine(),
        "input": definition.input.schema(), "files": definition.files, "graph": graph_of(&definition).json(),
        "diagnostics": definition.warnings.iter().map(etude_spec::render::json).collect::<Vec<_>>(),
    });
    Ok(tagged(&call.headers, document.to_string()))
}

/// `GET …/schema`: the JSON Schema of the input.
pub(crate) async fn schema(call: Call) -> Respond {
    let definition = load(&call).await?;
    Ok(tagged(&call.headers, definition.input.schema().to_string()))
}

/// The graph with the states of a run of the target: each node has its `state`, and each box a line for it.
async fn with_states(call: &Call, definition: &Definition, mut graph: Graph, run: &str) -> Result<Graph, Problem> {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), run.to_owned());
    let (app, target) = (definition.app.display().to_string(), definition.target.to_string());
    let readings = call.readings.clone();
    blocking(move || {
        let none = || invalid("run", "`run` must be a run of this pipeline or machine");
        let row = server.context().visible(&caller, &id).map_err(|_| none())?;
        if row.app != app || row.target != target {
            return Err(none());
        }
        let states = readings.of(server.context(), &id)?.tree(server.context(), server.stories()).outline();
        let (by_id, by_stage) = by_node(&states);
        for node in &mut graph.nodes {
            let state = by_id.get(&*node.id).or_else(|| by_stage.get(&*node.id));
            let document = state.map(|state| json!({"status": state["status"], "duration_ms": state["duration_ms"]}));
            let status = state.and_then(|state| state["status"].as_str());
            node.facts.extend(status.map(|status| status.replace('_', " ")));
            node.attributes.insert("state".to_owned(), document.into());
        }
        Ok(graph)
    })
    .await
}

/// Nodes of the tree by id.
type ByNode<'s> = HashMap<&'s str, &'s Value>;

/// The nodes of a run by their ids, and its stages by stage id. A stage has the node of its last visit.
fn by_node(states: &[Value]) -> (ByNode<'_>, ByNode<'_>) {
    let by_id = states.iter().filter_map(|state| Some((state["id"].as_str()?, state))).collect();
    let stages = states.iter().filter(|state| state["kind"] == "stage").filter_map(|state| {
        // The name is `ID#VISIT` from the second visit on.
        let name = state["name"].as_str()?;
        Some((name.rsplit_once('#').map_or(name, |(id, _)| id), state))
    });
    (by_id, stages.collect())
}

/// `GET …/graph`.
pub(crate) async fn graph(call: Call) -> Respond {
    let definition = load(&call).await?;
    let graph = graph_of(&definition);
    let graph = match call.query.get("run") {
        Some(run) => with_states(&call, &definition, graph, run).await?,
        None => graph,
    };
    let (draw, kind): (fn(&Graph) -> String, &'static str) = match call.query.get("format") {
        None | Some("json") => return Ok(tagged(&call.headers, graph.json().to_string())),
        Some("svg") => (Graph::svg, "image/svg+xml"),
        Some("mermaid") => (Graph::mermaid, "text/plain; charset=utf-8"),
        Some("dot") => (Graph::dot, "text/vnd.graphviz; charset=utf-8"),
        Some(_) => return Err(invalid("format", "`format` must be `json`, `svg`, `mermaid` or `dot`")),
    };
    let text = blocking(move || Ok(draw(&graph))).await?;
    let mut response = tagged(&call.headers, text);
    if response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-64: a stage is found by its id, and has the state of its last visit.
    #[test]
    fn a_stage_has_the_state_of_its_last_visit() {
        let stage = |name: &str, status: &str| json!({"id": format!("business/m/{name}"), "kind": "stage", "name": name, "status": status});
        let states = [stage("look", "succeeded"), stage("say", "failed"), stage("look#2", "running")];
        let (by_id, by_stage) = by_node(&states);
        assert_eq!((by_id.len(), by_stage.len()), (3, 2));
        assert_eq!((&by_stage["look"]["status"], &by_stage["say"]["status"]), (&json!("running"), &json!("failed")));
    }
}
