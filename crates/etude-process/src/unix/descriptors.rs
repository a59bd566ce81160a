//! How many file descriptors this process may have, and how many its children.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use super::platform;

/// What this process was given, if it has allowed itself more.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// How many there may be; `None`: any number.
pub(crate) fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Allows this process up to `most`, up to the user's limit. How many there may be now, if that is more than before.
pub(crate) fn allow_descriptors(most: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let more = limit.maximum.map_or(most, |maximum| maximum.min(most));
    if limit.current.is_none_or(|current| current >= more) {
        return None;
    }
    // Before, so that no child that is started right now keeps more than it should.
    GIVEN.get_or_init(|| limit);
    setrlimit(Resource::Nofile, Rlimit { current: Some(more), ..limit }).ok()?;
    Some(more)
}

/// True if that many are free. They are counted: opening as many would take them from others for a moment.
pub(crate) fn are_free(count: u64) -> bool {
    let open = || fs::read_dir("/dev/fd").map(|all| all.count() as u64);
    descriptors().is_none_or(|most| open().is_ok_and(|open| open + count <= most))
}

/// Gives the child `id` what this process was given: programs that call `select` break beyond 1,024. Setting it between fork and
/// exec would cost every start a fork of our memory, so a program may have more in its first moment.
pub(super) fn give_back(id: Pid) {
    if let Some(given) = GIVEN.get() {
        platform::limit_descriptors(id, *given);
    }
}
