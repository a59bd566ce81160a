//! Table of a step's rejected attempts.

use std::fmt::Write;

use etude_core::failure::{self, RejectedBy};
use etude_core::report::duration;
use serde_json::Value;

use crate::render::layout::clip;

/// Width of the columns other than the reason, with the spaces between all of them.
const OTHER_COLUMNS: usize = 3 + 5 + 13 + 2 + 8 + 2 + 7;

/// A rejected attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// `schema`, `validate`, `transport`, or `process` for code steps.
    pub(crate) by: String,
    /// Reasons. If `by` is `transport`, one for each attempt to reach the provider.
    pub(crate) errors: Vec<String>,
    pub(crate) elapsed_ms: u64,
    pub(crate) tokens: u64,
}

impl Attempt {
    /// Row of an attempt; `is_process` renames the rejector `transport` to `process`.
    pub(crate) fn of(attempt: &failure::Attempt, is_process: bool) -> Self {
        let by = match attempt.rejected_by {
            RejectedBy::Transport if is_process => "process",
            other => other.word(),
        };
        let (elapsed_ms, tokens) = (attempt.elapsed_ms, attempt.tokens);
        Self { by: by.to_owned(), errors: attempt.errors.clone(), elapsed_ms, tokens }
    }

    /// Attempts of an entry of `errors`.
    pub(crate) fn of_error(error: &Value) -> Vec<Self> {
        let is_process =
            ["step_failed", "step_output_invalid", "step_timeout"].into_iter().any(|kind| error["kind"] == kind);
        let attempts = error["attempts"].as_array().into_iter().flatten();
        let one = |attempt: &Value| {
            let by = attempt["rejected_by"].as_str().unwrap_or_default();
            let errors = attempt["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Self {
                by: if is_process && by == "transport" { "process" } else { by }.to_owned(),
                errors: errors.map(str::to_owned).collect(),
                elapsed_ms: attempt["duration_ms"].as_u64().unwrap_or(0),
                tokens: attempt["tokens"].as_u64().unwrap_or(0),
            }
        };
        attempts.map(one).collect()
    }
}

/// A row of the table.
struct Row {
    number: String,
    by: String,
    reason: String,
    time: String,
    tokens: String,
}

/// Table in `width` characters, each line indented by three. Of more than `max` attempts, only the last ones are shown.
pub(crate) fn table(attempts: &[Attempt], max: usize, width: usize) -> String {
    let hidden = attempts.len().saturating_sub(max);
    let rows: Vec<Row> =
        attempts.iter().enumerate().skip(hidden).flat_map(|(at, attempt)| rows(at + 1, attempt)).collect();
    let widest = rows.iter().map(|row| row.reason.chars().count()).max().unwrap_or(0);
    let reason = widest.min(width.saturating_sub(OTHER_COLUMNS)).max(6);
    let bold = super::BOLD;
    let mut out = String::new();
    let _ = writeln!(out, "   {bold}#    rejected by  {:<reason$}  {:>8}  {:>7}{bold:#}", "reason", "time", "tokens");
    if hidden > 0 {
        let _ = writeln!(out, "   …    {hidden} earlier");
    }
    for row in rows {
        let (number, by, text) = (row.number, row.by, clip(&row.reason, reason));
        let line = format!("   {number:<3}  {by:<11}  {text:<reason$}  {:>8}  {:>7}", row.time, row.tokens);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Rows of an attempt: one, or for a call that never reached its provider, one for each transport attempt.
fn rows(number: usize, attempt: &Attempt) -> Vec<Row> {
    let (number, time) = (number.to_string(), duration(attempt.elapsed_ms));
    let by = attempt.by.clone();
    if by != "transport" {
        let (reason, tokens) = (attempt.errors.join("; "), attempt.tokens.to_string());
        return vec![Row { number, by, reason, time, tokens }];
    }
    let blank = |error: &String| Row {
        number: String::new(),
        by: by.clone(),
        reason: error.clone(),
        time: String::new(),
        tokens: String::new(),
    };
    let mut rows: Vec<Row> = attempt.errors.iter().map(blank).collect();
    if let Some(first) = rows.first_mut() {
        first.number = number;
    }
    if let Some(last) = rows.last_mut() {
        last.time = time;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts() -> Vec<Attempt> {
        let one = |by: &str, errors: &[&str]| Attempt {
            by: by.to_owned(),
            errors: errors.iter().map(ToString::to_string).collect(),
            elapsed_ms: 1_200,
            tokens: 110,
        };
        let long = "/files: 12 is more than the 8 files that the diff has, and every one of them must be in the diff";
        vec![one("schema", &[long]), one("transport", &["HTTP 503", "HTTP 429"])]
    }

    fn plain(width: usize) -> String {
        anstream::adapter::strip_str(&table(&attempts(), 5, width)).to_string()
    }

    #[test]
    fn the_table_fits_the_terminal() {
        assert_eq!(
            plain(80),
            "   #    rejected by  reason                                        time   tokens
   1    schema       /files: 12 is more than the 8 files tha…     1.2 s      110
   2    transport    HTTP 503
        transport    HTTP 429                                     1.2 s
"
        );
        for width in [60, 80, 120, 200] {
            assert!(plain(width).lines().all(|line| line.chars().count() <= width), "{width}:\n{}", plain(width));
        }
    }
}
