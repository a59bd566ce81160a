//! An open journal: what the engine and its sessions share.

use std::path::PathBuf;
use std::sync::Arc;

use etude_runtime::blob::FileBlobs;
use etude_runtime::engine::{Error, NewRun};
use rusqlite::ErrorCode;

use crate::error::file_error;
use crate::lock::{self, Attempt};
use crate::pool::Pool;
use crate::rows::{self, Run};
use crate::session::SqliteSession;
use crate::syncer::Syncer;
use crate::{Settings, Sync, migrate, platform};

/// Name of the database file in the journal's directory.
const FILE: &str = "journal.db";

/// The shared part of an open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) dir: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) blobs: Arc<FileBlobs>,
    /// Which file the journal was when it was opened.
    identity: Option<(u64, u64)>,
    // Before the pool: its thread uses connections.
    pub(crate) syncer: Syncer,
    pub(crate) pool: Arc<Pool>,
}

impl Journal {
    /// Opens the journal in a directory; both are created if need be.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Self::of_format(settings, migrate::STEPS)
    }

    /// The same with the format that these steps end with.
    pub(crate) fn of_format(settings: Settings, steps: &[&str]) -> Result<Self, Error> {
        let Settings { dir, sync } = settings;
        let strict = sync == Sync::Strict;
        let locks = dir.join("locks");
        if !locks.is_dir() {
            platform::create_private_dir(&locks).map_err(|cause| file_error(&locks, &cause))?;
        }
        let pool = Arc::new(Pool::new(dir.join(FILE)));
        migrate::prepare(&pool, &locks, steps)?;
        let blobs = Arc::new(FileBlobs::new(dir.join("blobs"), strict));
        let syncer = Syncer::new(Arc::clone(&pool), Arc::clone(&blobs), strict);
        let identity = platform::identity(pool.path()).map_err(|cause| file_error(pool.path(), &cause))?;
        Ok(Self { dir, locks, blobs, identity, syncer, pool })
    }

    /// Makes sure that what is written is still found under the journal's name. SQLite goes on writing to a file that was
    /// deleted, and a run would seem to be kept that nobody can ever find again.
    pub(crate) fn is_in_place(&self) -> Result<(), Error> {
        let path = self.pool.path();
        let found = platform::identity(path).map_err(|cause| file_error(path, &cause))?;
        if found.is_some() && found == self.identity {
            return Ok(());
        }
        let why = "it was deleted or moved while it was written to; if you have it, put it back and resume the run";
        Err(Error::Store { path: path.display().to_string(), why: why.to_owned() })
    }

    /// Creates a run and a session for it.
    pub(crate) fn create(self: &Arc<Self>, run: &NewRun) -> Result<SqliteSession, Error> {
        let exists = || Error::Exists(run.id.clone());
        let lock = match self.lock(&run.id)? {
            Attempt::Taken(lock) => lock,
            Attempt::Held(_) => return Err(exists()),
        };
        let number = self.pool.transaction(|connection| {
            let inserted = connection
                .prepare_cached(
                    "insert into runs (id, app, target, abi, state, epoch, created_at_ms, changed_at_ms)
                     values (?1, ?2, ?3, ?4, 'running', 1, ?5, ?5)",
                )?
                .insert((&run.id, &run.app, &run.target, run.abi, run.created_at_ms));
            let number = match inserted {
                Err(cause) if cause.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => return Ok(None),
                inserted => inserted?,
            };
            connection
                .prepare_cached("insert into headers (run, body) values (?1, ?2)")?
                .execute((number, &run.header))?;
            Ok(Some(number))
        })?;
        // Not synced by itself: the sync of the first record covers it.
        let number = number.ok_or_else(exists)?;
        Ok(SqliteSession::new(Arc::clone(self), lock, run.clone(), number, 1, 0))
    }

    /// A session for an existing run.
    pub(crate) fn claim(self: &Arc<Self>, run_id: &str) -> Result<SqliteSession, Error> {
        let unknown = || Error::Unknown(run_id.to_owned());
        // Looked up first, so that no lock file is made for a run that does not exist.
        self.pool.read(|connection| Run::find(connection, run_id))?.ok_or_else(unknown)?;
        let lock = match self.lock(run_id)? {
            Attempt::Taken(lock) => lock,
            Attempt::Held(pid) => {
                return Err(Error::Busy { run: run_id.to_owned(), pid });
            }
        };
        let claimed = self.pool.transaction(|connection| {
            let Some(run) = Run::find(connection, run_id)? else {
                return Ok(None);
            };
            let (number, epoch) = (run.number, run.epoch + 1);
            connection.prepare_cached("update runs set epoch = ?2 where number = ?1")?.execute((number, epoch))?;
            rows::remove_lost(connection, number, |blob| self.blobs.is_lost(blob))?;
            let next = rows::next_seq(connection, number)?;
            Ok(Some((run.created(connection)?, number, epoch, next)))
        })?;
        let Some((run, number, epoch, next)) = claimed else {
            // It was pruned between the two looks.
            lock.remove();
            return Err(unknown());
        };
        Ok(SqliteSession::new(Arc::clone(self), lock, run, number, epoch, next))
    }

    /// The number of a run.
    pub(crate) fn number(&self, run_id: &str) -> Result<i64, Error> {
        let run = self.pool.read(|connection| Run::find(connection, run_id))?;
        run.map(|run| run.number).ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }

    /// Tries to take the lock of a run.
    pub(crate) fn lock(&self, run_id: &str) -> Result<Attempt, Error> {
        lock::take(&self.locks, run_id).map_err(|cause| file_error(&self.locks, &cause))
    }
}
