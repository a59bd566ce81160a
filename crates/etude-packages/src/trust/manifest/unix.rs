//! Modes, links and safe opening of files on Unix.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading, but not through a link. Does not block on a pipe in its place.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits();
    File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// The permission bits.
pub(crate) fn mode(meta: &Metadata) -> u32 {
    meta.permissions().mode() & 0o7777
}

/// Sets the permission bits of a file or directory.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Sets the permission bits of an open file.
pub(super) fn set_file_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Creates a symbolic link.
pub(crate) fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Values that change with every change of a file; of a directory, only its mode.
pub(crate) fn stamp(meta: &Metadata) -> Vec<u64> {
    if meta.is_dir() {
        return vec![u64::from(meta.mode())];
    }
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()].map(i64::cast_unsigned);
    [&[meta.ino(), meta.len(), u64::from(meta.mode())][..], &times].concat()
}
