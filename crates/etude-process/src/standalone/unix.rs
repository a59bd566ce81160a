//! Process groups, and replacement of this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process_group};

pub(super) fn detach(command: &mut Command) {
    command.process_group(0);
}

pub(super) fn terminate_group(leader: Option<u32>) {
    signal_group(leader, Signal::TERM);
}

pub(super) fn kill_group(leader: Option<u32>) {
    signal_group(leader, Signal::KILL);
}

pub(super) fn is_stopped_by_terminal(leader: Option<u32>) -> bool {
    id_of(leader).and_then(crate::unix::stopped_by).is_some()
}

fn id_of(leader: Option<u32>) -> Option<Pid> {
    leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

fn signal_group(leader: Option<u32>, signal: Signal) {
    if let Some(leader) = id_of(leader) {
        // The group may have ended already.
        let _ = kill_process_group(leader, signal);
    }
}

pub(super) fn replace(mut command: Command) -> io::Error {
    command.exec()
}
