//! The costs of the runs of a day (`serve.per_day`), read from the journal: neither a restart nor a deletion forgets any.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use etude_runtime::engine::{COSTS, EntryQuery, RunRow, RunState, cost_of};

use crate::context::Context;
use crate::problem::{Problem, engine_failed};
use crate::result::{result_of, result_so_far};

/// Length of a day, in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// Changes of runs per read.
const PAGE: u32 = 500;

/// Interval of reads of the costs of deleted runs, in milliseconds. This server has seen most of these runs before their deletion.
const LOOK_MS: i64 = 60_000;

/// The costs of runs, each on the day of its acceptance.
#[derive(Debug, Default)]
pub(crate) struct Spending(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The last change that was read.
    change: u64,
    /// The day, and the cost in US dollars, of each run that has ended, waits or was queued again.
    ended: BTreeMap<String, (i64, f64)>,
    /// Runs in progress.
    running: BTreeMap<String, RunRow>,
    /// The time of the last read of the costs of deleted runs, in milliseconds since 1970.
    looked_ms: Option<i64>,
}

impl Spending {
    /// True if the runs of this day have used up the budget.
    pub(crate) fn is_spent(&self, context: &Context) -> Result<bool, Problem> {
        let Some(limit) = context.settings().max_cost_per_day_usd else { return Ok(false) };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = context.clock().now_ms();
        let today = now_ms.div_euclid(DAY_MS);
        seen.catch_up(context, today)?;
        seen.add_deleted(context, now_ms)?;
        let ended: f64 = seen.ended.values().filter(|(day, _)| *day == today).map(|(_, cost)| cost).sum();
        let running = seen.running.values().map(|row| cost(context, row)).sum::<Result<f64, Problem>>()?;
        Ok(ended + running >= limit)
    }

    /// The seconds until the next day begins.
    pub(crate) fn seconds_left(&self, now_ms: i64) -> u64 {
        u64::try_from((DAY_MS - now_ms.rem_euclid(DAY_MS)) / 1_000 + 1).unwrap_or(1)
    }
}

impl Seen {
    fn catch_up(&mut self, context: &Context, today: i64) -> Result<(), Problem> {
        self.ended.retain(|_, (day, _)| *day >= today);
        self.running.retain(|_, row| row.created_at_ms.div_euclid(DAY_MS) >= today);
        loop {
            let rows = context.engine().changes(self.change, PAGE).map_err(|e| engine_failed(&e))?;
            let Some(last) = rows.last() else { return Ok(()) };
            let last = last.change;
            for row in rows.into_iter().filter(|row| context.slug(&row.app).is_some()) {
                self.ended.remove(&row.id);
                self.running.remove(&row.id);
                let day = row.created_at_ms.div_euclid(DAY_MS);
                match row.state {
                    _ if day < today => {}
                    // A run that was queued again has the cost of its earlier attempts.
                    RunState::Queued if row.started_at_ms.is_none() => {}
                    RunState::Running => drop(self.running.insert(row.id.clone(), row)),
                    _ => drop(self.ended.insert(row.id.clone(), (day, cost(context, &row)?))),
                }
            }
            self.change = last;
        }
    }
}

impl Seen {
    /// Adds the costs of deleted runs that were created today.
    fn add_deleted(&mut self, context: &Context, now_ms: i64) -> Result<(), Problem> {
        if self.looked_ms.is_some_and(|looked| (looked..looked + LOOK_MS).contains(&now_ms)) {
            return Ok(());
        }
        let today = now_ms.div_euclid(DAY_MS);
        let query = EntryQuery { book: COSTS.to_owned(), from_ms: Some(today * DAY_MS), ..EntryQuery::default() };
        for entry in context.engine().entries(&query).map_err(|e| engine_failed(&e))? {
            if let Some((_, cost)) = cost_of(&entry).filter(|(app, _)| context.slug(app).is_some()) {
                self.running.remove(&entry.key);
                self.ended.insert(entry.key, (entry.at_ms.div_euclid(DAY_MS), cost));
            }
        }
        self.looked_ms = Some(now_ms);
        Ok(())
    }
}

/// The cost of a run so far, in US dollars; 0 if its journal is unreadable.
fn cost(context: &Context, row: &RunRow) -> Result<f64, Problem> {
    let engine = context.engine();
    let document = match result_of(&**engine, row) {
        Ok(Some(document)) => Some(document),
        _ => engine.view(&row.id).ok().and_then(|view| result_so_far(context, &view)),
    };
    let usage = document.as_ref().and_then(|document| document.members.get("usage"));
    Ok(usage.and_then(|usage| usage["cost_usd"].as_f64()).unwrap_or(0.0))
}
