//! A process group of its own: Ctrl-C in the terminal is for the run, not for the model.

use std::os::unix::process::CommandExt;
use std::process::Command;

pub(super) fn detach(command: &mut Command) {
    command.process_group(0);
}
