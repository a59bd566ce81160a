//! `etude runs`: the journal.

mod resume;
mod show;

use std::fmt::Write;

use etude::clock;
use etude::definition::Definition;
use etude::disk::Disk;
use etude::document::Document;
use etude::pins;
use etude::runtime::engine::{Engine, Query, Record, RunRow, RunView, State};
use etude::runtime::record;
use etude::target::Target;
use serde_json::{Value, json};

use super::run::{load_target, print};
use crate::args;
use crate::context::{Context, Problem, Refused};
use crate::exit::Exit;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(crate) fn runs(context: &Context, runs: &args::Runs) -> Exit {
    let result = match runs {
        args::Runs::List(args) => list(context, args).map_err(Refused::from),
        args::Runs::Show(args) => show::show(context, args).map_err(Refused::from),
        args::Runs::Resume(args) => return resume::resume(context, args),
        args::Runs::Retry(args) => return resume::retry(context, args),
        args::Runs::Cancel(args) => cancel(context, &args.id),
        args::Runs::Export(args) => show::export(context, &args.id).map_err(Refused::from),
        args::Runs::Prune(args) => prune(context, args).map_err(Refused::from),
    };
    result.unwrap_or_else(|refused| context.refuse(None, &refused))
}

/// A running run that nobody runs.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The status of a run in listings.
pub(crate) fn status(row: &RunRow) -> &'static str {
    if row.state == State::Running && !row.is_live { INTERRUPTED } else { row.state.word() }
}

/// Refuses a status that no run can have: an empty list would say that there is none.
fn check_status(wanted: &str) -> Result<(), Problem> {
    let known: Vec<&str> = State::ALL.iter().map(|state| state.word()).chain([INTERRUPTED]).collect();
    if known.contains(&wanted) {
        return Ok(());
    }
    let problem = Problem::usage(format!("`{wanted}` is no status of a run"));
    Err(problem.hint(format!("a run is one of: {}", known.join(", "))))
}

/// The app whose runs are meant; all of them outside an app.
fn app_of(context: &Context, all: bool) -> Option<String> {
    if all {
        return None;
    }
    context.disk().ok().map(|disk| disk.root().display().to_string())
}

fn list(context: &Context, args: &args::RunsList) -> Result<Exit, Problem> {
    args.status.as_deref().map_or(Ok(()), check_status)?;
    let engine = context.engine(false)?;
    // What a status leaves out does not count.
    let limit = args.status.is_none().then_some(args.limit);
    let query = Query { app: app_of(context, args.all), limit, ..Query::default() };
    let mut rows = engine.list(&query).map_err(|e| of_engine(&e))?;
    if let Some(wanted) = &args.status {
        rows.retain(|row| status(row) == wanted);
        rows.truncate(args.limit as usize);
    }
    if context.is_json() {
        let runs: Vec<Value> = rows.iter().map(row_json).collect();
        stdout::json(&json!({ "runs": runs }));
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for row in &rows {
        let _ = writeln!(text, "{}  {:<11}  {}  {}", row.id, status(row), clock::local(row.created_at_ms), row.target);
    }
    stdout::text(&text);
    if let Some(row) = rows.iter().find(|row| status(row) == "interrupted").filter(|_| !context.global.quiet) {
        crate::render::say!("hint: go on with an interrupted run: etude runs resume {}", row.id);
    }
    if rows.is_empty() && !context.global.quiet {
        crate::render::say!("no runs");
    }
    Ok(Exit::Done)
}

pub(super) fn row_json(row: &RunRow) -> Value {
    json!({
        "run_id": row.id,
        "status": status(row),
        "mode": Target::parse(&row.target).mode(),
        "pipeline": Target::parse(&row.target).pipeline(),
        "machine": Target::parse(&row.target).machine(),
        "app": row.app,
        "started_at": clock::rfc3339(row.created_at_ms),
        "changed_at": clock::rfc3339(row.changed_at_ms),
    })
}

/// A run that succeeded is not run again; its result is printed once more.
fn over(context: &Context, engine: &dyn Engine, view: &RunView) -> Result<Exit, Problem> {
    let document = document_of(engine, view)?;
    if !context.global.quiet {
        crate::render::say!("run {} has succeeded; nothing is left to do", view.row.id);
    }
    print(context, &document);
    Ok(Exit::Done)
}

pub(super) fn document_of(engine: &dyn Engine, view: &RunView) -> Result<Document, Problem> {
    let text =
        view.result.as_deref().ok_or_else(|| Problem::environment(format!("run `{}` has no result", view.row.id)))?;
    Document::from_journal(text, &*engine.blobs()).map_err(|why| {
        Problem::environment(format!("the result of run `{}` is damaged: {why}", view.row.id))
            .hint(format!("see what else is known of it: etude runs export {}", view.row.id))
    })
}

pub(super) fn definition_of(context: &Context, app: &str, target: &str) -> Result<(Disk, Definition), Refused> {
    let disk = Disk::open(app.as_ref())
        .map_err(|e| Problem::environment(format!("the app of this run, `{app}`, cannot be opened: {e}")))?;
    let definition = load_target(context, &disk, &Target::parse(target))?;
    Ok((disk, definition))
}

/// Cancels a run: whoever runs it is told; if nobody does, its destructor is run here.
fn cancel(context: &Context, id: &str) -> Result<Exit, Refused> {
    let engine = context.engine(false)?;
    let view = engine.view(id).map_err(|e| of_engine(&e))?;
    let id = view.row.id.clone();
    if view.row.state.is_final() {
        let problem = Problem::usage(format!("run `{id}` is over: {}", view.row.state.word()));
        return Err(problem.hint(format!("see what came of it: etude runs show {id}")).into());
    }
    let reason = "cancelled by `etude runs cancel`";
    if view.row.is_live {
        let attempt = record::attempt_number(&view.records);
        engine.signal(&id, &record::cancel_signal(reason, attempt)).map_err(|e| of_engine(&e))?;
        if context.is_json() {
            stdout::json(&json!({"run_id": id, "cancelling": true}));
        } else if !context.global.quiet {
            crate::render::say!("run {id} is being cancelled by the process that runs it");
        }
        return Ok(Exit::Done);
    }
    drop(engine);
    match resume::cancelled(context, &id, reason)? {
        // That it ended as cancelled is what was asked for.
        Exit::Interrupted => Ok(Exit::Done),
        exit => Ok(exit),
    }
}

fn prune(context: &Context, args: &args::RunsPrune) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let before = clock::now_ms().saturating_sub_unsigned(args.older_than);
    let query = Query {
        app: app_of(context, args.all),
        states: State::ALL.into_iter().filter(|state| state.is_final()).collect(),
        created_before_ms: Some(before),
        ..Query::default()
    };
    let removed = engine.prune(&query).map_err(|e| of_engine(&e))?;
    if context.is_json() {
        stdout::json(&json!({ "removed": removed }));
    } else if !context.global.quiet {
        crate::render::say!("{removed} runs removed");
    }
    Ok(Exit::Done)
}

/// The files that define the run, as they were when it began.
pub(super) fn pinned(records: &[Record]) -> Value {
    pins::Pins::of_records(records).map_or(Value::Null, |pins| pins.to_json())
}
