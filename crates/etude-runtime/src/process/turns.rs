//! How many processes are under way at once, as far as file descriptors go: a step that waits a moment for one is better
//! than a run that fails for want of it.
//!
//! Each process takes some descriptors, and the rest of a run takes some as well: its journal, its models, the files that
//! long values lie in. So there are only as many processes at once as leave enough for the rest. When that is too few for
//! what a plan asks for, this process allows itself more descriptors, as far as it may; its children get what it was given.
//!
//! Descriptors belong to the whole process, and so does this.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cancel::{Cancel, Cancelled};
use super::os;

/// So many descriptors a process takes at most: its end, an alarm, three pipes, and files for its input and its outputs. While
/// it is started it takes a few more.
const EACH: u64 = 8;

/// So many are left to everything else.
const REST: u64 = 64;

/// More descriptors than this are of no use: there are never as many threads that attend processes.
const MOST: u64 = 8192;

/// How often somebody who waits looks whether that is still asked for.
const LOOK: Duration = Duration::from_millis(50);

/// So many looks in a row in which nothing changes make a wait vain: what is under way may wait for the very process that waits
/// for its turn (a layer around a step). Then one more begins if that leaves enough to everything else.
const LOOKS: u32 = 20;

/// So many vain waits for a turn are enough in any case.
const VAIN_TURNS: u32 = 60;

/// So many vain waits for another process to end are enough.
const VAIN_WAITS: u32 = 600;

static TURNS: Turns =
    Turns { now: Mutex::new(Now { under_way: 0, guests: 0, ended: 0, room: None }), changed: Condvar::new() };

struct Turns {
    now: Mutex<Now>,
    changed: Condvar,
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

/// A process's right to be under way, which ends with this.
#[derive(Debug)]
pub(super) struct Turn {
    has_run: bool,
    is_guest: bool,
}

impl Turn {
    /// Waits until there is room for one more process; `is_guest` if it may wait for another one itself.
    ///
    /// # Errors
    /// It was given up.
    pub(super) fn take(cancel: &Cancel, is_guest: bool) -> Result<Self, Cancelled> {
        let mut now = TURNS.now();
        let mut vain = 0;
        while !now.has_room(is_guest) {
            now.make_room();
            now = TURNS.wait(now, cancel, |now| now.has_room(is_guest))?;
            vain += 1;
            if !now.has_room(is_guest) && (vain == VAIN_TURNS || os::are_free(REST)) {
                // One at a time: the others see a change, and look again whether there is enough.
                now.ended += 1;
                break;
            }
        }
        now.under_way += 1;
        now.guests += u64::from(is_guest);
        Ok(Self { has_run: true, is_guest })
    }

    /// Gives the turn back, because the process could not be started, and waits until another one has ended. False if nothing
    /// is under way that could, or if it does not.
    ///
    /// # Errors
    /// It was given up.
    pub(super) fn give_way(mut self, cancel: &Cancel) -> Result<bool, Cancelled> {
        self.has_run = false;
        drop(self);
        let mut now = TURNS.now();
        let before = now.ended;
        for _ in 0..VAIN_WAITS {
            if now.under_way == 0 || now.ended != before {
                break;
            }
            now = TURNS.wait(now, cancel, |now| now.under_way == 0 || now.ended != before)?;
        }
        Ok(now.ended != before)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut now = TURNS.now();
        now.under_way -= 1;
        now.guests -= u64::from(self.is_guest);
        now.ended += u64::from(self.has_run);
        TURNS.changed.notify_all();
    }
}

impl Turns {
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
        let (mut ended, mut vain) = (now.ended, 0);
        while !is_enough(&mut now) && vain < LOOKS {
            if cancel.is_cancelled() {
                return Err(Cancelled::default());
            }
            let timed_out;
            (now, timed_out) = {
                let (now, wait) = self.changed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner);
                (now, wait.timed_out())
            };
            vain = if now.ended == ended { vain + u32::from(timed_out) } else { 0 };
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

    /// Allows this process more descriptors, if it may have them.
    fn make_room(&mut self) {
        self.room = os::allow_descriptors(MOST).map(room).or(self.room);
    }
}

/// How many processes so many descriptors are enough for.
fn room(descriptors: u64) -> u64 {
    (descriptors.saturating_sub(REST) / EACH).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_enough_for_one_process_at_least() {
        assert_eq!([0, 30, 80, 1024].map(room), [1, 1, 2, 120]);
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
