//! `etude runs list`.

use etude_runs::listing::{self, INTERRUPTED, Listed};
use etude_runtime::clock;
use etude_runtime::engine::{Cursor, DamagedRun, Query, RunState};
use serde_json::{Value, json};

use super::find::app_of;
use super::{none, remote};
use crate::args::{self, Format};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::render::commands::{complete, in_reason};
use crate::render::layout;
use crate::render::runs::list as render;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn list(context: &Context, args: &args::RunsList) -> Result<Exit, Problem> {
    args.status.as_deref().map_or(Ok(()), check_status)?;
    let now = clock::now_ms();
    let server = context.server()?;
    let page = match &server {
        Some(remote) => {
            refuse_filters(args)?;
            remote::list(remote, args)?
        }
        None => of_journal(context, args, now)?,
    };
    let Page { mut listed, next, total } = page;
    for run in &mut listed {
        run.reason = run.reason.take().map(in_reason);
    }
    let is_shared = context.is_shared();
    match context.global.format {
        Format::Json => {
            let runs: Vec<Value> = listed.iter().map(|run| row(run, is_shared)).collect();
            let mut document = json!({ "runs": runs, "next": next });
            if let Some(total) = total {
                document["total"] = total.into();
            }
            stdout::json(&document);
        }
        Format::Jsonl => {
            stdout::documents(|out| listed.iter().try_for_each(|run| writeln!(out, "{}", row(run, is_shared))));
        }
        Format::Human => {
            stdout::styled(&render::text(&listed, now, layout::width()));
            if !context.global.quiet {
                say(context, server.as_ref(), args, &listed, total, next.as_deref())?;
            }
        }
    }
    Ok(Exit::Done)
}

/// One page of a list.
pub(super) struct Page {
    pub(super) listed: Vec<Listed>,
    /// Cursor of the next page.
    pub(super) next: Option<String>,
    /// Number of matching runs. `None` on a fleet: there may be millions, so they are not counted.
    pub(super) total: Option<u64>,
}

/// Document of a row; on a fleet with the placement of the run.
fn row(run: &Listed, is_shared: bool) -> Value {
    let mut row = run.to_json();
    if let (true, Some(members), Value::Object(more)) =
        (is_shared, row.as_object_mut(), listing::placement_json(&run.row))
    {
        members.extend(more);
    }
    row
}

/// Refuses filters that a server does not have.
fn refuse_filters(args: &args::RunsList) -> Result<(), Problem> {
    let way = "list the runs of the journal, without `--server`";
    crate::remote::refuse_options(&[
        (!args.labels.is_empty(), "--label", way),
        (args.tenant.is_some(), "--tenant", way),
        (args.created_after.is_some(), "--created-after", way),
    ])
}

/// Printed form of a cursor.
fn shown(cursor: Cursor) -> String {
    format!("{}-{}", cursor.created_at_ms, cursor.number)
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    let parsed = text
        .split_once('-')
        .and_then(|(at, number)| Some(Cursor { created_at_ms: at.parse().ok()?, number: number.parse().ok()? }));
    let none = || Problem::usage(format!("`--after {text}` is not a cursor")).hint("use `next` of the previous page");
    parsed.ok_or_else(none)
}

/// Lists runs of the local journal or the shared database.
fn of_journal(context: &Context, args: &args::RunsList, now: i64) -> Result<Page, Problem> {
    let engine = context.engine(false)?;
    let query = Query {
        apps: app_of(context, args.all).into_iter().collect(),
        target: args.pipeline.clone(),
        created_since_ms: args.since.map(since_ms).max(args.created_after),
        labels: args.labels.iter().map(|text| crate::command::label(text)).collect::<Result<_, _>>()?,
        tenant: args.tenant.clone(),
        after: args.after.as_deref().map(cursor).transpose()?,
        ..Query::default()
    };
    let query = of_status(query, args.status.as_deref());
    let total = match context.is_shared() {
        true => None,
        false => Some(engine.count(&Query { after: None, ..query.clone() }).map_err(|e| of_engine(&e))?),
    };
    let one_more = args.limit.saturating_add(1);
    let mut rows = engine.list(&Query { limit: Some(one_more), ..query }).map_err(|e| of_engine(&e))?;
    let has_more = rows.len() > args.limit as usize;
    rows.truncate(args.limit as usize);
    let next = rows.last().filter(|_| has_more).map(|row| shown(row.cursor()));
    for DamagedRun { id, why } in engine.damaged() {
        crate::render::say!("the list lacks the run `{id}`, which cannot be read: {why}");
    }
    let listed = rows.into_iter().map(|row| listing::listed(&*engine, row, now)).collect::<Result<Vec<_>, _>>();
    Ok(Page { listed: listed.map_err(|e| of_engine(&e))?, next, total })
}

/// Time that many milliseconds ago, in milliseconds since 1970.
pub(crate) fn since_ms(ago: u64) -> i64 {
    clock::now_ms().saturating_sub_unsigned(ago)
}

/// Query for the runs of a status. `interrupted` exists only in listings.
pub(super) fn of_status(query: Query, word: Option<&str>) -> Query {
    match word {
        None => query,
        Some(word) => {
            let is_interrupted = Some(word == INTERRUPTED);
            let state = if word == INTERRUPTED { Some(RunState::Running) } else { RunState::from_word(word) };
            Query { states: state.into_iter().collect(), is_interrupted, ..query }
        }
    }
}

fn say(
    context: &Context,
    server: Option<&Remote>,
    args: &args::RunsList,
    listed: &[Listed],
    total: Option<u64>,
    next: Option<&str>,
) -> Result<(), Problem> {
    if listed.is_empty() {
        match none::of_list(context, server, args)? {
            Some((message, hint)) => {
                crate::render::say!("{message}");
                if let Some(hint) = hint {
                    crate::render::say_hint!("{hint}");
                }
            }
            None if server.is_some() || app_of(context, args.all).is_none() => crate::render::say!("no runs"),
            None => {
                crate::render::say!("no runs of this app");
                crate::render::say_hint!("runs of every app: etude runs list --all");
            }
        }
        return Ok(());
    }
    match (total, next) {
        (Some(total), _) if total > listed.len() as u64 => {
            crate::render::say!("{} of {total} shown; more: -n {total}", listed.len());
        }
        (None, Some(next)) => {
            crate::render::say!("more: {}", complete(&format!("etude runs list --after {next}")));
        }
        _ => {}
    }
    if let Some(run) = listed.iter().find(|run| listing::status(&run.row) == INTERRUPTED) {
        crate::render::say_hint!("continue an interrupted run: etude runs resume {}", run.row.id);
    }
    Ok(())
}

/// Refuses a status that no run can have. An empty list would be misleading.
fn check_status(wanted: &str) -> Result<(), Problem> {
    let known: Vec<&str> = RunState::ALL.iter().map(|state| state.word()).chain([INTERRUPTED]).collect();
    if known.contains(&wanted) {
        return Ok(());
    }
    let problem = Problem::usage(format!("`{wanted}` is not a run status"));
    Err(problem.hint(format!("run statuses: {}", known.join(", "))))
}
