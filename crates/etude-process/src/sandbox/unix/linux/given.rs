//! Passing of descriptors from the runner to the program that sets up the sandbox.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::sandbox::Given;
use crate::sandbox::wire::Rules;

/// Maximum number of descriptors in one message; Linux accepts 253.
const MAX: usize = 200;

/// Opens a path for rules about it; links are followed.
pub(in crate::sandbox) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Sends descriptors, at most `MAX` in each message, and one byte with each message.
pub(crate) fn send(socket: impl AsFd, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    for fds in fds.chunks(MAX) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(fds));
        sendmsg(&socket, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives the descriptors that the runner has sent over `socket`, the stdin of this process.
pub(in crate::sandbox) fn receive(socket: impl AsFd, rules: &Rules, has_stdin: bool) -> io::Result<Given> {
    let count = usize::from(has_stdin) + 1 + rules.read + rules.write;
    let mut fds = Vec::with_capacity(count);
    while fds.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let got = recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let before = fds.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        if got.bytes == 0 || fds.len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(io::ErrorKind::UnexpectedEof);
    let (stdin, dir) = (if has_stdin { Some(next()?) } else { None }, next()?);
    let read = fds.by_ref().take(rules.read).collect();
    Ok(Given { stdin, dir, read, write: fds.collect() })
}
