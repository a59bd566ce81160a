//! Migration of a journal file to the current format. The format's number is SQLite's `user_version`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use etude_files::private;
use etude_runtime::engine::Error;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::error::{damaged, file_error, store_error};
use crate::pool::{BUSY_TIMEOUT, Pool};
use crate::unix;

/// The SQL that turns format `n` into format `n + 1`, for each `n` from 0 on.
pub(crate) const STEPS: &[&str] = &[
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
    include_str!("../migrations/0004.sql"),
];

/// Reason why a file could not be migrated.
enum Obstacle {
    Sql(rusqlite::Error),
    Other(Error),
}

impl From<rusqlite::Error> for Obstacle {
    fn from(cause: rusqlite::Error) -> Self {
        Self::Sql(cause)
    }
}

/// Makes sure that the pool's file is a journal of the format at the end of `steps`. Any number of processes may do this at once.
///
/// # Errors
/// [`Error::TooNew`], [`Error::Damaged`], or the file cannot be written.
pub(crate) fn prepare(pool: &Pool, locks: &Path, steps: &[&str]) -> Result<(), Error> {
    let newest = steps.len() as u32;
    let turn = locks.join("=format.lock");
    check_locks(&turn, unix::try_record_lock)?;
    match pool.connection().and_then(|connection| Ok((format(&connection)?, has_log(&connection)?))) {
        Ok((found, true)) if found == newest => return Ok(()),
        Ok((found, _)) => check(found, newest, pool.path())?,
        // Another process is creating the journal right now.
        Err(cause) if is_busy(&cause) => {}
        Err(cause) => return Err(store_error(pool.path(), cause)),
    }
    // One process at a time: SQLite itself does not wait for the lock that a new journal mode needs.
    let take = || {
        let file = private::append(&turn)?;
        file.lock().map(|()| file)
    };
    let _turn = take().map_err(|cause| file_error(&turn, &cause))?;
    let since = Instant::now();
    loop {
        match migrate(pool, steps) {
            Ok(()) => return Ok(()),
            Err(Obstacle::Other(cause)) => return Err(cause),
            // Other processes that have looked at the file are gone in a moment.
            Err(Obstacle::Sql(cause)) if is_busy(&cause) && since.elapsed() < BUSY_TIMEOUT => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(Obstacle::Sql(cause)) => return Err(store_error(pool.path(), cause)),
        }
    }
}

/// Refuses a file system that locks no files. SQLite would wait for its lock as if another process had it.
fn check_locks(turn: &Path, try_lock: impl Fn(&File) -> io::Result<()>) -> Result<(), Error> {
    match private::append(turn).and_then(|file| try_lock(&file)) {
        Err(cause) if unix::lacks_locks(&cause) => Err(file_error(turn, &cause)),
        // A lock that another process has is waited for later, and any other obstacle is reported where it matters.
        _ => Ok(()),
    }
}

/// Runs all missing steps in one transaction.
fn migrate(pool: &Pool, steps: &[&str]) -> Result<(), Obstacle> {
    let newest = steps.len() as u32;
    let connection = pool.connection()?;
    if format(&connection)? == 0 {
        begin_journal(&connection, pool.path())?;
    }
    if !has_log(&connection)? {
        switch_to_log(&connection, pool.path())?;
    }
    let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
    let found = format(&connection)?;
    check(found, newest, pool.path()).map_err(Obstacle::Other)?;
    if found < newest {
        for step in &steps[found as usize..] {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "user_version", newest)?;
    }
    Ok(transaction.commit()?)
}

/// Prepares a new file for a journal.
fn begin_journal(connection: &Connection, path: &Path) -> Result<(), Obstacle> {
    let tables: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 {
        return Err(Obstacle::Other(damaged(path, "it belongs to another program")));
    }
    // The log gets the mode of the database file. Nothing secret was written so far.
    private::restrict(path).map_err(|cause| Obstacle::Other(file_error(path, &cause)))
}

/// True if the file has a write-ahead log. After a disk failure during its creation, it may have none.
fn has_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("pragma journal_mode", [], |row| Ok(row.get::<_, String>(0)? == "wal"))
}

fn switch_to_log(connection: &Connection, path: &Path) -> Result<(), Obstacle> {
    // If the switch fails, SQLite returns the unchanged mode, and no error.
    let mode: String = connection.query_row("pragma journal_mode = wal", [], |row| row.get(0))?;
    if mode != "wal" {
        let why = "cannot create its write-ahead log; check that the disk works and is not full".to_owned();
        return Err(Obstacle::Other(Error::Store { path: path.display().to_string(), why }));
    }
    Ok(())
}

/// The format of the open file; 0 if it is empty.
fn format(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("pragma user_version", [], |row| row.get(0))
}

/// Refuses formats that are newer than this program.
fn check(found: u32, newest: u32, path: &Path) -> Result<(), Error> {
    if found > newest {
        return Err(Error::TooNew { path: path.display().to_string(), found, known: newest });
    }
    Ok(())
}

fn is_busy(cause: &rusqlite::Error) -> bool {
    matches!(cause.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: a file system without locks is refused at once, and a lock that another process has is not an obstacle.
    #[test]
    fn a_file_system_without_locks_is_refused_before_any_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let turn = dir.path().join("=format.lock");
        let refused = check_locks(&turn, |_| Err(rustix::io::Errno::NOLCK.into())).expect_err("no locks");
        assert!(refused.to_string().contains("the file system does not lock files"), "{refused}");
        check_locks(&turn, |_| Err(rustix::io::Errno::AGAIN.into())).expect("another process has it");
        check_locks(&turn, unix::try_record_lock).expect("a file system with locks");
    }
}
