//! A limit on concurrent processes, derived from file descriptors: waiting a moment for one is better than a run that fails
//! for want of it.
//!
//! Each process takes some descriptors, and so does the rest of a run: its journal, its models, the files of long values. The
//! number of concurrent processes leaves enough for the rest. If that number is too low for a plan, this process raises its
//! own descriptor limit, up to its hard limit. Its children get the original limit.
//!
//! Descriptors belong to the whole process, and so do the permits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::cancel::{Cancel, Cancelled};
use super::os;

/// Maximum number of descriptors of one process: its end, an alarm, three pipes, and files for its input and its outputs.
/// While it starts, the child's ends of the pipes and the pipe for an error of `exec` take the place of the files and a few
/// more.
const EACH: u64 = 12;

/// Number of descriptors left to everything else.
const REST: u64 = 64;

/// Upper bound of the descriptor limit. More are of no use: there are never as many threads that attend processes.
const MAX_COUNT: u64 = 8192;

/// Pause between two checks of a waiting caller for its cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// Number of checks in a row without a change after which a wait is idle. The running processes may wait for the very process
/// that waits for its permit (a middleware around a step). Then one more process begins, if that leaves enough to everything
/// else.
const LOOKS: u32 = 20;

/// Maximum number of idle waits for a permit.
const MAX_IDLE_WAITS: u32 = 60;

/// Maximum number of waits for another process to end.
const MAX_WAITS: u32 = 600;

/// Maximum number of start attempts, a [`LOOK`] apart, while no process of etude is under way that could end. Another program
/// may hold the resource.
const MAX_LONE_ATTEMPTS: u32 = 40;

static PERMITS: Permits = Permits {
    now: Mutex::new(Now { under_way: 0, guests: 0, ended: 0, room: None }),
    changed: Condvar::new(),
    freed: Notify::const_new(),
};

struct Permits {
    now: Mutex<Now>,
    changed: Condvar,
    /// Notifies tasks, which must not block on `changed`.
    freed: Notify,
}

struct Now {
    under_way: u64,
    /// Number of processes around others, such as middleware. They wait for processes inside them, and take at most half of
    /// the room.
    guests: u64,
    /// Number of processes that have ended so far, or that began without room.
    ended: u64,
    /// Maximum number of concurrent processes. Computed for the first one.
    room: Option<u64>,
}

/// The right of a process, or of a model call, to be under way. Dropping it releases the right.
#[derive(Debug)]
pub struct Permit {
    has_run: bool,
    is_guest: bool,
}

impl Permit {
    /// Waits until there is room for one more process. `is_guest` is true if that process may itself wait for another one.
    ///
    /// # Errors
    /// The wait was cancelled.
    pub(super) fn take(cancel: &Cancel, is_guest: bool) -> Result<Self, Cancelled> {
        let mut now = PERMITS.now();
        let mut idle_waits = 0;
        while !now.has_room(is_guest) {
            now.make_room();
            now = PERMITS.wait(now, cancel, |now| now.has_room(is_guest))?;
            idle_waits += 1;
            if !now.has_room(is_guest) && (idle_waits == MAX_IDLE_WAITS || os::are_descriptors_free(REST)) {
                // One process at a time: the other waiters see a change and check the room again.
                now.ended += 1;
                break;
            }
        }
        Ok(now.begin(is_guest))
    }

    /// Waits for room without blocking a thread. For work that takes descriptors as a process does, such as a model call,
    /// which is a connection or a program. No other process begins inside such work.
    pub async fn ready() -> Self {
        loop {
            // Subscribed before the check, so that no end is missed.
            let freed = PERMITS.freed.notified();
            {
                let mut now = PERMITS.now();
                if !now.has_room(false) {
                    now.make_room();
                }
                if now.has_room(false) {
                    return now.begin(false);
                }
            }
            // A process may have taken the room that one end made.
            let _ = tokio::time::timeout(LOOK * LOOKS, freed).await;
        }
    }

    /// Returns the permit because the process could not be started, and waits until another process has ended. Adds to
    /// `idle_waits` if no process is under way.
    ///
    /// # Errors
    /// The wait was cancelled.
    pub(super) fn yield_permit(mut self, cancel: &Cancel, idle_waits: &mut u32) -> Result<Patience, Cancelled> {
        self.has_run = false;
        drop(self);
        let mut now = PERMITS.now();
        if now.under_way == 0 {
            *idle_waits += 1;
            // No notification comes: this is a pause, after which the cancellation is checked.
            drop(PERMITS.changed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner));
            if cancel.is_cancelled() {
                return Err(Cancelled::default());
            }
            return Ok(if *idle_waits < MAX_LONE_ATTEMPTS { Patience::Left } else { Patience::Over });
        }
        let before = now.ended;
        for _ in 0..MAX_WAITS {
            if now.under_way == 0 || now.ended != before {
                break;
            }
            now = PERMITS.wait(now, cancel, |now| now.under_way == 0 || now.ended != before)?;
        }
        Ok(if now.under_way == 0 || now.ended != before { Patience::Left } else { Patience::Over })
    }
}

/// Result of a wait: whether another attempt can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Left,
    Over,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut now = PERMITS.now();
        now.under_way -= 1;
        now.guests -= u64::from(self.is_guest);
        now.ended += u64::from(self.has_run);
        PERMITS.changed.notify_all();
        PERMITS.freed.notify_one();
    }
}

impl Permits {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_enough` or until the wait is idle.
    fn wait<'t>(
        &'t self,
        mut now: MutexGuard<'t, Now>,
        cancel: &Cancel,
        is_enough: impl Fn(&mut Now) -> bool,
    ) -> Result<MutexGuard<'t, Now>, Cancelled> {
        let (mut ended, mut idle_waits) = (now.ended, 0);
        while !is_enough(&mut now) && idle_waits < LOOKS {
            if cancel.is_cancelled() {
                return Err(Cancelled::default());
            }
            let timed_out;
            (now, timed_out) = {
                let (now, wait) = self.changed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner);
                (now, wait.timed_out())
            };
            idle_waits = if now.ended == ended { idle_waits + u32::from(timed_out) } else { 0 };
            ended = now.ended;
        }
        Ok(now)
    }
}

impl Now {
    fn has_room(&mut self, is_guest: bool) -> bool {
        let room = *self.room.get_or_insert_with(|| os::descriptors().map_or(u64::MAX, room));
        self.under_way < room && (!is_guest || self.guests < room.div_ceil(2))
    }

    fn begin(&mut self, is_guest: bool) -> Permit {
        self.under_way += 1;
        self.guests += u64::from(is_guest);
        Permit { has_run: true, is_guest }
    }

    /// Raises the descriptor limit of this process, if the system allows it.
    fn make_room(&mut self) {
        self.room = os::allow_descriptors(MAX_COUNT).map(room).or(self.room);
    }
}

/// Number of processes that `descriptors` suffice for, at least 1.
fn room(descriptors: u64) -> u64 {
    (descriptors.saturating_sub(REST) / EACH).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_enough_for_one_process_at_least() {
        assert_eq!([0, 30, 88, 256, 1024].map(room), [1, 1, 2, 16, 80]);
    }

    /// Middleware waits for the process inside it. If middleware took all the room, nothing would ever end.
    #[test]
    fn what_waits_for_others_takes_half_of_the_room_at_most() {
        let now = |under_way, guests, room| Now { under_way, guests, ended: 0, room: Some(room) };
        let has = |mut now: Now| [true, false].map(|is_guest| now.has_room(is_guest));
        assert_eq!(has(now(59, 59, 120)), [true, true]);
        assert_eq!(has(now(60, 60, 120)), [false, true]);
        assert_eq!(has(now(120, 0, 120)), [false, false]);
        assert_eq!(has(now(0, 0, 1)), [true, true], "one at least");
    }
}
