//! `etude learn export`: prints traces of runs in skill mode.

use etude::Disk;
use etude_evidence::details::verdict;
use etude_evidence::trace::{self, Asked, Event, effect_class};
use etude_models::Redactor;
use etude_process::blob::Watched;
use etude_runs::document::Document;
use etude_runs::listing;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, Query, RunState, RunView};
use etude_spec::tool::AppTool;
use serde_json::{Value, json};

use crate::command::runs::{away, find};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::stdout;

/// Key of a run's result as an unreadable part.
const RESULT: &str = "!result";

/// Prints one line for each finished run in skill mode, the oldest first (L-1).
pub(super) fn export(context: &Context, ids: &[String]) -> Result<Exit, Problem> {
    let disk = context.disk()?;
    super::check_enabled(&context.settings(disk.root())?.learning)?;
    let engine = context.engine(false)?;
    let views = match ids {
        [] => views(&*engine, &disk, None)?,
        ids => named(context, &*engine, ids)?,
    };
    let (tools, _) = etude_spec::tool::load(&disk);
    let redactor = context.redactor(disk.root())?;
    for view in views {
        let line = redactor.redact_value(line(&*engine, &view, &tools)?);
        stdout::documents(|out| writeln!(out, "{line}"));
    }
    Ok(Exit::Done)
}

/// Finished runs in skill mode of the app, without the forgotten ones (L-40).
pub(super) fn views(engine: &dyn Engine, disk: &Disk, since_ms: Option<i64>) -> Result<Vec<RunView>, Problem> {
    let query = Query {
        apps: vec![disk.root().display().to_string()],
        created_since_ms: since_ms,
        states: vec![RunState::Succeeded, RunState::Failed, RunState::Cancelled],
        ..Query::default()
    };
    let mut rows = engine.list(&query).map_err(|e| of_engine(&e))?;
    rows.retain(|row| skill_of(&row.target).is_some());
    rows.sort_by_key(|row| (row.created_at_ms, row.number));
    let mut views = Vec::new();
    for row in &rows {
        if !etude_evidence::is_forgotten(engine, &row.id).map_err(|e| of_engine(&e))? {
            views.push(engine.view(&row.id).map_err(|e| of_engine(&e))?);
        }
    }
    Ok(views)
}

/// Runs that the command line names.
pub(super) fn named(context: &Context, engine: &dyn Engine, ids: &[String]) -> Result<Vec<RunView>, Problem> {
    let mut views = ids.iter().map(|id| find::find(context, engine, id)).collect::<Result<Vec<_>, _>>()?;
    for view in &views {
        let (id, row) = (&view.row.id, &view.row);
        if skill_of(&row.target).is_none() {
            return Err(Problem::usage(format!("run `{id}` did not follow a skill, so there is no trace of it")));
        }
        if etude_evidence::is_forgotten(engine, id).map_err(|e| of_engine(&e))? {
            return Err(Problem::usage(format!(
                "run `{id}` is forgotten: `etude learn forget` has removed it from learning"
            )));
        }
        if !row.state.has_ended() {
            return Err(Problem::usage(format!("run `{id}` has not ended: it is {}", listing::status(row)))
                .hint(format!("continue it: etude runs resume {id}")));
        }
    }
    views.sort_by_key(|view| (view.row.created_at_ms, view.row.number));
    views.dedup_by(|a, b| a.row.id == b.row.id);
    Ok(views)
}

fn skill_of(target: &str) -> Option<String> {
    match Target::parse(target) {
        Target::Skill(name) => Some(name),
        Target::Pipeline(_) | Target::Machine(_) => None,
    }
}

/// Trace of a run as a document (1.3). A part of the run that cannot be read is an event with neither `said` nor `tool`, so
/// nothing is learned from the trace.
///
/// # Errors
/// The storage of large values does not respond.
pub(super) fn line(engine: &dyn Engine, view: &RunView, tools: &[AppTool]) -> Result<Value, Problem> {
    let blobs = Watched::new(engine.blobs());
    let Asked { request, input } = trace::asked(view, &blobs);
    let mut events: Vec<Value> = trace::events(view, &blobs)
        .iter()
        .map(|event| match event {
            Event::Said(text) => json!({"said": "agent", "text": text}),
            Event::Call(call) => call.to_trace(effect_class(&call.tool, tools)),
            Event::Unreadable(key) => json!({"unreadable": key}),
        })
        .collect();
    let judged = verdict(engine, &view.row.id).map_err(|error| of_engine(&error))?;
    let document = view.result.as_deref().and_then(|text| Document::from_journal(text, &blobs).ok());
    if document.is_none() {
        events.push(json!({"unreadable": RESULT}));
    }
    let (mut answer, mut usage) = (None, Value::Null);
    if let Some(document) = document {
        answer = document.output.as_ref().and_then(|output| output.value().ok());
        usage = document.members.get("usage").cloned().unwrap_or_default();
    }
    if let Some(problem) = away(&blobs) {
        return Err(problem);
    }
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    Ok(json!({
        "trace": 1, "run": view.row.id, "request": request, "input": input, "skill": skill_of(&view.row.target),
        "status": listing::status(&view.row), "judged": judged, "events": events,
        "answer": answer,
        "usage": {
            "calls": count("calls"), "input_tokens": count("input_tokens"), "output_tokens": count("output_tokens"),
        },
    }))
}

impl Context {
    /// Redactor for the secrets of the configuration (L-4).
    pub(super) fn redactor(&self, app: &std::path::Path) -> Result<Redactor, Problem> {
        Ok(Redactor::new(self.settings(app)?.grants.secrets.iter()))
    }
}
