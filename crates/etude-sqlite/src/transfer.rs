//! Transfer of runs into and out of a journal (K-64, K-65).

use std::collections::BTreeSet;

use etude_core::digest::Digest;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{ArchivedRun, Captured, Error, Record, RunState, Stamp, UniqueKey};
use rusqlite::Connection;

use crate::journal::Journal;
use crate::queue::Waits;
use crate::rows::{self, Run};
use crate::{listing, queue};

/// The parts of a run from one state of the journal: its row, the run, and the place of a large result.
type Snapshot = (Run, ArchivedRun, Option<(Digest, u64)>);

impl Journal {
    /// Everything about a run, from one moment.
    pub(crate) fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        loop {
            let found = self.pool.snapshot(|connection| snapshot(connection, run_id))?;
            let (row, mut run, place) = found.ok_or_else(|| Error::Unknown(run_id.to_owned()))?;
            let is_live = self.is_held(&row);
            // A run that its driver has released since would appear as interrupted.
            if !is_live && row.lock_owner.is_some() && !self.find(run_id)?.is_as(&row) {
                continue;
            }
            if let Some((blob, len)) = place {
                // A run without its result is damaged; the journal is not.
                let damaged = |cause: Error| Error::Damaged {
                    path: self.dir.join("blobs").display().to_string(),
                    why: format!("the result of run `{run_id}` cannot be read: {cause}"),
                };
                run.result = Some(self.fetch(blob, len).map_err(damaged)?);
            }
            let stamp = Stamp {
                run_id: run_id.to_owned(),
                version: row.epoch,
                state: row.state,
                records: run.records.len() as u64,
                signals: run.signals.len() as u64,
            };
            return Ok(Captured { run, stamp, is_live });
        }
    }

    /// Marks runs as moved away. Returns those that have changed.
    pub(crate) fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error> {
        // Check the locks before the transaction, for which all writers wait. A process that takes a run meanwhile raises its
        // epoch.
        let mut held = BTreeSet::new();
        for stamp in runs {
            match self.find(&stamp.run_id) {
                Ok(run) if self.is_held(&run) => drop(held.insert(run.id)),
                Ok(_) | Err(Error::Unknown(_)) => {}
                Err(cause) => return Err(cause),
            }
        }
        let others = self.pool.transaction(|connection| {
            let mut others = Vec::new();
            for stamp in runs {
                if held.contains(&stamp.run_id) || !leave(connection, stamp)? {
                    others.push(stamp.run_id.clone());
                }
            }
            Ok(others)
        })?;
        self.is_in_place()?;
        self.syncer.committed(&[])?;
        Ok(others)
    }

    /// Adds a run. False if there is one with that id.
    pub(crate) fn admit(&self, run: &ArchivedRun) -> Result<bool, Error> {
        let place = run.result.as_deref().map(|text| self.place(text)).transpose()?;
        let result = run.result.as_deref().zip(place.as_ref()).map(|(text, place)| Outcome {
            body: place.body(),
            blob: place.digest(),
            length: text.len() as u64,
        });
        if !self.pool.transaction(|connection| admit(connection, run, result.as_ref()))? {
            return Ok(false);
        }
        self.is_in_place()?;
        let of_records = run.records.iter().flat_map(|record| &record.blobs);
        let blobs: Vec<Digest> =
            of_records.chain(&run.values).copied().chain(result.and_then(|result| result.blob)).collect();
        self.syncer.committed(&blobs)?;
        Ok(true)
    }
}

/// A result document in its stored form.
struct Outcome<'a> {
    body: Option<&'a str>,
    blob: Option<Digest>,
    length: u64,
}

fn snapshot(connection: &Connection, run_id: &str) -> rusqlite::Result<Option<Snapshot>> {
    let Some(row) = Run::find(connection, run_id)? else { return Ok(None) };
    let (result, place) = match listing::result(connection, row.number)? {
        Some(Ok(text)) => (Some(text), None),
        Some(Err(place)) => (None, Some(place)),
        None => (None, None),
    };
    let run = ArchivedRun {
        run: row.created(connection)?,
        state: row.state,
        started_at_ms: row.started_at_ms,
        changed_at_ms: row.changed_at_ms,
        keys: keys(connection, row.number)?,
        records: rows::records(connection, row.number)?,
        signals: rows::signals(connection, row.number)?,
        result,
        values: Vec::new(),
    };
    Ok(Some((row, run, place)))
}

fn keys(connection: &Connection, number: i64) -> rusqlite::Result<Vec<UniqueKey>> {
    let mut statement = connection.prepare_cached("select key, digest from keys where run = ?1 order by key")?;
    let keys = statement.query_map([number], |row| {
        let has_digest = row.get_ref(1)? != rusqlite::types::ValueRef::Null;
        Ok(UniqueKey { key: row.get(0)?, digest: has_digest.then(|| rows::digest(row, 1)).transpose()? })
    })?;
    keys.collect()
}

/// Marks a run as moved away, unless it has changed since. A session that had it has an outdated epoch.
fn leave(connection: &Connection, stamp: &Stamp) -> rusqlite::Result<bool> {
    let Some(run) = Run::find(connection, &stamp.run_id)? else { return Ok(false) };
    let count = |sql: &str, parameters: [i64; 2]| {
        connection.prepare_cached(sql)?.query_row(parameters, |row| rows::length(row, 0))
    };
    let of_records = [rows::record_id(run.number, 0), rows::record_id(run.number, u32::MAX)];
    let is_as_before = (run.epoch, run.state) == (stamp.version, stamp.state)
        && !run.state.is_final()
        && count("select count(*) from records where id between ?1 and ?2", of_records)? == stamp.records
        && count("select count(*) from signals where run between ?1 and ?2", [run.number; 2])? == stamp.signals;
    if is_as_before {
        connection
            .prepare_cached(
                "update runs set state = ?2, epoch = epoch + 1, holder = null, changed_at_ms = ?3 where number = ?1",
            )?
            .execute((run.number, RunState::Moved.word(), now_ms()))?;
        queue::leave(connection, run.number)?;
    }
    Ok(is_as_before)
}

/// Adds a run in a transaction. False if there is a run with that id.
fn admit(connection: &Connection, run: &ArchivedRun, result: Option<&Outcome<'_>>) -> rusqlite::Result<bool> {
    let Some(number) = rows::insert(connection, &run.run, run.state, None)? else { return Ok(false) };
    connection
        .prepare_cached("update runs set started_at_ms = ?2, changed_at_ms = ?3 where number = ?1")?
        .execute((number, run.started_at_ms, run.changed_at_ms))?;
    for (seq, Record { key, request, body, blobs }) in (0_u32..).zip(&run.records) {
        let joined = (!blobs.is_empty()).then(|| blobs.iter().flat_map(Digest::as_bytes).copied());
        connection
            .prepare_cached("insert into records (id, key, request, body, blobs) values (?1, ?2, ?3, ?4, ?5)")?
            .execute((
            rows::record_id(number, seq),
            key,
            &request.as_bytes()[..],
            body,
            joined.map(Iterator::collect::<Vec<u8>>),
        ))?;
        rows::refer(connection, number, blobs)?;
    }
    for signal in &run.signals {
        connection
            .prepare_cached("insert into signals (run, key, body, created_at_ms) values (?1, ?2, ?3, ?4)")?
            .execute((number, &signal.key, &signal.body, now_ms()))?;
    }
    if let Some(Outcome { body, blob, length }) = result {
        connection
            .prepare_cached("insert into results (run, body, blob, length) values (?1, ?2, ?3, ?4)")?
            .execute((number, body, blob.as_ref().map(|blob| &blob.as_bytes()[..]), rows::from_length(*length)))?;
        rows::refer(connection, number, blob.as_slice())?;
    }
    rows::refer(connection, number, &run.values)?;
    queue::note_keys(connection, number, &run.keys)?;
    if run.state == RunState::Queued {
        // The run may have been queued again.
        queue::line_up(connection, number, Waits::since(&run.run, run.changed_at_ms), &run.run.placement)?;
    }
    Ok(true)
}
