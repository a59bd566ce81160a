//! `etude runs list`.

use etude::clock;
use etude::runs::{self, INTERRUPTED, Listed};
use etude_runtime::engine::{Engine, Query, RunRow, RunState};
use serde_json::{Value, json};

use super::find::app_of;
use super::remote;
use crate::args::{self, Format};
use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::render::layout;
use crate::render::runs::list as render;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn list(context: &Context, args: &args::RunsList) -> Result<Exit, Problem> {
    args.status.as_deref().map_or(Ok(()), check_status)?;
    let now = clock::now_ms();
    let (listed, total) = match context.server()? {
        Some(remote) => remote::list(&remote, args)?,
        None => of_journal(context, args, now)?,
    };
    match context.global.format {
        Format::Json => {
            let runs: Vec<Value> = listed.iter().map(Listed::to_json).collect();
            stdout::json(&json!({ "runs": runs, "total": total }));
        }
        Format::Jsonl => {
            stdout::documents(|out| listed.iter().try_for_each(|run| writeln!(out, "{}", run.to_json())));
        }
        Format::Human => {
            stdout::styled(&render::text(&listed, now, layout::width()));
            if !context.global.quiet {
                say(context, args, &listed, total);
            }
        }
    }
    Ok(Exit::Done)
}

/// The runs of the journal here that are listed, and how many match.
fn of_journal(context: &Context, args: &args::RunsList, now: i64) -> Result<(Vec<Listed>, u64), Problem> {
    let engine = context.engine(false)?;
    let query = Query {
        apps: app_of(context, args.all).into_iter().collect(),
        target: args.pipeline.clone(),
        created_since_ms: args.since.map(since_ms),
        ..Query::default()
    };
    let (rows, total) = rows(&*engine, query, args)?;
    let listed = rows.into_iter().map(|row| runs::listed(&*engine, row, now)).collect::<Result<Vec<_>, _>>();
    Ok((listed.map_err(|e| of_engine(&e))?, total))
}

/// The moment that many milliseconds ago.
pub(super) fn since_ms(ago: u64) -> i64 {
    clock::now_ms().saturating_sub_unsigned(ago)
}

/// The runs that are listed, and how many match.
fn rows(engine: &dyn Engine, query: Query, args: &args::RunsList) -> Result<(Vec<RunRow>, u64), Problem> {
    let limit = Some(args.limit);
    let query = match args.status.as_deref() {
        None => Query { limit, ..query },
        Some(word) => {
            let is_interrupted = Some(word == INTERRUPTED);
            let state = if word == INTERRUPTED { Some(RunState::Running) } else { RunState::from_word(word) };
            Query { states: state.into_iter().collect(), is_interrupted, limit, ..query }
        }
    };
    let rows = engine.list(&query).map_err(|e| of_engine(&e))?;
    let total = engine.count(&query).map_err(|e| of_engine(&e))?;
    Ok((rows, total))
}

fn say(context: &Context, args: &args::RunsList, listed: &[Listed], total: u64) {
    if listed.is_empty() {
        let is_filtered = args.status.is_some() || args.pipeline.is_some() || args.since.is_some();
        match is_filtered || args.all || context.is_remote() || context.disk().is_err() {
            true => crate::render::say!("no runs"),
            false => crate::render::say!("no runs of this app\nhint: runs of every app: etude runs list --all"),
        }
        return;
    }
    if total > listed.len() as u64 {
        crate::render::say!("{} of {total} shown; more: -n {total}", listed.len());
    }
    if let Some(run) = listed.iter().find(|run| runs::status(&run.row) == INTERRUPTED) {
        crate::render::say!("hint: continue an interrupted run: etude runs resume {}", run.row.id);
    }
}

/// Refuses a status that no run can have: an empty list would say that there is none.
fn check_status(wanted: &str) -> Result<(), Problem> {
    let known: Vec<&str> = RunState::ALL.iter().map(|state| state.word()).chain([INTERRUPTED]).collect();
    if known.contains(&wanted) {
        return Ok(());
    }
    let problem = Problem::usage(format!("`{wanted}` is no status of a run"));
    Err(problem.hint(format!("a run is one of: {}", known.join(", "))))
}
