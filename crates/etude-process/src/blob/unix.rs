//! Files that only their owner may read, and positioned reads.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Creates a new file with mode 0600, opened for reading and writing.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file, which is created with mode 0600 if it does not exist.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Creates a directory and its parents, those that are new with mode 0700.
pub(super) fn create_private_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads from `offset` without moving the file's own position.
pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    file.read_at(into, offset)
}
