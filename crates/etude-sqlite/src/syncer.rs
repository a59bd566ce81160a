//! Syncs the write-ahead log to the disk, behind the appends.
//!
//! A commit of SQLite with `synchronous = normal` is a `write` to the log: the operating system has it, and it survives any death
//! of the process. One thread then syncs the log. Everything that is committed during a sync goes into the next one. So the disk
//! is at most one group behind, and any number of sessions that wait (strict mode) share a sync.
//!
//! The same thread makes the checkpoints, because these sync twice, and an append should not wait for that.
//!
//! At an orderly end of the process, the last sync gets a few milliseconds. A slow disk must not make a command slow, and a
//! checkpoint that is cut short has no effect. Data that is not synced by then survives everything but a loss of power, as the
//! contract says.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_files::whole;
use etude_runtime::blob::FileBlobs;
use etude_runtime::engine::Error;

use crate::pool::{Pool, lock};

/// Pages of the log (of 4 KiB) at which it is checkpointed while no session waits. Not more often, because the append that uses
/// the log again from its beginning has to sync.
const IDLE_PAGES: u32 = 1_000;
/// The same at the end of a short program: the first connection of the next program reads the whole log, about 2 µs per page.
const LAST_PAGES: u32 = 128;
/// A program that had the journal open for this long empties the log in any case, so that the database file alone is the complete
/// journal, and can be copied.
const LONG_OPEN: Duration = Duration::from_millis(500);
/// Pages at which the log is checkpointed even if sessions always wait.
const BUSY_PAGES: u32 = 4_000;
/// Pages at which writers are blocked until the log could be emptied: readers or a steady stream of writers kept all other
/// checkpoints from finishing.
const TOO_MANY_PAGES: u32 = 16_000;

/// In normal mode, the time in which a sync gathers more commits: a sync per record would slow down the disk for all programs and
/// protect nothing important.
const GATHER: Duration = Duration::from_millis(2);

/// Maximum wait of an orderly exit for the last sync and checkpoint; after a long program, a hundredth of its time.
const FAREWELL: Duration = Duration::from_millis(5);
/// Maximum wait if earlier checkpoints were cut short so often that the log slows down every start.
const LONG_FAREWELL: Duration = Duration::from_secs(1);
/// Pages from which on that is so: a start takes a millisecond more. On a slow disk, about one short run in 40 waits.
const SLOW_PAGES: u32 = 512;

/// The owner of the syncing thread, for as long as the journal is open.
#[derive(Debug)]
pub(crate) struct Syncer {
    committed: Committed,
}

/// The handle that appends use.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    blobs: Arc<FileBlobs>,
    log: PathBuf,
    strict: bool,
    /// The time at which the journal was opened.
    opened: Instant,
    progress: Mutex<Progress>,
    /// Notified when there is something to sync, or when the thread must stop.
    work: Condvar,
    /// Notified when a sync is done, or has failed.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Number of the latest commit.
    committed: u64,
    /// Number of the last commit that is on the disk.
    synced: u64,
    /// Blobs that records of the next group refer to.
    blobs: BTreeSet<Digest>,
    /// The error of a failed sync. After it, the content of the disk is unknown: the kernel drops the pages, and reports success
    /// for the next sync.
    failed: Option<String>,
    /// Time in which a sync gathers more commits.
    gather: Duration,
    /// True if the next sync gathers no more commits.
    is_due: bool,
    started: bool,
    sleeping: bool,
    stopping: bool,
    ended: bool,
}

impl Syncer {
    pub(crate) fn new(pool: Arc<Pool>, blobs: Arc<FileBlobs>, strict: bool) -> Self {
        let shared = Shared {
            log: pool.log(),
            pool,
            blobs,
            strict,
            opened: Instant::now(),
            progress: Mutex::new(Progress { gather: GATHER, ..Progress::default() }),
            work: Condvar::new(),
            done: Condvar::new(),
        };
        Self { committed: Committed { shared: Arc::new(shared) } }
    }

    /// The handle that appends use.
    pub(crate) fn handle(&self) -> Committed {
        self.committed.clone()
    }

    /// See [`Committed::notify`].
    pub(crate) fn committed(&self, blobs: &[Digest]) -> Result<(), Error> {
        self.committed.notify(blobs)
    }

    /// Does what the end of the journal does with a long log.
    #[cfg(test)]
    pub(crate) fn empty_log(&self) {
        self.committed.shared.empty_log();
    }

    /// Sets the time in which a sync gathers more commits.
    #[cfg(test)]
    pub(crate) fn gather_for(&self, time: Duration) {
        lock(&self.committed.shared.progress).gather = time;
    }

    /// Waits until all commits so far are on the disk. False if that has not happened after `most`.
    #[cfg(test)]
    pub(crate) fn is_synced_within(&self, most: Duration) -> bool {
        let shared = &self.committed.shared;
        let progress = lock(&shared.progress);
        let is_left = |progress: &mut Progress| progress.synced < progress.committed;
        !shared.done.wait_timeout_while(progress, most, is_left).unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// See [`Committed::notify_last`].
    pub(crate) fn committed_last(&self, blobs: &[Digest]) -> Result<(), Error> {
        self.committed.notify_last(blobs)
    }
}

impl Committed {
    /// True if appends count as done only when they are on the disk.
    pub(crate) fn is_strict(&self) -> bool {
        self.shared.strict
    }

    /// Reports a commit that refers to `blobs`. In strict mode, returns once it is on the disk.
    ///
    /// # Errors
    /// An earlier sync or, in strict mode, this one failed: the disk is not reliable any more.
    pub(crate) fn notify(&self, blobs: &[Digest]) -> Result<(), Error> {
        self.report(blobs, false)
    }

    /// The same for the last commit of the only run: its sync waits for no others, and mostly is over before the process ends.
    ///
    /// # Errors
    /// See [`Committed::notify`].
    pub(crate) fn notify_last(&self, blobs: &[Digest]) -> Result<(), Error> {
        self.report(blobs, true)
    }

    fn report(&self, blobs: &[Digest], is_last: bool) -> Result<(), Error> {
        // Rows refer to the values now.
        self.shared.blobs.let_go(blobs);
        let mut progress = lock(&self.shared.progress);
        progress.committed += 1;
        progress.is_due |= is_last;
        let strict = self.shared.strict;
        if !strict {
            // In strict mode, the store has synced the blobs itself.
            progress.blobs.extend(blobs);
        }
        let ticket = progress.committed;
        if !progress.started {
            progress.started = true;
            let shared = Arc::clone(&self.shared);
            let spawned = thread::Builder::new().name("journal-sync".to_owned()).spawn(move || shared.run());
            if let Err(cause) = spawned {
                progress.failed = Some(format!("cannot start its sync thread: {cause}"));
            }
        } else if progress.sleeping || is_last {
            self.shared.work.notify_one();
        }
        while strict && progress.synced < ticket && progress.failed.is_none() {
            if progress.ended {
                progress.failed = Some("the journal was closed before the data was on the disk".to_owned());
                break;
            }
            progress = self.shared.done.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        match &progress.failed {
            Some(why) => Err(Error::Store { path: self.shared.log.display().to_string(), why: why.clone() }),
            None => Ok(()),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let shared = &self.committed.shared;
        let mut progress = lock(&shared.progress);
        progress.stopping = true;
        shared.work.notify_one();
        let until = Instant::now() + farewell(shared.pool.log_pages(), shared.opened.elapsed());
        while progress.started && !progress.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            progress = shared.done.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        // The thread is not joined: if the disk is slow and the process lives on, it ends by itself.
    }
}

/// Maximum wait of an orderly exit, given the pages of the log and the time in which the journal was open.
fn farewell(pages: u32, open: Duration) -> Duration {
    if pages >= SLOW_PAGES { LONG_FAREWELL } else { (open / 100).clamp(FAREWELL, LONG_FAREWELL) }
}

impl Shared {
    /// The main function of the thread.
    fn run(&self) {
        let mut log = None;
        while let Some((target, blobs)) = self.next_group() {
            let synced = self.sync(&mut log, &blobs);
            let mut progress = lock(&self.progress);
            match synced {
                Ok(()) => progress.synced = target,
                Err(why) => progress.failed = Some(why),
            }
            self.done.notify_all();
            if progress.failed.is_some() {
                progress.ended = true;
                return;
            }
            let is_idle = progress.committed == target;
            drop(progress);
            self.checkpoint_from(if is_idle { IDLE_PAGES } else { BUSY_PAGES });
        }
        let enough = if self.opened.elapsed() >= LONG_OPEN { 1 } else { LAST_PAGES };
        if self.pool.log_pages() >= enough {
            self.empty_log();
        }
        lock(&self.progress).ended = true;
        self.done.notify_all();
    }

    /// Waits for something to sync. `None` when nothing is left and the syncer stops.
    fn next_group(&self) -> Option<(u64, BTreeSet<Digest>)> {
        let mut progress = lock(&self.progress);
        while progress.committed == progress.synced {
            if progress.stopping {
                return None;
            }
            progress.sleeping = true;
            progress = self.work.wait(progress).unwrap_or_else(PoisonError::into_inner);
            progress.sleeping = false;
        }
        if !self.strict && !progress.stopping {
            // Only `stopping` and a last commit may cut this short, which is why `sleeping` stays false.
            let gather = progress.gather;
            progress = self
                .work
                .wait_timeout_while(progress, gather, |progress| !progress.stopping && !progress.is_due)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        progress.is_due = false;
        Some((progress.committed, std::mem::take(&mut progress.blobs)))
    }

    /// Syncs the blobs of records, then the records.
    fn sync(&self, log: &mut Option<File>, blobs: &BTreeSet<Digest>) -> Result<(), String> {
        let fail = |what: &str, cause: &dyn std::fmt::Display| {
            format!("{what} could not be synced to the disk ({cause}); check the disk, then resume the run")
        };
        self.blobs.sync(blobs).map_err(|cause| fail("a stored value", &cause))?;
        let file = match log {
            Some(file) => file,
            // SQLite neither locks the log nor replaces it while a connection of the pool is open, so a separate descriptor is
            // safe. Its name must be durable too.
            None => {
                let file = File::options().write(true).open(&self.log).map_err(|cause| fail("the log", &cause))?;
                if let Some(dir) = self.log.parent() {
                    whole::sync_dir(dir).map_err(|cause| fail("the directory", &cause))?;
                }
                log.insert(file)
            }
        };
        file.sync_data().map_err(|cause| fail("the log", &cause))
    }

    /// Copies the log's pages into the database file if there are `enough`, so that the log can be used again from its beginning.
    /// A failure is harmless: the log grows, and a later attempt succeeds.
    fn checkpoint_from(&self, enough: u32) {
        let pages = self.pool.log_pages();
        if pages < enough {
            return;
        }
        let mode = if pages >= TOO_MANY_PAGES { "truncate" } else { "passive" };
        let sql = format!("pragma wal_checkpoint({mode})");
        self.note_damage(self.pool.aside(|connection| connection.query_row(&sql, [], |_| Ok(()))));
    }

    /// Copies the log's pages into the database file, and empties the log. While another process uses the log, it stays as it is.
    ///
    /// The first connection of the next process cannot know that pages were copied: it would read all of them, and append to them.
    fn empty_log(&self) {
        let truncate = "pragma wal_checkpoint(truncate)";
        self.note_damage(self.pool.impatient(|connection| connection.query_row(truncate, [], |_| Ok(()))));
    }

    fn note_damage(&self, done: Result<(), Error>) {
        if let Err(cause @ Error::Damaged { .. }) = done {
            lock(&self.progress).failed = Some(cause.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_waits_longer_where_the_log_slows_down_every_start() {
        let short = Duration::from_millis(20);
        assert_eq!(farewell(LAST_PAGES, short), FAREWELL);
        assert_eq!(farewell(SLOW_PAGES, short), LONG_FAREWELL);
        assert_eq!(farewell(0, Duration::from_secs(50)), Duration::from_millis(500));
        assert_eq!(farewell(0, Duration::from_secs(5_000)), LONG_FAREWELL);
    }
}
