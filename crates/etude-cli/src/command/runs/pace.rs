//! Pauses between two looks at a run of another process.

use std::thread;
use std::time::{Duration, Instant};

/// Minimum ratio of a pause to the look before it. Looks at a run with many records take long, and at most about a tenth of the
/// time goes into them.
const SHARE: u32 = 10;

/// Maximum pause. The duration of a look that waited for the database does not predict that of the next one.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Interval at which a pause checks whether it must end.
const TICK: Duration = Duration::from_millis(50);

/// Pause after a look that took `look`.
pub(super) fn after(look: Duration, least: Duration) -> Duration {
    look.saturating_mul(SHARE).clamp(least, MAX_PAUSE)
}

/// Waits for `pause`, or until `is_ended` returns true.
pub(super) fn wait(pause: Duration, mut is_ended: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_ended() {
        let left = pause.saturating_sub(since.elapsed());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-23: a follower sees the end of a run soon after the database is back, however long the outage was.
    #[test]
    fn a_look_that_waited_for_the_database_delays_the_next_one_little() {
        let least = Duration::from_millis(100);
        assert_eq!(after(Duration::from_millis(1), least), least);
        assert_eq!(after(Duration::from_millis(50), least), Duration::from_millis(500));
        for outage in [Duration::from_secs(5), Duration::from_secs(300), Duration::MAX] {
            assert_eq!(after(outage, least), MAX_PAUSE);
        }
    }

    #[test]
    fn what_the_user_asks_ends_a_pause() {
        let mut looks = 0;
        wait(Duration::from_secs(86_400), || {
            looks += 1;
            looks == 2
        });
        assert_eq!(looks, 2);
    }
}
