//! Removal of finished runs and of everything that only they needed.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use etude_core::digest::Digest;
use etude_runtime::blob::{Alone, GRACE, Kept};
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Entry, Error, KEY_LIFE_MS, Prunable, Query, RunState, cost_entry};
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::file_error;
use crate::journal::Journal;
use crate::ledger;
use crate::listing;
use crate::lock_owner;
use crate::rows::{self, Run};

/// Time in which a prune waits for a moment without values that await their records. A driver stores a value before it appends
/// the record that refers to it. After that time, only blobs older than [`GRACE`] are removed; storing a value again makes it
/// young.
const ALONE_PATIENCE: Duration = Duration::from_secs(1);

/// Minimum number of empty pages (of 4 KiB) for which the file is rewritten; they must also be at least half of all pages.
const EMPTY_PAGES: i64 = 2_048;

/// Time in which a prune tries to empty the log.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

impl Journal {
    /// Removes the finished runs that match `query`; those that a driver still has stay. Their bytes are then in no file of the
    /// journal. Deleted content is overwritten (`secure_delete`), and the log is emptied. Values without references are removed
    /// at once, unless processes keep storing values.
    pub(crate) fn prune(&self, query: &Query) -> Result<u64, Error> {
        let query_finished = finished(query);
        let runs = match query_finished.states.is_empty() {
            // The query asks only for unfinished runs. An empty list of states would match all states.
            true => Vec::new(),
            false => self.readable(self.pool.read(|connection| listing::select(connection, &query_finished))?),
        };
        let (mut removed, has_ledger) = (0, self.has_ledger()?);
        for run in runs {
            // Check the lock before the transaction, for which all writers wait.
            if !self.is_held(&run) {
                let cost = self.cost_of_day(&run);
                removed += u64::from(self.pool.transaction(|connection| {
                    let is_removed = remove_unchanged(connection, &run)?;
                    if is_removed && has_ledger {
                        ledger::remove_of_run(connection, &run.id)?;
                    }
                    if let Some(cost) = cost.as_ref().filter(|_| is_removed) {
                        ledger::keep_cost(connection, cost)?;
                    }
                    Ok(is_removed)
                })?);
            }
        }
        if removed > 0 {
            // Values of a run that no record of it names: its bundle, its input.
            let sql = "delete from blob_refs where run not in (select number from runs)";
            self.pool.write(|connection| connection.execute(sql, []))?;
        }
        if has_ledger {
            self.pool.write(ledger::forget_expired)?;
        }
        lock_owner::remove_stale(&self.locks).map_err(|cause| file_error(&self.locks, &cause))?;
        let forgotten = self.prune_cache(query)?;
        let has_removed = removed > 0 || forgotten > 0;
        self.collect_blobs(if has_removed { ALONE_PATIENCE } else { Duration::ZERO })?;
        self.shrink(has_removed)?;
        Ok(removed)
    }

    /// The entry for the cost of a run that was created within a day. An unreadable result has no cost.
    fn cost_of_day(&self, run: &Run) -> Option<Entry> {
        if run.created_at_ms < now_ms().saturating_sub(KEY_LIFE_MS) {
            return None;
        }
        let result = self.result(&run.id).ok().flatten()?;
        cost_entry(&run.id, &run.app, run.created_at_ms, &result)
    }

    /// Waits at most for `patience` for a moment in which no value awaits its record.
    fn alone(&self, patience: Duration) -> Result<Option<Alone>, Error> {
        let since = Instant::now();
        loop {
            let alone = self.blobs.alone().map_err(|cause| file_error(&self.dir.join("blobs"), &cause))?;
            if alone.is_some() || since.elapsed() >= patience {
                return Ok(alone);
            }
            thread::sleep(PAUSE);
        }
    }

    /// The runs that [`Journal::prune`] would remove, and the bytes that they take.
    pub(crate) fn prunable(&self, query: &Query) -> Result<Prunable, Error> {
        let finished = finished(query);
        if finished.states.is_empty() {
            return Ok(Prunable::default());
        }
        let mut runs = self.list(&finished)?;
        runs.retain(|row| !row.is_live);
        let numbers = runs.iter().map(|row| self.number(&row.id)).collect::<Result<BTreeSet<_>, _>>()?;
        let (bytes, blobs) = self.pool.snapshot(|connection| weigh(connection, &numbers))?;
        let kept = self.blobs.list().map_err(|cause| file_error(&self.dir.join("blobs"), &cause))?;
        let of_blobs: u64 = kept.iter().filter(|kept| blobs.contains(&kept.digest)).map(|kept| kept.len).sum();
        Ok(Prunable { runs, bytes: bytes + of_blobs })
    }

    /// Removes old cache entries, and returns their number. Entries belong to no app or target, so a query for one leaves them
    /// alone.
    fn prune_cache(&self, query: &Query) -> Result<usize, Error> {
        let Some(before) = query.cache_before_ms() else { return Ok(0) };
        self.pool.write(|connection| connection.execute("delete from cache where created_at_ms < ?1", [before]))
    }

    /// Removes blobs that are not needed: old ones, and young ones if within `patience` no value awaits its record.
    fn collect_blobs(&self, patience: Duration) -> Result<(), Error> {
        let fail = |cause| file_error(&self.dir.join("blobs"), &cause);
        self.blobs.clean().map_err(fail)?;
        let before = SystemTime::now() - GRACE;
        let unneeded = self.unneeded(self.blobs.list().map_err(fail)?)?;
        let (old, young): (Vec<_>, Vec<_>) = unneeded.into_iter().partition(|kept| kept.modified < before);
        for kept in old {
            // It may have been stored again since the list was made, which makes it young.
            self.blobs.remove_older(kept.digest, before).map_err(fail)?;
        }
        if young.is_empty() {
            return Ok(());
        }
        let Some(_alone) = self.alone(patience)? else { return Ok(()) };
        for kept in self.unneeded(young)? {
            self.blobs.remove(kept.digest).map_err(fail)?;
        }
        Ok(())
    }

    /// The blobs that neither a run, with its records and its header, nor the cache refers to.
    fn unneeded(&self, mut blobs: Vec<Kept>) -> Result<Vec<Kept>, Error> {
        if blobs.is_empty() {
            return Ok(blobs);
        }
        let needed = self.pool.snapshot(|connection| {
            let mut referring = connection.prepare_cached(
                "select 1 from blob_refs where blob = ?1 union all select 1 from cache where blob = ?1 limit 1",
            )?;
            let mut needed = rows::of_headers(connection)?;
            for kept in &blobs {
                if referring.exists([&kept.digest.as_bytes()[..]])? {
                    needed.insert(kept.digest);
                }
            }
            Ok(needed)
        })?;
        blobs.retain(|kept| !needed.contains(&kept.digest));
        Ok(blobs)
    }

    /// Returns space to the file system if that is worth rewriting the file, and empties the log if `has_removed`: it still has
    /// the removed bytes.
    fn shrink(&self, has_removed: bool) -> Result<(), Error> {
        let was_worth_it = self.pool.write(|connection| {
            let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            let (all, empty) = (count("pragma page_count")?, count("pragma freelist_count")?);
            let is_worth_it = empty >= EMPTY_PAGES && empty * 2 >= all;
            if is_worth_it {
                connection.execute_batch("vacuum")?;
            }
            Ok(is_worth_it)
        })?;
        if !was_worth_it && !has_removed {
            return Ok(());
        }
        // SQLite waits neither for a running checkpoint nor for readers.
        let since = Instant::now();
        while since.elapsed() < CHECKPOINT_PATIENCE {
            let sql = "pragma wal_checkpoint(truncate)";
            if self.pool.read(|connection| connection.query_row(sql, [], |row| row.get::<_, i64>(0)))? == 0 {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        let why = "the runs were removed, but their data stays in the log while other processes read the journal; prune again later";
        Err(Error::Store { path: self.pool.log().display().to_string(), why: why.to_owned() })
    }
}

/// The query, narrowed to finished runs.
fn finished(query: &Query) -> Query {
    let asked = |state: &RunState| query.states.is_empty() || query.states.contains(state);
    let states = RunState::ALL.into_iter().filter(|state| state.is_final() && asked(state)).collect();
    Query { states, ..query.clone() }
}

/// The bytes of these runs in the database, and the blobs that neither another run nor the cache needs.
fn weigh(connection: &Connection, numbers: &BTreeSet<i64>) -> rusqlite::Result<(u64, BTreeSet<Digest>)> {
    let sizes = "select
        (select coalesce(sum(length(key) + octet_length(body)), 0) from records where id between ?1 and ?2)
        + (select coalesce(sum(octet_length(body)), 0) from headers where run = ?3)
        + (select coalesce(sum(octet_length(body)), 0) from results where run = ?3)";
    let mut bytes = 0;
    for number in numbers {
        let range = (rows::record_id(*number, 0), rows::record_id(*number, u32::MAX), *number);
        bytes += connection.prepare_cached(sizes)?.query_row(range, |row| rows::length(row, 0))?;
    }
    // One pass for all runs, because no index begins with the run.
    let mut references = connection.prepare_cached("select blob, run from blob_refs order by blob")?;
    let (mut unneeded, mut needed) = (BTreeSet::new(), None);
    let mut rows = references.query([])?;
    while let Some(row) = rows.next()? {
        let blob = rows::digest(row, 0)?;
        if !numbers.contains(&row.get(1)?) {
            needed = Some(blob);
            unneeded.remove(&blob);
        } else if needed != Some(blob) {
            unneeded.insert(blob);
        }
    }
    let mut cached = connection.prepare_cached("select 1 from cache where blob = ?1")?;
    for blob in unneeded.clone() {
        if cached.exists([&blob.as_bytes()[..]])? {
            unneeded.remove(&blob);
        }
    }
    Ok((bytes, unneeded))
}

/// Removes a run unless an owner has taken it meanwhile. True if it was removed.
fn remove_unchanged(connection: &Connection, run: &Run) -> rusqlite::Result<bool> {
    let is_unchanged = Run::find(connection, &run.id)?.is_some_and(|now| now.is_as(run));
    if is_unchanged {
        ledger::keep_keys(connection, run)?;
        remove(connection, run.number)?;
    }
    Ok(is_unchanged)
}

/// Removes a run with all its rows.
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
        "delete from keys where run = ?1",
        "delete from labels where run = ?1",
        "delete from queue where run = ?1",
        "delete from signals where run = ?1",
        "delete from results where run = ?1",
        "delete from headers where run = ?1",
        "delete from runs where number = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([number])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::migrate::STEPS;

    fn refer(connection: &Connection, blob: Digest, run: i64) {
        let values = (&blob.as_bytes()[..], run);
        connection.execute("insert into blob_refs (blob, run) values (?1, ?2)", values).expect("inserted");
    }

    /// The values that a prune would remove are found in time that grows with their number, not with its square.
    #[test]
    fn values_of_many_runs_are_found_in_one_pass() {
        let mut connection = Connection::open_in_memory().expect("a database");
        STEPS.iter().for_each(|step| connection.execute_batch(step).expect("a step"));
        let of = |number: i64| Digest::of(&number.to_le_bytes());
        let runs = 400;
        (1..=runs).for_each(|run| refer(&connection, of(run), run));
        // One value of a run that stays, one of two runs, one of the cache.
        refer(&connection, of(1), runs + 1);
        refer(&connection, of(2), 3);
        let cached = of(4);
        let sql = "insert into cache (key, blob, created_at_ms) values (x'00', ?1, 1)";
        connection.execute(sql, [&cached.as_bytes()[..]]).expect("inserted");
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || {
            counted.fetch_add(10, Ordering::Relaxed);
            false
        };
        connection.progress_handler(10, Some(count)).expect("a handler");
        let (_, unneeded) = weigh(&connection, &(1..=runs).collect()).expect("weighed");
        assert_eq!(unneeded, (1..=runs).filter(|run| ![1, 4].contains(run)).map(of).collect());
        let steps = steps.load(Ordering::Relaxed);
        assert!(steps < 200_000, "{steps} steps of SQLite");
    }
}
