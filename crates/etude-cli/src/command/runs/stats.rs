//! `etude runs stats`.

use etude_runs::listing::{self, Group, Listed};
use etude_runtime::clock;
use etude_runtime::engine::Query;
use serde_json::{Value, json};

use super::find::app_of;
use super::list::since_ms;
use super::none;
use crate::args::{self, Format, GroupBy};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::render::layout;
use crate::render::runs::stats as render;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn stats(context: &Context, args: &args::RunsStats) -> Result<Exit, Problem> {
    let groups = groups(args);
    let server = context.server()?;
    let (all, total) = match &server {
        Some(remote) => super::remote::stats(context, remote, args)?,
        None => {
            let listed = listed(context, args)?;
            let total = listing::stats(&listed, &[]).into_iter().next().unwrap_or_default();
            (listing::stats(&listed, &groups), total)
        }
    };
    match context.global.format {
        Format::Json => {
            let groups: Vec<Value> = all.iter().map(listing::Stats::to_json).collect();
            let since = clock::rfc3339(since_ms(args.since));
            stdout::json(&json!({"since": since, "groups": groups, "total": total.to_json()}));
        }
        Format::Jsonl => {
            stdout::documents(|out| all.iter().try_for_each(|stats| writeln!(out, "{}", stats.to_json())));
        }
        Format::Human => {
            stdout::styled(&render::text(&all, &groups, layout::width()));
            if total.runs == 0 && !context.global.quiet {
                say_none(context, server.as_ref(), args)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// States that no run is counted, with the pipeline if it has no run at all.
fn say_none(context: &Context, server: Option<&Remote>, args: &args::RunsStats) -> Result<(), Problem> {
    let name = args.pipeline.as_deref();
    match name.map(|name| none::of_pipeline(context, server, args.all, name)).transpose()?.flatten() {
        Some((message, hint)) => {
            crate::render::say!("{message}");
            if let Some(hint) = hint {
                crate::render::say_hint!("{hint}");
            }
        }
        None => {
            crate::render::say!("no runs");
            crate::render::say_hint!("a longer time: --since 30d; runs of every app: --all");
        }
    }
    Ok(())
}

/// The runs to count, of this app or of every app.
fn listed(context: &Context, args: &args::RunsStats) -> Result<Vec<Listed>, Problem> {
    let engine = context.engine(false)?;
    let query = Query {
        apps: app_of(context, args.all).into_iter().collect(),
        target: args.pipeline.clone(),
        created_since_ms: Some(since_ms(args.since)),
        ..Query::default()
    };
    let rows = engine.list(&query).map_err(|e| of_engine(&e))?;
    let now = clock::now_ms();
    let listed = rows.into_iter().map(|row| listing::listed(&*engine, row, now)).collect::<Result<_, _>>();
    listed.map_err(|e| of_engine(&e))
}

/// The groups of which figures are printed.
pub(super) fn groups(args: &args::RunsStats) -> Vec<Group> {
    args.by.iter().map(|by| group(*by)).collect()
}

const fn group(by: GroupBy) -> Group {
    match by {
        GroupBy::Pipeline => Group::Pipeline,
        GroupBy::Model => Group::Model,
    }
}
