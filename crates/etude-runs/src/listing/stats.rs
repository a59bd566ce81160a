//! Statistics over many runs.

use std::collections::BTreeMap;

use etude_runtime::engine::RunState;
use serde_json::{Value, json};

use super::Listed;
use crate::target::Target;

/// Maximum number of failure reasons per group.
const MAX_REASONS: usize = 5;

etude_core::words! {
    /// Criterion by which runs are grouped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Group {
        /// The pipeline, machine or skill.
        Pipeline = "pipeline",
        /// The model that responded. A run with calls to several models counts in the group of each, with the usage of
        /// that model.
        Model = "model",
    }
}

/// The figures of one group of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// The pipeline, if runs are grouped by it.
    pub pipeline: Option<String>,
    /// The model, if runs are grouped by it; `None` also for runs that asked no model.
    pub model: Option<String>,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs that ended as `succeeded`.
    pub succeeded: u64,
    /// Number of runs that ended as `failed`.
    pub failed: u64,
    /// Number of runs that ended as `cancelled`.
    pub cancelled: u64,
    /// Median duration of the runs that are over, in milliseconds.
    pub p50_ms: Option<u64>,
    /// 95th percentile of the duration of the runs that are over, in milliseconds.
    pub p95_ms: Option<u64>,
    /// Sum of input and output tokens.
    pub tokens: u64,
    /// Cost in US dollars; `None` if no price is known.
    pub cost_usd: Option<f64>,
    /// The most frequent kinds of failures, with the failed step, each with its count.
    pub reasons: Vec<(String, u64)>,
}

/// A group while runs are added to it.
#[derive(Debug, Default)]
struct Gathering {
    stats: Stats,
    durations: Vec<u64>,
    reasons: BTreeMap<String, u64>,
}

impl Stats {
    /// Share of succeeded runs among the runs that are over, from 0 to 1; `None` if no run is over.
    pub fn success_rate(&self) -> Option<f64> {
        let over = self.succeeded + self.failed + self.cancelled;
        // Rounded to a hundredth of a percent.
        (over > 0).then(|| (self.succeeded as f64 / over as f64 * 1e4).round() / 1e4)
    }

    /// The figures as a document.
    pub fn to_json(&self) -> Value {
        let reasons = self.reasons.iter().map(|(reason, runs)| json!({"reason": reason, "runs": runs}));
        json!({
            "pipeline": self.pipeline, "model": self.model, "runs": self.runs, "succeeded": self.succeeded,
            "failed": self.failed, "cancelled": self.cancelled, "success_rate": self.success_rate(),
            "duration_ms": {"p50": self.p50_ms, "p95": self.p95_ms}, "tokens": self.tokens, "cost_usd": self.cost_usd,
            "failures": reasons.collect::<Vec<_>>(),
        })
    }

    /// The figures in a document of [`Self::to_json`]. A missing member has no value.
    pub fn from_json(document: &Value) -> Self {
        let text = |name: &str| document[name].as_str().map(str::to_owned);
        let number = |name: &str| document[name].as_u64().unwrap_or(0);
        let reason = |one: &Value| Some((one["reason"].as_str()?.to_owned(), one["runs"].as_u64()?));
        Self {
            pipeline: text("pipeline"),
            model: text("model"),
            runs: number("runs"),
            succeeded: number("succeeded"),
            failed: number("failed"),
            cancelled: number("cancelled"),
            p50_ms: document["duration_ms"]["p50"].as_u64(),
            p95_ms: document["duration_ms"]["p95"].as_u64(),
            tokens: number("tokens"),
            cost_usd: document["cost_usd"].as_f64(),
            reasons: document["failures"].as_array().into_iter().flatten().filter_map(reason).collect(),
        }
    }
}

impl Gathering {
    fn add(&mut self, run: &Listed, tokens: u64, cost: Option<f64>) {
        let stats = &mut self.stats;
        stats.runs += 1;
        match run.row.state {
            RunState::Succeeded => stats.succeeded += 1,
            RunState::Failed => stats.failed += 1,
            RunState::Cancelled => stats.cancelled += 1,
            RunState::Queued | RunState::Running | RunState::Waiting | RunState::Sleeping | RunState::Moved => {}
        }
        if run.row.state.has_ended() {
            self.durations.push(run.duration_ms);
        }
        if run.row.state == RunState::Failed {
            *self.reasons.entry(reason(run)).or_default() += 1;
        }
        stats.tokens += tokens;
        if let Some(cost) = cost {
            stats.cost_usd = Some(stats.cost_usd.unwrap_or(0.0) + cost);
        }
    }

    fn finish(mut self) -> Stats {
        self.durations.sort_unstable();
        let at = |percent: usize| {
            let place = (self.durations.len() * percent).div_ceil(100).max(1) - 1;
            self.durations.get(place).copied()
        };
        let mut stats = self.stats;
        (stats.p50_ms, stats.p95_ms) = (at(50), at(95));
        stats.reasons = self.reasons.into_iter().collect();
        stats.reasons.sort_by_key(|(_, runs)| std::cmp::Reverse(*runs));
        stats.reasons.truncate(MAX_REASONS);
        stats
    }
}

/// The statistics of each group of `runs`, the group with the most runs first.
pub fn stats(runs: &[Listed], by: &[Group]) -> Vec<Stats> {
    let mut groups: BTreeMap<(Option<String>, Option<String>), Gathering> = BTreeMap::new();
    for run in runs {
        let pipeline = by.contains(&Group::Pipeline).then(|| run.row.target.clone());
        for (model, tokens, cost) in parts(run, by.contains(&Group::Model)) {
            let group = groups.entry((pipeline.clone(), model.clone())).or_default();
            (group.stats.pipeline, group.stats.model) = (pipeline.clone(), model);
            group.add(run, tokens, cost);
        }
    }
    let mut all: Vec<Stats> = groups.into_values().map(Gathering::finish).collect();
    all.sort_by_key(|stats| std::cmp::Reverse(stats.runs));
    all
}

/// The kind of a failure, with the step that failed.
fn reason(run: &Listed) -> String {
    let kind = run.kind.as_deref().unwrap_or("unknown");
    let steps = run.steps.as_array().into_iter().flatten();
    let failed = steps.filter(|step| step["status"] == "failed").find_map(|step| step["name"].as_str());
    match (failed, Target::parse(&run.row.target)) {
        (Some(step), Target::Pipeline(_)) => format!("{kind} in {step}"),
        _ => kind.to_owned(),
    }
}

/// The run as a whole, or its part of each model that it called.
fn parts(run: &Listed, is_by_model: bool) -> Vec<(Option<String>, u64, Option<f64>)> {
    if !is_by_model {
        return vec![(None, run.tokens, run.cost_usd)];
    }
    let mut models: BTreeMap<String, (u64, Option<f64>)> = BTreeMap::new();
    for step in run.steps.as_array().into_iter().flatten() {
        let Some(model) = step["model"].as_str() else { continue };
        let number = |name: &str| step["usage"][name].as_u64().unwrap_or(0);
        let (tokens, cost) = models.entry(model.to_owned()).or_default();
        *tokens += number("input_tokens") + number("output_tokens");
        if let Some(usd) = step["usage"]["cost_usd"].as_f64() {
            *cost = Some(cost.unwrap_or(0.0) + usd);
        }
    }
    if models.is_empty() {
        return vec![(None, run.tokens, run.cost_usd)];
    }
    models.into_iter().map(|(model, (tokens, cost))| (Some(model), tokens, cost)).collect()
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::{Placement, RunRow};

    use super::*;

    fn run(target: &str, state: RunState, duration_ms: u64, steps: Value) -> Listed {
        let row = RunRow {
            id: "r".to_owned(),
            number: 1,
            app: "/app".to_owned(),
            target: target.to_owned(),
            state,
            is_live: false,
            worker: None,
            created_at_ms: 0,
            started_at_ms: Some(0),
            changed_at_ms: 0,
            change: 1,
            placement: Placement::default(),
        };
        let kind = (state == RunState::Failed).then(|| "step_failed".to_owned());
        Listed { mode: "pipeline", row, duration_ms, cost_usd: Some(0.5), tokens: 10, kind, reason: None, steps }
    }

    #[test]
    fn runs_are_counted_by_pipeline_and_percentiles_are_those_of_runs_that_are_over() {
        let mut runs: Vec<Listed> = (1..=20).map(|n| run("a", RunState::Succeeded, n * 10, Value::Null)).collect();
        runs.push(run("a", RunState::Waiting, 99_999, Value::Null));
        runs.push(run("b", RunState::Failed, 5, json!([{"name": "fetch", "status": "failed"}])));
        let all = stats(&runs, &[Group::Pipeline]);
        let figures = |s: &Stats| (s.pipeline.clone(), s.runs, s.success_rate(), s.p50_ms, s.p95_ms, s.cost_usd);
        assert_eq!(figures(&all[0]), (Some("a".to_owned()), 21, Some(1.0), Some(100), Some(190), Some(10.5)));
        assert_eq!(figures(&all[1]), (Some("b".to_owned()), 1, Some(0.0), Some(5), Some(5), Some(0.5)));
        assert_eq!(all[1].reasons, [("step_failed in fetch".to_owned(), 1)]);
        assert_eq!(all.iter().map(|of| Stats::from_json(&of.to_json())).collect::<Vec<_>>(), all);
        assert_eq!(stats(&runs, &[])[0].runs, 22);
    }

    #[test]
    fn a_run_counts_for_each_model_that_it_asked_with_what_that_model_used() {
        let step = |model: &str, tokens: u64| json!({"name": "s", "model": model, "usage": {"input_tokens": tokens}});
        let runs = [run("a", RunState::Succeeded, 1, json!([step("x/1", 3), step("x/2", 4), step("x/1", 5)]))];
        let all = stats(&runs, &[Group::Model]);
        let found: Vec<_> = all.iter().map(|s| (s.model.as_deref(), s.runs, s.tokens, s.cost_usd)).collect();
        assert_eq!(found, [(Some("x/1"), 1, 8, None), (Some("x/2"), 1, 4, None)]);
    }
}
