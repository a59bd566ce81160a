//! Files as Windows has them.

use std::fs::File;
use std::io;
use std::path::Path;

/// True if `path` names a file: names are never used twice.
pub(crate) fn still_names(path: &Path, _file: &File) -> io::Result<bool> {
    path.try_exists()
}

/// Always false: a lock is gone with its process.
pub(crate) fn is_gone(_pid: u32) -> bool {
    false
}

/// Whether there is such a file: one that is open can be neither removed nor moved.
pub(crate) fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    Ok(path.exists().then_some((0, 0)))
}

/// Writes are not reported here.
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}
