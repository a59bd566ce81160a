//! Accuracy and latency of routing, measured on the user's own labelled requests (`etude route --test`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use etude_core::failure::Failure;
use etude_runtime::host::ModelPort;
use serde_json::{Value, json};

use super::{Mode, Routed, Table};

/// A request with its expected pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    /// The request in the user's words.
    pub request: String,
    /// The right pipeline; `None` if none fits.
    pub expected: Option<String>,
}

/// Decisions of a router on labelled requests, with their latencies.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Each request with its decision.
    pub decisions: Vec<(Labelled, Routed)>,
    /// Latency of each decision, in milliseconds.
    latencies: Vec<f64>,
}

/// Reads JSON lines `{"request", "expected": name or null}`.
///
/// # Errors
/// The number of the invalid line, and the reason.
pub fn parse_labelled(text: &str) -> Result<Vec<Labelled>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let wrong = |why: &str| format!("line {}: {why}", at + 1);
            let value: Value = serde_json::from_str(line).map_err(|e| wrong(&e.to_string()))?;
            let request = value.get("request").ok_or_else(|| wrong("`request` is missing"))?;
            let request = request.as_str().ok_or_else(|| wrong("`request` must be a text"))?;
            let expected = match value.get("expected") {
                Some(Value::String(name)) => Some(name.clone()),
                Some(Value::Null) => None,
                _ => return Err(wrong("`expected` must be the name of a pipeline or null")),
            };
            Ok(Labelled { request: request.to_owned(), expected })
        })
        .collect()
}

/// Routes every request and records each decision with its latency.
///
/// # Errors
/// A model was needed and could not be asked.
pub async fn measure(
    table: &Table,
    labelled: Vec<Labelled>,
    mode: Mode,
    models: Option<&Arc<dyn ModelPort>>,
) -> Result<Measured, Failure> {
    let mut measured = Measured { decisions: Vec::with_capacity(labelled.len()), latencies: Vec::new() };
    for one in labelled {
        let start = Instant::now();
        let routed = table.route(&one.request, mode, models).await?;
        measured.latencies.push(start.elapsed().as_secs_f64() * 1e3);
        measured.decisions.push((one, routed));
    }
    Ok(measured)
}

impl Measured {
    /// Accuracy, latencies and confusions as a document. A share without requests is null.
    pub fn summary(&self) -> Value {
        let hit = |(one, routed): &&(Labelled, Routed)| one.expected == routed.pipeline;
        let share = |wanted: &dyn Fn(&Labelled) -> bool| {
            let of: Vec<_> = self.decisions.iter().filter(|(one, _)| wanted(one)).collect();
            (!of.is_empty()).then(|| rounded(of.iter().filter(|d| hit(d)).count() as f64 / of.len() as f64))
        };
        let mut confusions: BTreeMap<(Option<&str>, Option<&str>), u64> = BTreeMap::new();
        for (one, routed) in self.decisions.iter().filter(|d| !hit(d)) {
            *confusions.entry((one.expected.as_deref(), routed.pipeline.as_deref())).or_default() += 1;
        }
        let mut confusions: Vec<_> = confusions.into_iter().collect();
        confusions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let calls: u64 = self.decisions.iter().map(|(_, routed)| routed.usage.calls).sum();
        json!({
            "requests": self.decisions.len(),
            "accuracy": share(&|_| true),
            "in_scope_accuracy": share(&|one| one.expected.is_some()),
            "out_of_scope_recall": share(&|one| one.expected.is_none()),
            "auroc": self.auroc().map(rounded),
            "latency_ms": {"p50": self.quantile(0.5), "p99": self.quantile(0.99)},
            "model_calls": calls,
            "confusions": confusions
                .iter()
                .map(|((expected, found), count)| json!({"expected": expected, "found": found, "count": count}))
                .collect::<Vec<_>>(),
        })
    }

    /// Area under the ROC curve: the probability that an in-scope request has a higher score than an out-of-scope one.
    fn auroc(&self) -> Option<f64> {
        let mut scores: Vec<(f64, bool)> =
            self.decisions.iter().map(|(one, routed)| (routed.embedded.score, one.expected.is_some())).collect();
        scores.sort_by(|a, b| a.0.total_cmp(&b.0));
        let inside = scores.iter().filter(|(_, is_in)| *is_in).count() as f64;
        let outside = scores.len() as f64 - inside;
        let (mut ranks, mut at) = (0.0, 0);
        while at < scores.len() {
            let ties = scores[at..].iter().take_while(|(score, _)| *score == scores[at].0).count();
            let rank = at as f64 + (ties as f64 + 1.0) / 2.0;
            ranks += rank * scores[at..at + ties].iter().filter(|(_, is_in)| *is_in).count() as f64;
            at += ties;
        }
        (inside > 0.0 && outside > 0.0).then(|| (ranks - inside * (inside + 1.0) / 2.0) / (inside * outside))
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(rounded(sorted[(last as f64 * share).round() as usize]))
    }
}

/// Rounds to four decimals; more are not significant.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: a request that is not a text is refused as such, and not as missing.
    #[test]
    fn faulty_lines_are_named_with_their_fault() {
        for (line, expected) in [
            (r#"{"expected": null}"#, "line 2: `request` is missing"),
            (r#"{"request": 3, "expected": null}"#, "line 2: `request` must be a text"),
            (r#"{"request": "x"}"#, "line 2: `expected` must be the name of a pipeline or null"),
        ] {
            let refused = parse_labelled(&format!("\n{line}\n")).map(|rows| rows.len());
            assert_eq!(refused, Err(expected.to_owned()));
        }
    }
}
