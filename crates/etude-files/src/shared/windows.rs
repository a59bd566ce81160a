//! Who can put files into a directory, on Windows.

use std::path::Path;

/// Directories above the user's own are not shared.
pub(super) fn is_of_others(_dir: &Path, _start: &Path) -> bool {
    false
}
