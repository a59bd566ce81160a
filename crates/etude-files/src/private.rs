//! Files and directories of the user's that no one else may read: modes 0700 and 0600 from their creation on.

#[cfg(unix)]
#[path = "private/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "private/windows.rs"]
mod os;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory and those above it that are missing, for the user alone. An existing one of the user's is taken away
/// from everybody else; those above it, and one of another user, stay as they are.
///
/// # Errors
/// It cannot be created.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    os::create_missing_dirs(path)?;
    os::restrict_dir(path)
}

/// Creates a directory and those above it that are missing, for the user alone. One that is there keeps its mode.
///
/// # Errors
/// It cannot be created.
pub fn create_missing_dirs(path: &Path) -> io::Result<()> {
    os::create_missing_dirs(path)
}

/// Opens a file with `options`. A new one can be read and written by the user alone; an existing one of the user's is taken
/// away from everybody else.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    os::open(path, options)
}

/// Creates a file, or empties the one that is there. [`crate::whole`] is for files that others read meanwhile.
///
/// # Errors
/// See [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Creates a file for reading and writing. Nothing that is there is used, and no symbolic link followed.
///
/// # Errors
/// Something is there (`AlreadyExists`); see also [`open`].
pub fn create_new(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create_new(true))
}

/// Opens a file for reading and for writing at its end. It is created if it is missing.
///
/// # Errors
/// See [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).append(true).create(true))
}

/// Waits until no other process has the lock of this file, and has it until the file is closed. The file is created if it is
/// missing, with its directory.
///
/// # Errors
/// It cannot be created or locked.
pub fn lock(path: &Path) -> io::Result<File> {
    create_dir_all(crate::parent(path))?;
    let file = append(path)?;
    file.lock()?;
    Ok(file)
}

/// Takes a file or a socket away from everybody but its owner, by its path: a
/// process that closes a descriptor of a file loses its POSIX locks on it.
///
/// # Errors
/// It is missing, or of another user.
pub fn restrict(path: &Path) -> io::Result<()> {
    os::restrict(path)
}
