//! Opening files that may be something else, on Windows.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).open(path)
}
