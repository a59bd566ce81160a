//! Conversion of run rows on a server to rows of the journal.

use etude_runs::listing::{INTERRUPTED, Listed};
use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::{Placement, RunRow, RunState};
use serde_json::Value;

/// Parses a run in a list; `None` if the value is not a row.
pub(crate) fn listed(row: &Value) -> Option<Listed> {
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let time = |name: &str| row[name].as_str().and_then(clock::from_rfc3339);
    let word = text("status")?;
    let state = if word == INTERRUPTED { Some(RunState::Running) } else { RunState::from_word(&word) };
    let target = match (text("pipeline"), text("machine")) {
        (Some(name), _) => Target::Pipeline(name),
        (None, Some(name)) => Target::Machine(name),
        (None, None) => Target::Skill(String::new()),
    };
    let usage = &row["usage"];
    let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
    Some(Listed {
        mode: Target::mode_of(row["mode"].as_str().unwrap_or_default()),
        row: RunRow {
            id: text("run_id")?,
            number: 0,
            app: text("app").unwrap_or_default(),
            target: target.to_string(),
            state: state?,
            is_live: word == RunState::Running.word(),
            worker: None,
            created_at_ms: time("created_at")?,
            started_at_ms: time("started_at"),
            changed_at_ms: time("changed_at")?,
            change: 0,
            placement: Placement::default(),
        },
        duration_ms: row["duration_ms"].as_u64().unwrap_or(0),
        cost_usd: usage["cost_usd"].as_f64(),
        tokens: tokens("input_tokens") + tokens("output_tokens"),
        kind: text("kind"),
        reason: text("reason"),
        steps: Value::Null,
    })
}
