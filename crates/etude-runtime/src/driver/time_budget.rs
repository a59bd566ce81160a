//! The time budget of a run across all its processes. Each process records the budget's end, and a sign
//! of life at intervals, so that a process that dies loses little of the used time.

use std::time::Duration;

use etude_core::effect::EffectId;
use etude_core::machine::{Limits, time_budget};
use etude_core::plan::Plan;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::{Driver, Error, Timer};
use crate::engine::{Record, Session};
use crate::record::{self, Clock};

/// Number of signs of life per whole budget.
const SIGNS: u64 = 100;

/// Longest interval between two signs of life; the next constant is the shortest.
const MAX_APART_MS: u64 = 300_000;
const MIN_APART_MS: u64 = 1000;

pub(super) struct TimeBudget {
    /// The sleep that ends with the time budget of the run.
    pub(super) id: EffectId,
    /// The budget as the earlier processes left it.
    before: Option<Clock>,
    /// Interval of this process's signs of life.
    pub(super) signs: Interval,
}

impl TimeBudget {
    pub(super) fn of(plan: &Plan, limits: &Limits, records: &[Record], session: &dyn Session) -> Self {
        let id = time_budget(plan);
        let counting = record::counting(records).map(|(_, record)| record);
        let before = Clock::last(counting, id.as_str(), session.began_at_ms());
        let apart = limits.timeout_ms.unwrap_or(u64::MAX) / SIGNS;
        let apart = Duration::from_millis(apart.clamp(MIN_APART_MS, MAX_APART_MS));
        let mut signs = interval_at(tokio::time::Instant::now() + apart, apart);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { id, before, signs }
    }

    /// End of a budget of `ms` that begins or continues at `now_ms`, in milliseconds since 1970.
    pub(super) fn ends_ms(&self, now_ms: i64, ms: u64) -> i64 {
        now_ms.saturating_add_unsigned(self.before.map_or(ms, |before| before.left_ms(now_ms).min(ms)))
    }

    /// End of the budget in milliseconds since 1970, if it is used up at `now_ms`.
    pub(super) fn over_ms(&self, now_ms: i64) -> Option<i64> {
        self.before.filter(|before| before.left_ms(now_ms) == 0).map(|before| before.ends_ms)
    }
}

impl Driver<'_, '_> {
    /// Records a sign of life of this process, if the run has a time budget.
    pub(super) async fn give_sign_of_life(&mut self) -> Result<(), Error> {
        let Some(Timer { ends_ms, .. }) = self.sleeping.get(&self.time.id) else { return Ok(()) };
        // If this process has lost the run, the start of the next effect finds out.
        if self.drive.session.check_lease().is_err() {
            return Ok(());
        }
        let record = record::of_clock(*ends_ms, self.at_ms());
        Ok(self.drive.session.append(record).await?)
    }
}
