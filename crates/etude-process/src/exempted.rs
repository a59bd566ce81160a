//! Children of this process that no run has started and no run ends: the local model's process, which serves other runs
//! as well.

use std::collections::HashSet;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use super::os;

static EXEMPTED: Mutex<Vec<os::Id>> = Mutex::new(Vec::new());

/// Keeps `child`, which no step has started, and its descendants from the sweeps of hosts in this process. It has to
/// have a group and an environment of its own, since what carries a run's marks is ended with the run.
pub fn exempt(child: &Child) {
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).push(os::id_of(child));
}

/// Ends the exemption of a child that has been waited for.
pub fn no_longer_exempt(child: &Child) {
    let id = os::id_of(child);
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != id);
}

/// Everything that is spared.
pub(super) fn all() -> HashSet<os::Id> {
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}
