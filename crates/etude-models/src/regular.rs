//! Regular files of a bounded size: a pipe or a device in place of one would hold whoever reads it, or never end.

#[cfg(unix)]
#[path = "regular/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "regular/windows.rs"]
mod os;

use std::io::{self, Read};
use std::path::Path;

/// The content of a regular file of at most `most` bytes.
///
/// # Errors
/// It cannot be read, is no regular file, or is larger.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // The open file is what is looked at: nothing can be put in its place in between.
    let file = os::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}
