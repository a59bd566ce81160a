//! The lock that makes a run belong to one driver: an OS lock on a file, which disappears with the process, so that
//! neither a lease nor a time-out is needed after `kill -9`.
//!
//! The lock belongs to the open file, not to the process: a second claim within the same process conflicts as well.
//! The standard library opens files with close-on-exec, so that children never inherit it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;

use crate::platform;

/// How often a taken lock is tried. A probe ([`is_held`]) holds a lock for some microseconds, which must not look like
/// a driver.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_micros(500);

/// A child of a process that was killed holds a copy of the lock between its fork and its exec. On a busy machine that is
/// long enough to meet; so long such a lock is waited for, if the process that took it is gone.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// A held lock. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
    path: PathBuf,
}

/// What came of an attempt to lock.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It is ours.
    Taken(RunLock),
    /// Somebody has it; the process, if the file tells.
    Held(Option<u32>),
}

/// Tries to take the lock of a run.
pub(crate) fn take(dir: &Path, run_id: &str) -> io::Result<Attempt> {
    let path = path_of(dir, run_id);
    let mut tries = 0;
    let since = Instant::now();
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tries += 1;
                if tries >= TRIES {
                    let holder = holder(&path);
                    if !holder.is_some_and(platform::is_gone) || since.elapsed() > LAST_BREATH {
                        return Ok(Attempt::Held(holder));
                    }
                }
                thread::sleep(PAUSE);
                continue;
            }
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
        // The holder before us may have removed the file between our opening and our locking it. Then others would
        // lock another file of that name.
        if platform::still_names(&path, &file)? {
            let mut lock = RunLock { file, path };
            lock.write_pid()?;
            return Ok(Attempt::Taken(lock));
        }
    }
}

/// True if a driver has the run right now.
pub(crate) fn is_held(dir: &Path, run_id: &str) -> bool {
    let Ok(file) = File::open(path_of(dir, run_id)) else {
        return false;
    };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

impl RunLock {
    fn write_pid(&mut self) -> io::Result<()> {
        // Always of the same length, so that nothing is left of an earlier process. Truncating the file first would do
        // as well, but makes ext4 write it to the disk on close, which takes milliseconds.
        self.file.write_all(format!("{:<10}\n", std::process::id()).as_bytes())
    }

    /// Lets go and removes the file: nobody is expected to want this lock again.
    pub(crate) fn remove(self) {
        platform::remove_locked(&self.path);
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Explicitly, because a child between its fork and its exec may still have a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// The process that wrote itself into a lock file.
fn holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The lock file of a run. Ids that are no plain file names are replaced by their hash.
fn path_of(dir: &Path, run_id: &str) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !run_id.is_empty() && run_id.len() <= 100 && run_id.bytes().all(plain) {
        dir.join(format!("{run_id}.lock"))
    } else {
        dir.join(format!("={}.lock", Digest::of(run_id.as_bytes())))
    }
}
