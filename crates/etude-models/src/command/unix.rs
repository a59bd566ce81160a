//! Process groups.

use rustix::process::{Pid, Signal, kill_process_group};

/// Kills the group that the child leads.
pub(super) fn kill(id: Option<u32>) {
    let pid = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The group may have ended by itself.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
