//! Notification of followers about writes by any process, so that a quiet journal is not polled.
//!
//! The kernel reports writes to the log. A report comes before the commit is visible to others, and a file system may report
//! nothing. So followers look a few times after a report, and now and then without one.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

/// Minimum time between two reports.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum time for which the thread outlives the journal.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Reports writes to the file `log`, and to nothing else in its directory.
///
/// # Errors
/// The system has run out of watches or threads.
pub(crate) fn hang(log: &Path) -> io::Result<Arc<Notify>> {
    let directory = log.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = log.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_encoded_bytes().to_vec();
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // The watch is on the directory: SQLite creates the log again under the same name.
    inotify::add_watch(&watch, directory, WatchFlags::MODIFY)?;
    let bell = Arc::new(Notify::new());
    let of_thread = Arc::downgrade(&bell);
    thread::Builder::new().name("journal-bell".to_owned()).spawn(move || report(&watch, &name, &of_thread))?;
    Ok(bell)
}

/// Reports until the journal is closed. If it fails, followers look less often.
fn report(watch: &OwnedFd, log: &[u8], bell: &Weak<Notify>) {
    loop {
        let polled = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&PATIENCE));
        let Some(bell) = bell.upgrade() else { return };
        match polled.and_then(|_| has_written(watch, log)) {
            Ok(false) | Err(Errno::INTR) => continue,
            Ok(true) => bell.notify_one(),
            Err(_) => return,
        }
        drop(bell);
        thread::sleep(PAUSE);
    }
}

/// Takes all events. True if one may be about the log; lost events count.
fn has_written(watch: &OwnedFd, log: &[u8]) -> rustix::io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(watch, &mut space);
    let mut has_written = false;
    loop {
        match events.next() {
            Ok(event) => has_written |= event.file_name().is_none_or(|name| name.to_bytes() == log),
            Err(Errno::AGAIN) => return Ok(has_written),
            Err(why) => return Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etude_runtime::conformance::{block_on, new_run};
    use etude_runtime::engine::Engine as _;

    use crate::{Settings, Sqlite, Sync};

    /// A write by another open journal is reported.
    #[test]
    fn a_write_of_another_is_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || {
            let settings = Settings { dir: dir.path().to_owned(), sync: Sync::Normal };
            Sqlite::open(settings).expect("the journal opens")
        };
        let (ours, theirs) = (open(), open());
        // The watch begins with the first call.
        drop(ours.written().expect("Linux reports writes"));
        drop(block_on(theirs.create(&new_run("r-1", 1))).expect("created"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let reported = async {
            tokio::time::timeout(Duration::from_secs(60), ours.written().expect("Linux reports writes")).await
        };
        runtime.block_on(reported).expect("the write is reported");
    }
}
