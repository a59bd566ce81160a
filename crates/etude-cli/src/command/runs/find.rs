//! Lookup of the run that an id on the command line names.

use etude_runs::listing::{self, LATEST};
use etude_runtime::engine::{Engine, RunView};

use crate::context::Context;
use crate::problem::Problem;
use crate::render::stopped::of_engine;

/// The app whose runs are selected; `None`, outside an app, selects all.
pub(crate) fn app_of(context: &Context, all: bool) -> Option<String> {
    if all || context.is_shared() {
        return None;
    }
    context.disk().ok().map(|disk| disk.root().display().to_string())
}

/// Finds a run by its id, by a prefix of it, or as `latest`, the newest run of this app.
pub(crate) fn find(context: &Context, engine: &dyn Engine, id: &str) -> Result<RunView, Problem> {
    let app = if id == LATEST { app_of(context, false) } else { None };
    let resolved = listing::resolve(engine, app.as_deref(), id).map_err(|e| of_engine(&e))?;
    let id = resolved.ok_or_else(|| {
        let whose = app.map_or_else(|| "there is no run".to_owned(), |app| format!("the app `{app}` has no run"));
        Problem::usage(format!("{whose}, so there is no latest one")).hint("runs of every app: etude runs list --all")
    })?;
    engine.view(&id).map_err(|e| of_engine(&e))
}
