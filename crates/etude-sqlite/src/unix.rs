//! Files as Unix has them.

#[cfg(target_os = "linux")]
#[path = "unix/bell.rs"]
mod bell;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[cfg(target_os = "linux")]
pub(crate) use self::bell::hang as hang_bell;

/// True if `path` still names the file that is open as `file`.
pub(crate) fn still_names(path: &Path, file: &File) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok(named.dev() == open.dev() && named.ino() == open.ino()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// True if there is no such process any more.
pub(crate) fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// What tells a file from another one of the same name; `None` if there is none.
pub(crate) fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Other systems report writes by the path of each file alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}
