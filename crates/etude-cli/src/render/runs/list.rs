//! List of runs as a table.

use etude_core::report::duration;
use etude_runs::listing::{Listed, status};

use crate::render::layout::{clip, dollars, table};

/// Maximum number of characters shown of a pipeline's name.
const MAX_NAME: usize = 24;

/// Table of the runs in `width` characters; `now_ms` is the reference time of ages.
pub(crate) fn text(runs: &[Listed], now_ms: i64, width: usize) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let cells = |run: &Listed| {
        vec![
            run.row.id.clone(),
            status(&run.row).to_owned(),
            age(now_ms.saturating_sub(run.row.created_at_ms)),
            // No record has the time at which the process of an interrupted run died.
            if status(&run.row) == "interrupted" { "-".to_owned() } else { duration(run.duration_ms) },
            run.cost_usd.filter(|cost| *cost > 0.0).map_or("-".to_owned(), dollars),
            clip(&run.row.target, MAX_NAME),
            run.reason.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(cells).collect();
    table(&["RUN", "STATUS", "STARTED", "TIME", "COST", "PIPELINE", "REASON"], &rows, &[3, 4], width)
}

/// Age in words: `5 s ago`, `3 h ago`, `12 d ago`.
fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::{Placement, RunRow, RunState};

    use super::*;

    fn run(id: &str, state: RunState, reason: Option<&str>, cost: Option<f64>, started: i64) -> Listed {
        let row = RunRow {
            id: id.to_owned(),
            number: 1,
            app: "/app".to_owned(),
            target: "review".to_owned(),
            state,
            is_live: false,
            worker: None,
            created_at_ms: started,
            started_at_ms: Some(started),
            changed_at_ms: 0,
            change: 1,
            placement: Placement::default(),
        };
        Listed {
            mode: "pipeline",
            row,
            duration_ms: 2_050,
            cost_usd: cost,
            tokens: 0,
            kind: None,
            reason: reason.map(str::to_owned),
            steps: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_run_is_one_line_with_duration_cost_and_reason() {
        let now = 900_000_000;
        let runs = [
            run("9x0db7nsqx7cyhbh", RunState::Failed, Some("code step `bad` exited with status 3"), None, now - 5_000),
            run("aaaaaaaaaaaaaaaa", RunState::Running, None, None, now - 300_000),
            run("bbbbbbbbbbbbbbbb", RunState::Succeeded, None, Some(0.01234), now - 864_000_000),
        ];
        assert_eq!(
            text(&runs, now, 100),
            "RUN               STATUS       STARTED     TIME     COST  PIPELINE  REASON
9x0db7nsqx7cyhbh  failed       5 s ago    2.0 s        -  review    code step `bad` exited with sta…
aaaaaaaaaaaaaaaa  interrupted  5 min ago      -        -  review
bbbbbbbbbbbbbbbb  succeeded    10 d ago   2.0 s  $0.0123  review
"
        );
        assert_eq!(text(&[], now, 80), "");
    }
}
