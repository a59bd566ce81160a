//! `etude runs`: shows and manages the runs in the journal.

mod backup;
mod cancel;
mod delete;
mod diff;
pub(crate) mod find;
#[cfg(feature = "postgres")]
pub(crate) mod follow;
mod judge;
mod list;
mod none;
mod pace;
mod prune;
pub(crate) mod remote;
#[cfg(feature = "postgres")]
mod replace;
mod resume;
mod show;
mod stats;
mod step;
mod transfer;
pub(crate) mod watch;

use std::path::{Path, PathBuf};

use etude::definition::{Configuration, Definition};
use etude::{App, Disk};
use etude_process::blob::Watched;
use etude_runs::document::Document;
use etude_runs::pins;
use etude_runs::story::Pinned;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, Error, NewRun, RunView};

use super::run::{load_target, print};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::paths;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;

pub(crate) fn runs(context: &Context, runs: &args::Runs) -> Exit {
    let result = match runs {
        args::Runs::List(args) => list::list(context, args).map_err(Refused::from),
        args::Runs::Show(args) => show::show(context, args).map_err(Refused::from),
        args::Runs::Resume(args) => return resume::resume(context, args),
        args::Runs::Retry(args) => return resume::retry(context, args),
        args::Runs::Cancel(args) => cancel::cancel(context, &args.id),
        args::Runs::Export(args) => transfer::export(context, args).map_err(Refused::from),
        args::Runs::Import(args) => transfer::import(context, args).map_err(Refused::from),
        args::Runs::Judge(args) => judge::judge(context, args).map_err(Refused::from),
        args::Runs::Watch(args) => watch::watch(context, &args.id),
        args::Runs::Diff(args) => diff::diff(context, args).map_err(Refused::from),
        args::Runs::Stats(args) => stats::stats(context, args).map_err(Refused::from),
        args::Runs::Delete(args) => delete::delete(context, args).map_err(Refused::from),
        args::Runs::Prune(args) => prune::prune(context, args).map_err(Refused::from),
        args::Runs::Backup(args) => backup::backup(context, &args.file).map_err(Refused::from),
    };
    result.unwrap_or_else(|refused| context.refuse(None, &refused))
}

pub(crate) use etude_runs::listing::{INTERRUPTED, status};
pub(crate) use list::since_ms;

/// Prints the result of a run that has succeeded; it is not run again.
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
    let blobs = Watched::new(engine.blobs());
    Document::from_journal(text, &blobs).map_err(|why| {
        away(&blobs).unwrap_or_else(|| {
            Problem::environment(format!("the result of run `{}` is damaged: {why}", view.row.id))
                .hint(format!("export its records: etude runs export {}", view.row.id))
        })
    })
}

/// Problem of an outage of the storage of large values, if there was one.
pub(crate) fn away(blobs: &Watched) -> Option<Problem> {
    blobs.outage().map(|why| of_engine(&Error::ValuesAway(why.to_owned())))
}

/// Loads the current definition of a run. For a run with a bundle, the app is the bundle.
pub(crate) fn definition_of_run(
    context: &Context,
    engine: &dyn Engine,
    run: &NewRun,
) -> Result<(Disk, Definition), Refused> {
    #[cfg(feature = "postgres")]
    if let Some(bundle) = run.placement.bundle {
        let dir = crate::bundles::workspace::shared(engine, bundle).map_err(Problem::from)?;
        return definition_of(context, &dir, run);
    }
    let _ = engine;
    definition_of(context, &place_of(context, &run.app), run)
}

/// Loads the definition for the process that drives the run. The app of a bundle is then a private copy (K-50).
fn definition_to_drive(context: &Context, engine: &dyn Engine, run: &NewRun) -> Result<(Disk, Definition), Refused> {
    #[cfg(feature = "postgres")]
    if let Some(bundle) = run.placement.bundle.filter(|_| !engine.is_shared()) {
        let dir = crate::bundles::workspace::make(&context.global, engine, run, bundle).map_err(Problem::from)?;
        return definition_of(context, &dir, run);
    }
    definition_of_run(context, engine, run)
}

/// The definition with which a run was created, for commands that only show it. It is the current one if unchanged, else that
/// of the files in its journal. If those were too large to store, it is the current one.
pub(crate) fn definition_as_pinned(context: &Context, engine: &dyn Engine, view: &RunView) -> Option<Definition> {
    let now = definition_of_run(context, engine, &view.run).ok();
    let pins = pins::Pins::of_records(&view.records);
    let holds = |(disk, _): &(Disk, Definition)| pins.as_ref().is_none_or(|pins| pins.hold(disk));
    if now.as_ref().is_some_and(holds) {
        return now.map(|(_, definition)| definition);
    }
    let then = || {
        let scratch = paths::scratch("run").ok()?;
        let dir = scratch.path().join("app");
        let pinned = Pinned::write(&view.records, &*engine.blobs(), &dir).ok().flatten()?;
        let app = place_of(context, &view.run.app);
        // The journal does not store the app's configuration.
        let settings = context.settings(&app).ok();
        let configuration = settings.map(|of| Configuration { machines: of.machines, agent: of.agent });
        let then = App::new(Disk::open(pinned.dir()).ok()?, configuration.unwrap_or_default());
        let definition = then.load(&Target::parse(&view.run.target)).ok()?;
        Some(Definition { app, ..definition })
    };
    then().or_else(|| now.map(|(_, definition)| definition))
}

/// Directory of a run's app: the recorded one, or, if that is missing, the one that the command line names.
pub(crate) fn place_of(context: &Context, app: &str) -> PathBuf {
    let recorded = PathBuf::from(app);
    context.global.app.clone().filter(|_| !recorded.is_dir()).unwrap_or(recorded)
}

fn definition_of(context: &Context, app: &Path, run: &NewRun) -> Result<(Disk, Definition), Refused> {
    let disk = Disk::open(app).map_err(|e| {
        Problem::environment(format!("the app of this run, `{}`, cannot be opened: {e}", app.display()))
    })?;
    let definition = load_target(context, &disk, &Target::parse(&run.target))?;
    Ok((disk, definition))
}
