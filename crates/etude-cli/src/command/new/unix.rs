//! New files, where files have an executable bit.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// Opens files that are not there yet; the user's mask has its say about the permissions.
pub(super) fn options(executable: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(if executable { 0o777 } else { 0o666 });
    options
}
