//! Unix other than Linux, where no sandbox can be enforced.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::sandbox::Given;
use crate::sandbox::wire::Rules;

/// Landlock version from which signals can be confined.
pub(in crate::sandbox) const SIGNALS: u32 = 6;

/// Always an error: there is no Landlock here.
pub(in crate::sandbox) fn landlock() -> Result<u32, String> {
    Err("sandboxes need Linux 6.2 or newer".to_owned())
}

/// Opens a path; links are followed.
pub(in crate::sandbox) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(File::open(path)?.into())
}

/// Always an error: without sandboxes no descriptors are passed.
pub(crate) fn send(_socket: impl AsFd, _fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Always an error: without sandboxes no descriptors are passed.
pub(in crate::sandbox) fn receive(_socket: impl AsFd, _rules: &Rules, _has_stdin: bool) -> io::Result<Given> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Always an error: this system cannot enforce rules.
pub(in crate::sandbox) fn restrict(_rules: &Rules, _given: &Given) -> Result<(), String> {
    landlock().map(drop)
}
