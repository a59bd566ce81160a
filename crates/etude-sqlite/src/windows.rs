//! Files as Windows has them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Creates a directory and those above it. The user's profile is private by its access list.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Nothing to do: the directory's access list is inherited.
pub(crate) fn make_private(_path: &Path) -> io::Result<()> {
    Ok(())
}

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

/// Nothing to do: the names are in the file system's own journal.
pub(crate) fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Writes are not reported here.
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}
