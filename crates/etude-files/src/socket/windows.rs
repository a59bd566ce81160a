//! Short paths of sockets, on Windows.

use std::path::{Path, PathBuf};

/// Always `None`: there is no other path.
pub(super) fn short(_path: &Path) -> Option<PathBuf> {
    None
}
