//! Runs that stopped in this process without an end, with a limit on their continuation.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_core::failure::FailureKind;

/// Maximum number of stops of a run without a new record.
pub(crate) const MAX_ATTEMPTS: u32 = etude_runs::listing::MAX_DEATHS;

/// Time between two attempts to continue a run that stopped too often for a transient reason.
const PAUSE: Duration = Duration::from_secs(60);

/// The reason why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    /// True if the reason may pass by itself, like a full disk.
    pub(crate) may_pass: bool,
}

impl Reason {
    /// A reason that stays until a person acts.
    pub(crate) fn lasting(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), may_pass: false }
    }

    /// A reason that may pass by itself.
    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Environment, message: message.into(), may_pass: true }
    }
}

/// The runs that stopped in this process.
#[derive(Debug, Default)]
pub(crate) struct Stops(Mutex<BTreeMap<String, Stop>>);

#[derive(Debug)]
struct Stop {
    count: u32,
    /// The number of records of the run at the stop.
    records: usize,
    at: Instant,
    reason: Reason,
}

/// The next step for a run that may have stopped here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The run may be continued.
    Continue,
    /// Other processes come first: they may have what is missing here.
    Later,
    /// The run has stopped too often, the last time for this lasting reason.
    Stuck(Reason),
}

impl Stops {
    /// Notes that a run stopped with this number of records.
    pub(crate) fn note(&self, run_id: &str, records: usize, reason: Reason) {
        let mut stops = self.stops();
        let before = stops.get(run_id).filter(|stop| stop.records == records).map_or(0, |stop| stop.count);
        let stop = Stop { count: before + 1, records, at: Instant::now(), reason };
        stops.insert(run_id.to_owned(), stop);
    }

    /// The next step for a run. `records` counts its records now; `pause` is the time for other processes after a stop.
    ///
    /// # Errors
    /// The error of `records`.
    pub(crate) fn next<E>(
        &self,
        run_id: &str,
        pause: Duration,
        records: impl FnOnce() -> Result<usize, E>,
    ) -> Result<Next, E> {
        let Some((count, before, at, reason)) =
            self.stops().get(run_id).map(|stop| (stop.count, stop.records, stop.at, stop.reason.clone()))
        else {
            return Ok(Next::Continue);
        };
        if at.elapsed() < pause {
            return Ok(Next::Later);
        }
        let is_stuck = count >= MAX_ATTEMPTS && records()? == before;
        Ok(match is_stuck {
            false => Next::Continue,
            true if !reason.may_pass => Next::Stuck(reason),
            true if at.elapsed() < PAUSE => Next::Later,
            true => Next::Continue,
        })
    }

    /// Forgets an ended run.
    pub(crate) fn forget(&self, run_id: &str) {
        self.stops().remove(run_id);
    }

    fn stops(&self) -> MutexGuard<'_, BTreeMap<String, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(message: &str) -> Reason {
        Reason::lasting(FailureKind::Environment, message)
    }

    /// A run is stuck after three stops without a new record; each stop leaves it to others for a while.
    #[test]
    fn a_run_is_stuck_after_three_stops_without_a_record() {
        let stops = Stops::default();
        let next = |pause, records| stops.next("r-1", pause, || Ok::<_, ()>(records));
        let hour = Duration::from_secs(3600);
        assert_eq!(next(hour, 1), Ok(Next::Continue));
        stops.note("r-1", 1, lasting("a"));
        assert_eq!((next(hour, 1), next(Duration::ZERO, 1)), (Ok(Next::Later), Ok(Next::Continue)));
        stops.note("r-1", 1, lasting("b"));
        stops.note("r-1", 1, lasting("c"));
        assert_eq!(next(Duration::ZERO, 1), Ok(Next::Stuck(lasting("c"))));
        assert_eq!(next(Duration::ZERO, 2), Ok(Next::Continue), "it has a new record");
        stops.note("r-1", 2, lasting("d"));
        assert_eq!(next(Duration::ZERO, 2), Ok(Next::Continue), "the count begins again");
        assert_eq!(stops.next("r-2", Duration::ZERO, || Err(())), Ok(Next::Continue), "nothing is counted");
    }
    /// A run that stops for a transient reason is never stuck: it is only continued less often.
    #[test]
    fn a_run_that_stops_for_something_passing_is_continued_later() {
        let stops = Stops::default();
        let next = || stops.next("r-1", Duration::ZERO, || Ok::<_, ()>(1));
        for _ in 0..2 {
            stops.note("r-1", 1, Reason::passing("the disk is full"));
            assert_eq!(next(), Ok(Next::Continue));
        }
        stops.note("r-1", 1, Reason::passing("the disk is full"));
        assert_eq!(next(), Ok(Next::Later));
        stops.note("r-1", 1, lasting("the definition has changed"));
        assert!(matches!(next(), Ok(Next::Stuck(_))));
    }
}
