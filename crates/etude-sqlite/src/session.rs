//! One driver's hold on one run.

use std::sync::Arc;
use std::sync::Mutex;

use etude_core::digest::Digest;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Error, NewRun, Record, Session, Signal, State};
use rusqlite::Connection;

use crate::journal::Journal;
use crate::lock::RunLock;
use crate::pool::lock;
use crate::rows;

/// A claimed run.
#[derive(Debug)]
pub(crate) struct SqliteSession {
    journal: Arc<Journal>,
    /// There until the session is dropped.
    lock: Option<RunLock>,
    run: NewRun,
    number: i64,
    /// Every write is made under the condition that the run still has this epoch. The lock alone would do on a sane
    /// file system; the epoch holds even where locks do not work.
    epoch: i64,
    position: Mutex<Position>,
}

#[derive(Debug)]
struct Position {
    /// Number of the next record.
    next: u32,
    /// The run is over.
    is_over: bool,
}

impl SqliteSession {
    pub(crate) fn new(journal: Arc<Journal>, lock: RunLock, run: NewRun, number: i64, epoch: i64, next: u32) -> Self {
        let position = Mutex::new(Position { next, is_over: false });
        Self { journal, lock: Some(lock), run, number, epoch, position }
    }

    /// Why a write touched no row: somebody else has the run, or it is gone.
    fn fenced_off(&self) -> Error {
        match self.journal.number(&self.run.id) {
            Ok(_) => Error::Busy { run: self.run.id.clone(), pid: None },
            Err(cause) => cause,
        }
    }

    fn insert(&self, connection: &Connection, seq: u32, record: &Record) -> rusqlite::Result<bool> {
        let blobs = (!record.blobs.is_empty()).then(|| record.blobs.iter().flat_map(Digest::as_bytes).copied());
        let blobs = blobs.map(Iterator::collect::<Vec<u8>>);
        let rows = connection
            .prepare_cached(
                "insert into records (id, key, request, body, blobs)
                 select ?1, ?2, ?3, ?4, ?5 from runs where number = ?6 and epoch = ?7",
            )?
            .execute((
                rows::record_id(self.number, seq),
                &record.key,
                &record.request.as_bytes()[..],
                &record.body,
                blobs,
                self.number,
                self.epoch,
            ))?;
        Ok(rows == 1)
    }

    fn update_state(
        &self,
        connection: &Connection,
        state: State,
        result: Option<(Option<&str>, Option<Digest>, u64)>,
    ) -> rusqlite::Result<bool> {
        let changed = connection
            .prepare_cached("update runs set state = ?3, changed_at_ms = ?4 where number = ?1 and epoch = ?2")?
            .execute((self.number, self.epoch, state.word(), now_ms()))?;
        if changed == 0 {
            return Ok(false);
        }
        connection.prepare_cached("delete from results where run = ?1")?.execute([self.number])?;
        if let Some((body, blob, len)) = result {
            connection
                .prepare_cached("insert into results (run, body, blob, length) values (?1, ?2, ?3, ?4)")?
                .execute((self.number, body, blob.as_ref().map(|blob| &blob.as_bytes()[..]), rows::from_length(len)))?;
            refer(connection, self.number, blob.as_slice())?;
        }
        Ok(true)
    }
}

/// Notes that a run needs blobs.
fn refer(connection: &Connection, run: i64, blobs: &[Digest]) -> rusqlite::Result<()> {
    for blob in blobs {
        connection
            .prepare_cached("insert or ignore into blob_refs (blob, run) values (?1, ?2)")?
            .execute((&blob.as_bytes()[..], run))?;
    }
    Ok(())
}

impl Session for SqliteSession {
    fn run_id(&self) -> &str {
        &self.run.id
    }

    fn run(&self) -> &NewRun {
        &self.run
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        self.journal.pool.read(|connection| rows::records(connection, self.number))
    }

    fn append(&self, record: &Record) -> Result<(), Error> {
        let mut position = lock(&self.position);
        let seq = position.next;
        let pool = &self.journal.pool;
        let accepted = if record.blobs.is_empty() {
            // One statement is a transaction of its own and needs no other.
            pool.write(|connection| self.insert(connection, seq, record))?
        } else {
            pool.transaction(|connection| {
                let accepted = self.insert(connection, seq, record)?;
                if accepted {
                    refer(connection, self.number, &record.blobs)?;
                }
                Ok(accepted)
            })?
        };
        if !accepted {
            return Err(self.fenced_off());
        }
        position.next += 1;
        drop(position);
        self.journal.is_in_place()?;
        self.journal.syncer.committed(&record.blobs)
    }

    fn signals(&self) -> Result<Vec<Signal>, Error> {
        self.journal.pool.write(|connection| rows::signals(connection, self.number))
    }

    fn set_state(&self, state: State, result: Option<&str>) -> Result<(), Error> {
        let place = result.map(|text| self.journal.place(text)).transpose()?;
        let blob = place.and_then(|place| place.digest());
        let columns = place.as_ref().zip(result).map(|(place, text)| (place.body(), blob, text.len() as u64));
        let noted = self.journal.pool.transaction(|connection| self.update_state(connection, state, columns))?;
        if !noted {
            return Err(self.fenced_off());
        }
        lock(&self.position).is_over = state.is_final();
        self.journal.is_in_place()?;
        self.journal.syncer.committed(blob.as_slice())
    }
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        let is_over = lock(&self.position).is_over;
        if let Some(lock) = self.lock.take()
            && is_over
        {
            lock.remove();
        }
    }
}
