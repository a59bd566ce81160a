//! Figures of the runs that have ended since the process began: outcomes, durations and costs.

use std::collections::BTreeMap;
use std::fmt::Error;

use etude_runs::document::Document;
use etude_runtime::engine::{RunRow, name_of};
use serde_json::Value;

use super::text::{Histogram, Kind, Text};
use crate::context::Context;
use crate::problem::{Problem, engine_failed};
use crate::result::result_of;
use crate::token::Caller;

/// Changes per read.
const PAGE: u32 = 200;

/// Totals of the runs that have ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The change up to which the journal was read.
    pub(super) change: u64,
    /// Numbers of runs, by pipeline or stage machine, status and cause.
    runs: BTreeMap<[String; 3], u64>,
    /// Times from the start of a run to its end.
    run_times: Histogram,
    /// Times from the creation of a run to its start.
    queue_times: Histogram,
    /// Numbers of model calls, by model and by the status of their step.
    calls: BTreeMap<[String; 2], u64>,
    /// Numbers of tokens, by model and kind.
    tokens: BTreeMap<[String; 2], u64>,
    cost_usd: f64,
}

impl Ended {
    /// Counts the runs that have ended since the last call. Blocks.
    pub(super) fn advance(&mut self, context: &Context) -> Result<(), Problem> {
        let apps = context.dirs();
        loop {
            let rows = context.engine().changes(self.change, PAGE).map_err(|e| engine_failed(&e))?;
            for row in rows.iter().filter(|row| row.state.has_ended() && apps.contains(&row.app)) {
                let document = result_of(&**context.engine(), row).ok().flatten();
                self.count(row, document.as_ref());
            }
            let Some(last) = rows.last() else { return Ok(()) };
            self.change = last.change;
        }
    }

    fn count(&mut self, row: &RunRow, document: Option<&Document>) {
        let words = [name_of(&row.target), etude_runs::listing::status(row), row.placement.cause.word()];
        *self.runs.entry(words.map(str::to_owned)).or_default() += 1;
        let seconds = |from: i64, to: i64| to.saturating_sub(from).max(0) as f64 / 1_000.0;
        if let Some(started) = row.started_at_ms {
            self.run_times.observe(seconds(started, row.changed_at_ms));
            self.queue_times.observe(seconds(row.created_at_ms, started));
        }
        let Some(document) = document else { return };
        let steps = document.members.get("steps").and_then(Value::as_array);
        for step in steps.into_iter().flatten() {
            let Some(model) = step["model"].as_str() else { continue };
            let number = |name: &str| step["usage"][name].as_u64().unwrap_or(0);
            let outcome = step["status"].as_str().unwrap_or_default();
            *self.calls.entry([model, outcome].map(str::to_owned)).or_default() += number("calls");
            for (kind, name) in [("input", "input_tokens"), ("output", "output_tokens"), ("cached", "cached_tokens")] {
                *self.tokens.entry([model, kind].map(str::to_owned)).or_default() += number(name);
            }
        }
        let usage = document.members.get("usage");
        self.cost_usd += usage.and_then(|usage| usage["cost_usd"].as_f64()).unwrap_or(0.0);
    }

    /// Writes the families. A token for some targets gets the numbers of their runs, and no sums over all.
    pub(super) fn write(&self, text: &mut Text, caller: &Caller) -> Result<(), Error> {
        text.family("etude_runs_ended", Kind::Counter, "Runs that have ended.")?;
        for ([pipeline, status, cause], count) in self.runs.iter().filter(|(of, _)| caller.covers(&of[0])) {
            text.sample(&[("pipeline", pipeline), ("status", status), ("cause", cause)], *count as f64)?;
        }
        if !caller.only.is_empty() {
            return Ok(());
        }
        text.histogram("etude_run_seconds", "Time from the start of a run to its end.", &self.run_times)?;
        text.histogram("etude_queue_seconds", "Time from the creation of a run to its start.", &self.queue_times)?;
        text.family("etude_model_calls", Kind::Counter, "Calls of models by the status of their step.")?;
        for ([model, outcome], count) in &self.calls {
            text.sample(&[("model", model), ("outcome", outcome)], *count as f64)?;
        }
        text.family("etude_tokens", Kind::Counter, "Tokens of models by kind.")?;
        for ([model, kind], count) in &self.tokens {
            text.sample(&[("model", model), ("kind", kind)], *count as f64)?;
        }
        text.family("etude_cost_usd", Kind::Counter, "Cost of models in US dollars.")?;
        text.sample(&[], self.cost_usd)
    }
}
