//! `etude cache`: the stored outputs of steps.

use etude_core::report::{bytes, duration};
use etude_runtime::clock;
use etude_runtime::engine::{CacheQuery, CacheRow};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout;
use crate::render::stopped::of_engine;
use crate::render::text::harmless;
use crate::stdout;

pub(crate) fn cache(context: &Context, cache: &args::Cache) -> Exit {
    let done = match cache {
        args::Cache::List(args) => list(context, args),
        args::Cache::Clear(args) => clear(context, args),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

/// The app whose outputs are selected; `None` stands for every app.
fn app_of(context: &Context, all: bool) -> Result<Option<String>, Problem> {
    if all {
        return Ok(None);
    }
    let disk = context.disk().map_err(|problem| problem.hint("outputs of every app: add `--all`"))?;
    Ok(Some(disk.root().display().to_string()))
}

fn list(context: &Context, args: &args::CacheList) -> Result<Exit, Problem> {
    let app = app_of(context, args.all)?;
    let query = CacheQuery { app, pipeline: args.pipeline.clone(), created_before_ms: None };
    let rows = context.engine(false)?.cached(&query).map_err(|e| of_engine(&e))?;
    let now = clock::now_ms();
    let shown = &rows[..rows.len().min(args.limit)];
    if context.is_json() {
        let entries: Vec<Value> = shown.iter().map(|row| row_json(row, now)).collect();
        stdout::json(&json!({"entries": entries, "total": rows.len()}));
        return Ok(Exit::Done);
    }
    stdout::text(&table(shown, now));
    if !context.global.quiet {
        match rows.len() {
            0 => crate::render::say!("no cached outputs"),
            all if all > shown.len() => crate::render::say!("{} of {all} shown", shown.len()),
            _ => {}
        }
    }
    Ok(Exit::Done)
}

fn clear(context: &Context, args: &args::CacheClear) -> Result<Exit, Problem> {
    let app = app_of(context, args.all)?;
    let age = args.older_than.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let created_before_ms = age.map(|ms| clock::now_ms().saturating_sub(ms));
    let query = CacheQuery { app, pipeline: args.pipeline.clone(), created_before_ms };
    let removed = context.engine(false)?.forget(&query).map_err(|e| of_engine(&e))?;
    if context.is_json() {
        stdout::json(&json!({ "removed": removed }));
    } else {
        stdout::text(&format!("removed {removed} cached output{}\n", if removed == 1 { "" } else { "s" }));
    }
    Ok(Exit::Done)
}

fn age_ms(row: &CacheRow, now: i64) -> u64 {
    u64::try_from(now.saturating_sub(row.created_at_ms)).unwrap_or(0)
}

fn row_json(row: &CacheRow, now: i64) -> Value {
    json!({
        "app": row.label.app,
        "pipeline": row.label.pipeline,
        "step": row.label.step,
        "stored_at": clock::rfc3339(row.created_at_ms),
        "age_ms": age_ms(row, now),
        "bytes": row.bytes,
        "hits": row.hits,
    })
}

fn table(rows: &[CacheRow], now: i64) -> String {
    let name = |text: &str| if text.is_empty() { "-".to_owned() } else { harmless(text) };
    if rows.is_empty() {
        return String::new();
    }
    let line = |row: &CacheRow| {
        let (step, pipeline) = (name(&row.label.step), name(&row.label.pipeline));
        vec![step, pipeline, duration(age_ms(row, now)), bytes(row.bytes), row.hits.to_string()]
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    layout::table(&["step", "pipeline", "age", "size", "hits"], &lines, &[3], layout::width())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_runtime::engine::CacheLabel;

    /// the listing shows the step, age, size and number of uses of each stored output.
    #[test]
    fn cached_outputs_are_listed_in_columns() {
        let label = |step: &str| CacheLabel { app: "/a".into(), pipeline: "invoices".into(), step: step.into() };
        let row = |step: &str, age: i64, bytes, hits| CacheRow {
            label: label(step),
            created_at_ms: 10_000_000 - age,
            bytes,
            hits,
        };
        let rows = [row("extract[7]", 2_000, 312, 3), row("list", 3_600_000, 2_048, 0)];
        assert_eq!(
            table(&rows, 10_000_000),
            "step        pipeline  age           size  hits\n\
             extract[7]  invoices  2 s          312 B  3\n\
             list        invoices  1 h 0 min  2.0 KiB  0\n"
        );
        assert_eq!(table(&[], 0), "");
        assert_eq!(row_json(&rows[0], 10_000_000)["age_ms"], 2_000);
    }
}
