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

/// Checks that the user may read and write a file, without opening it: closing a file releases the locks that SQLite has on it
/// in this process.
pub(crate) fn check_access(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK)?)
}

/// True if a lock was refused because the file system has none, such as NFS without a lock service.
pub(crate) fn lacks_locks(cause: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(cause) == Some(rustix::io::Errno::NOLCK)
}

/// Takes and releases a lock of the kind that SQLite uses, without waiting.
pub(crate) fn try_record_lock(file: &File) -> io::Result<()> {
    rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockShared)?;
    Ok(rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingUnlock)?)
}

/// Always fails: other systems than Linux report writes only for the path of each file.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hang_bell(_log: &Path) -> io::Result<std::sync::Arc<tokio::sync::Notify>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rusqlite::ffi;

    use crate::error::{file_error, store_error};

    /// A file beside the journal that the user may not open is named.
    #[test]
    fn the_file_that_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal.db");
        std::fs::write(&path, "").expect("a file");
        // Tests may run as root, which may open every file; a link to itself is refused to all.
        let shared = dir.path().join("journal.db-shm");
        symlink(&shared, &shared).expect("a link");
        let cause = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some("no".to_owned()));
        let text = store_error(&path, cause).to_string();
        assert!(text.contains(&format!("no (SQLite code 14): `{}`: ", shared.display())), "{text}");
    }

    /// cli: a file system that locks no files, such as NFS without a lock service, is named with the way out.
    #[test]
    fn a_file_system_without_locks_is_named() {
        let text = file_error(Path::new("/j/locks/=format.lock"), &rustix::io::Errno::NOLCK.into()).to_string();
        assert!(text.contains("the file system does not lock files: choose a directory on a local disk"), "{text}");
    }
}
