//! `etude runs prune`.

use etude_runs::listing;
use etude_runtime::clock;
use etude_runtime::engine::{Query, RunState};
use serde_json::{Value, json};

use super::find::app_of;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout;
use crate::render::runs::list as render;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn prune(context: &Context, args: &args::RunsPrune) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let now = clock::now_ms();
    let query = Query {
        apps: app_of(context, args.all).into_iter().collect(),
        states: RunState::ALL.into_iter().filter(|state| state.is_final()).collect(),
        created_before_ms: Some(now.saturating_sub_unsigned(args.older_than)),
        ..Query::default()
    };
    if !args.dry_run {
        let removed = engine.prune(&query).map_err(|e| of_engine(&e))?;
        // On a fleet, workers remove the copies: a tenant does not see the runs of others.
        #[cfg(feature = "postgres")]
        if !engine.is_shared() {
            crate::bundles::workspace::remove_unneeded(&*engine, &crate::engine::name(&context.global)?);
        }
        if context.is_json() {
            stdout::json(&json!({ "removed": removed }));
        } else if !context.global.quiet {
            crate::render::say!("{removed} runs removed");
        }
        return Ok(Exit::Done);
    }
    let prunable = engine.prunable(&query).map_err(|e| of_engine(&e))?;
    let (count, bytes) = (prunable.runs.len(), prunable.bytes);
    if context.is_json() {
        let runs: Vec<Value> = prunable.runs.iter().map(listing::row_json).collect();
        stdout::json(&json!({"runs": runs, "removed": 0, "bytes": bytes}));
        return Ok(Exit::Done);
    }
    let listed =
        prunable.runs.into_iter().map(|row| listing::listed(&*engine, row, now)).collect::<Result<Vec<_>, _>>();
    stdout::styled(&render::text(&listed.map_err(|e| of_engine(&e))?, now, layout::width()));
    if !context.global.quiet {
        crate::render::say!("{count} runs would be removed ({})", etude_core::report::bytes(bytes));
    }
    Ok(Exit::Done)
}
