//! New files, where files have no executable bit.

use std::fs::OpenOptions;

/// Options to create a file that must not exist.
pub(super) fn options(_executable: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    options
}
