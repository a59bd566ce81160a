//! Modes and links on Windows, which has no such modes; links need a privilege.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn is_executable(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn set_mode(_file: &File, _mode: u32) -> io::Result<()> {
    Ok(())
}

pub(super) fn link(_target: &str, path: &Path) -> io::Result<()> {
    let why = format!("`{}` is a symbolic link, which this system cannot create", path.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
