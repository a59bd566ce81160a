//! `/metrics` in the text format of Prometheus and in OpenMetrics.
//!
//! Counters begin with the process. Those of runs are read from the journal's changes at each scrape. So they cost nothing
//! between scrapes, and include the runs of all processes.

mod ended;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Mutex;
use std::time::Duration;

use etude_runtime::engine::Counts;
use etude_runtime::sync::lock;

use self::ended::Ended;
use self::text::{Histogram, Kind, Text};
use crate::context::Context;
use crate::log::LogLine;
use crate::problem::Problem;
use crate::token::Caller;

/// The counters of this process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Durations of requests, by route and status.
    requests: Mutex<BTreeMap<(&'static str, u16), Histogram>>,
    ended: Mutex<Ended>,
    ticks: Mutex<BTreeMap<(String, &'static str), u64>>,
    tick_lag: Mutex<Histogram>,
    notices: Mutex<BTreeMap<&'static str, u64>>,
    journal_writes: Mutex<Histogram>,
}

impl Metrics {
    /// Counts a request by the pattern of its route: no label has the id of a run.
    pub(crate) fn count(&self, line: &LogLine) {
        let key = (line.route.unwrap_or("none"), line.status);
        lock(&self.requests).entry(key).or_default().observe(line.took.as_secs_f64());
    }

    /// Counts a tick of a schedule. `lag` is the delay after its nominal time.
    pub(crate) fn tick(&self, schedule: String, outcome: &'static str, lag: Option<Duration>) {
        *lock(&self.ticks).entry((schedule, outcome)).or_default() += 1;
        if let Some(lag) = lag {
            lock(&self.tick_lag).observe(lag.as_secs_f64());
        }
    }

    /// Counts an attempt to deliver a notice.
    pub(crate) fn notice(&self, outcome: &'static str) {
        *lock(&self.notices).entry(outcome).or_default() += 1;
    }

    /// Notes the time of a write to the journal.
    pub(crate) fn journal_write(&self, took: Duration) {
        lock(&self.journal_writes).observe(took.as_secs_f64());
    }

    /// Counts the runs that have ended since the last call. Blocks.
    pub(crate) fn advance(&self, context: &Context) -> Result<(), Problem> {
        lock(&self.ended).advance(context)
    }

    /// Writes all families. A token for some targets gets only the samples about these.
    pub(crate) fn write(
        &self,
        text: &mut Text,
        caller: &Caller,
        counts: &Counts,
        streams: usize,
        schedules: &[(String, String, &'static str)],
    ) -> Result<(), Error> {
        text.family("etude_runs", Kind::Gauge, "Runs by status.")?;
        let Counts { queued, running, waiting, sleeping, interrupted, succeeded, failed, cancelled, moved } = counts;
        for (status, count) in [
            ("queued", queued),
            ("running", running),
            ("waiting", waiting),
            ("sleeping", sleeping),
            ("interrupted", interrupted),
            ("succeeded", succeeded),
            ("failed", failed),
            ("cancelled", cancelled),
            ("moved", moved),
        ] {
            text.sample(&[("status", status)], *count as f64)?;
        }
        lock(&self.ended).write(text, caller)?;
        text.family("etude_streams", Kind::Gauge, "Open event streams.")?;
        text.sample(&[], streams as f64)?;
        text.family("etude_schedules", Kind::Gauge, "Schedules by state.")?;
        for (app, name, state) in schedules {
            text.sample(&[("app", app), ("schedule", name), ("state", state)], 1.0)?;
        }
        if caller.only.is_empty() {
            automation(text, self)?;
        }
        let requests = lock(&self.requests).clone();
        text.family("etude_http_requests", Kind::Counter, "Requests by route and status.")?;
        for ((route, status), times) in &requests {
            text.sample(&[("route", route), ("status", &status.to_string())], times.count() as f64)?;
        }
        text.family("etude_http_seconds", Kind::Histogram, "Time to the responses.")?;
        for ((route, status), times) in &requests {
            text.times(&[("route", route), ("status", &status.to_string())], times)?;
        }
        Ok(())
    }

    /// Sets the change after which runs that end are counted.
    pub(crate) fn begin_at(&self, change: u64) {
        lock(&self.ended).change = change;
    }
}

/// The families of ticks, notices and journal writes.
fn automation(text: &mut Text, metrics: &Metrics) -> Result<(), Error> {
    text.family("etude_ticks", Kind::Counter, "Ticks of schedules by outcome.")?;
    for ((schedule, outcome), count) in lock(&metrics.ticks).iter() {
        text.sample(&[("schedule", schedule), ("outcome", outcome)], *count as f64)?;
    }
    text.histogram("etude_tick_lag_seconds", "Time from a tick to its run.", &lock(&metrics.tick_lag))?;
    text.family("etude_notices", Kind::Counter, "Attempts to deliver notices by outcome.")?;
    for (outcome, count) in lock(&metrics.notices).iter() {
        text.sample(&[("outcome", outcome)], *count as f64)?;
    }
    let writes = "Time of the writes that accept runs, ticks, deliveries and notices.";
    text.histogram("etude_journal_write_seconds", writes, &lock(&metrics.journal_writes))
}
