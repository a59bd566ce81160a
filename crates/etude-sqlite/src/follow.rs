//! Following of runs: records and state changes since a position, with one look at the journal for all followers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use etude_runtime::engine::{Error, Positioned, RunRow};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::error::store_error;
use crate::journal::Journal;
use crate::pool::lock;
use crate::rows::{self, RUN_COLUMNS, Run};
use crate::unix;

/// Time for which a read version of the journal stays valid.
const LOOK: Duration = Duration::from_millis(2);

/// The last seen version of the journal, so that many streams need only one look.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    looked: Option<Instant>,
    version: u64,
    /// A separate connection that never writes: for each connection, SQLite counts the commits of all other ones.
    connection: Option<Connection>,
}

/// The SQL of indexes, and of triggers that number the state changes.
const SERVED: &str = include_str!("../migrations/served.sql");

/// The SQL of the numbers of removed runs, and of the triggers that use them.
const NUMBERS: &str = include_str!("../migrations/numbers.sql");

/// SQL expression: the largest number of a change, of removed runs too.
const LAST_CHANGE: &str = "(select max(coalesce(max(change), 0), (select change from removed_change)) from runs)";

impl Journal {
    /// Adds the indexes and triggers for processes that accept or follow runs, if the journal lacks some of them.
    pub(crate) fn serve(&self) -> Result<(), Error> {
        if self.is_served.load(Ordering::Relaxed) {
            return Ok(());
        }
        let has_all = |connection: &Connection| {
            connection.prepare("select 1 from sqlite_schema where name = 'runs_removed'")?.exists([])
        };
        if !self.pool.read(has_all)? {
            self.pool.transaction(|connection| {
                connection.execute_batch(SERVED)?;
                connection.execute_batch(NUMBERS)
            })?;
        }
        self.is_served.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The records of a run after a position.
    pub(crate) fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error> {
        let number = self.number(run_id)?;
        self.pool.read(|connection| rows::tail(connection, number, after, limit))
    }

    /// The runs whose state changed after a number. A page without its damaged runs has room for others.
    pub(crate) fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error> {
        self.serve()?;
        let sql = format!("select {RUN_COLUMNS} from runs where change > ?1 order by change limit ?2");
        let (mut found, mut after) = (Vec::new(), rows::from_length(after));
        while (found.len() as u64) < u64::from(limit) {
            let left = u64::from(limit) - found.len() as u64;
            let runs = self.pool.read(|connection| {
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map((after, rows::from_length(left)), Run::readable)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })?;
            let is_full = runs.len() as u64 >= left;
            let last = runs.last().map(|run| match run {
                Ok(run) => rows::from_length(run.change),
                Err(unreadable) => unreadable.change,
            });
            found.extend(self.rows(self.readable(runs), |_| true)?);
            let Some(last) = last.filter(|_| is_full) else { break };
            after = last;
        }
        Ok(found)
    }

    /// The number of the latest change of state.
    pub(crate) fn last_change(&self) -> Result<u64, Error> {
        self.serve()?;
        let sql = format!("select {LAST_CHANGE}");
        self.pool.read(|connection| connection.prepare_cached(&sql)?.query_row([], |row| rows::length(row, 0)))
    }

    /// False if no change can have had this number yet.
    pub(crate) fn may_be_past(&self, change: u64) -> Result<bool, Error> {
        self.serve()?;
        // A journal keeps the numbers of removed runs since it has `numbers.sql`. Earlier ones follow the clock, or are just ahead
        // of it when many changes come at once.
        let sql = format!("select ?1 <= max(cast((unixepoch('subsec') + 1) * 1000000 as integer), {LAST_CHANGE})");
        let change = rows::from_length(change);
        self.pool.read(|connection| connection.prepare_cached(&sql)?.query_row([change], |row| row.get(0)))
    }

    /// The bell that rings after writes of any process. `None` if the system does not report writes.
    pub(crate) fn bell(&self) -> Option<&Notify> {
        self.bell.get_or_init(|| unix::hang_bell(&self.pool.log()).ok()).as_deref()
    }

    /// A number that changes with any write by any process.
    pub(crate) fn version(&self) -> Result<u64, Error> {
        let mut watch = lock(&self.watch);
        if watch.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let connection = match watch.connection.take() {
                Some(connection) => connection,
                None => self.pool.separate()?,
            };
            let version = connection
                .prepare_cached("pragma data_version")
                .and_then(|mut statement| statement.query_row([], |row| rows::length(row, 0)));
            watch.connection = Some(connection);
            watch.version = version.map_err(|cause| store_error(self.pool.path(), cause))?;
            watch.looked = Some(Instant::now());
        }
        Ok(watch.version)
    }
}
