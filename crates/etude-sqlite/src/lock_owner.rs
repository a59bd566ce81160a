//! Ownership of runs. Each open journal has its own file with an OS lock, which disappears with the process, so neither a lease
//! nor a time-out is needed after `kill -9`. The row of a run names the file of its owner.
//!
//! The lock belongs to the open file, not to the process: two journals of one process are two holders. The standard library
//! opens files with close-on-exec, so that children never inherit it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use etude_files::private;

use crate::unix;

/// Suffix of lock files.
const SUFFIX: &str = ".lock";

/// Maximum length of a name; longer names are not from this program.
const MAX_NAME: usize = 64;

/// The number of holders that this process has created: two may see the same time.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// An open journal as the owner of runs. Dropping it releases all of them.
#[derive(Debug)]
pub(crate) struct LockOwner {
    name: String,
    file: File,
    path: PathBuf,
}

impl LockOwner {
    /// Creates an owner with its file in `dir`.
    ///
    /// # Errors
    /// The file cannot be created or locked.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        loop {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{:x}-{number:x}", std::process::id(), since.as_nanos());
            let path = path_of(dir, &name);
            let file = match private::create_new(&path) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            // A process that looks at the file right now has its lock for a moment, and may have taken it for that of a dead
            // process and removed it.
            let is_ours = file.lock().and_then(|()| unix::still_names(&path, &file));
            match is_ours {
                Ok(true) => return Ok(Self { name, file, path }),
                Ok(false) => {}
                Err(cause) => {
                    let _ = fs::remove_file(&path);
                    return Err(cause);
                }
            }
        }
    }

    /// True if others can find the file: a removed file protects no run.
    pub(crate) fn is_in_place(&self) -> bool {
        unix::still_names(&self.path, &self.file).unwrap_or(true)
    }

    /// The name of this owner in the rows of runs.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Unlock explicitly, because a child between its fork and its exec may still have a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// The process id in the holder's name.
pub(crate) fn process_of(name: &str) -> Option<u32> {
    name.split_once('-')?.0.parse().ok()
}

/// True if the holder with this name is alive.
///
/// # Errors
/// The file cannot be examined, so the state is unknown.
pub(crate) fn is_alive(dir: &Path, name: &str) -> io::Result<bool> {
    Ok(matches!(look(dir, name)?, Look::Locked))
}

/// The same; also removes the file of a dead holder.
pub(crate) fn is_alive_or_remove(dir: &Path, name: &str) -> io::Result<bool> {
    let look = look(dir, name)?;
    if let Look::Free(_locked) = &look {
        // The file is locked here during its removal, so that a process that has just created it notices the removal when it gets
        // the lock.
        let _ = fs::remove_file(path_of(dir, name));
    }
    Ok(matches!(look, Look::Locked))
}

/// Removes the files of dead holders.
pub(crate) fn remove_stale(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) {
            let _ = is_alive_or_remove(dir, name);
        }
    }
    Ok(())
}

/// The state of a holder's file.
enum Look {
    /// There is no file.
    Gone,
    /// A file without a lock; the caller now has a shared one.
    Free(File),
    /// A file that its holder has locked.
    Locked,
}

fn look(dir: &Path, name: &str) -> io::Result<Look> {
    // Rows are data: a name must not lead to another place.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
        return Ok(Look::Gone);
    }
    let file = match File::open(path_of(dir, name)) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
        opened => opened?,
    };
    // The lock is shared, so that concurrent lookers do not take each other for the holder.
    match file.try_lock_shared() {
        Ok(()) => Ok(Look::Free(file)),
        Err(TryLockError::WouldBlock) => Ok(Look::Locked),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{SUFFIX}"))
}
