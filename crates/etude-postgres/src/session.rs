//! One driver's hold on one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use etude_core::digest::Digest;
use etude_runtime::engine::{Boxed, Error, NewRun, Record, RunState, Session, Signal};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::append::{Appended, Pending};
use crate::error::Fault;
use crate::link::{Connection, Link, attempt, lock};
use crate::store::{Store, Taken};
use crate::wake::Released;
use crate::{rows, wake};

/// The end of an append, once the writers know it.
type End = oneshot::Receiver<Result<Appended, Error>>;

/// Session of a claimed run.
#[derive(Debug)]
pub(crate) struct PostgresSession {
    shared: Arc<Shared>,
    run: NewRun,
    began_at_ms: i64,
    taken_from: Option<String>,
    /// Number of signals at the last request for news.
    seen: AtomicI64,
    /// Number of signals at the last read.
    read: AtomicI64,
}

/// State that a write needs, which is finished even if its caller stops waiting.
#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    run_id: String,
    number: i64,
    session: i64,
    /// Position of the last record. Locked during an append: there is one at a time.
    last: Arc<Mutex<i32>>,
    /// True if the run has a row in the queue until its state is set.
    was_queued: bool,
    /// Number of times this worker had lost all of its runs when it took this one.
    lapses: u64,
    is_over: AtomicBool,
    /// True if the run's large values cannot be reached.
    is_postponed: AtomicBool,
}

impl PostgresSession {
    pub(crate) fn new(store: Arc<Store>, run: NewRun, taken: Taken) -> Self {
        let Taken { number, session, position, began_at_ms, was_queued, taken_from, lapses } = taken;
        store.hold(number, session);
        let shared = Arc::new(Shared {
            store,
            run_id: run.id.clone(),
            number,
            session,
            last: Arc::new(Mutex::new(position)),
            was_queued,
            lapses,
            is_over: AtomicBool::new(false),
            is_postponed: AtomicBool::new(false),
        });
        Self { shared, run, began_at_ms, taken_from, seen: AtomicI64::new(-1), read: AtomicI64::new(0) }
    }

    /// True if the run was queued when it was taken.
    pub(crate) fn is_queued(&self) -> bool {
        self.shared.was_queued
    }
}

impl Shared {
    /// Waits for an answer on this thread, at most while the lease holds (K-19): the thread may belong to a runtime
    /// that must end the steps of a lost run.
    fn read<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.store.link.wait(async {
            tokio::select! {
                biased;
                answer = answer => answer,
                () = self.store.pulse.lapsed(self.lapses) => Err(self.lapsed()),
            }
        })
    }

    /// Hands a record to the writers, who write it even if its caller stops waiting.
    fn send(&self, last: OwnedMutexGuard<i32>, record: Record) -> Result<End, Error> {
        let (done, end) = oneshot::channel();
        let (run, session, store) = (self.number, self.session, Arc::clone(&self.store));
        let pending = Pending { run, session, last, record, done, store };
        self.store.appends.send(pending).map_err(|_| self.stopped())?;
        Ok(end)
    }

    /// Waits for the end of an append.
    async fn appended(self: Arc<Self>, end: End) -> Result<(), Error> {
        let end = tokio::select! {
            biased;
            end = end => end.map_err(|_| self.stopped())??,
            // The record may still be written: its position is before the mark of any later claim.
            () = self.store.pulse.lapsed(self.lapses) => return Err(self.lapsed()),
        };
        match end {
            Appended::Done => Ok(()),
            Appended::Refused => {
                let shared = Arc::clone(&self);
                self.store.link.spawn(async move { Err(shared.fenced_off().await) }).await
            }
            Appended::Gap(last) => {
                let position = u64::try_from(last).unwrap_or(0);
                Err(Error::Gap { run: self.run_id.clone(), position })
            }
        }
    }

    /// Appends a record after the one that is being written.
    async fn append_next(self: Arc<Self>, record: Record) -> Result<(), Error> {
        let last = tokio::select! {
            biased;
            last = Arc::clone(&self.last).lock_owned() => last,
            () = self.store.pulse.lapsed(self.lapses) => return Err(self.lapsed()),
        };
        let end = self.send(last, record)?;
        self.appended(end).await
    }

    fn stopped(&self) -> Error {
        Error::Store {
            path: self.store.link.address().to_string(),
            why: "internal error: the writers have stopped".to_owned(),
        }
    }

    fn lapsed(&self) -> Error {
        Error::Lapsed { run: self.run_id.clone() }
    }

    /// The error of a refused write: another session has the run, or it is gone.
    async fn fenced_off(&self) -> Error {
        match self.store.find(&self.run_id).await {
            Ok(_) => {
                self.store.pulse.fenced();
                Error::Overtaken { run: self.run_id.clone() }
            }
            Err(cause) => cause,
        }
    }

    async fn set_state(self: Arc<Self>, state: RunState, result: Option<String>) -> Result<(), Error> {
        let is_noted = attempt!(self.store.link, |connection| self.note(connection, state, result.as_deref()));
        if !is_noted {
            return Err(self.fenced_off().await);
        }
        self.is_over.store(state.is_final(), Ordering::Relaxed);
        if state.is_final() {
            self.store.forget_hold(self.number, self.session);
        }
        Ok(())
    }

    async fn suspend(
        self: Arc<Self>,
        state: RunState,
        read: i64,
        wakes_at_ms: Option<i64>,
        result: String,
    ) -> Result<(), Error> {
        let of = (self.number, self.session);
        let is_noted =
            attempt!(self.store.link, |connection| wake::suspend(connection, of, state, (read, wakes_at_ms), &result));
        if is_noted { Ok(()) } else { Err(self.fenced_off().await) }
    }

    async fn set_bundle(self: Arc<Self>, bundle: Digest) -> Result<(), Error> {
        let sql = "update runs set bundle = $3 where run = $1 and session = $2";
        let hash = &bundle.as_bytes()[..];
        let changed =
            attempt!(self.store.link, |connection| connection.execute(sql, &[&self.number, &self.session, &hash]));
        if changed > 0 { Ok(()) } else { Err(self.fenced_off().await) }
    }

    /// Writes a state and a result. False if another session has the run by now.
    async fn note(&self, connection: &mut Connection, state: RunState, result: Option<&str>) -> Result<bool, Fault> {
        // A waiting run may just have been woken by a signal. Every other run has a driver, or is over.
        let leaves_queue = state != RunState::Queued && (self.was_queued || state != RunState::Waiting);
        let begins = self.was_queued && state == RunState::Running;
        // A run that is over needs no owner, and releasing it here needs no statement of its own.
        let sql = "with noted as (
                update runs set state = $3, changed_at_ms = now_ms(),
                    worker = case when $4 then null else worker end,
                    started_at_ms = case when $5 then coalesce(started_at_ms, now_ms()) else started_at_ms end
                where run = $1 and session = $2 returning run),
            dequeued as (delete from queue using noted where queue.run = noted.run and $6),
            gone as (delete from results using noted where results.run = noted.run and $7::bytea is null),
            kept as (
                insert into results (run, body) select run, $7 from noted where $7 is not null
                on conflict (run) do update set body = excluded.body)
            select run from noted";
        let body = result.map(str::as_bytes);
        let row = connection
            .query_opt(
                sql,
                &[&self.number, &self.session, &state.word(), &state.is_final(), &begins, &leaves_queue, &body],
            )
            .await?;
        Ok(row.is_some())
    }
}

impl Session for PostgresSession {
    fn run_id(&self) -> &str {
        &self.run.id
    }

    fn run(&self) -> &NewRun {
        &self.run
    }

    fn lapses(&self) -> u64 {
        self.shared.lapses
    }

    fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    fn now_ms(&self) -> i64 {
        self.shared.store.now_ms()
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        let link = &self.shared.store.link;
        self.shared.read(async { Ok(attempt!(link, |connection| rows::records(connection, self.shared.number))) })
    }

    fn append(&self, record: Record) -> Boxed<'_, Result<(), Error>> {
        let shared = Arc::clone(&self.shared);
        match Arc::clone(&shared.last).try_lock_owned() {
            // A task of its own would cost more than the rest. Without a budget, like [`Link::wait`]: the caller may block.
            Ok(last) => match shared.send(last, record) {
                Ok(end) => Box::pin(tokio::task::unconstrained(shared.appended(end))),
                Err(cause) => Box::pin(std::future::ready(Err(cause))),
            },
            Err(_) => self.shared.store.link.spawn(shared.append_next(record)),
        }
    }

    fn signals(&self) -> Result<Vec<Signal>, Error> {
        let link = &self.shared.store.link;
        let signals =
            self.shared.read(async { Ok(attempt!(link, |connection| rows::signals(connection, self.shared.number))) });
        if let Ok(signals) = &signals {
            self.read.store(wake::count(signals.len()), Ordering::Relaxed);
        }
        signals
    }

    fn has_news(&self) -> Result<bool, Error> {
        let signals = lock(&self.shared.store.held).get(&self.shared.number).map_or(0, |hold| hold.signals);
        Ok(self.seen.swap(signals, Ordering::Relaxed) != signals)
    }

    fn set_state<'s>(&'s self, state: RunState, result: Option<&'s str>) -> Boxed<'s, Result<(), Error>> {
        let shared = Arc::clone(&self.shared);
        self.shared.store.link.spawn(shared.set_state(state, result.map(str::to_owned)))
    }

    fn suspend<'s>(
        &'s self,
        state: RunState,
        wakes_at_ms: Option<i64>,
        result: &'s str,
    ) -> Boxed<'s, Result<(), Error>> {
        let (shared, read) = (Arc::clone(&self.shared), self.read.load(Ordering::Relaxed));
        self.shared.store.link.spawn(shared.suspend(state, read, wakes_at_ms, result.to_owned()))
    }

    fn is_woken(&self) -> bool {
        // Runs without a bundle are driven by the processes that have their app.
        self.run.placement.bundle.is_some()
    }

    fn taken_from(&self) -> Option<&str> {
        self.taken_from.as_deref()
    }

    fn check_lease(&self) -> Result<(), Error> {
        match self.shared.store.pulse.lapses() > self.shared.lapses {
            true => Err(self.shared.lapsed()),
            false => Ok(()),
        }
    }

    fn set_bundle(&self, bundle: Digest) -> Boxed<'_, Result<(), Error>> {
        self.shared.store.link.spawn(Arc::clone(&self.shared).set_bundle(bundle))
    }

    fn postpone(&self) {
        self.shared.is_postponed.store(true, Ordering::Relaxed);
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        let Shared { store, number, session, is_over, is_postponed, .. } = &*self.shared;
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        store.forget_hold(*number, *session);
        let read = self.read.load(Ordering::Relaxed);
        let postponed = is_postponed.load(Ordering::Relaxed).then_some(read);
        let of = Released { number: *number, session: *session, postponed };
        if Link::is_own_thread() || !store.pulse.is_connected() || store.link.wait(store.release(of)).is_err() {
            lock(&store.unreleased).push(of);
        }
    }
}
