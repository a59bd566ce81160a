//! Directories that other users of the machine can put files into.

#[cfg(unix)]
#[path = "shared/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "shared/windows.rs"]
mod os;

use std::path::Path;

/// True if what `dir`, at or above `start`, holds may be of other users of the machine: no one who works in `start` has named
/// it. In `/tmp` for one anybody can put an app.
pub fn is_of_others(dir: &Path, start: &Path) -> bool {
    os::is_of_others(dir, start)
}
