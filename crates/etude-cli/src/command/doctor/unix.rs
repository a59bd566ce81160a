//! What only the operating system can say.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes that the user can still write where `path` is.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// Whether `path` is a program.
pub(super) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
