//! Opening paths that may not be regular files, on Windows.

use std::fs::File;
use std::io;
use std::path::Path;

pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).open(path)
}
