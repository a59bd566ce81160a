//! Checks that need the operating system, on Windows.

use std::path::Path;

/// Bytes that the user can still write at `path`; unknown here.
pub(super) fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// True if the user can create a file in the directory `dir`; unknown here, so always true.
pub(super) fn can_write(_dir: &Path) -> bool {
    true
}

/// True if `path`, with one of the usual extensions, is a program.
pub(super) fn is_program(path: &Path) -> bool {
    ["", "exe", "cmd", "bat"].iter().any(|extension| path.with_extension(extension).is_file())
}
