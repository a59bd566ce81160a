//! Process groups, and a program in place of this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(super) fn detach(command: &mut Command) {
    command.process_group(0);
}

pub(super) fn replace(mut command: Command) -> io::Error {
    command.exec()
}
