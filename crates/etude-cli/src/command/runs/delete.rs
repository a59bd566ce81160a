//! `etude runs delete`: deletes runs as `DELETE /v1/runs/ID` of a server does.

use std::collections::BTreeSet;

use etude_runs::listing::status;
use etude_runtime::engine::Query;
use serde_json::json;

use super::find::find;
use super::remote;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::runs::counted;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn delete(context: &Context, args: &args::RunsDelete) -> Result<Exit, Problem> {
    if let Some(remote) = context.server()? {
        return remote::delete(context, &remote, &args.ids);
    }
    let engine = context.engine(false)?;
    // All runs are checked before the first is removed.
    let mut ids = BTreeSet::new();
    for id in &args.ids {
        let row = find(context, &*engine, id)?.row;
        if !row.state.is_final() {
            return Err(unfinished(&row.id, status(&row)));
        }
        ids.insert(row.id);
    }
    for id in &ids {
        let query = Query { id: Some(id.clone()), ..Query::default() };
        if engine.prune(&query).map_err(|e| of_engine(&e))? == 0 {
            // The run has just been continued, or a process still owns it.
            return Err(unfinished(id, "in use"));
        }
    }
    Ok(deleted(context, ids.len()))
}

/// Problem of a run that has not ended.
pub(super) fn unfinished(id: &str, status: &str) -> Problem {
    let problem = Problem::usage(format!("run `{id}` has not ended: {status}"));
    problem.hint(format!("end it first: etude runs cancel {id}"))
}

/// Prints the number of removed runs.
pub(super) fn deleted(context: &Context, count: usize) -> Exit {
    if context.is_json() {
        stdout::json(&json!({ "removed": count }));
    } else if !context.global.quiet {
        crate::render::say!("{} removed", counted(count as u64, "run"));
    }
    Exit::Done
}
