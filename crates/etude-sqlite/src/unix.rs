//! Files as Unix has them.

#[cfg(target_os = "linux")]
#[path = "unix/bell.rs"]
mod bell;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

#[cfg(target_os = "linux")]
pub(crate) use self::bell::hang as hang_bell;

/// Creates a directory and those above it, for the user alone. One that is there keeps its mode.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes a file away from everybody but the user. By path: a descriptor of a database file must not be opened and
/// closed beside SQLite, because closing any descriptor drops all of the process's POSIX locks on the file.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

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

/// Makes the names of new files in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Other systems report writes by the path of each file alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}
