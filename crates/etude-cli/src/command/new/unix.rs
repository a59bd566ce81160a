//! New files, where files have an executable bit.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// Options to create a file that must not exist. The user's umask applies to the permissions.
pub(super) fn options(executable: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(if executable { 0o777 } else { 0o666 });
    options
}
