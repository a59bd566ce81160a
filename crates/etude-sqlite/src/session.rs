//! A session: one driver's hold on one run.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use etude_core::digest::Digest;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Boxed, Error, NewRun, Record, RunState, Session, Signal};
use rusqlite::Connection;

use crate::journal::Journal;
use crate::pool::lock;
use crate::{queue, rows};

/// A claimed run.
#[derive(Debug)]
pub(crate) struct SqliteSession {
    journal: Arc<Journal>,
    run: NewRun,
    number: i64,
    /// The token that identifies this session in the journal.
    token: u64,
    /// Every write requires that the run still has this epoch. The holder's lock alone would do on a sane file system; the epoch
    /// holds even where locks do not work.
    epoch: i64,
    began_at_ms: i64,
    /// True if the run has a row in the queue until its state is set.
    was_queued: bool,
    position: Mutex<Position>,
    /// The newest signal at the last check for news.
    newest: AtomicI64,
}

/// A taken run, and the identity of its session.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) number: i64,
    pub(crate) epoch: i64,
    /// The token of the session, unique in the journal.
    pub(crate) token: u64,
    /// Number of the next record.
    pub(crate) next: u32,
    /// The time at which a driver first had the run, in milliseconds since 1970.
    pub(crate) began_at_ms: i64,
    /// True if the run is still queued.
    pub(crate) was_queued: bool,
}

#[derive(Debug)]
struct Position {
    /// Number of the next record.
    next: u32,
    /// True once the run has ended.
    is_over: bool,
}

impl SqliteSession {
    pub(crate) fn new(journal: Arc<Journal>, run: NewRun, taken: Taken) -> Self {
        let Taken { number, epoch, token, next, began_at_ms, was_queued } = taken;
        let position = Mutex::new(Position { next, is_over: false });
        let newest = AtomicI64::new(-1);
        Self { journal, run, number, token, epoch, began_at_ms, was_queued, position, newest }
    }

    /// True if the run was queued when it was taken.
    pub(crate) fn is_queued(&self) -> bool {
        self.was_queued
    }

    /// The reason why a write touched no row: another process has the run, or it was removed.
    fn fenced_off(&self) -> Error {
        match self.journal.number(&self.run.id) {
            Ok(_) => Error::Overtaken { run: self.run.id.clone() },
            Err(cause) => cause,
        }
    }

    /// Appends without the thread that writes for many runs.
    fn append_alone(&self, record: &Record) -> Result<(), Error> {
        let mut position = lock(&self.position);
        let seq = position.next;
        let pool = &self.journal.pool;
        let write = |connection: &Connection| rows::append(connection, self.number, self.epoch, seq, record);
        // One statement is a transaction by itself and needs no other.
        let accepted = if record.blobs.is_empty() { pool.write(write)? } else { pool.transaction(write)? };
        if !accepted {
            return Err(self.fenced_off());
        }
        position.next += 1;
        drop(position);
        self.journal.is_in_place()?;
        self.journal.syncer.committed(&record.blobs)
    }

    fn change(&self, state: RunState, result: Option<&str>) -> Result<StateChange, Error> {
        let place = result.map(|text| self.journal.place(text)).transpose()?;
        let result = place.as_ref().zip(result).map(|(place, text)| Outcome {
            body: place.body().map(str::to_owned),
            blob: place.digest(),
            length: text.len() as u64,
        });
        let leaves_queue = self.was_queued && state != RunState::Queued;
        Ok(StateChange { run: self.number, epoch: self.epoch, state, result, leaves_queue })
    }

    fn noted(&self, noted: bool, state: RunState) -> Result<(), Error> {
        if !noted {
            return Err(self.fenced_off());
        }
        lock(&self.position).is_over = state.is_final();
        if state.is_final() {
            self.journal.release(self.number, self.token);
        }
        self.journal.is_in_place()
    }
}

/// A change of a run's state, ready to be written.
struct StateChange {
    run: i64,
    epoch: i64,
    state: RunState,
    result: Option<Outcome>,
    leaves_queue: bool,
}

/// A result document in its stored form.
struct Outcome {
    body: Option<String>,
    blob: Option<Digest>,
    length: u64,
}

impl StateChange {
    /// Writes the change. False if another process has the run by now.
    fn write(&self, connection: &Connection) -> rusqlite::Result<bool> {
        // An ended run is not needed any more, and releasing it here saves a separate write.
        let changed = connection
            .prepare_cached(
                "update runs set state = ?3, changed_at_ms = ?4, holder = case when ?5 then null else holder end
                 where number = ?1 and epoch = ?2",
            )?
            .execute((self.run, self.epoch, self.state.word(), now_ms(), self.state.is_final()))?;
        if changed == 0 {
            return Ok(false);
        }
        if self.leaves_queue {
            queue::leave(connection, self.run)?;
            if self.state == RunState::Running {
                connection
                    .prepare_cached("update runs set started_at_ms = coalesce(started_at_ms, ?2) where number = ?1")?
                    .execute((self.run, now_ms()))?;
            }
        }
        connection.prepare_cached("delete from results where run = ?1")?.execute([self.run])?;
        if let Some(Outcome { body, blob, length }) = &self.result {
            connection
                .prepare_cached("insert into results (run, body, blob, length) values (?1, ?2, ?3, ?4)")?
                .execute((
                    self.run,
                    body,
                    blob.as_ref().map(|blob| &blob.as_bytes()[..]),
                    rows::from_length(*length),
                ))?;
            rows::refer(connection, self.run, blob.as_slice())?;
        }
        Ok(true)
    }

    fn blobs(&self) -> Vec<Digest> {
        self.result.iter().filter_map(|result| result.blob).collect()
    }
}

impl Session for SqliteSession {
    fn run_id(&self) -> &str {
        &self.run.id
    }

    fn run(&self) -> &NewRun {
        &self.run
    }

    fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        self.journal.pool.read(|connection| rows::records(connection, self.number))
    }

    fn append(&self, record: Record) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move {
            if !self.journal.has_many_runs() {
                return self.append_alone(&record);
            }
            // Take the number before the write: if the caller stops waiting, the next record still has another number.
            let seq = {
                let mut position = lock(&self.position);
                position.next += 1;
                position.next - 1
            };
            let (run, epoch, blobs) = (self.number, self.epoch, record.blobs.clone());
            let work = move |connection: &Connection| rows::append(connection, run, epoch, seq, &record);
            if !self.journal.group.write(blobs, work).await? {
                return Err(self.fenced_off());
            }
            self.journal.is_in_place()
        })
    }

    fn signals(&self) -> Result<Vec<Signal>, Error> {
        self.journal.pool.write(|connection| rows::signals(connection, self.number))
    }

    fn has_news(&self) -> Result<bool, Error> {
        let newest = self.journal.newest_signal()?;
        Ok(self.newest.swap(newest, Ordering::Relaxed) != newest)
    }

    fn set_state<'s>(&'s self, state: RunState, result: Option<&'s str>) -> Boxed<'s, Result<(), Error>> {
        Box::pin(async move {
            let change = self.change(state, result)?;
            let blobs = change.blobs();
            if !self.journal.has_many_runs() {
                self.noted(self.journal.pool.transaction(|connection| change.write(connection))?, state)?;
                return match self.journal.has_no_run() {
                    true => self.journal.syncer.committed_last(&blobs),
                    false => self.journal.syncer.committed(&blobs),
                };
            }
            let noted = self.journal.group.write(blobs, move |connection| change.write(connection)).await?;
            self.noted(noted, state)
        })
    }
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        if lock(&self.position).is_over {
            return;
        }
        // If this fails, the run is busy for other processes until this one ends, but not for sessions in it.
        let _ = self.journal.pool.write(|connection| {
            connection
                .prepare_cached("update runs set holder = null where number = ?1 and epoch = ?2")?
                .execute((self.number, self.epoch))
        });
        self.journal.release(self.number, self.token);
    }
}
