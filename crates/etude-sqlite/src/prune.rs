//! Removing finished runs and what only they needed.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use etude_core::digest::Digest;
use etude_runtime::engine::{Error, Query, State};
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::file_error;
use crate::holder;
use crate::journal::Journal;
use crate::listing;
use crate::rows::{self, Run};

/// Younger blobs are never removed: a driver keeps a value first and appends the record that refers to it then, and
/// may be between the two right now. Keeping a value again makes it young.
const BLOB_GRACE: Duration = Duration::from_secs(60 * 60);

/// The file is rewritten if at least so many of its pages (of 4 KiB), and at least half of them, are empty.
const EMPTY_PAGES: i64 = 2_048;

/// So often, and with such pauses, a prune tries to make the file shorter.
const CHECKPOINT_TRIES: u32 = 200;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(10);

impl Journal {
    /// Removes the finished runs that `query` asks for; those that a driver still has stay.
    pub(crate) fn prune(&self, query: &Query) -> Result<u64, Error> {
        let query_finished = finished(query);
        let runs = match query_finished.states.is_empty() {
            // Only unfinished ones were asked for. An empty list would mean: in whatever state.
            true => Vec::new(),
            false => self.pool.read(|connection| listing::select(connection, &query_finished))?,
        };
        let mut removed = 0;
        for run in runs {
            // Looked at before the transaction, for which everybody who writes waits.
            if !self.is_held(&run) {
                removed += u64::from(self.pool.transaction(|connection| remove_unchanged(connection, &run))?);
            }
        }
        holder::sweep(&self.locks).map_err(|cause| file_error(&self.locks, &cause))?;
        self.prune_cache(query)?;
        self.collect_blobs(SystemTime::now() - BLOB_GRACE)?;
        self.shrink()?;
        Ok(removed)
    }

    /// Forgets old cache entries. They belong to no app or target, so that a query for some leaves them alone.
    fn prune_cache(&self, query: &Query) -> Result<(), Error> {
        if let Query { app: None, target: None, created_before_ms: Some(before), .. } = query {
            self.pool.write(|connection| connection.execute("delete from cache where created_at_ms < ?1", [before]))?;
        }
        Ok(())
    }

    /// Removes blobs from before `before` that neither a run nor the cache refers to. Returns how many.
    pub(crate) fn collect_blobs(&self, before: SystemTime) -> Result<u64, Error> {
        let fail = |cause| file_error(&self.dir.join("blobs"), &cause);
        self.blobs.clean().map_err(fail)?;
        let old: Vec<_> = self.blobs.list().map_err(fail)?.into_iter().filter(|kept| kept.modified < before).collect();
        if old.is_empty() {
            return Ok(0);
        }
        let unneeded = self.pool.snapshot(|connection| {
            let mut needed = connection.prepare_cached(
                "select 1 from blob_refs where blob = ?1 union all select 1 from cache where blob = ?1 limit 1",
            )?;
            let mut unneeded = Vec::new();
            for kept in &old {
                if !needed.exists([&kept.digest.as_bytes()[..]])? {
                    unneeded.push(kept.digest);
                }
            }
            Ok(unneeded)
        })?;
        // One of them may have been kept again since the list was made, which makes it young.
        let again = self.blobs.list().map_err(fail)?;
        let young: BTreeSet<_> = again.iter().filter(|kept| kept.modified >= before).map(|kept| kept.digest).collect();
        let mut removed = 0;
        for digest in unneeded.into_iter().filter(|digest| !young.contains(digest)) {
            self.blobs.remove(digest).map_err(fail)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Gives room back to the file system if that is worth rewriting the file.
    fn shrink(&self) -> Result<(), Error> {
        let was_worth_it = self.pool.write(|connection| {
            let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            let (all, empty) = (count("pragma page_count")?, count("pragma freelist_count")?);
            let is_worth_it = empty >= EMPTY_PAGES && empty * 2 >= all;
            if is_worth_it {
                connection.execute_batch("vacuum")?;
            }
            Ok(is_worth_it)
        })?;
        // The file gets shorter with a checkpoint. SQLite does not wait for one that is under way; if this one does not
        // come to be, a later one does it.
        for _ in 0..if was_worth_it { CHECKPOINT_TRIES } else { 0 } {
            let sql = "pragma wal_checkpoint(truncate)";
            if self.pool.read(|connection| connection.query_row(sql, [], |row| row.get::<_, i64>(0)))? == 0 {
                break;
            }
            thread::sleep(CHECKPOINT_PAUSE);
        }
        Ok(())
    }
}

/// The query, narrowed to finished runs.
fn finished(query: &Query) -> Query {
    let asked = |state: &State| query.states.is_empty() || query.states.contains(state);
    let states = State::ALL.into_iter().filter(|state| state.is_final() && asked(state)).collect();
    Query { states, ..query.clone() }
}

/// Removes a run unless somebody has taken it meanwhile. True if it was there.
fn remove_unchanged(connection: &Connection, run: &Run) -> rusqlite::Result<bool> {
    let is_unchanged = Run::find(connection, &run.id)?.is_some_and(|now| now.is_as(run));
    if is_unchanged {
        remove(connection, run.number)?;
    }
    Ok(is_unchanged)
}

/// Removes a run with everything that is of it.
fn remove(connection: &Connection, number: i64) -> rusqlite::Result<()> {
    let mut blobs: BTreeSet<Digest> =
        rows::records(connection, number)?.into_iter().flat_map(|record| record.blobs).collect();
    let result = "select blob from results where run = ?1 and blob is not null";
    blobs.extend(connection.prepare_cached(result)?.query_row([number], |row| rows::digest(row, 0)).optional()?);
    for blob in &blobs {
        connection
            .prepare_cached("delete from blob_refs where blob = ?1 and run = ?2")?
            .execute((&blob.as_bytes()[..], number))?;
    }
    connection
        .prepare_cached("delete from records where id between ?1 and ?2")?
        .execute([rows::record_id(number, 0), rows::record_id(number, u32::MAX)])?;
    for sql in [
        "delete from signals where run = ?1",
        "delete from results where run = ?1",
        "delete from headers where run = ?1",
        "delete from runs where number = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([number])?;
    }
    Ok(())
}
