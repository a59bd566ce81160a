//! Regular files of a bounded size. A pipe or a device in place of one would block the reader, or never end.

mod unix;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file without blocking. The check is made on the open file, so the file cannot be swapped in between.
///
/// # Errors
/// The path cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = unix::open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// The bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, is not a regular file, or is larger.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, limit)
}

/// The text of a regular file of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, is not a regular file, is larger, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read(path, limit)?)
}

/// The bytes of an open file of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, or is larger.
pub fn read_from(file: File, limit: u64) -> io::Result<Vec<u8>> {
    // Without this capacity the file is read in pieces that begin with 32 bytes.
    let length = file.metadata().map_or(0, |known| known.len()).min(limit);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// Converts `bytes` to text.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
