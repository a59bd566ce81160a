//! Due ticks of a schedule, and the decision which of them run.

use etude_spec::automation::{CatchUp, Schedule};

/// Maximum number of missed ticks that run.
const MAX_CAUGHT_UP: usize = 100;

/// Maximum number of missed ticks that are noted.
const MAX_KEPT: usize = 1_000;

/// Maximum time between two looks of a process that did not sleep, in milliseconds.
const MAX_GAP_MS: i64 = 30_000;

/// The instants that decide which ticks of a schedule are due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// All ticks up to this instant are settled.
    pub(super) after_ms: i64,
    /// The instant of the last successful look; `None` before the first one.
    pub(super) last_look_ms: Option<i64>,
    /// True if looks since then have failed.
    pub(super) has_failed: bool,
    pub(super) now_ms: i64,
}

impl Window {
    /// The window of a look. It reaches back by `catch_up_within`, but not further than the first sight of the schedule.
    pub(super) fn of(schedule: &Schedule, since_ms: i64, settled_ms: Option<i64>, now_ms: i64) -> Self {
        let within = i64::try_from(schedule.catch_up_within_ms.max(60_000)).unwrap_or(i64::MAX);
        let oldest = now_ms
            .saturating_sub(within)
            .saturating_sub(i64::try_from(schedule.jitter_ms).unwrap_or(i64::MAX))
            .max(since_ms);
        Self {
            after_ms: settled_ms.map_or(oldest, |settled| settled.max(oldest)),
            now_ms,
            last_look_ms: None,
            has_failed: false,
        }
    }

    /// The instant up to which this look settles every tick: with jitter, an earlier tick may be due later.
    pub(super) fn settled_ms(&self, schedule: &Schedule) -> i64 {
        self.now_ms.saturating_sub(i64::try_from(schedule.jitter_ms).unwrap_or(i64::MAX))
    }
}

/// A tick that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    /// The nominal time of the tick.
    pub(super) at_ms: i64,
    /// The nominal time plus jitter.
    pub(super) due_ms: i64,
    /// True if the tick starts a run; otherwise it was missed.
    pub(super) runs: bool,
    /// True if the time passed while no server looked.
    pub(super) is_late: bool,
    /// True if the time passed while no server was running, or while the machine slept.
    pub(super) is_missed: bool,
}

/// The due ticks, oldest first, and the first instant at which another one is due.
pub(super) fn due(schedule: &Schedule, window: Window, is_taken: impl Fn(i64) -> bool) -> (Vec<Due>, Option<i64>) {
    let Some(timing) = &schedule.timing else { return (Vec::new(), None) };
    let Window { after_ms, last_look_ms, has_failed, now_ms } = window;
    let nominal = timing.newest(after_ms, now_ms, MAX_KEPT);
    let with_jitter = |at_ms: i64| at_ms.saturating_add(jitter(&schedule.name, at_ms, schedule.jitter_ms));
    let pending = nominal.iter().copied().map(with_jitter).filter(|due| *due > now_ms);
    let next = pending.chain(timing.next(now_ms).map(with_jitter)).min();
    let due = nominal.into_iter().filter(|at| with_jitter(*at) <= now_ms && !is_taken(*at));
    // A process that slept, or that has just begun, treats no tick as current.
    let awake = last_look_ms.filter(|last| (0..=MAX_GAP_MS).contains(&(now_ms - last)));
    let is_current = |due_ms: i64| awake.is_some_and(|last| due_ms > last);
    let mut ticks: Vec<Due> = due
        .map(|at_ms| {
            let due_ms = with_jitter(at_ms);
            let is_current = is_current(due_ms);
            Due { at_ms, due_ms, runs: is_current, is_late: !is_current || has_failed, is_missed: !is_current }
        })
        .collect();
    let caught_up = match schedule.catch_up {
        CatchUp::None => 0,
        CatchUp::Last => 1,
        CatchUp::All => MAX_CAUGHT_UP,
    };
    ticks.iter_mut().rev().filter(|tick| !tick.runs).take(caught_up).for_each(|tick| tick.runs = true);
    (ticks, next)
}

/// The delay of a tick in milliseconds, below `max_ms`, and the same on every server.
pub(super) fn jitter(schedule: &str, at_ms: i64, max_ms: u64) -> i64 {
    if max_ms == 0 {
        return 0;
    }
    let hash = blake3::hash(format!("{schedule} {at_ms}").as_bytes());
    let number = hash.as_bytes().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    i64::try_from(number % max_ms).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use etude_spec::automation;
    use etude_spec::source::SourceFile;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn schedule(more: &str) -> Schedule {
        let text = format!("schedules:\n  a: {{pipeline: p, every: 1h{more}}}\n");
        let read = automation::read(&SourceFile::new("etude.yaml", text), None);
        assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
        read.schedules.into_iter().next().expect("a schedule")
    }

    /// A window whose last look did not fail.
    fn looked(after_ms: i64, last_look_ms: Option<i64>, now_ms: i64) -> Window {
        Window { after_ms, last_look_ms, has_failed: false, now_ms }
    }

    /// K-44: a tick that comes due while the journal fails for a moment is late, and not missed.
    #[test]
    fn a_tick_while_the_journal_fails_is_late_and_current() {
        let window = Window { has_failed: true, ..looked(0, Some(HOUR - 100), HOUR + 13_000) };
        let (ticks, _) = due(&schedule(", catch_up: none"), window, |_| false);
        assert_eq!(ticks, [Due { at_ms: HOUR, due_ms: HOUR, runs: true, is_late: true, is_missed: false }]);
    }

    /// The hours that are due after an outage until 10:30, and those of them that run.
    fn after_outage(more: &str) -> (Vec<i64>, Vec<i64>) {
        let window = looked(6 * HOUR, Some(6 * HOUR + 1), 10 * HOUR + HOUR / 2);
        let (ticks, next) = due(&schedule(more), window, |_| false);
        assert_eq!(next, Some(11 * HOUR));
        assert!(ticks.iter().all(|tick| tick.is_late));
        let hours = |runs: bool| ticks.iter().filter(|tick| tick.runs || !runs).map(|tick| tick.at_ms / HOUR).collect();
        (hours(false), hours(true))
    }

    /// S-102, S-103, K-44: after an outage or a sleep, all ticks are late, and `catch_up` decides which of them run.
    #[test]
    fn catch_up_decides_which_missed_ticks_run() {
        let all = vec![7, 8, 9, 10];
        assert_eq!(after_outage(", catch_up: none"), (all.clone(), vec![]));
        assert_eq!(after_outage(""), (all.clone(), vec![10]));
        assert_eq!(after_outage(", catch_up: all"), (all.clone(), all));
    }

    /// S-102: at most the newest 100 missed ticks run, oldest first.
    #[test]
    fn catch_up_has_a_bound() {
        let window = looked(0, None, 300 * HOUR);
        let (ticks, _) = due(&schedule(", catch_up: all"), window, |_| false);
        let ran: Vec<i64> = ticks.iter().filter(|tick| tick.runs).map(|tick| tick.at_ms / HOUR).collect();
        assert_eq!((ticks.len(), ran), (300, (201..=300).collect()));
    }

    /// K-44: a tick that comes due between two looks is current and not late, whatever `catch_up` is; a taken one is not due.
    #[test]
    fn a_tick_between_two_looks_is_current() {
        let window = looked(0, Some(HOUR - 100), HOUR + 100);
        let (ticks, _) = due(&schedule(", catch_up: none"), window, |_| false);
        assert_eq!(ticks, [Due { at_ms: HOUR, due_ms: HOUR, runs: true, is_late: false, is_missed: false }]);
        assert_eq!(due(&schedule(""), window, |_| true).0, []);
    }

    /// S-108: jitter is the same on two servers, stays within its bound and moves no nominal time.
    #[test]
    fn jitter_is_derived_from_the_tick() {
        let schedule = schedule(", jitter: 10m, catch_up: all");
        let window = looked(0, None, 90 * HOUR);
        let (ticks, _) = due(&schedule, window, |_| false);
        assert_eq!(ticks, due(&schedule, window, |_| false).0);
        let delays: Vec<i64> = ticks.iter().map(|tick| tick.due_ms - tick.at_ms).collect();
        assert!(delays.iter().all(|delay| (0..600_000).contains(delay)));
        assert!(delays.windows(2).any(|two| two[0] != two[1]));
        assert!(ticks.iter().all(|tick| tick.at_ms % HOUR == 0 && tick.due_ms <= window.now_ms));
    }

    /// Takes the ticks of a year with three servers that look at different times, sleep, and die now and then.
    fn year(pattern: &str, zone: &str, jitter: &str) -> (Vec<i64>, Vec<i64>) {
        let text = format!(
            "schedules:\n  a: {{pipeline: p, cron: \"{pattern}\", timezone: {zone}, catch_up: all, catch_up_within: 3d, jitter: {jitter}}}\n"
        );
        let read = automation::read(&SourceFile::new("etude.yaml", text), None);
        assert!(read.diagnostics.is_empty(), "{:?}", read.diagnostics);
        let schedule = read.schedules.into_iter().next().expect("a schedule");
        let (from, to) = (1_767_225_600_000, 1_798_761_600_000); // The year 2026 in UTC.
        let (mut taken, mut runs) = (std::collections::BTreeSet::new(), Vec::new());
        // The memory of each server: its last look, and the settled instant.
        let mut memories = [(None, None); 3];
        let mut now = from;
        for look in 0_i64.. {
            let server = usize::try_from(look % 3).expect("small");
            // From seconds to hours; some clocks are set back an hour.
            now += [9_000, 61_000, 1_000, 7 * HOUR, 250, 19 * HOUR, 20_000][usize::try_from(look % 7).expect("small")];
            let now = if look % 11 == 5 { now - HOUR } else { now };
            if now > to + 3_600_000 * 24 {
                break;
            }
            if look % 13 == 0 {
                memories[server] = (None, None);
            }
            let (last, settled) = memories[server];
            let (last, settled) = if last > Some(now) { (None, None) } else { (last, settled) };
            let window = Window { last_look_ms: last, ..Window::of(&schedule, from, settled, now) };
            for tick in due(&schedule, window, |at| taken.contains(&at)).0 {
                assert!(taken.insert(tick.at_ms) && tick.runs, "{pattern} in {zone}: {tick:?}");
                runs.push(tick.at_ms);
            }
            memories[server] = (Some(now), Some(window.settled_ms(&schedule)));
        }
        runs.retain(|at| *at <= to);
        runs.sort_unstable();
        (runs, schedule.timing.expect("a pattern").between(from, to, usize::MAX))
    }

    /// S-98, S-99, S-100, S-101: over a year in three zones, with both changes of the clock, three servers take each tick once
    /// and miss none. They look a quarter of a second to nineteen hours apart, die, and have clocks that are set back.
    #[test]
    fn a_year_with_three_servers_has_each_tick_once() {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
            for (pattern, jitter, count) in [("30 2 * * *", "20m", 365), ("15 */6 * * *", "0s", 365 * 4)] {
                let (runs, wanted) = year(pattern, zone, jitter);
                assert_eq!((runs.len(), runs == wanted), (count, true), "{pattern} in {zone}");
            }
        }
    }
}
