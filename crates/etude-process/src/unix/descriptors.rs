//! Limits on the file descriptors of this process and of its children, and on its stack.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use super::platform;

/// The original limit of this process, once it has raised its own.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Maximum number of descriptors; `None` if unlimited.
pub(crate) fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Maximum size of the stack of the main thread, in bytes; `None` if unlimited.
pub fn main_stack() -> Option<u64> {
    getrlimit(Resource::Stack).current
}

/// Raises the limit of this process to `most`, or to the hard limit if that is lower. Returns the new limit; `None` if it was
/// not raised.
pub(crate) fn allow_descriptors(most: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let more = limit.maximum.map_or(most, |maximum| maximum.min(most));
    if limit.current.is_none_or(|current| current >= more) {
        return None;
    }
    // Stored first, so that a child that is started right now gets the original limit back.
    GIVEN.get_or_init(|| limit);
    setrlimit(Resource::Nofile, Rlimit { current: Some(more), ..limit }).ok()?;
    Some(more)
}

/// True if `count` descriptors are free. They are counted: opening as many would take them from others for a moment.
pub fn are_descriptors_free(count: u64) -> bool {
    let open = || fs::read_dir("/dev/fd").map(|all| all.count() as u64);
    descriptors().is_none_or(|most| open().is_ok_and(|open| open + count <= most))
}

/// Gives the child `id` the original limit: programs that call `select` break beyond 1,024. Setting it between fork and exec
/// would cost every start a fork of this process's memory, so a program may have more in its first moment.
pub(super) fn give_back(id: Pid) {
    if let Some(given) = GIVEN.get() {
        platform::limit_descriptors(id, *given);
    }
}
