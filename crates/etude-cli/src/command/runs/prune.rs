//! `etude runs prune`.

use std::collections::BTreeSet;

use etude::clock;
use etude_runs::listing;
use etude_runtime::engine::{Engine, Prunable, Query, RunState};
use serde_json::{Value, json};

use super::find::{app_of, find};
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
    let finished =
        Query { states: RunState::ALL.into_iter().filter(|state| state.is_final()).collect(), ..Query::default() };
    let queries = match args.ids.is_empty() {
        true => vec![Query {
            apps: app_of(context, args.all).into_iter().collect(),
            created_before_ms: Some(now.saturating_sub_unsigned(args.older_than)),
            ..finished
        }],
        false => {
            let ids = named(context, &*engine, &args.ids)?;
            ids.into_iter().map(|id| Query { id: Some(id), ..finished.clone() }).collect()
        }
    };
    if !args.dry_run {
        let mut removed = 0;
        for query in &queries {
            removed += engine.prune(query).map_err(|e| of_engine(&e))?;
        }
        if context.is_json() {
            stdout::json(&json!({ "removed": removed }));
        } else if !context.global.quiet {
            crate::render::say!("{} removed", counted(removed));
        }
        return Ok(Exit::Done);
    }
    let mut prunable = Prunable::default();
    for query in &queries {
        let Prunable { runs, bytes } = engine.prunable(query).map_err(|e| of_engine(&e))?;
        prunable.runs.extend(runs);
        prunable.bytes += bytes;
    }
    show(context, &*engine, prunable, now)
}

/// Lists what would be removed.
fn show(context: &Context, engine: &dyn Engine, Prunable { runs, bytes }: Prunable, now: i64) -> Result<Exit, Problem> {
    if context.is_json() {
        let runs: Vec<Value> = runs.iter().map(listing::row_json).collect();
        stdout::json(&json!({"runs": runs, "removed": 0, "bytes": bytes}));
        return Ok(Exit::Done);
    }
    let count = counted(runs.len() as u64);
    let listed = runs.into_iter().map(|row| listing::listed(engine, row, now)).collect::<Result<Vec<_>, _>>();
    stdout::styled(&render::text(&listed.map_err(|e| of_engine(&e))?, now, layout::width()));
    if !context.global.quiet {
        crate::render::say!("{count} would be removed ({})", layout::bytes(bytes));
    }
    Ok(Exit::Done)
}

/// The ids of the runs that are named. All of them must have ended: else none is removed.
fn named(context: &Context, engine: &dyn Engine, names: &[String]) -> Result<BTreeSet<String>, Problem> {
    let id = |name: &String| {
        let row = find(context, engine, name)?.row;
        match row.state.is_final() {
            true => Ok(row.id),
            false => {
                let problem = Problem::usage(format!("run `{}` has not ended: {}", row.id, listing::status(&row)));
                Err(problem.hint(format!("end it first: etude runs cancel {}", row.id)))
            }
        }
    };
    names.iter().map(id).collect()
}

fn counted(runs: u64) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}
