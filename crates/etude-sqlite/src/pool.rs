//! Connections to one journal file: opened when needed, used by one thread at a time, kept for reuse.
//!
//! All writes of a process use one of them. A connection drops its cached pages whenever another one has written, so the writing
//! one never reads again the pages to which it appends.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use etude_runtime::engine::Error;
pub(crate) use etude_runtime::sync::lock;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::error::store_error;

/// Maximum wait of a statement for another process. Transactions take microseconds; only a migration or the cleanup after a prune
/// takes longer.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of times that a thread yields before it sleeps.
const YIELDS: i32 = 10;

/// Maximum number of idle connections that are kept: each has a page cache and prepared statements.
const IDLE: usize = 4;

/// The connections of one journal.
#[derive(Debug)]
pub(crate) struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// The writing connection. Writers of this process queue here, which is cheaper and fairer than SQLite's polling for its
    /// lock.
    writer: Mutex<Option<Connection>>,
    /// Length of the write-ahead log in pages after the latest commit of this process.
    log_pages: Arc<AtomicU32>,
}

impl Pool {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), writer: Mutex::default(), log_pages: Arc::default() }
    }

    /// The path of the database file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the write-ahead log, which SQLite keeps beside the database file.
    pub(crate) fn log(&self) -> PathBuf {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        log.into()
    }

    /// Length of the write-ahead log in pages, as known to this process.
    pub(crate) fn log_pages(&self) -> u32 {
        self.log_pages.load(Ordering::Relaxed)
    }

    /// Runs reading work, or a single statement outside of the appending path.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.connection().and_then(|connection| work(&connection)).map_err(|cause| store_error(&self.path, cause))
    }

    /// Runs work for which writers must not wait.
    pub(crate) fn aside<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.own_connection().and_then(|connection| work(&connection)).map_err(|cause| store_error(&self.path, cause))
    }

    /// Runs work that waits for no other process, on a connection that is closed afterwards.
    pub(crate) fn impatient<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let writer = lock(&self.writer).take();
        let connection = writer.map_or_else(|| self.idle_or_new(), Ok);
        let done = connection.and_then(|connection| {
            connection.busy_timeout(Duration::ZERO)?;
            work(&connection)
        });
        done.map_err(|cause| store_error(&self.path, cause))
    }

    /// Runs several reads on one state of the journal.
    pub(crate) fn snapshot<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.read(|connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// Executes one writing statement, which is a separate transaction; or a short, frequent read, which then finds its pages
    /// cached.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let mut writer = self.writer();
        let connection = match writer.take() {
            Some(connection) => Ok(connection),
            None => self.idle_or_new(),
        };
        connection
            .and_then(|connection| work(writer.insert(connection)))
            .map_err(|cause| store_error(&self.path, cause))
    }

    /// The writing connection. Mostly it is free, or will be in a moment.
    fn writer(&self) -> MutexGuard<'_, Option<Connection>> {
        for _ in 0..YIELDS {
            match self.writer.try_lock() {
                Ok(writer) => return writer,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        wait(|| lock(&self.writer))
    }

    /// Executes several statements in one transaction. `work` must not run foreign code.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.write(|connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// An idle connection, or a new one.
    pub(crate) fn connection(&self) -> rusqlite::Result<Lent<'_>> {
        if lock(&self.idle).is_empty()
            && let Ok(writer) = self.writer.try_lock()
            && writer.is_some()
        {
            // A process with a single run needs no second connection.
            return Ok(Lent::Writer(writer));
        }
        self.own_connection()
    }

    /// A connection for a caller that keeps it.
    pub(crate) fn separate(&self) -> Result<Connection, Error> {
        self.connect().map_err(|cause| store_error(&self.path, cause))
    }

    fn own_connection(&self) -> rusqlite::Result<Lent<'_>> {
        Ok(Lent::Own { pool: self, connection: Some(self.idle_or_new()?) })
    }

    fn idle_or_new(&self) -> rusqlite::Result<Connection> {
        // The lock on the idle ones is released before a file is opened, which may take long: a `match` would hold it.
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| self.connect(), Ok)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.set_prepared_statement_cache_capacity(32);
        connection.busy_handler(Some(wait_for_others()))?;
        let log_pages = Arc::clone(&self.log_pages);
        // This replaces SQLite's own checkpoints, which would happen in the middle of an append: see `syncer`.
        connection.wal_hook(Some(move |_: &mut Wal, pages| {
            log_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        // A program that ends must not wait for a slow disk. The log stays, and the next program continues with it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Nothing in a journal file is executed, no matter who wrote it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // The plan of a statement depends on no value. Otherwise SQLite would prepare the statement that looks for signals again
        // for each call, which costs six times the instructions of the statement itself.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // `normal`: a commit writes to the log without a sync, which survives the death of the process. A checkpoint syncs the
        // log before it copies pages into the database file, and that file before the log is used again. `off` would leave out
        // these two syncs as well, and a loss of power could then destroy the whole journal. `secure_delete`: deleted content is
        // overwritten with zeros. Hardly anything but a prune deletes.
        connection.execute_batch(
            "pragma synchronous = normal; pragma checkpoint_fullfsync = on; pragma secure_delete = on",
        )?;
        Ok(connection)
    }
}

/// A connection in use. It goes back to the pool on drop.
pub(crate) enum Lent<'a> {
    /// A reading connection.
    Own {
        /// The pool that gets it back.
        pool: &'a Pool,
        /// `Some` until the drop.
        connection: Option<Connection>,
    },
    /// The writing connection.
    Writer(MutexGuard<'a, Option<Connection>>),
}

impl Deref for Lent<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        let connection = match self {
            Self::Own { connection, .. } => connection,
            Self::Writer(writer) => writer,
        };
        connection.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Self::Own { pool, connection } = self else { return };
        let mut idle = lock(&pool.idle);
        if idle.len() < IDLE {
            idle.extend(connection.take());
        }
    }
}

/// Waits for something that may take seconds. If this thread drives all tasks of a runtime, another thread takes over meanwhile:
/// requests that need no lock are served.
fn wait<T>(work: impl FnOnce() -> T) -> T {
    let drives_tasks =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if drives_tasks { block_in_place(work) } else { work() }
}

/// Waits for the lock of another process: first by yielding, because transactions are short, then by sleeping.
fn wait_for_others() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = Instant::now();
    move |count| {
        if count == 0 {
            since = Instant::now();
        }
        match count {
            0..YIELDS => thread::yield_now(),
            YIELDS..17 => thread::sleep(Duration::from_micros(50 << (count - YIELDS))),
            // Another process holds the lock for longer than a transaction.
            _ => wait(|| thread::sleep(Duration::from_millis(5))),
        }
        since.elapsed() < BUSY_TIMEOUT
    }
}
