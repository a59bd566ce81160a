//! Opening paths that may not be regular files, on Unix.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading. A pipe without a writer does not block the caller.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}
