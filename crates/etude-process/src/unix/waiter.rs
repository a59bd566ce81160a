//! A thread that watches for the end of a process, where the operating system has no file descriptor for it.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Stack size of a thread that only waits, in bytes.
const STACK: usize = 64 * 1024;

/// A file descriptor that becomes readable (end of file) when the child `id` has ended. The child is not reaped.
pub(super) fn end_of(id: Pid) -> io::Result<OwnedFd> {
    let (end, held) = io::pipe()?;
    thread::Builder::new().name("wait".to_owned()).stack_size(STACK).spawn(move || {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(id), look), Err(Errno::INTR)) {}
        drop(held);
    })?;
    Ok(end.into())
}
