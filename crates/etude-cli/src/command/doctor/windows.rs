//! What only the operating system can say.

use std::path::Path;

/// Bytes that the user can still write where `path` is; not known here.
pub(super) fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// Whether the user can create something in the directory `dir`; not known here.
pub(super) fn can_write(_dir: &Path) -> bool {
    true
}

/// Whether `path`, with one of the usual extensions, is a program.
pub(super) fn is_program(path: &Path) -> bool {
    ["", "exe", "cmd", "bat"].iter().any(|extension| path.with_extension(extension).is_file())
}
