//! File permissions on Windows, where the user's profile keeps others out.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

pub(super) fn create_missing_dirs(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

pub(super) fn restrict_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.open(path)
}

pub(super) fn restrict(_: &Path) -> io::Result<()> {
    Ok(())
}
