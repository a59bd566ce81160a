//! Files and directories that only the user may read: modes 0700 and 0600 from their creation on.

mod unix;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory and its missing parents for the user alone. An existing directory of the user's is closed to
/// other users; its existing parents, and a directory of another user, stay as they are.
///
/// # Errors
/// The directory cannot be created.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    unix::create_missing_dirs(path)?;
    unix::restrict_dir(path)
}

/// Creates a directory and its missing parents for the user alone. An existing directory keeps its mode.
///
/// # Errors
/// The directory cannot be created.
pub fn create_missing_dirs(path: &Path) -> io::Result<()> {
    unix::create_missing_dirs(path)
}

/// Opens a file with `options`. A new file can be read and written by the user alone; an existing file of the user's is
/// closed to other users.
///
/// # Errors
/// The file cannot be opened.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    unix::open(path, options)
}

/// Creates a file, or empties the existing one. [`crate::whole`] is for files that others read meanwhile.
///
/// # Errors
/// See [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Creates a file for reading and writing. An existing file is never used, and no symbolic link followed.
///
/// # Errors
/// The name is taken (`AlreadyExists`); see also [`open`].
pub fn create_new(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create_new(true))
}

/// Opens a file for reading and for appending. It is created if it is missing.
///
/// # Errors
/// See [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).append(true).create(true))
}

/// Waits for the exclusive lock of this file and holds it until the file is closed. The file is created if it is
/// missing, with its directory.
///
/// # Errors
/// The file cannot be created or locked.
pub fn lock(path: &Path) -> io::Result<File> {
    create_dir_all(crate::parent(path))?;
    let file = append(path)?;
    file.lock()?;
    Ok(file)
}

/// Closes a file or a socket to everyone but its owner. Takes the path, because a process that closes a descriptor of a
/// file loses its POSIX locks on it.
///
/// # Errors
/// The file is missing, or belongs to another user.
pub fn restrict(path: &Path) -> io::Result<()> {
    unix::restrict(path)
}
