//! The record of a run's working time, for its time budget.

use etude_core::digest::Digest;

use super::{CLOCK, TAKEN, VERSION, at_ms, to_deadline};
use crate::engine::Record;

/// The time budget of a run, as the earlier processes left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// End of the budget in milliseconds since 1970, if the run had continued without a gap.
    pub ends_ms: i64,
    /// Last known activity of the last of these processes, in milliseconds since 1970; `None`: it suspended the run,
    /// and suspended time counts.
    pub seen_ms: Option<i64>,
}

impl Clock {
    /// The clock of a run which began at `began_at_ms`, by its records that count. `timer` is the effect of its time budget.
    pub fn last<'r>(records: impl Iterator<Item = &'r Record>, timer: &str, began_at_ms: i64) -> Option<Self> {
        let mut last: Option<Self> = None;
        for record in records {
            if record.key == CLOCK {
                last = Self::of(record).map(|ends_ms| Self { ends_ms, seen_ms: Some(began_at_ms) }).or(last);
            } else if let Some((_, ends_ms)) = to_deadline(record).filter(|(id, _)| id.as_str() == timer) {
                last = Some(Self { ends_ms, seen_ms: None });
            }
            // A record is a sign of life of the process that wrote it.
            if let Some(Self { seen_ms: Some(seen_ms), .. }) = &mut last
                && let Some(at_ms) = at_ms(record)
            {
                *seen_ms = (*seen_ms).max(began_at_ms.saturating_add_unsigned(at_ms));
            }
        }
        last
    }

    fn of(record: &Record) -> Option<i64> {
        etude_core::tree::parse(&record.body).ok()?.get("ends_ms")?.as_i64()
    }

    /// Remaining budget at `now_ms`, in milliseconds. Time in which no process had the run does not count.
    pub fn left_ms(&self, now_ms: i64) -> u64 {
        let until = self.seen_ms.map_or(now_ms, |seen_ms| seen_ms.min(now_ms));
        u64::try_from(self.ends_ms.saturating_sub(until)).unwrap_or(0)
    }
}

/// The record of a process at work on a run, `at_ms` milliseconds after the run began. The time budget ends at
/// `ends_ms`, in milliseconds since 1970.
pub fn of_clock(ends_ms: i64, at_ms: u64) -> Record {
    let body = serde_json::json!({"v": VERSION, "at": at_ms, "ends_ms": ends_ms}).to_string();
    Record { key: CLOCK.to_owned(), request: Digest::of(b"clock"), body, blobs: Vec::new() }
}

/// Number of records that show progress of a run. A process that only takes the run makes none.
pub fn progress(records: &[Record]) -> usize {
    records.iter().filter(|record| !TAKEN.contains(&record.key.as_str())).count()
}

#[cfg(test)]
mod tests {
    use etude_core::effect::{Effect, EffectId};
    use etude_core::outcome::{Completed, Outcome};

    use super::*;
    use crate::record::{of_deadline, of_outcome, of_resumed};

    const BEGAN: i64 = 1_000_000;

    fn left(records: &[Record], now_ms: i64) -> Option<u64> {
        Clock::last(records.iter(), "p!timeout", BEGAN).map(|clock| clock.left_ms(BEGAN + now_ms))
    }

    fn outcome(at_ms: u64) -> Record {
        let effect = Effect::Sleep { ms: 1, deadline: false };
        let completed = Completed { outcome: Outcome::Slept, elapsed_ms: 1 };
        of_outcome(&EffectId::new("p/a"), effect.digest(), &completed, None, at_ms)
    }

    /// time counts up to the last sign of life of each process, and not further.
    #[test]
    fn time_without_a_process_does_not_count() {
        let first = of_clock(BEGAN + 60_000, 0);
        assert_eq!(left(&[], 5), None);
        assert_eq!(left(&[outcome(7)], 5), None, "versions before this one kept no clock");
        assert_eq!(left(std::slice::from_ref(&first), 900_000), Some(60_000));
        assert_eq!(left(&[first.clone(), outcome(20_000)], 900_000), Some(40_000));
        let beat = of_clock(BEGAN + 60_000, 50_000);
        assert_eq!(left(&[first.clone(), outcome(20_000), beat.clone()], 900_000), Some(10_000));
        // The next process has 10 s, and dies after 4.
        let second = [first.clone(), beat, of_clock(BEGAN + 910_000, 900_000), outcome(904_000)];
        assert_eq!(left(&second, 5_000_000), Some(6_000));
        assert_eq!(left(&[first, outcome(70_000)], 900_000), Some(0));
    }

    /// ADR 0060: the time that a run waits for an answer counts, until a process has it again.
    #[test]
    fn time_that_a_run_waits_counts() {
        let timer = EffectId::new("p!timeout");
        let waits = [of_clock(BEGAN + 60_000, 0), outcome(20_000), of_deadline(&timer, BEGAN + 60_000)];
        assert_eq!(left(&waits, 50_000), Some(10_000));
        assert_eq!(left(&waits, 70_000), Some(0));
        assert_eq!(left(&waits[2..], 50_000), Some(10_000), "as in the journal of an earlier version");
        let goes_on = [&waits[..], &[of_clock(BEGAN + 60_000, 50_000), outcome(55_000)]].concat();
        assert_eq!(left(&goes_on, 900_000), Some(5_000));
        let other = of_deadline(&EffectId::new("p/ok!timeout"), BEGAN + 1);
        assert_eq!(left(&[waits[0].clone(), other], 900_000), Some(60_000));
    }

    /// K-35, S-161: neither a sign of life of a process nor a resumption is progress.
    #[test]
    fn signs_of_life_are_no_progress() {
        let resumed = of_resumed(&Default::default(), 3);
        assert_eq!(progress(&[of_clock(1, 0), outcome(1), of_clock(1, 2), resumed]), 1);
    }
}
