//! Runs that came to a stop here without an end, so that none is continued for ever.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_core::failure::FailureKind;

/// How often a run is continued that stops without a new record.
pub(crate) const MAX_ATTEMPTS: u32 = etude_runs::listing::MAX_DEATHS;

/// The time between two attempts with a run that stopped too often for something that may pass.
const PAUSE: Duration = Duration::from_secs(60);

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    /// It may pass by itself, as a full disk does.
    pub(crate) may_pass: bool,
}

impl Reason {
    /// One that stays until a person does something.
    pub(crate) fn lasting(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), may_pass: false }
    }

    /// One that may pass by itself.
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
    /// How many records the run had.
    records: usize,
    at: Instant,
    reason: Reason,
}

/// What becomes of a run that may have stopped here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It may be continued.
    Continue,
    /// Other processes come first: what is missing here may be there.
    Later,
    /// It has stopped too often, the last time for this reason, which does not pass.
    Stuck(Reason),
}

impl Stops {
    /// Notes that a run with this number of records stopped.
    pub(crate) fn note(&self, run_id: &str, records: usize, reason: Reason) {
        let mut stops = self.stops();
        let before = stops.get(run_id).filter(|stop| stop.records == records).map_or(0, |stop| stop.count);
        let stop = Stop { count: before + 1, records, at: Instant::now(), reason };
        stops.insert(run_id.to_owned(), stop);
    }

    /// What becomes of a run. `records` counts its records now; `pause` is the time for others after a stop.
    ///
    /// # Errors
    /// As `records`.
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

    /// Forgets a run that is over.
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
    /// A run that stops for something that may pass is never stuck: it is only continued more seldom.
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
