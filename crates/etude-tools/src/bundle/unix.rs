//! Modes and links on Unix.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

pub(super) fn is_executable(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o111 != 0)
}

pub(super) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

pub(super) fn link(target: &str, path: &Path) -> io::Result<()> {
    symlink(target, path)
}
