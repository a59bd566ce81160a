//! The default engine: runs in one SQLite file per user or app, for any number of processes on one machine.
//!
//! The journal's directory has `journal.db` with SQLite's write-ahead log beside it, large values in `blobs`, and in `locks` a
//! file for each open journal that has runs. The directory must not be on a network file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_runtime::blob::BlobStore;
use etude_runtime::engine::{
    ArchivedRun, Boxed, CacheLabel, CacheQuery, CacheRow, Captured, Counts, DamagedRun, Engine, Enqueued, Entry,
    EntryQuery, Error, Fleet, Ledger, Limits, NewRun, OldEntries, Positioned, Prunable, Query, QueuePlace, Record,
    RunRow, RunView, Session, Signal, Signalled, Stamp, Submission, Transfer, Write, Written,
};

mod backup;
mod cache;
mod error;
mod follow;
mod group;
mod journal;
mod ledger;
mod listing;
mod lock_owner;
mod migrate;
mod pool;
mod prune;
mod queue;
mod rows;
mod session;
mod signal;
mod syncer;
mod text;
mod transfer;
mod unix;

pub use crate::backup::Backup;
use crate::journal::Journal;

#[cfg(test)]
mod tests;

/// Location and durability of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The absolute path of the journal's directory. If it is missing, it is created for the user alone.
    pub dir: PathBuf,
    /// The point at which an append counts as done.
    pub sync: Sync,
}

/// The point at which an append counts as done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sync {
    /// Done when the operating system has the data, which survives any death of the process. The disk follows, at most one group
    /// of records behind.
    #[default]
    Normal,
    /// Done when the data is on the disk, which survives a loss of power. Waiting sessions share a sync.
    Strict,
}

/// An open journal. Opening one is cheap; several processes may open the same one.
#[derive(Debug)]
pub struct Sqlite {
    journal: Arc<Journal>,
}

impl Sqlite {
    /// Opens the journal, after creating it or migrating it to the current format if necessary.
    ///
    /// # Errors
    /// [`Error::TooNew`], [`Error::Damaged`], or [`Error::Store`] if the directory cannot be used.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self { journal: Arc::new(Journal::open(settings)?) })
    }

    /// Writes a consistent copy of the journal to `file`, which must not exist: a tar archive of the journal's directory
    /// with `journal.db` and the blobs that its runs need. Other processes may write to the journal meanwhile. Unpacked
    /// into an empty directory, the archive is a journal again.
    ///
    /// # Errors
    /// The journal cannot be read, or the file cannot be written; an incomplete file is removed.
    pub fn backup(&self, file: &Path) -> Result<Backup, Error> {
        self.journal.backup(file)
    }
}

impl Engine for Sqlite {
    fn create<'e>(&'e self, run: &'e NewRun) -> Boxed<'e, Result<Box<dyn Session>, Error>> {
        Box::pin(async move { Ok(Box::new(self.journal.create(run).await?) as Box<dyn Session>) })
    }

    fn claim(&self, run_id: &str) -> Result<Box<dyn Session>, Error> {
        Ok(Box::new(self.journal.claim(run_id)?))
    }

    fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        self.journal.list(query)
    }

    fn damaged(&self) -> Vec<DamagedRun> {
        self.journal.damaged.noted()
    }

    fn count(&self, query: &Query) -> Result<u64, Error> {
        self.journal.count(query)
    }

    fn counts(&self, query: &Query) -> Result<Counts, Error> {
        self.journal.counts(query)
    }

    fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error> {
        self.journal.tail(run_id, after, limit)
    }

    fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error> {
        self.journal.changes(after, limit)
    }

    fn last_change(&self) -> Result<u64, Error> {
        self.journal.last_change()
    }

    fn may_be_past(&self, change: u64) -> Result<bool, Error> {
        self.journal.may_be_past(change)
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn version(&self) -> Result<u64, Error> {
        self.journal.version()
    }

    fn written(&self) -> Option<Boxed<'_, ()>> {
        let bell = self.journal.bell()?;
        Some(Box::pin(bell.notified()))
    }

    fn row(&self, run_id: &str) -> Result<RunRow, Error> {
        self.journal.row(run_id)
    }

    fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        self.journal.result(run_id)
    }

    fn view(&self, run_id: &str) -> Result<RunView, Error> {
        self.journal.view(run_id)
    }

    fn outline(&self, run_id: &str) -> Result<RunView, Error> {
        self.journal.outline(run_id)
    }

    fn records_of(&self, run_id: &str, key: &str) -> Result<Vec<Record>, Error> {
        self.journal.records_of(run_id, key)
    }

    fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        self.journal.signal(run_id, signal)
    }

    fn prune(&self, query: &Query) -> Result<u64, Error> {
        self.journal.prune(query)
    }

    fn prunable(&self, query: &Query) -> Result<Prunable, Error> {
        self.journal.prunable(query)
    }

    fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error> {
        self.journal.recall(key, ttl_ms)
    }

    fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error> {
        self.journal.remember(key, output, label)
    }

    fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error> {
        self.journal.cached(query)
    }

    fn forget(&self, query: &CacheQuery) -> Result<u64, Error> {
        self.journal.forget(query)
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::clone(&self.journal.blobs) as Arc<dyn BlobStore>
    }
}

impl Fleet for Sqlite {
    fn enqueue<'f>(&'f self, submission: &'f Submission) -> Boxed<'f, Result<Enqueued, Error>> {
        Box::pin(async move { self.journal.enqueue(submission) })
    }

    fn next(&self, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        Ok(self.journal.next(limits, now_ms)?.map(|session| Box::new(session) as Box<dyn Session>))
    }

    fn take(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        let taken = self.journal.take_within(run_id, limits, now_ms)?;
        Ok(taken.map(|session| Box::new(session) as Box<dyn Session>))
    }

    fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error> {
        self.journal.queue_place(run_id, limits, now_ms)
    }

    fn deaths(&self, run_id: &str) -> Result<u32, Error> {
        self.journal.deaths(run_id)
    }

    fn check_writes(&self) -> Result<(), Error> {
        self.journal.check_writes()
    }

    fn requeue<'f>(&'f self, run_id: &'f str, now_ms: i64) -> Boxed<'f, Result<(), Error>> {
        Box::pin(async move { self.journal.requeue(run_id, now_ms) })
    }

    fn expired(&self, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        let sessions = self.journal.expired(now_ms)?;
        Ok(sessions.into_iter().map(|session| Box::new(session) as Box<dyn Session>).collect())
    }
}

impl Ledger for Sqlite {
    fn write<'l>(&'l self, write: &'l Write) -> Boxed<'l, Result<Written, Error>> {
        Box::pin(async move { self.journal.write_entry(write) })
    }

    fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error> {
        self.journal.entries(query)
    }

    fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error> {
        self.journal.remove_entries(old)
    }
}

impl Transfer for Sqlite {
    fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        self.journal.capture(run_id)
    }

    fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error> {
        self.journal.move_away(runs)
    }

    fn admit(&self, run: &ArchivedRun) -> Result<bool, Error> {
        self.journal.admit(run)
    }
}
