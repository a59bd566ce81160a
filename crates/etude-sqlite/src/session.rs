//! One driver's hold on one run.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use etude_core::digest::Digest;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Error, NewRun, Record, Session, Signal, State};
use rusqlite::Connection;

use crate::holder::Holder;
use crate::journal::Journal;
use crate::pool::lock;
use crate::rows;

/// A claimed run.
#[derive(Debug)]
pub(crate) struct SqliteSession {
    journal: Arc<Journal>,
    holder: Arc<Holder>,
    run: NewRun,
    number: i64,
    /// Every write is made under the condition that the run still has this epoch. The holder's lock alone would do on a sane
    /// file system; the epoch holds even where locks do not work.
    epoch: i64,
    position: Mutex<Position>,
    /// The newest signal when news were last asked for.
    newest: AtomicI64,
}

#[derive(Debug)]
struct Position {
    /// Number of the next record.
    next: u32,
    /// The run is over.
    is_over: bool,
}

impl SqliteSession {
    pub(crate) fn new(
        journal: Arc<Journal>,
        holder: Arc<Holder>,
        run: NewRun,
        number: i64,
        epoch: i64,
        next: u32,
    ) -> Self {
        let position = Mutex::new(Position { next, is_over: false });
        Self { journal, holder, run, number, epoch, position, newest: AtomicI64::new(-1) }
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
        // Nobody needs a run that is over, and this needs no write of its own here.
        let holder = (!state.is_final()).then(|| self.holder.name());
        let changed = connection
            .prepare_cached(
                "update runs set state = ?3, changed_at_ms = ?4, holder = ?5 where number = ?1 and epoch = ?2",
            )?
            .execute((self.number, self.epoch, state.word(), now_ms(), holder))?;
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

    fn has_news(&self) -> Result<bool, Error> {
        let newest = self.journal.newest_signal()?;
        Ok(self.newest.swap(newest, Ordering::Relaxed) != newest)
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
        if !lock(&self.position).is_over {
            // If this fails the run is busy for other processes until this one ends, and for nobody in it.
            let _ = self.journal.pool.write(|connection| {
                connection
                    .prepare_cached("update runs set holder = null where number = ?1 and epoch = ?2")?
                    .execute((self.number, self.epoch))
            });
        }
        self.journal.let_go(self.number, self.epoch);
    }
}
