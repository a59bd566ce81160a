//! Statistics of many runs, as a table.

use etude_core::report::duration;
use etude_runs::listing::{Group, Stats};

use crate::render::layout::{clip, dollars, table};

/// Maximum number of characters shown of a pipeline's or model's name.
const MAX_NAME: usize = 32;

/// Table with a line for each group.
pub(crate) fn text(all: &[Stats], by: &[Group], width: usize) -> String {
    if all.is_empty() {
        return String::new();
    }
    let (is_by_pipeline, is_by_model) = (by.contains(&Group::Pipeline), by.contains(&Group::Model));
    let names = [(is_by_pipeline, "PIPELINE"), (is_by_model, "MODEL")];
    let mut heads: Vec<&str> = names.iter().filter(|(is_by, _)| *is_by).map(|(_, name)| *name).collect();
    let first = heads.len();
    heads.extend(["RUNS", "SUCCESS", "P50", "P95", "TOKENS", "COST", "TOP FAILURES"]);
    let right: Vec<usize> = (first..first + 6).collect();
    let rows: Vec<Vec<String>> = all.iter().map(|stats| cells(stats, is_by_pipeline, is_by_model)).collect();
    table(&heads, &rows, &right, width)
}

fn cells(stats: &Stats, is_by_pipeline: bool, is_by_model: bool) -> Vec<String> {
    let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), |name| clip(name, MAX_NAME));
    let time = |ms: Option<u64>| ms.map_or("-".to_owned(), duration);
    let mut cells = Vec::new();
    cells.extend(is_by_pipeline.then(|| name(&stats.pipeline)));
    cells.extend(is_by_model.then(|| name(&stats.model)));
    let reasons: Vec<String> = stats.reasons.iter().map(|(reason, runs)| format!("{reason} ({runs})")).collect();
    cells.extend([
        stats.runs.to_string(),
        stats.success_rate().map_or("-".to_owned(), |rate| format!("{:.0} %", rate * 100.0)),
        time(stats.p50_ms),
        time(stats.p95_ms),
        stats.tokens.to_string(),
        stats.cost_usd.filter(|cost| *cost > 0.0).map_or("-".to_owned(), dollars),
        reasons.join(", "),
    ]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_one_line() {
        let review = Stats {
            pipeline: Some("code-review".to_owned()),
            model: Some("mock/m".to_owned()),
            runs: 12,
            succeeded: 9,
            failed: 3,
            p50_ms: Some(2_000),
            p95_ms: Some(61_000),
            tokens: 12_000,
            cost_usd: Some(1.5),
            reasons: vec![("step_failed in fetch".to_owned(), 2), ("model_error".to_owned(), 1)],
            ..Stats::default()
        };
        let other = Stats { pipeline: Some("other".to_owned()), runs: 1, ..Stats::default() };
        assert_eq!(
            text(&[review, other], &[Group::Pipeline, Group::Model], 110),
            "PIPELINE     MODEL   RUNS  SUCCESS  P50        P95  TOKENS   COST  TOP FAILURES
code-review  mock/m    12     75 %  2 s  1 min 1 s   12000  $1.50  step_failed in fetch (2), model_error (1)
other        -          1        -    -          -       0      -
"
        );
        assert_eq!(text(&[], &[], 80), "");
    }
}
