//! Write access of other users to a directory, on Unix.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Permission bit: writable for every user.
const WORLD: u32 = 0o002;

/// Permission bit of a shared directory, in which each user has files of their own.
const STICKY: u32 = 0o1000;

/// True for a shared directory, and for one above `start` that every user may write or that belongs to another user.
pub(super) fn is_of_others(dir: &Path, start: &Path) -> bool {
    let (Ok(meta), Ok(own)) = (fs::metadata(dir), fs::metadata(start)) else { return true };
    let is_world_writable = meta.mode() & WORLD != 0;
    if dir == start {
        return is_world_writable && meta.mode() & STICKY != 0;
    }
    is_world_writable || (meta.uid() != 0 && meta.uid() != own.uid())
}
