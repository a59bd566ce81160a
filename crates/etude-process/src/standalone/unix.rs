//! Process groups.

use std::os::unix::process::CommandExt;
use std::process::Command;

pub(super) fn detach(command: &mut Command) {
    command.process_group(0);
}
