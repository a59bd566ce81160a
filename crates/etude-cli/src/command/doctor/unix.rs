//! Checks that need the operating system, on Unix.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Access;

/// Bytes that the user can still write at `path`; `None` where the system keeps no files, as in `/proc`.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_bavail.checked_mul(found.f_frsize).filter(|_| found.f_blocks > 0)
}

/// True if the user can create a file in the directory `dir`.
pub(super) fn can_write(dir: &Path) -> bool {
    rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// True if `path` is a program.
pub(super) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
