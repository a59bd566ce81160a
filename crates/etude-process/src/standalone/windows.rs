//! Creation flags for detached programs; the other operations are unsupported.

use std::io;
use std::os::windows::process::CommandExt;
use std::process::Command;

/// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW`.
const APART: u32 = 0x0000_0200 | 0x0800_0000;

pub(super) fn detach(command: &mut Command) {
    command.creation_flags(APART);
}

pub(super) fn terminate_group(_: Option<u32>) {}

pub(super) fn kill_group(_: Option<u32>) {}

pub(super) fn is_stopped_by_terminal(_: Option<u32>) -> bool {
    false
}

pub(super) fn replace(_: Command) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system cannot replace a process by another program")
}
