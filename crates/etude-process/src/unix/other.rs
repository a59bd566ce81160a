//! Unix other than Linux: a thread per process, and process groups only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Rlimit};

use super::kill::{Family, Member};

pub(super) use super::waiter::end_of;

/// Becomes readable when it is rung, and stays so.
#[derive(Debug)]
pub(crate) struct Alarm {
    reader: OwnedFd,
    rung: OwnedFd,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, rung) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { reader, rung })
    }

    pub(crate) fn ring(&self) {
        // A full pipe is one that was rung before.
        let _ = rustix::io::write(&self.rung, b"!");
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// What other processes may read is for the system to say.
pub fn keep_private() {}

/// Orphans go to process 1 here.
pub(crate) fn adopt_orphans() {}

/// The leaders of the groups in which something is alive. What left its group cannot be found here.
pub(super) fn members(family: &mut Family) -> Vec<Member> {
    let alive = family.groups.iter().filter(|group| super::is_group_alive(**group));
    alive.map(|group| Member { pid: *group, in_group: true }).collect()
}

/// No one but a process itself can limit its descriptors here.
pub(super) fn limit_descriptors(_id: Pid, _limit: Rlimit) {}

/// Pipes are as large as the system makes them.
pub(super) fn widen(_pipe: &OwnedFd, _bytes: usize) {}
