//! Regular files of a bounded size: a pipe or a device in place of one would hold whoever reads it, or never end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The content of a regular file of at most `most` bytes.
///
/// # Errors
/// It cannot be read, is no regular file, or is larger.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}
