//! Paths of Unix sockets, which have a limit of about 100 bytes.

mod unix;

use std::path::{Path, PathBuf};

/// A path of the same socket that this process can bind or connect to. A path within the limit of the system stays as it is. A
/// longer one leads through an open directory on Linux, and stays as it is elsewhere.
pub fn short(path: &Path) -> PathBuf {
    unix::short(path).unwrap_or_else(|| path.to_owned())
}
