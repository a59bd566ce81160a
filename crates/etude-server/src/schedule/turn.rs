//! The clock loop: looks at all schedules when one is due, and at least once a second, because files and the machine's clock
//! change.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use etude_runtime::engine::EntryQuery;

use super::{Found, Kept, Schedules, due, tick};
use crate::blocking::blocking;
use crate::problem::Problem;

/// Maximum time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The same while a tick waits for the end of a run, or the journal fails.
const SHORT: Duration = Duration::from_millis(250);

/// Minimum time between two looks.
const LEAST: Duration = Duration::from_millis(10);

/// The state of a schedule in one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    pattern: String,
    /// The time of the last look that did not fail.
    at_ms: Option<i64>,
    /// True if looks since then have failed.
    has_failed: bool,
    /// Every tick up to here has its entry.
    settled_ms: Option<i64>,
    /// The time of the next due tick.
    next_ms: Option<i64>,
    /// True if a tick of the pattern or of a backfill waits for the end of a run, or may do so.
    has_waiting: bool,
}

/// Takes ticks until the server stops.
pub(crate) async fn turns(schedules: Arc<Schedules>) {
    let mut stopping = schedules.context.stopping();
    let mut clock = schedules.context.clock().settings();
    loop {
        if schedules.context.is_draining() {
            return;
        }
        let of = Arc::clone(&schedules);
        // The next look may reach the journal again.
        let pause = blocking(move || {
            let (pause, failed) = turn(&of);
            of.ledger.remove_old();
            if failed.is_none() {
                of.note_turn();
            }
            of.works.looks_of_schedules.note(&of.works.observer, failed.as_ref());
            Ok(pause)
        })
        .await;
        tokio::select! {
            () = tokio::time::sleep(pause.unwrap_or(SHORT)) => {}
            // The server keeps the clock for its whole life.
            Ok(()) = clock.changed() => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// Looks once at all schedules. Returns the time until the next look, and the failure of the journal if there was one. A fault of
/// one schedule does not stop the others.
fn turn(schedules: &Arc<Schedules>) -> (Duration, Option<Problem>) {
    let (mut pause, mut failed) = (LOOK, None);
    for (app, automation) in schedules.context.automations() {
        for index in 0..automation.schedules.len() {
            let found = Found { app: app.clone(), automation: Arc::clone(&automation), index };
            let key = (app.dir.clone(), found.schedule().name.clone());
            let looks = || schedules.looks.lock().unwrap_or_else(PoisonError::into_inner);
            let mut look = looks().get(&key).cloned().unwrap_or_else(|| Look { has_waiting: true, ..Look::default() });
            let at_ms = look.at_ms;
            look.has_waiting |= schedules.backfilled.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            match look_at(schedules, &found, &mut look) {
                Ok(()) => look.has_failed = false,
                // Everything is read again. This server was running, so a moment without the journal makes ticks late, and misses
                // none.
                Err(problem) => {
                    look = Look { at_ms, has_failed: true, has_waiting: true, ..Look::default() };
                    failed = Some(problem);
                }
            }
            if found.schedule().broken.is_empty() {
                pause = pause.min(look.pause(schedules.context.clock().now_ms()));
            }
            looks().insert(key, look);
        }
    }
    (pause, failed)
}

impl Look {
    /// The time until the next look at this schedule.
    fn pause(&self, now_ms: i64) -> Duration {
        let until_due = self.next_ms.map(|next_ms| Duration::from_millis(u64::try_from(next_ms - now_ms).unwrap_or(0)));
        let most = if self.has_waiting { SHORT } else { LOOK };
        until_due.unwrap_or(LOOK).clamp(LEAST, most)
    }
}

fn look_at(schedules: &Arc<Schedules>, found: &Found, look: &mut Look) -> Result<(), Problem> {
    let schedule = found.schedule();
    if !schedule.broken.is_empty() {
        return Ok(());
    }
    let now_ms = schedules.context.clock().now_ms();
    if look.has_waiting {
        look.has_waiting = begin_waiting(schedules, found, now_ms)?;
    }
    let pattern = schedule.pattern();
    let is_set_back = look.at_ms.is_some_and(|last| now_ms < last);
    if look.pattern.is_empty() {
        tick::report_skipped(schedules, found)?;
        tick::cancel_earlier(schedules, found)?;
    }
    if look.pattern != pattern || is_set_back {
        let last_look_ms = look.at_ms.filter(|last| *last <= now_ms);
        *look = Look { pattern: pattern.clone(), at_ms: last_look_ms, settled_ms: None, next_ms: None, ..*look };
    }
    if look.next_ms.is_some_and(|next| now_ms < next) {
        look.at_ms = Some(now_ms);
        return Ok(());
    }
    let kept = Kept::change(schedules, found, |kept| match kept {
        Some(kept) if kept.pattern == pattern => kept,
        before => Kept { pattern: pattern.clone(), since_ms: now_ms, ..before.unwrap_or_default() },
    })?;
    let window = due::Window {
        last_look_ms: look.at_ms,
        has_failed: look.has_failed,
        ..due::Window::of(schedule, kept.since_ms, look.settled_ms, now_ms)
    };
    let query = EntryQuery {
        book: found.book(),
        from_ms: Some(window.after_ms),
        until_ms: Some(now_ms),
        ..EntryQuery::default()
    };
    let taken = schedules.ledger.entries(&query)?;
    // Another server may have taken the tick, and be gone when there is room.
    look.has_waiting |= taken.iter().any(|entry| entry.state == "waiting");
    let taken: BTreeSet<String> = taken.into_iter().map(|entry| entry.key).collect();
    let (ticks, next_ms) = due::due(schedule, window, |at_ms| taken.contains(&at_ms.to_string()));
    look.has_waiting |= !ticks.is_empty();
    take_due(schedules, found, &kept, ticks, now_ms)?;
    look.at_ms = Some(now_ms);
    look.settled_ms = Some(window.settled_ms(schedule));
    look.next_ms = next_ms;
    Ok(())
}

/// Begins the waiting tick of a schedule that is next, if the earlier runs have ended. During a pause, only ticks of a backfill
/// begin; the others wait for its end. True if a tick still waits, or may do so.
fn begin_waiting(schedules: &Arc<Schedules>, found: &Found, now_ms: i64) -> Result<bool, Problem> {
    let is_paused = Kept::read(schedules, found)?.is_some_and(|kept| kept.is_paused_at(now_ms));
    let mut has_waiting = match tick::waiting(schedules, found)? {
        Some(_) if is_paused => true,
        Some(entry) => tick::promote(schedules, found, &entry)?,
        None => false,
    };
    // Current ticks go before those of a backfill.
    let in_turn = tick::in_turn(schedules, found, now_ms)?;
    has_waiting |= !in_turn.is_empty();
    if let Some(entry) = in_turn.iter().rfind(|entry| !is_paused || tick::is_backfilled(entry)) {
        tick::promote(schedules, found, entry)?;
    }
    Ok(has_waiting)
}

/// Takes the due ticks of a schedule, oldest first.
fn take_due(
    schedules: &Arc<Schedules>,
    found: &Found,
    kept: &Kept,
    ticks: Vec<due::Due>,
    now_ms: i64,
) -> Result<(), Problem> {
    // The server, or its host, may have slept past the end of the pause.
    let is_paused = |due: &due::Due| kept.is_paused_at(now_ms) || kept.is_paused_at(due.due_ms);
    let missed = ticks.iter().filter(|due| due.is_missed && due.runs && !is_paused(due)).count();
    let is_in_turn = tick::run_in_turn(schedules, found, missed, now_ms)?;
    for due in ticks {
        let late_ms = due.is_late.then(|| now_ms.saturating_sub(due.due_ms));
        let nominal = tick::Tick { late_ms, ..tick::Tick::nominal(due.at_ms, due.due_ms) };
        match due.runs {
            _ if is_paused(&due) => tick::skip(schedules, found, &nominal, "paused")?,
            true if due.is_missed && is_in_turn => tick::wait_in_turn(schedules, found, &nominal)?,
            true => tick::take(schedules, found, &nominal)?,
            false => tick::skip(schedules, found, &nominal, "missed")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_is_when_a_tick_is_due() {
        let pause = |next_ms: Option<i64>, has_waiting| {
            Look { next_ms, has_waiting, ..Look::default() }.pause(1_000).as_millis()
        };
        assert_eq!([None, Some(90_000), Some(1_300), Some(900)].map(|at| pause(at, false)), [1_000, 1_000, 300, 10]);
        assert_eq!([None, Some(90_000), Some(1_300), Some(1_100)].map(|at| pause(at, true)), [250, 250, 250, 100]);
    }
}
