//! `etude runs`: the journal.

mod show;

use std::fmt::Write;
use std::sync::Arc;

use etude::clock;
use etude::definition::Definition;
use etude::disk::Disk;
use etude::document::Document;
use etude::pins;
use etude::reopen::{self, Again};
use etude::runner::Resume;
use etude::runtime::driver::Stop;
use etude::runtime::engine::{Engine, Query, Record, RunRow, RunView, State};
use etude::runtime::record;
use etude::target::Target;
use serde_json::{Value, json};

use super::run::{answer, finish, load_target, print, watched};
use crate::args;
use crate::context::{About, Context, Problem, Refused};
use crate::exit::{Exit, MISSING_CAPABILITY};
use crate::render::stopped::of_engine;
use crate::settings::Need;
use crate::{signals, stdout};

pub(crate) fn runs(context: &Context, runs: &args::Runs) -> Exit {
    let result = match runs {
        args::Runs::List(args) => list(context, args).map_err(Refused::from),
        args::Runs::Show(args) => show::show(context, args).map_err(Refused::from),
        args::Runs::Resume(args) => match resume(context, &args.id, args.accept_changes, None) {
            Err(refused) => return not_resumed(context, &args.id, &refused),
            gone_on => gone_on,
        },
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

/// What there is to do for a run.
enum Next {
    /// Nothing: its result has been printed once more.
    Over(Exit),
    /// It goes on, without these of its records if it had failed.
    GoesOn(Option<Vec<usize>>),
}

fn next(context: &Context, engine: &dyn Engine, view: &RunView, definition: &Definition) -> Result<Next, Problem> {
    Ok(match reopen::again(view, &*engine.blobs(), &definition.plan) {
        Again::GoesOn(without) => Next::GoesOn(Some(without)),
        Again::CleanedUp => {
            over(context, engine, view)?;
            if !context.global.quiet {
                crate::render::say!(
                    "hint: its destructor has cleaned up behind it; when the cause is gone, start it anew"
                );
            }
            Next::Over(Exit::of_kinds(&kinds(&document_of(engine, view)?)))
        }
        Again::Over if view.row.state.is_final() => Next::Over(over(context, engine, view)?),
        Again::Over => Next::GoesOn(None),
    })
}

/// Goes on with a run. `stop` is what the user has said already.
fn resume(context: &Context, id: &str, accept_changes: bool, stop: Option<Stop>) -> Result<Exit, Refused> {
    let engine = context.engine(false)?;
    let view = engine.view(id).map_err(|e| of_engine(&e))?;
    let lacked = view.row.state == State::Failed && reopen::lacked_something(&view, &*engine.blobs());
    if view.row.state.is_final() && !lacked {
        return Ok(over(context, &*engine, &view)?);
    }
    let (disk, definition) = definition_of(context, &view.run.app, &view.run.target)?;
    if let Next::Over(exit) = next(context, &*engine, &view, &definition)? {
        return Ok(exit);
    }
    // Somebody may be asked for something, and take their time: nobody else is kept from the run meanwhile.
    let runner = context.runner(&disk, &definition, Arc::clone(&engine), Need::Ask)?;
    let session = engine.claim(&view.row.id).map_err(|e| of_engine(&e))?;
    // Somebody else may have gone on with it meanwhile.
    let view = engine.view(&view.row.id).map_err(|e| of_engine(&e))?;
    let without = match next(context, &*engine, &view, &definition)? {
        Next::Over(exit) => return Ok(exit),
        Next::GoesOn(without) => without,
    };
    if without.is_some() && !context.global.quiet {
        crate::render::say!("note: the run had failed for what was not there; it goes on where it failed");
    }
    let ended = watched(context, &definition.target, async |mut watch| {
        if let Some(stop) = stop {
            watch.stop = signals::listen_after(stop).unwrap_or(watch.stop);
        }
        runner.resume(session, &definition, &disk, Resume { accept_changes, without }, watch).await
    })?;
    let ended = answer::while_waiting(context, &runner, &definition, ended)?;
    Ok(finish(context, &disk, ended)?)
}

/// A run that could not be gone on with; the document names it and what it is a run of.
fn not_resumed(context: &Context, id: &str, refused: &Refused) -> Exit {
    let row = context.engine(false).ok().and_then(|engine| engine.view(id).ok()).map(|view| view.row);
    let target = row.as_ref().map(|row| Target::parse(&row.target));
    context.refuse(About { run_id: row.as_ref().map(|row| row.id.as_str()), target: target.as_ref() }, refused)
}

/// A finished run is not run again; its result is printed once more.
fn over(context: &Context, engine: &dyn Engine, view: &RunView) -> Result<Exit, Problem> {
    let document = document_of(engine, view)?;
    if !context.global.quiet {
        crate::render::say!("run {} is over; nothing is done again", view.row.id);
    }
    print(context, &document);
    Ok(match view.row.state {
        State::Succeeded => Exit::Done,
        State::Cancelled => Exit::Interrupted,
        _ if first_code(&document) == Some(MISSING_CAPABILITY) => Exit::Environment,
        _ => Exit::of_kinds(&kinds(&document)),
    })
}

fn first_code(document: &Document) -> Option<&str> {
    document.members.get("errors")?.get(0)?.get("code")?.as_str()
}

fn kinds(document: &Document) -> Vec<etude::core::failure::Kind> {
    let errors = document.members.get("errors").and_then(Value::as_array).into_iter().flatten();
    errors.filter_map(|e| etude::core::failure::Kind::from_word(e["kind"].as_str()?)).collect()
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
        engine.signal(&id, &record::cancel_signal(reason)).map_err(|e| of_engine(&e))?;
        if context.is_json() {
            stdout::json(&json!({"run_id": id, "cancelling": true}));
        } else if !context.global.quiet {
            crate::render::say!("run {id} is being cancelled by the process that runs it");
        }
        return Ok(Exit::Done);
    }
    drop(engine);
    match resume(context, &id, true, Some(Stop::Cancel(reason.to_owned())))? {
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
