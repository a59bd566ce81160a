//! Modes, links and opening of files on Windows, which has no permission bits.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns 0: there are no permission bits.
pub(crate) fn mode(_meta: &Metadata) -> u32 {
    0
}

/// Does nothing.
///
/// # Errors
/// None.
pub(crate) fn set_mode(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing.
pub(super) fn set_file_mode(_file: &File, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// Creates a symbolic link.
pub(crate) fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    let place = link.parent().map_or_else(|| target.to_owned(), |parent| parent.join(target));
    match place.is_dir() {
        true => std::os::windows::fs::symlink_dir(target, link),
        false => std::os::windows::fs::symlink_file(target, link),
    }
}

/// Values that change with a change of a file; none for a directory.
pub(crate) fn stamp(meta: &Metadata) -> Vec<u64> {
    if meta.is_dir() {
        return Vec::new();
    }
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    vec![meta.len(), modified.as_secs(), u64::from(modified.subsec_nanos())]
}
