//! Evidence about learned pipelines from their runs.

use std::collections::BTreeSet;
use std::path::Path;

use etude_core::verbatim::request_digest;
use etude_process::blob::BlobStore;
use etude_runtime::engine::{Engine, Error, Query, RunState, RunView};
use etude_spec::learned::Pinned;
use etude_spec::tool::AppTool;
use serde_json::Value;

use super::Verdict;
use super::book::{self, Row, RowKind};
use crate::trace::{self, Approval, TracedCall, effect_class};
use etude_runs::document::Document;
use etude_runs::header::Header;
use etude_runs::target::Target;

/// Maximum number of runs of one pipeline that are read.
const MAX_RUNS: u32 = 1_000;

/// Maximum number of runs of agents that are searched for calls of pipelines.
const MAX_AGENTS: u32 = 200;

/// Failures that come from the pipeline itself, and not from its environment.
const OF_PIPELINE: [&str; 4] = ["step_failed", "deviated", "template_unresolved", "validation_exhausted"];

/// Notes every finished run of the pipeline that has not been noted.
pub(super) async fn note_runs(engine: &dyn Engine, app: &Path, name: &str, tools: &[AppTool]) -> Result<(), Error> {
    let query = Query {
        apps: vec![app.display().to_string()],
        target: Some(name.to_owned()),
        states: vec![RunState::Succeeded, RunState::Failed, RunState::Cancelled],
        limit: Some(MAX_RUNS),
        ..Query::default()
    };
    let rows = engine.list(&query)?;
    if rows.is_empty() {
        return Ok(());
    }
    let noted: BTreeSet<String> = book::noted(engine, app)?.into_iter().collect();
    let blobs = engine.blobs();
    for row in rows.into_iter().filter(|row| !noted.contains(&row.id)) {
        let view = engine.view(&row.id)?;
        if let Some((pinned, row)) = row_of(&view, &*blobs, tools) {
            book::add_row(engine, &pinned.content, &row).await?;
        }
        book::note(engine, app, &row.id, row.created_at_ms).await?;
    }
    Ok(())
}

/// Pinned pipeline and row of a run; `None` if it did not run a learned pipeline, or gives no evidence.
fn row_of(view: &RunView, blobs: &dyn BlobStore, tools: &[AppTool]) -> Option<(Pinned, Row)> {
    let pinned = Header::parse(&view.run.header, blobs).ok()?.learned?;
    let document = Document::from_journal(view.result.as_deref()?, blobs).ok()?;
    let document = Value::Object(document.members);
    let calls = trace::of(view, blobs);
    let writes: Vec<&TracedCall> = calls.iter().filter(|call| is_own_write(call, tools)).collect();
    let is_made = |call: &&&TracedCall| call.result.as_ref().is_some_and(|result| !result.is_error());
    let has_written = writes.iter().any(|call| is_made(&call));
    let text = |at: &str| document.pointer(at).and_then(Value::as_str).map(str::to_owned);
    let denied = writes.iter().find(|call| is_denied_by_person(call, view));
    let (verdict, step, reason) = if let Some(denied) = denied {
        (Verdict::Disagreed, step_of(&denied.effect), Some("denied".to_owned()))
    } else if document["fell_back"].is_object() {
        (Verdict::FellBack, text("/fell_back/step"), text("/fell_back/reason"))
    } else {
        match view.row.state {
            RunState::Succeeded if pinned.state == etude_spec::learned::LearnedState::Assisted && has_written => {
                (Verdict::Agreed, None, None)
            }
            RunState::Succeeded => (Verdict::Done, None, None),
            RunState::Failed => {
                let kind = text("/errors/0/kind").filter(|kind| OF_PIPELINE.contains(&kind.as_str()))?;
                (Verdict::Failed, text("/errors/0/step"), Some(kind))
            }
            _ => return None,
        }
    };
    let writes = has_written || denied.is_some();
    Some((pinned, row(view, blobs, (verdict, step, reason), writes)))
}

/// Row of a run: its verdict, with the step and the reason.
fn row(view: &RunView, blobs: &dyn BlobStore, said: (Verdict, Option<String>, Option<String>), writes: bool) -> Row {
    let (verdict, step, reason) = said;
    Row {
        kind: RowKind::Run,
        run: view.row.id.clone(),
        at_ms: view.row.created_at_ms,
        ended_at_ms: view.row.changed_at_ms,
        verdict,
        step,
        reason,
        digest: request_digest([trace::asked(view, blobs).request.as_str()]),
        writes,
        calls: Value::Null,
        usage: Value::Null,
    }
}

/// Notes the calls of learned pipelines that agents made as tools (L-77 to L-79). `pipelines` are their names with the hashes
/// of their contents.
pub(super) async fn note_calls(
    engine: &dyn Engine,
    app: &Path,
    pipelines: &[(String, String)],
    tools: &[AppTool],
) -> Result<(), Error> {
    if pipelines.is_empty() {
        return Ok(());
    }
    let query = Query {
        apps: vec![app.display().to_string()],
        states: vec![RunState::Succeeded, RunState::Failed, RunState::Cancelled],
        limit: Some(MAX_AGENTS),
        ..Query::default()
    };
    let mut rows = engine.list(&query)?;
    rows.retain(|row| matches!(Target::parse(&row.target), Target::Skill(_)));
    let noted: BTreeSet<String> = book::noted(engine, app)?.into_iter().collect();
    let blobs = engine.blobs();
    for row in rows.into_iter().filter(|row| !noted.contains(&row.id)) {
        let view = engine.view(&row.id)?;
        let calls = trace::of(&view, &*blobs);
        let document = view.result.as_deref().and_then(|text| Document::from_journal(text, &*blobs).ok());
        let deviations = document.and_then(|mut document| document.members.remove("deviations")).unwrap_or_default();
        for (name, content) in pipelines {
            if let Some(row) = row_of_calls(&view, (&calls, &deviations), name, (&*blobs, tools)) {
                book::add_row(engine, content, &row).await?;
            }
        }
        book::note(engine, app, &row.id, row.created_at_ms).await?;
    }
    Ok(())
}

/// Common row of the calls of a pipeline in an agent's run; `None` if it did not run. `deviations` are those of all pipelines
/// of the run.
fn row_of_calls(
    view: &RunView,
    (calls, deviations): (&[TracedCall], &Value),
    name: &str,
    (blobs, tools): (&dyn BlobStore, &[AppTool]),
) -> Option<Row> {
    let begins = format!("/{name}[");
    let is_inside = |effect: &str| effect.split_once(&begins).is_some_and(|(_, rest)| rest.contains('/'));
    let is_own = |call: &&TracedCall| is_inside(&call.effect) && effect_class(&call.tool, tools) != "reads";
    let writes: Vec<&TracedCall> = calls.iter().filter(is_own).collect();
    let denied = writes.iter().find(|call| is_denied_by_person(call, view));
    let has_written = writes.iter().any(|call| call.result.as_ref().is_some_and(|result| !result.is_error()));
    let deviated = deviations.as_array().into_iter().flatten().find(|deviation| deviation["pipeline"] == *name);
    let said = match (denied, deviated) {
        (Some(denied), _) => (Verdict::Disagreed, step_of(&denied.effect), Some("denied".to_owned())),
        (None, Some(deviation)) => {
            let text = |member: &str| deviation[member].as_str().map(str::to_owned);
            (Verdict::FellBack, text("step"), text("reason"))
        }
        (None, None) if view.records.iter().any(|record| is_inside(&record.key)) => (Verdict::Done, None, None),
        (None, None) => return None,
    };
    Some(row(view, blobs, said, has_written || denied.is_some()))
}

/// True for a call of the pipeline that may write. After a deviation the agent makes the calls, below `NAME@skill`.
fn is_own_write(call: &TracedCall, tools: &[AppTool]) -> bool {
    let is_of_agent = call.effect.split('/').next().is_some_and(|first| first.ends_with("@skill"));
    !is_of_agent && effect_class(&call.tool, tools) != "reads"
}

/// True if a person has denied a call. A denial by policy has no decision in the journal.
fn is_denied_by_person(call: &TracedCall, view: &RunView) -> bool {
    let question = format!("{}!ask", call.effect);
    call.approval == Approval::Denied && view.records.iter().any(|record| record.key == question)
}

/// Name of the step in the id of an effect.
fn step_of(effect: &str) -> Option<String> {
    let last = effect.rsplit('/').next()?;
    last.split(['#', '[', '!']).next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-78: after a deviation the calls are those of the agent, and are not evidence about the pipeline.
    #[test]
    fn calls_of_the_agent_are_not_of_the_pipeline() {
        let call = |effect: &str| TracedCall {
            effect: effect.to_owned(),
            tool: "Write".to_owned(),
            arguments: Value::Null,
            approval: Approval::Denied,
            result: None,
            duration_ms: None,
            origins: Vec::new(),
        };
        assert!(is_own_write(&call("p/return"), &[]));
        assert!(!is_own_write(&call("p@skill/agent/turn1/Write[0]"), &[]));
    }
}
