//! Figures of a fleet in the text format of Prometheus (K-60).

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::{Census, Health};

use crate::context::Context;
use crate::metrics::text::{Kind, Text};
use crate::settings::Worker;

/// Time limit for the database: a scrape must not wait for it, so its figures are left out after this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes the families of a process that shares its runs with others; none without a fleet. `live` is the number of runs that
/// this process drives.
pub(crate) async fn metrics(text: &mut Text, context: &Context, live: usize) -> Result<(), Error> {
    if context.engine().worker().is_none() {
        return Ok(());
    }
    let engine = Arc::clone(context.engine());
    let census = tokio::task::spawn_blocking(move || engine.census().ok());
    let census = tokio::time::timeout(PATIENCE, census).await.ok().and_then(Result::ok).flatten();
    if let Some(census) = &census {
        queues(text, census)?;
    }
    worker(text, &context.engine().health(), context.settings().worker.as_ref(), live)
}

fn queues(text: &mut Text, census: &Census) -> Result<(), Error> {
    text.family("etude_queue_depth", Kind::Gauge, "Runs that could begin or continue now.")?;
    for queue in &census.queues {
        text.sample(&[("queue", &queue.name)], queue.depth as f64)?;
    }
    text.family("etude_queue_oldest_age_seconds", Kind::Gauge, "Time since the oldest of them was submitted.")?;
    for queue in &census.queues {
        text.sample(&[("queue", &queue.name)], queue.oldest_age_ms.unwrap_or(0) as f64 / 1_000.0)?;
    }
    text.family("etude_queue_unclaimable", Kind::Gauge, "Runs of the queue that no live worker can replay.")?;
    for queue in &census.queues {
        text.sample(&[("queue", &queue.name)], queue.unclaimable as f64)?;
    }
    Ok(())
}

fn worker(text: &mut Text, health: &Health, worker: Option<&Worker>, live: usize) -> Result<(), Error> {
    let figures = &health.figures;
    if let Some(Worker { places, .. }) = worker {
        single(text, "etude_worker_places", Kind::Gauge, "Runs that this worker drives at once.", *places as f64)?;
    }
    single(text, "etude_worker_live_runs", Kind::Gauge, "Runs that this worker drives.", live as f64)?;
    single(text, "etude_worker_beats", Kind::Counter, "Heartbeats that were answered.", figures.beats as f64)?;
    text.family("etude_worker_claims", Kind::Counter, "Claimed runs.")?;
    // A rate misses the first claim of a counter that appears with that claim.
    let unclaimed = worker.into_iter().flat_map(|worker| &worker.queues).map(|queue| (queue, &0));
    let claims: BTreeMap<&String, &u64> = unclaimed.chain(&figures.claims).collect();
    for (queue, count) in claims {
        text.sample(&[("queue", queue)], *count as f64)?;
    }
    let takeovers = "Runs taken over from workers that died.";
    single(text, "etude_worker_takeovers", Kind::Counter, takeovers, figures.takeovers as f64)?;
    let fenced = "Writes refused because another worker had the run.";
    single(text, "etude_worker_fenced_writes", Kind::Counter, fenced, figures.fenced_writes as f64)?;
    let reconnections = "Connections after the first one.";
    single(text, "etude_worker_reconnections", Kind::Counter, reconnections, figures.reconnections as f64)
}

fn single(text: &mut Text, name: &str, kind: Kind, help: &str, value: f64) -> Result<(), Error> {
    text.family(name, kind, help)?;
    text.sample(&[], value)
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::{Figures, QueueRow};

    use super::*;

    /// K-60: the figures of a fleet have their names and labels.
    #[test]
    fn a_fleet_has_its_figures() {
        let queue = QueueRow {
            name: "a\"b".to_owned(),
            depth: 3,
            oldest_age_ms: Some(1_500),
            unclaimable: 1,
            ..QueueRow::default()
        };
        let figures = Figures { beats: 7, claims: [("default".to_owned(), 2)].into(), ..Figures::default() };
        let health = Health { figures, ..Health::default() };
        let census = Census { workers: Vec::new(), queues: vec![queue] };
        let mut text = Text::new(false);
        queues(&mut text, &census).expect("text");
        let own = Worker {
            queues: vec!["batch".to_owned(), "default".to_owned()],
            places: 4,
            idle: None,
            poll: Duration::ZERO,
            max_crashes: 0,
        };
        worker(&mut text, &health, Some(&own), 1).expect("text");
        let text = text.finish();
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "etude_queue_depth{queue=\"a\\\"b\"} 3",
                "etude_queue_oldest_age_seconds{queue=\"a\\\"b\"} 1.5",
                "etude_queue_unclaimable{queue=\"a\\\"b\"} 1",
                "etude_worker_places 4",
                "etude_worker_live_runs 1",
                "etude_worker_beats_total 7",
                "etude_worker_claims_total{queue=\"batch\"} 0",
                "etude_worker_claims_total{queue=\"default\"} 2",
                "etude_worker_takeovers_total 0",
                "etude_worker_fenced_writes_total 0",
                "etude_worker_reconnections_total 0",
            ]
        );
    }

    /// Without an answer of the database, the process still has its own figures; in OpenMetrics their families have no suffix.
    #[test]
    fn a_database_that_is_down_hides_no_figure_of_the_process() {
        let mut text = Text::new(true);
        worker(&mut text, &Health::default(), None, 0).expect("text");
        let text = text.finish();
        assert!(text.contains("# TYPE etude_worker_beats counter\netude_worker_beats_total 0\n"), "{text}");
        assert!(!text.contains("etude_worker_places"), "{text}");
    }
}
