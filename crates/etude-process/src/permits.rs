//! How many processes are under way at once, bounded by file descriptors: a step that waits a moment for one is better
//! than a run that fails for want of it.
//!
//! Each process takes some descriptors, and the rest of a run takes some as well: its journal, its models, the files that
//! long values lie in. So there are only as many processes at once as leave enough for the rest. When that is too few for
//! what a plan asks for, this process allows itself more descriptors, up to its limit; its children get what it was given.
//!
//! Descriptors belong to the whole process, and so does this.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::cancel::{Cancel, Cancelled};
use super::os;

/// Most descriptors of a process: its end, an alarm, three pipes, and files for its input and its outputs. While it starts, the
/// child's ends of the pipes and the pipe for an error of `exec` take the place of the files and a few more.
const EACH: u64 = 12;

/// Number left to everything else.
const REST: u64 = 64;

/// More descriptors than this are of no use: there are never as many threads that attend processes.
const MAX_COUNT: u64 = 8192;

/// How often somebody who waits looks whether that is still asked for.
const LOOK: Duration = Duration::from_millis(50);

/// Number of looks in a row without a change after which a wait is idle: what is under way may wait for the very process that waits
/// for its turn (a layer around a step). Then one more begins if that leaves enough to everything else.
const LOOKS: u32 = 20;

/// Upper bound of idle waits for a permit.
const MAX_IDLE_WAITS: u32 = 60;

/// Upper bound of waits for another process to end.
const MAX_WAITS: u32 = 600;

/// How often a start is tried again, a [`LOOK`] apart, while nothing of ours is under way that could end: another program may
/// be what takes the rest.
const MAX_LONE_ATTEMPTS: u32 = 40;

static PERMITS: Permits = Permits {
    now: Mutex::new(Now { under_way: 0, guests: 0, ended: 0, room: None }),
    changed: Condvar::new(),
    freed: Notify::const_new(),
};

struct Permits {
    now: Mutex<Now>,
    changed: Condvar,
    /// The same for tasks, which must not block.
    freed: Notify,
}

struct Now {
    under_way: u64,
    /// How many of them are around others, such as layers: they wait for what is within them, and take half of the room at most.
    guests: u64,
    /// How many have ended so far, or begun without room.
    ended: u64,
    /// How many there may be at once; found out with the first.
    room: Option<u64>,
}

/// The right of a process, or of a call of a model, to be under way, which ends with this.
#[derive(Debug)]
pub struct Permit {
    has_run: bool,
    is_guest: bool,
}

impl Permit {
    /// Waits until there is room for one more process; `is_guest` if it may wait for another one itself.
    ///
    /// # Errors
    /// It was given up.
    pub(super) fn take(cancel: &Cancel, is_guest: bool) -> Result<Self, Cancelled> {
        let mut now = PERMITS.now();
        let mut idle_waits = 0;
        while !now.has_room(is_guest) {
            now.make_room();
            now = PERMITS.wait(now, cancel, |now| now.has_room(is_guest))?;
            idle_waits += 1;
            if !now.has_room(is_guest) && (idle_waits == MAX_IDLE_WAITS || os::are_free(REST)) {
                // One at a time: the others see a change, and look again whether there is enough.
                now.ended += 1;
                break;
            }
        }
        Ok(now.begin(is_guest))
    }

    /// Waits for room without a thread: for what takes descriptors as a process does, such as a call of a model, which is a
    /// connection or a program. Nothing else begins inside it.
    pub async fn ready() -> Self {
        loop {
            // Before the look, so that no end is missed.
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

    /// Gives the turn back, because the process could not be started, and waits until another one has ended. Adds to `vain` if
    /// nothing is under way that could.
    ///
    /// # Errors
    /// It was given up.
    pub(super) fn yield_permit(mut self, cancel: &Cancel, idle_waits: &mut u32) -> Result<Patience, Cancelled> {
        self.has_run = false;
        drop(self);
        let mut now = PERMITS.now();
        if now.under_way == 0 {
            *idle_waits += 1;
            // Nothing notifies: this is a pause, which a cancellation ends soon enough.
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

/// Whether it makes sense to try once more.
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

    /// Waits until `is_enough`, or in vain.
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

    /// Allows this process more descriptors, if it may have them.
    fn make_room(&mut self) {
        self.room = os::allow_descriptors(MAX_COUNT).map(room).or(self.room);
    }
}

/// Number of processes that the descriptors suffice for.
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

    /// Layers wait for what is within them: if they took all the room, nothing would ever end.
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
