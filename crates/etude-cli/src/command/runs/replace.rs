//! Replacement of the app of a fleet's run when it continues (ADR 0120).

use etude::Disk;
use etude::definition::Definition;
use etude_core::digest::Digest;
use etude_runs::header::Granted;
use etude_runtime::engine::{Engine, Error, NewRun, Placement, RunView, Session};

use crate::bundles;
use crate::command::run::submit;
use crate::context::Context;
use crate::problem::Problem;
use crate::render::stopped::{self, of_engine};
use crate::runtime::block_on;

/// Stores the app of the command line as a bundle. Returns its digest and the run with that bundle. The directory recorded by
/// the run is ignored, because others write the database, and the packed files are uploaded.
pub(super) fn with_app(context: &Context, engine: &dyn Engine, run: &NewRun) -> Result<(Digest, NewRun), Problem> {
    if let Some(tenant) = engine.tenant() {
        return Err(Problem::usage(format!("the tenant `{tenant}` cannot change the app of a run"))
            .hint(format!("start a new run with the app here: etude run --again {}", run.id)));
    }
    let disk = context.disk()?;
    let bundle = bundles::push_app(context, engine, &disk, None)?;
    if run.placement.bundle != Some(bundle) && !context.global.quiet {
        crate::render::say!("note: run {} continues with the app in {}", run.id, disk.root().display());
    }
    let placement = Placement { bundle: Some(bundle), ..run.placement.clone() };
    Ok((bundle, NewRun { placement, ..run.clone() }))
}

/// Refuses another app for a run that was moved from a fleet to this machine with its own.
pub(super) fn keeps_its_app(run_id: &str) -> Problem {
    Problem::usage(format!("run `{run_id}` was imported with its app and cannot use another one"))
        .hint(format!("start a new run with the app here: etude run --again {run_id}"))
}

/// Refuses an app that the queue of the run does not allow (K-54).
pub(super) fn check(
    context: &Context,
    engine: &dyn Engine,
    run: &NewRun,
    (disk, definition): (&Disk, &Definition),
) -> Result<(), Problem> {
    let rules = engine.rules().map_err(|error| of_engine(&error))?;
    let rules = rules.queue(run.placement.queue()).unwrap_or_default();
    submit::check(context, (disk, definition), &Granted::default(), &rules)
}

/// Gives the run the app of a bundle, and its definition from there. If the process dies in between, the run refuses to
/// continue with changes that it has not accepted; the same command repairs that.
pub(super) fn take(
    engine: &dyn Engine,
    session: &dyn Session,
    view: &RunView,
    (disk, definition): (&Disk, &Definition),
    bundle: Digest,
) -> Result<(), Problem> {
    let records = etude::accepted(view, definition, disk, engine).map_err(|error| stopped::problem(&error))?;
    let taken = block_on(async {
        session.set_bundle(bundle).await?;
        for record in records {
            session.append(record).await?;
        }
        Ok::<_, Error>(())
    })?;
    taken.map_err(|error| of_engine(&error))
}
