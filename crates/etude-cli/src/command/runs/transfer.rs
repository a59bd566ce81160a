//! `etude runs export --all` and `etude runs import`: moves runs from one engine to another (K-64, K-65).

use etude_runs::transfer::{self, Error, Export, Exported};
use etude_runtime::engine::{Engine, NewRun};
use serde_json::json;

use super::show;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::stdout;

/// Maximum number of skipped runs that are named.
const MAX_NAMED: usize = 10;

pub(super) fn export(context: &Context, args: &args::RunsExport) -> Result<Exit, Problem> {
    let (Some(file), true) = (&args.out, args.all) else {
        return show::export(context, args.id.as_deref().unwrap_or_default());
    };
    // The mark of a moved source must survive a power loss.
    let engine = context.engine(args.moves)?;
    let mut pack = |run: &NewRun| pack(context, &*engine, run);
    let exported = transfer::export(&*engine, Export { moves: args.moves }, &mut pack, file);
    let exported = exported.map_err(|error| problem(&error))?;
    if context.is_json() {
        let Exported { runs, moved, skipped, values, bytes } = exported;
        let skipped: Vec<String> = skipped.into_iter().map(|skipped| skipped.run_id).collect();
        stdout::json(&json!({"runs": runs, "moved": moved, "skipped": skipped, "values": values, "bytes": bytes}));
    } else if !context.global.quiet {
        let Exported { runs, moved, skipped, values, bytes } = &exported;
        let (file, size) = (file.display(), etude_core::report::bytes(*bytes));
        crate::render::say!("{runs} runs and {values} large values in {file} ({size})");
        if *moved > 0 {
            crate::render::say!("{moved} of them were moved: they continue only in the engine that imports the file");
        }
        for one in skipped.iter().take(MAX_NAMED) {
            crate::render::say!("left out: run {} {}", one.run_id, one.why);
        }
        if skipped.len() > MAX_NAMED {
            let more = skipped.len() - MAX_NAMED;
            crate::render::say!("left out: {more} more runs, which `--format json` lists");
        }
        if skipped.iter().any(|one| one.can_move) {
            crate::render::say_hint!("to move unfinished runs, write another file with `--move`");
        }
        // The hint names an engine, since a plain `etude runs import` would get the `--engine` of this command.
        crate::render::say_hint!("add the runs to another engine: etude --engine URL runs import {file}");
    }
    Ok(Exit::Done)
}

pub(super) fn import(context: &Context, args: &args::RunsImport) -> Result<Exit, Problem> {
    let engine = context.engine(true)?;
    if let Some(tenant) = engine.tenant() {
        let message = format!("the tenant `{tenant}` cannot import runs; only the owner of the schema or a worker can");
        let hint = "import as another role, or let the owner grant it: `etude engine grant worker ROLE`";
        return Err(Problem::environment(message).hint(hint));
    }
    let imported = transfer::import(&*engine, &args.file).map_err(|error| problem(&error))?;
    let transfer::Imported { runs, present, values } = imported;
    if context.is_json() {
        stdout::json(&json!({"runs": runs, "present": present, "values": values}));
    } else if !context.global.quiet {
        crate::render::say!("{runs} runs and {values} large values added; {present} runs were already present");
    }
    Ok(Exit::Done)
}

/// Packs the app of a run, and stores the bundle among the values (K-53).
#[cfg(feature = "postgres")]
fn pack(context: &Context, engine: &dyn Engine, run: &NewRun) -> Result<etude_core::digest::Digest, String> {
    let dir = std::path::Path::new(&run.app);
    if !etude::app::is_app(dir) {
        return Err("there is no app in this directory".to_owned());
    }
    let bundle = etude_tools::bundle::Bundle::pack(dir).map_err(|error| error.to_string())?;
    crate::bundles::refuse_keys(context, &bundle, dir).map_err(|problem| problem.message())?;
    let kept = etude_runtime::blob::put(&*engine.bundles(), bundle.bytes());
    kept.map(|(digest, _)| digest).map_err(|error| format!("cannot store its bundle: {error}"))
}

#[cfg(not(feature = "postgres"))]
fn pack(_: &Context, _: &dyn Engine, _: &NewRun) -> Result<etude_core::digest::Digest, String> {
    Err("this build of etude cannot pack apps".to_owned())
}

/// Problem of a failed export or import, with a hint.
fn problem(error: &Error) -> Problem {
    let message = error.to_string();
    match error {
        Error::Exists(_) => Problem::usage(message).hint("name a file that does not exist"),
        Error::Read { .. } => Problem::usage(message).hint("write a file with `etude runs export --all --out FILE`"),
        Error::Refused { .. } => {
            let hint =
                "nothing was written; copy the file again, or write one with `etude runs export --all --out FILE`";
            Problem::usage(message).hint(hint)
        }
        Error::Write { .. } => {
            Problem::environment(message).hint("no run was moved by this command; name another file")
        }
        Error::NotMoved { path, .. } => Problem::environment(message).hint(format!(
            "before you import {}, check that its runs are listed: etude runs list --all --status moved",
            path.display()
        )),
        Error::Stale { path, .. } => Problem::environment(message).hint(format!(
            "the other runs of {} were moved: import the file, then cancel these runs in that engine",
            path.display()
        )),
        Error::UnknownQueues { .. } => {
            let hint = "nothing was written; add the queue to `queues` of your configuration, run `etude engine apply`, then import again";
            Problem::usage(message).hint(hint)
        }
        Error::Value { .. } => {
            Problem::environment(message).hint("the runs added so far are complete; fix the cause, then import again")
        }
        Error::Engine(error) => of_engine(error),
    }
}
