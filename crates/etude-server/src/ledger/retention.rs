//! Retention of ledger entries: the clock loop removes old ones once an hour.
//!
//! An entry lives as long as its run, and at least 90 days. A tick lives longer than its schedule catches up. A delivery lives as
//! long as its repetition must find the first one, and an action equally long. The response to a request with an idempotency key
//! lives for a day.

use std::sync::atomic::{AtomicI64, Ordering};

use etude_runs::listing::ACTIONS;
use etude_runtime::engine::{KEY_LIFE_MS, OldEntries};
use etude_spec::automation::{Automation, Schedule};

use super::{Ledger, book};
use crate::problem::{Problem, engine_failed};
use crate::settings::ServedApp;

const HOUR_MS: i64 = 60 * 60 * 1_000;

/// Minimum age of an entry before its removal, in milliseconds.
const KEPT_MS: i64 = 90 * 24 * HOUR_MS;

/// Entries per removal: other writes may come in between.
const BATCH: u32 = 500;

/// The time of the next look for old entries.
#[derive(Debug, Default)]
pub(super) struct Retention {
    next_ms: AtomicI64,
}

impl Retention {
    /// True once an hour, and after a change of the clock.
    fn is_due(&self, now_ms: i64) -> bool {
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let is_due = !(next_ms - HOUR_MS..next_ms).contains(&now_ms);
        if is_due {
            self.next_ms.store(now_ms + HOUR_MS, Ordering::Relaxed);
        }
        is_due
    }
}

impl Ledger {
    /// Removes old entries if an hour has passed since the last look. Blocks.
    pub(crate) fn remove_old(&self) {
        let now_ms = self.context.clock().now_ms();
        if !self.retention.is_due(now_ms) {
            return;
        }
        for app in &self.context.settings().apps {
            let Ok(automation) = self.context.automation(app) else { continue };
            for (book, states, before_ms) in books(app, &automation, now_ms) {
                // Requests report a failing journal, and the next look finds the entries again.
                let _ = self.remove(&book, states, before_ms);
            }
        }
        let _ = self.remove(ACTIONS, &[book::DONE], now_ms.saturating_sub(KEPT_MS));
        let before_ms = now_ms.saturating_sub(KEY_LIFE_MS);
        for book in book::responses() {
            let _ = self.remove(&book, book::RESPONSES, before_ms);
        }
    }

    fn remove(&self, book: &str, states: &[&str], before_ms: i64) -> Result<(), Problem> {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let old = OldEntries { book: book.to_owned(), states, before_ms, limit: BATCH };
        while self.context.engine().remove_entries(&old).map_err(|e| engine_failed(&e))? == u64::from(BATCH) {}
        Ok(())
    }
}

/// The books of an app. Each has the states of its settled entries, and the time before which they may be removed.
fn books(app: &ServedApp, automation: &Automation, now_ms: i64) -> Vec<(String, &'static [&'static str], i64)> {
    let ticks = |schedule: &Schedule| {
        let window = i64::try_from(schedule.catch_up_within_ms.saturating_add(schedule.jitter_ms)).unwrap_or(i64::MAX);
        let kept_ms = KEPT_MS.max(window.saturating_add(24 * HOUR_MS));
        (book::ticks(app, &schedule.name), &["ran", "skipped"] as &[_], now_ms.saturating_sub(kept_ms))
    };
    let before_ms = now_ms - KEPT_MS;
    let mut books: Vec<_> = automation.schedules.iter().map(ticks).collect();
    let webhooks = automation.webhooks.iter().map(|webhook| book::webhook(app, &webhook.name));
    books.extend(webhooks.map(|book| (book, &["accepted", "repeated", "ignored"] as &[_], before_ms)));
    let notices = automation.notices.iter().map(|notice| book::notice(app, &notice.name));
    books.extend(notices.map(|book| (book, &["delivered", "failed"] as &[_], before_ms)));
    books
}

#[cfg(test)]
mod tests {
    use etude_spec::automation;
    use etude_spec::source::SourceFile;

    use super::*;

    /// S-102: a tick is kept for longer than its schedule catches up, so that a look back finds it.
    #[test]
    fn a_tick_is_kept_for_longer_than_it_is_caught_up() {
        let text = "schedules:\n  a: {pipeline: p, every: 1h}\n  b: {pipeline: p, every: 1h, catch_up: all, catch_up_within: 400d}\n";
        let read = automation::read(&SourceFile::new("etude.yaml", text), None);
        assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
        let app = ServedApp { slug: "demo".to_owned(), dir: "/demo".into() };
        let days = |book: &str| {
            let (_, _, before_ms) = books(&app, &read, 0).into_iter().find(|(of, _, _)| of == book).expect("a book");
            -before_ms / 24 / HOUR_MS
        };
        assert_eq!((days("ticks /demo a"), days("ticks /demo b")), (90, 401));
    }

    #[test]
    fn old_entries_are_looked_for_once_an_hour() {
        let retention = Retention::default();
        let now = 1_000_000_000_000;
        let looks: Vec<bool> =
            [0, 1, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1, -5 * HOUR_MS].map(|ms| retention.is_due(now + ms)).into();
        assert_eq!(looks, [true, false, false, true, false, true]);
    }
}
