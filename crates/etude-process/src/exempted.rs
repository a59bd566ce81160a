//! Children of this process that no run has started and no run ends, such as the local model's process, which also serves
//! other runs.

use std::collections::HashSet;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use super::os;

static EXEMPTED: Mutex<Vec<os::Id>> = Mutex::new(Vec::new());

/// Exempts `child`, which no step has started, and its descendants when hosts of this process kill leftovers. The child needs
/// a group and an environment of its own, because a process with the marks of a run ends with the run.
pub fn exempt(child: &Child) {
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).push(os::id_of(child));
}

/// Ends the exemption of a child that was waited for.
pub fn no_longer_exempt(child: &Child) {
    let id = os::id_of(child);
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != id);
}

/// All exempted processes.
pub(super) fn all() -> HashSet<os::Id> {
    EXEMPTED.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}
