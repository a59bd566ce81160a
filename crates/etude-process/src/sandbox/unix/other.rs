//! Unix other than Linux: nothing keeps a process in a sandbox.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::sandbox::Given;
use crate::sandbox::wire::Rules;

/// From this version on Landlock keeps signals inside.
pub(in crate::sandbox) const SIGNALS: u32 = 6;

/// The version of Landlock's interface.
pub(in crate::sandbox) fn landlock() -> Result<u32, String> {
    Err("sandboxes need Linux 6.2 or newer".to_owned())
}

/// Opens what is at `path`, links followed.
pub(in crate::sandbox) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(File::open(path)?.into())
}

/// Sends descriptors.
pub(crate) fn send(_socket: impl AsFd, _fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What this process is given.
pub(in crate::sandbox) fn receive(_socket: impl AsFd, _rules: &Rules, _has_stdin: bool) -> io::Result<Given> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Takes rights from this process.
pub(in crate::sandbox) fn restrict(_rules: &Rules, _given: &Given) -> Result<(), String> {
    landlock().map(drop)
}
