//! `etude runs stats`.

use etude_runs::listing::{self, Group, Listed};
use etude_runtime::clock;
use etude_runtime::engine::Query;
use serde_json::{Value, json};

use super::find::app_of;
use super::list::since_ms;
use crate::args::{self, Format, GroupBy};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout;
use crate::render::runs::stats as render;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(super) fn stats(context: &Context, args: &args::RunsStats) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let query = Query {
        apps: app_of(context, args.all).into_iter().collect(),
        target: args.pipeline.clone(),
        created_since_ms: Some(since_ms(args.since)),
        ..Query::default()
    };
    let rows = engine.list(&query).map_err(|e| of_engine(&e))?;
    let now = clock::now_ms();
    let listed = rows.into_iter().map(|row| listing::listed(&*engine, row, now)).collect::<Result<Vec<Listed>, _>>();
    let listed = listed.map_err(|e| of_engine(&e))?;
    let groups: Vec<Group> = args.by.iter().map(|by| group(*by)).collect();
    let (all, total) = (listing::stats(&listed, &groups), listing::stats(&listed, &[]));
    match context.global.format {
        Format::Json => {
            let groups: Vec<Value> = all.iter().map(listing::Stats::to_json).collect();
            let total = total.first().cloned().unwrap_or_default().to_json();
            stdout::json(&json!({"since": clock::rfc3339(since_ms(args.since)), "groups": groups, "total": total}));
        }
        Format::Jsonl => {
            stdout::documents(|out| all.iter().try_for_each(|stats| writeln!(out, "{}", stats.to_json())));
        }
        Format::Human => {
            stdout::styled(&render::text(&all, &groups, layout::width()));
            if listed.is_empty() && !context.global.quiet {
                crate::render::say!("no runs\nhint: a longer time: --since 30d; runs of every app: --all");
            }
        }
    }
    Ok(Exit::Done)
}

const fn group(by: GroupBy) -> Group {
    match by {
        GroupBy::Pipeline => Group::Pipeline,
        GroupBy::Model => Group::Model,
    }
}
