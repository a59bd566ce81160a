//! Who has runs. Each open journal has a file of its own, with an OS lock on it that disappears with the process, so that
//! neither a lease nor a time-out is needed after `kill -9`; and the row of a run names the file of its owner.
//!
//! The lock belongs to the open file, not to the process: two journals of one process are two holders. The standard library
//! opens files with close-on-exec, so that children never inherit it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::platform;

/// How files of holders end.
const SUFFIX: &str = ".lock";

/// Longer names are not ours.
const MAX_NAME: usize = 64;

/// How many holders this process has made: clocks may stand still.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// An open journal as one that has runs. Dropping it lets go of all of them.
#[derive(Debug)]
pub(crate) struct LockOwner {
    name: String,
    file: File,
    path: PathBuf,
}

impl LockOwner {
    /// Makes a holder with its file in `dir`.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        loop {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{:x}-{number:x}", std::process::id(), since.as_nanos());
            let path = path_of(dir, &name);
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            // Anyone who looks at it right now has it for a moment, and may have taken it for that of a dead process and removed it.
            let is_ours = file.lock().and_then(|()| platform::still_names(&path, &file));
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

    /// Whether others can find its file: a removed one stands for no one.
    pub(crate) fn is_in_place(&self) -> bool {
        platform::still_names(&self.path, &self.file).unwrap_or(true)
    }

    /// What rows of runs call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Explicitly, because a child between its fork and its exec may still have a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// The process of the holder that a row calls `name`.
pub(crate) fn process_of(name: &str) -> Option<u32> {
    name.split_once('-')?.0.parse().ok()
}

/// Whether the holder that a row calls `name` is there.
///
/// # Errors
/// No one can tell: its file cannot be looked at.
pub(crate) fn is_alive(dir: &Path, name: &str) -> io::Result<bool> {
    Ok(matches!(look(dir, name)?, Look::Locked))
}

/// The same; what a dead one has left behind is removed.
pub(crate) fn is_alive_or_remove(dir: &Path, name: &str) -> io::Result<bool> {
    let look = look(dir, name)?;
    if let Look::Free(_locked) = &look {
        // As long as it is locked here, one that has only just been made is not taken for its own yet by who makes it.
        let _ = fs::remove_file(path_of(dir, name));
    }
    Ok(matches!(look, Look::Locked))
}

/// Removes the files that dead holders have left behind.
pub(crate) fn remove_stale(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) {
            let _ = is_alive_or_remove(dir, name);
        }
    }
    Ok(())
}

/// What there is of a holder.
enum Look {
    /// Nothing.
    Gone,
    /// A file that no one has locked; now it is, by anyone who looks.
    Free(File),
    /// The holder.
    Locked,
}

fn look(dir: &Path, name: &str) -> io::Result<Look> {
    // Rows are data: a name must not lead anywhere else.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
        return Ok(Look::Gone);
    }
    let file = match File::open(path_of(dir, name)) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
        opened => opened?,
    };
    // Shared, so that those who look do not take one another for the holder.
    match file.try_lock_shared() {
        Ok(()) => Ok(Look::Free(file)),
        Err(TryLockError::WouldBlock) => Ok(Look::Locked),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{SUFFIX}"))
}
