//! Following runs: records and changes of state after a position.

use std::time::{Duration, Instant};

use etude_runtime::engine::{DamagedRun, Error, Positioned, RunRow};

use crate::error::Fault;
use crate::link::{Connection, attempt, lock};
use crate::rows::{self, columns};
use crate::store::Store;

/// Time for which a read version of the journal stays valid.
const LOOK: Duration = Duration::from_millis(50);

/// Tables whose writes count for the version.
const FOLLOWED: &str = "array['records'::regclass, 'runs'::regclass, 'signals'::regclass, 'entries'::regclass]::oid[]";

/// Cached version of the journal, so that many streams share one query.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    looked: Option<Instant>,
    writes: i64,
    version: u64,
}

impl Store {
    /// The records of a run after a position.
    pub(crate) async fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error> {
        let run = self.find(run_id).await?;
        Ok(attempt!(self.link, |connection| rows::tail(connection, run.row.number, after, Some(limit))))
    }

    /// The runs whose state changed after a number.
    pub(crate) async fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error> {
        let schema = self.link.address().schema();
        let (rows, damaged) = attempt!(self.link, |connection| changes(connection, schema, after, limit));
        self.damaged.note(damaged);
        Ok(rows)
    }

    /// The number of the latest change of state.
    pub(crate) async fn last_change(&self) -> Result<u64, Error> {
        let schema = self.link.address().schema();
        Ok(attempt!(self.link, |connection| last_change(connection, schema)))
    }

    /// False if no change can have had this number yet. The sequence continues past changes of runs that were removed.
    pub(crate) async fn may_be_past(&self, change: u64) -> Result<bool, Error> {
        let schema = self.link.address().schema();
        let horizon = attempt!(self.link, |connection| horizon(connection, schema));
        Ok(rows::from_length(change) <= horizon)
    }

    /// A number that changes with any write by any process.
    pub(crate) async fn version(&self) -> Result<u64, Error> {
        let known = |watch: &Watch| watch.looked.filter(|looked| looked.elapsed() < LOOK).map(|_| watch.version);
        if let Some(version) = known(&lock(&self.watch)) {
            return Ok(version);
        }
        let (writes, is_writing) = attempt!(self.link, |connection| writes(connection));
        let mut watch = lock(&self.watch);
        // An uncommitted statement has its number already, but its records are not visible yet.
        if writes != watch.writes || is_writing {
            watch.version += 1;
        }
        watch.writes = writes;
        watch.looked = Some(Instant::now());
        Ok(watch.version)
    }
}

/// The number of writes so far, and true if some are not committed. The order of the queries matters: commits between
/// the two are visible.
async fn writes(connection: &mut Connection) -> Result<(i64, bool), Fault> {
    let row = connection.query_opt("select last_value from writes", &[]).await?;
    let writes = row.map_or(Ok(0), |row| row.try_get(0))?;
    let sql = format!(
        "select 1 from pg_locks where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = any({FOLLOWED})
         and pid <> pg_backend_pid() limit 1"
    );
    Ok((writes, connection.query_opt(&sql, &[]).await?.is_some()))
}

/// The largest change number below which every number is committed, or never will be.
async fn horizon(connection: &mut Connection, schema: &str) -> Result<i64, Fault> {
    // Waits for transactions that have assigned a number and are about to commit.
    let sql = "select pg_advisory_xact_lock(1702131044, hashtext($1)), pg_sequence_last_value('changes'::regclass)";
    let row = connection.query_opt(sql, &[&schema]).await?;
    let last: Option<i64> = row.map_or(Ok(None), |row| row.try_get(1))?;
    Ok(last.unwrap_or(0))
}

async fn changes(
    connection: &mut Connection,
    schema: &str,
    after: u64,
    limit: u32,
) -> Result<(Vec<RunRow>, Vec<DamagedRun>), Fault> {
    let horizon = horizon(connection, schema).await?;
    let sql = format!("select {} from runs where change > $1 and change <= $2 order by change limit $3", columns());
    let (mut found, mut damaged, mut after) = (Vec::new(), Vec::new(), rows::from_length(after));
    // A page without its damaged runs has room for others.
    loop {
        let left = i64::from(limit) - i64::try_from(found.len()).unwrap_or(i64::MAX);
        let rows = connection.query(&sql, &[&after, &horizon, &left]).await?;
        rows::readable(&rows, &mut found, &mut damaged)?;
        let is_full = found.len() < limit as usize && i64::try_from(rows.len()).is_ok_and(|read| read >= left);
        let Some(last) = rows.last().filter(|_| is_full) else { return Ok((found, damaged)) };
        after = last.try_get("change")?;
    }
}

async fn last_change(connection: &mut Connection, schema: &str) -> Result<u64, Fault> {
    let horizon = horizon(connection, schema).await?;
    let row = connection.query_opt("select coalesce(max(change), 0) from runs where change <= $1", &[&horizon]).await?;
    Ok(rows::length(row.map_or(Ok(0), |row| row.try_get(0))?))
}
