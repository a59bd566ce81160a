//! Directories into which other users of the machine can put files.

mod unix;

use std::path::Path;

/// True if the content of `dir`, which is `start` or above it, may come from other users of the machine, unknown to the
/// user who works in `start`. In `/tmp`, for example, anyone can put an app.
pub fn is_of_others(dir: &Path, start: &Path) -> bool {
    unix::is_of_others(dir, start)
}
