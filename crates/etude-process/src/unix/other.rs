//! Processes on Unix other than Linux: a thread per process, and process groups only.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Rlimit};

use super::kill::{Family, Member};

pub(super) use super::waiter::end_of;

/// A descriptor that becomes readable when it is rung, and stays so.
#[derive(Debug)]
pub(crate) struct Alarm {
    reader: PipeReader,
    rung: PipeWriter,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, rung) = io::pipe()?;
        rustix::io::ioctl_fionbio(&rung, true)?;
        Ok(Self { reader, rung })
    }

    pub(crate) fn ring(&self) {
        // A full pipe was rung before.
        let _ = (&self.rung).write(b"!");
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Does nothing: the system alone decides what other processes may read.
pub fn keep_private() {}

/// Does nothing: orphans go to process 1 here.
pub(crate) fn adopt_orphans() {}

/// The leaders of the groups with living processes. Processes that left their group cannot be found here.
pub(super) fn members(family: &mut Family) -> Vec<Member> {
    let alive = family.groups.iter().filter(|group| super::is_group_alive(**group));
    alive.map(|group| Member { pid: *group, in_group: true }).collect()
}

/// Does nothing: only a process itself can limit its descriptors here.
pub(super) fn limit_descriptors(_id: Pid, _limit: Rlimit) {}

/// Does nothing: the system decides the capacity of pipes.
pub(super) fn widen(_pipe: &OwnedFd, _bytes: usize) {}
