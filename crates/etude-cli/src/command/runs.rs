//! `etude runs`: the journal.

mod backup;
mod diff;
pub(crate) mod find;
#[cfg(feature = "postgres")]
pub(crate) mod follow;
pub(crate) mod judge;
mod list;
mod prune;
pub(crate) mod remote;
mod resume;
mod show;
mod stats;
mod step;
mod transfer;
pub(crate) mod watch;

use etude::definition::Definition;
use etude::disk::Disk;
use etude::queue;
use etude_runs::document::Document;
use etude_runs::pins;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, NewRun, Record, RunState, RunView};
use etude_runtime::record;
use serde_json::{Value, json};

use super::run::{load_target, print};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

pub(crate) fn runs(context: &Context, runs: &args::Runs) -> Exit {
    let result = match runs {
        args::Runs::List(args) => list::list(context, args).map_err(Refused::from),
        args::Runs::Show(args) => show::show(context, args).map_err(Refused::from),
        args::Runs::Resume(args) => return resume::resume(context, args),
        args::Runs::Retry(args) => return resume::retry(context, args),
        args::Runs::Cancel(args) => cancel(context, &args.id),
        args::Runs::Export(args) => transfer::export(context, args).map_err(Refused::from),
        args::Runs::Import(args) => transfer::import(context, args).map_err(Refused::from),
        args::Runs::Judge(args) => judge::judge(context, args).map_err(Refused::from),
        args::Runs::Watch(args) => watch::watch(context, &args.id),
        args::Runs::Diff(args) => diff::diff(context, args).map_err(Refused::from),
        args::Runs::Stats(args) => stats::stats(context, args).map_err(Refused::from),
        args::Runs::Prune(args) => prune::prune(context, args).map_err(Refused::from),
        args::Runs::Backup(args) => backup::backup(context, &args.file).map_err(Refused::from),
    };
    result.unwrap_or_else(|refused| context.refuse(None, &refused))
}

pub(crate) use etude_runs::listing::{INTERRUPTED, status};
pub(crate) use list::since_ms;

/// A run that succeeded is not run again; its result is printed once more.
fn over(context: &Context, engine: &dyn Engine, view: &RunView) -> Result<Exit, Problem> {
    Ok(succeeded(context, &document_of(engine, view)?))
}

fn succeeded(context: &Context, document: &Document) -> Exit {
    if !context.global.quiet {
        let id = document.run_id.as_deref().unwrap_or_default();
        crate::render::say!("run {id} has succeeded; nothing is left to do");
    }
    print(context, document);
    Exit::Done
}

pub(crate) fn document_of(engine: &dyn Engine, view: &RunView) -> Result<Document, Problem> {
    let text =
        view.result.as_deref().ok_or_else(|| Problem::environment(format!("run `{}` has no result", view.row.id)))?;
    Document::from_journal(text, &*engine.blobs()).map_err(|why| {
        Problem::environment(format!("the result of run `{}` is damaged: {why}", view.row.id))
            .hint(format!("see what else is known of it: etude runs export {}", view.row.id))
    })
}

/// What a run is a run of, as that is now. The app of a run with a bundle is the bundle.
pub(crate) fn definition_of_run(
    context: &Context,
    engine: &dyn Engine,
    run: &NewRun,
) -> Result<(Disk, Definition), Refused> {
    #[cfg(feature = "postgres")]
    if let Some(bundle) = run.placement.bundle {
        let dir = crate::bundles::workspace::shared(engine, bundle).map_err(Problem::from)?;
        return definition_of(context, &dir.display().to_string(), &run.target);
    }
    let _ = engine;
    definition_of(context, &run.app, &run.target)
}

/// The same for the process that drives the run: the app of a bundle is a copy of the run's own (K-50).
fn definition_to_drive(context: &Context, engine: &dyn Engine, run: &NewRun) -> Result<(Disk, Definition), Refused> {
    #[cfg(feature = "postgres")]
    if let Some(bundle) = run.placement.bundle.filter(|_| !engine.is_shared()) {
        let dir = crate::bundles::workspace::make(engine, run, bundle).map_err(Problem::from)?;
        return definition_of(context, &dir.display().to_string(), &run.target);
    }
    definition_of_run(context, engine, run)
}

fn definition_of(context: &Context, app: &str, target: &str) -> Result<(Disk, Definition), Refused> {
    let disk = Disk::open(app.as_ref())
        .map_err(|e| Problem::environment(format!("the app of this run, `{app}`, cannot be opened: {e}")))?;
    let definition = load_target(context, &disk, &Target::parse(target))?;
    Ok((disk, definition))
}

/// Cancels a run: the process that runs it is notified; without one, its destructor runs here.
fn cancel(context: &Context, id: &str) -> Result<Exit, Refused> {
    if let Some(remote) = context.server()? {
        return Ok(remote::cancel(context, &remote, id)?);
    }
    let engine = context.engine(false)?;
    let view = find::find(context, &*engine, id)?;
    let id = view.row.id.clone();
    if view.row.state == RunState::Moved {
        return Err(of_engine(&etude_runtime::engine::Error::Moved(id)).into());
    }
    if view.row.state.is_final() {
        return Err(is_over(&id, view.row.state.word()).into());
    }
    let reason = CANCELLED;
    if view.row.is_live {
        let attempt = record::attempt_number(&view.records);
        engine.signal(&id, &record::cancel_signal(reason, attempt)).map_err(|e| of_engine(&e))?;
        return Ok(cancelling(context, &id));
    }
    if view.row.state == RunState::Queued && cancel_queued(context, &*engine, &view, reason)? {
        return Ok(Exit::Done);
    }
    #[cfg(feature = "postgres")]
    if view.run.placement.bundle.is_some() && engine.is_shared() {
        // A worker runs its destructor.
        follow::cancel(&*engine, &view, None, reason)?;
        return Ok(cancelling(context, &id));
    }
    drop(engine);
    match resume::cancelled(context, &id, reason)? {
        // That it ended as cancelled is what was asked for.
        Exit::Interrupted => Ok(Exit::Done),
        exit => Ok(exit),
    }
}

/// Why a run is cancelled.
const CANCELLED: &str = "cancelled by `etude runs cancel`";

fn is_over(id: &str, status: &str) -> Problem {
    let problem = Problem::usage(format!("run `{id}` is over: {status}"));
    problem.hint(format!("see what came of it: etude runs show {id}"))
}

fn cancelling(context: &Context, id: &str) -> Exit {
    if context.is_json() {
        stdout::json(&json!({"run_id": id, "cancelling": true}));
    } else if !context.global.quiet {
        crate::render::say!("run {id} is being cancelled by the process that runs it");
    }
    Exit::Done
}

/// Cancels a run that has not begun: nothing of it runs. False if it has begun meanwhile.
fn cancel_queued(context: &Context, engine: &dyn Engine, view: &RunView, reason: &str) -> Result<bool, Problem> {
    // Its steps are shown if the definition can be read.
    let definition = definition_of_run(context, engine, &view.run).ok();
    let definition = definition.as_ref().map(|(_, definition)| definition);
    let cancelled = block_on(queue::cancel(engine, definition, &view.row.id, reason))?.map_err(|e| of_engine(&e))?;
    if cancelled {
        let view = engine.view(&view.row.id).map_err(|e| of_engine(&e))?;
        over(context, engine, &view)?;
    }
    Ok(cancelled)
}

/// The files that define the run, as they were when it began.
pub(super) fn pinned(records: &[Record]) -> Value {
    pins::Pins::of_records(records).map_or(Value::Null, |pins| pins.to_json())
}
