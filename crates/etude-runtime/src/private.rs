//! Files and directories of the user's that no one else may read: modes 0700 and 0600 from their creation on.

#[cfg(unix)]
#[path = "private/unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "private/windows.rs"]
mod platform;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory and those above it that are missing, for the user alone. An existing one of the user's is taken away
/// from everybody else; those above it, and one of another user, stay as they are.
///
/// # Errors
/// It cannot be created.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    platform::create_dir_all(path)
}

/// Opens a file with `options`. A new one can be read and written by the user alone; an existing one of the user's is taken
/// away from everybody else.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    platform::open(path, options)
}

/// Creates a file, or empties the one that is there.
///
/// # Errors
/// See [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Brings the names of the files in a directory to the disk, where the system can do that.
///
/// # Errors
/// The disk fails.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    platform::sync_dir(path)
}
