//! `etude workers`: the workers and queues of a fleet (K-60).

use etude_runtime::clock;
use etude_runtime::engine::{Census, QueueRow, WorkerRow};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(crate) fn workers(context: &Context) -> Exit {
    shown(context).unwrap_or_else(|problem| context.report(None, &problem))
}

fn shown(context: &Context) -> Result<Exit, Problem> {
    super::engine::check_named(context)?;
    let census = context.engine(false)?.census().map_err(|error| of_engine(&error))?;
    if context.is_json() {
        let workers: Vec<Value> = census.workers.iter().map(worker).collect();
        let queues: Vec<Value> = census.queues.iter().map(queue).collect();
        stdout::json(&json!({"workers": workers, "queues": queues}));
    } else {
        stdout::text(&text(&census));
    }
    Ok(Exit::Done)
}

fn worker(row: &WorkerRow) -> Value {
    json!({
        "worker": row.name, "host": row.host, "pid": row.pid, "version": row.version, "abi": row.abi,
        "state": row.state.word(), "queues": row.queues, "places": row.places, "live": row.live,
        "started_at": clock::rfc3339(row.started_at_ms), "last_beat_at": clock::rfc3339(row.last_beat_at_ms),
        "lease_until": clock::rfc3339(row.lease_until_ms),
    })
}

fn queue(row: &QueueRow) -> Value {
    json!({
        "queue": row.name, "depth": row.depth, "oldest_age_ms": row.oldest_age_ms, "sleeping": row.sleeping,
        "live": row.live, "limit": row.limit, "untrusted": row.untrusted,
    })
}

/// Human-readable tables.
fn text(census: &Census) -> String {
    let mut out = String::new();
    if census.workers.is_empty() {
        out.push_str("no workers\n");
    }
    for row in &census.workers {
        let (state, queues) = (row.state.word(), row.queues.join(", "));
        out.push_str(&format!("{state:<8} {}  {} of {} runs, from {queues}\n", row.name, row.live, row.places));
    }
    for row in &census.queues {
        let waits = row.oldest_age_ms.map(|ms| format!(", the oldest for {}", etude_core::report::duration(ms)));
        let (waits, sleeping) = (waits.unwrap_or_default(), row.sleeping);
        out.push_str(&format!(
            "queue {}: {} waiting{waits}; {} live, {sleeping} sleeping\n",
            row.name, row.depth, row.live
        ));
    }
    out
}
