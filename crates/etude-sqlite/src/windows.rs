//! File operations on Windows.

use std::fs::File;
use std::io;
use std::path::Path;

/// True if `path` names a file: names are never used twice.
pub(crate) fn still_names(path: &Path, _file: &File) -> io::Result<bool> {
    path.try_exists()
}

/// Always false: a lock disappears with its process.
pub(crate) fn is_gone(_pid: u32) -> bool {
    false
}

/// A constant for any existing file, because an open file can be neither removed nor moved; `None` if there is no file.
pub(crate) fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    Ok(path.exists().then_some((0, 0)))
}

/// Checks that the file can be examined.
pub(crate) fn check_access(path: &Path) -> io::Result<()> {
    path.metadata().map(drop)
}

/// True if a lock was refused because the file system has none.
pub(crate) fn lacks_locks(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::Unsupported
}

/// Always fails: writes are not reported on this system.
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Always succeeds: every file system of Windows locks files.
pub(crate) fn try_record_lock(_file: &File) -> io::Result<()> {
    Ok(())
}
