//! Positioned reads on Unix.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Reads from `offset` without moving the file's own position.
pub(super) fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    file.read_at(into, offset)
}
