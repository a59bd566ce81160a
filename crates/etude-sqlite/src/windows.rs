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

/// Always true: lock files are never removed here.
pub(crate) fn still_names(_path: &Path, _file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Always false: a lock is gone with its process.
pub(crate) fn is_gone(_pid: u32) -> bool {
    false
}

/// Whether there is such a file: one that is open can be neither removed nor moved.
pub(crate) fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    Ok(path.exists().then_some((0, 0)))
}

/// Nothing: a name whose file is open elsewhere cannot be used again, so that the lock file stays.
pub(crate) fn remove_locked(_path: &Path) {}

/// Nothing to do: the names are in the file system's own journal.
pub(crate) fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}
