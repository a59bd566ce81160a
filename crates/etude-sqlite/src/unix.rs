//! File operations on Unix.

#[cfg(target_os = "linux")]
#[path = "unix/bell.rs"]
mod bell;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[cfg(target_os = "linux")]
pub(crate) use self::bell::hang as hang_bell;

/// True if `path` still names the open file `file`.
pub(crate) fn still_names(path: &Path, file: &File) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok(named.dev() == open.dev() && named.ino() == open.ino()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// True if the process does not exist any more.
pub(crate) fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Device and inode, which distinguish a file from another one with the same name; `None` if there is no file.
pub(crate) fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Always fails: other systems than Linux report writes only for the path of each file.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}
