//! The contract of an engine, which keeps runs and gives each to one driver at a time.
//!
//! An engine knows effects as data and no step kinds. It promises: a record that [`Session::append`] has accepted
//! survives any death of the process; a run has at most one live session; records come back in the order in which they
//! were accepted. Together with the driver it gives: journaled once, executed at least once, with a stable key.

mod fleet;
mod ledger;
mod patience;
mod query;
mod rules;
mod transfer;
mod worker;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::digest::Digest;

pub use fleet::{
    Cause, DEFAULT_QUEUE, DEFAULT_TENANT, Enqueued, Fleet, LimitGroup, Limits, MS_PER_PRIORITY, Placement, QueuePlace,
    QueueReason, Refusal, Submission, Takes, UniqueKey,
};
pub use ledger::{
    COSTS, Entry, EntryQuery, Expected, KEY_LIFE_MS, KEYS, Ledger, OF_RUN, OldEntries, Write, Written, cost_entry,
    cost_of,
};
pub use patience::{patience, with_patience};
pub use query::{Counts, Cursor, DamagedRun, DamagedRuns, Query, RunRow, name_of, values_of_header};
pub use rules::{Allow, DEFAULT_LIMIT, QueueRules, Rules, TenantRules};
pub use transfer::{ArchivedRun, Captured, Stamp, Transfer};
pub use worker::{Census, Figures, Health, LinkEvent, Profile, QueueRow, Standing, WorkerRow, WorkerState};

use crate::blob::BlobStore;
use crate::clock;

/// A future on the heap, of any type.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of runs with their records, signals and queues, which processes share.
pub trait Engine: Fleet + Ledger + Transfer + fmt::Debug {
    /// Creates a run and takes it. Like all writes of a run this is a future: an engine may write for several runs at
    /// once, or wait for another machine.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a run of that id.
    fn create<'e>(&'e self, run: &'e NewRun) -> Boxed<'e, Result<Box<dyn Session>, Error>>;

    /// Takes an existing run exclusively.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Moved`], or [`Error::Busy`] if another process has it.
    fn claim(&self, run_id: &str) -> Result<Box<dyn Session>, Error>;

    /// The runs that match `query`, newest first. A run whose row cannot be read is left out, see [`Engine::damaged`].
    ///
    /// # Errors
    /// The store fails.
    fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error>;

    /// The runs that lists of this engine have left out since it was opened.
    fn damaged(&self) -> Vec<DamagedRun> {
        Vec::new()
    }

    /// Number of runs that match `query`; its `limit` is ignored.
    ///
    /// # Errors
    /// The store fails.
    fn count(&self, query: &Query) -> Result<u64, Error> {
        Ok(self.list(&Query { limit: None, ..query.clone() })?.len() as u64)
    }

    /// Number of runs per status that match `query`; its `limit` and `after` are ignored.
    ///
    /// # Errors
    /// The store fails.
    fn counts(&self, query: &Query) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        for row in self.list(&Query { limit: None, after: None, ..query.clone() })? {
            counts.add(row.state, row.is_live, 1);
        }
        Ok(counts)
    }

    /// The row of one run, by its whole id.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn row(&self, run_id: &str) -> Result<RunRow, Error> {
        let rows = self.list(&Query { id: Some(run_id.to_owned()), ..Query::default() })?;
        rows.into_iter().next().ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }

    /// The result document of one run, by its whole id: cheaper than [`Engine::view`]. `None` if the run has none yet.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        Ok(self.view(run_id)?.result)
    }

    /// Everything about one run. `run_id` may be the unambiguous beginning of an id.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Ambiguous`].
    fn view(&self, run_id: &str) -> Result<RunView, Error>;

    /// Like [`Engine::view`], without the records and signals: cheap, however long the run is.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Ambiguous`].
    fn outline(&self, run_id: &str) -> Result<RunView, Error> {
        Ok(RunView { records: Vec::new(), signals: Vec::new(), ..self.view(run_id)? })
    }

    /// The records of a run with this key, in order.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Ambiguous`].
    fn records_of(&self, run_id: &str, key: &str) -> Result<Vec<Record>, Error> {
        let records = self.view(run_id)?.records;
        Ok(records.into_iter().filter(|record| record.key == key).collect())
    }

    /// The records of a run after a position, in order, at most `limit`. Positions begin at 1 and may have gaps. A
    /// record keeps its position for ever, except records that a loss of power took from the end of the journal.
    /// # Errors
    /// [`Error::Unknown`].
    fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error>;

    /// The runs whose state changed after a number ([`RunRow::change`]): each once, in its current state, in the order
    /// of their last changes, at most `limit`. The death of a process is not a change: its runs change when another
    /// process takes them.
    ///
    /// # Errors
    /// The store fails.
    fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error>;

    /// The number of the latest change of state, of any run.
    ///
    /// # Errors
    /// The store fails.
    fn last_change(&self) -> Result<u64, Error>;

    /// False if no change can have had this number yet (S-76). Changes of runs that were removed since count.
    ///
    /// # Errors
    /// The store fails.
    fn may_be_past(&self, change: u64) -> Result<bool, Error>;

    /// True if [`Engine::row`] and [`Engine::version`] read the memory or the disk of this machine, so that an
    /// asynchronous task may call them directly.
    fn is_quick(&self) -> bool {
        false
    }

    /// A number that changes with any write by any process, at most a tenth of a second late. Followers of runs ask for
    /// this one number, and call [`Engine::tail`] and [`Engine::changes`] only if it differs.
    ///
    /// # Errors
    /// The store fails.
    fn version(&self) -> Result<u64, Error>;

    /// Returns after a process has written, or is about to write: [`Engine::version`] may change only a moment later. A
    /// write can be missed, so a waiting caller polls now and then as well. One task at a time waits. `None` if the
    /// engine reports no writes.
    fn written(&self) -> Option<Boxed<'_, ()>> {
        None
    }

    /// Leaves a signal for a run: a request to cancel it, or the answer to a gate. The first one of a kind and key wins.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Moved`].
    fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error>;

    /// Removes the finished runs that match `query`, with all values that no other run needs and their entries in books
    /// that begin with [`OF_RUN`]. The costs of runs that are younger than a day are kept in the book [`COSTS`]. Returns the number
    /// of removed runs.
    ///
    /// # Errors
    /// The store fails.
    fn prune(&self, query: &Query) -> Result<u64, Error>;

    /// The runs that [`Engine::prune`] would remove for `query`, and their size in the store. Removes nothing.
    ///
    /// # Errors
    /// The store fails.
    fn prunable(&self, query: &Query) -> Result<Prunable, Error> {
        let mut runs = self.list(&Query { limit: None, ..query.clone() })?;
        runs.retain(|row| row.state.is_final() && !row.is_live);
        runs.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
        let mut bytes = 0;
        for row in &runs {
            let view = self.view(&row.id)?;
            let records: usize = view.records.iter().map(|record| record.key.len() + record.body.len()).sum();
            bytes += records + view.run.header.len() + view.result.map_or(0, |result| result.len());
        }
        Ok(Prunable { runs, bytes: bytes as u64 })
    }

    /// Looks up a cached output, not older than `ttl_ms`.
    ///
    /// # Errors
    /// The store fails.
    fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error>;

    /// Caches an output; `label` names its origin.
    ///
    /// # Errors
    /// The store fails.
    fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error>;

    /// The cached outputs that match `query`, newest first.
    ///
    /// # Errors
    /// The store fails.
    fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error>;

    /// Removes the cached outputs that match `query`. Returns their number.
    ///
    /// # Errors
    /// The store fails.
    fn forget(&self, query: &CacheQuery) -> Result<u64, Error>;

    /// True if others than this user write to the store: the header of a run may then come from anyone.
    fn is_shared(&self) -> bool {
        false
    }

    /// Storage of large values.
    fn blobs(&self) -> Arc<dyn BlobStore>;

    /// Storage of app bundles. Its contents are found with the other large values as well.
    fn bundles(&self) -> Arc<dyn BlobStore> {
        self.blobs()
    }
}

/// One driver's hold on one run. Dropping it releases the run, and so does the death of the process or a final state.
pub trait Session: Send + Sync + fmt::Debug {
    /// The id of the run that this session holds.
    fn run_id(&self) -> &str;

    /// The run as it was created.
    fn run(&self) -> &NewRun;

    /// The records so far, in the order in which they were appended.
    ///
    /// # Errors
    /// The store fails, or a record is damaged.
    fn records(&self) -> Result<Vec<Record>, Error>;

    /// Appends a record. Once the future is ready, the record survives any death of this process; in strict mode it
    /// survives a loss of power as well. A session has one append at a time.
    ///
    /// # Errors
    /// The store fails. The run must then stop: its next records would be missing from the journal.
    fn append(&self, record: Record) -> Boxed<'_, Result<(), Error>>;

    /// Signals that have arrived for the run so far.
    ///
    /// # Errors
    /// The store fails.
    fn signals(&self) -> Result<Vec<Signal>, Error>;

    /// True if a signal may have arrived for the run since the last call; true the first time. The result may be a
    /// tenth of a second late. It must be cheap: thousands of runs ask several times a second.
    ///
    /// # Errors
    /// The store fails.
    fn has_news(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Number of times this process had lost its runs before it took this one (`Health::lapses`): the next loss
    /// includes this run (K-18).
    fn lapses(&self) -> u64 {
        0
    }

    /// Time at which a driver first took the run, in milliseconds since 1970.
    fn began_at_ms(&self) -> i64 {
        self.run().created_at_ms
    }

    /// Current time by the clock that keeps the run's deadlines, in milliseconds since 1970.
    fn now_ms(&self) -> i64 {
        clock::now_ms()
    }

    /// Records the state of the run. `result` is the result document of a finished or waiting run.
    ///
    /// # Errors
    /// The store fails.
    fn set_state<'s>(&'s self, state: RunState, result: Option<&'s str>) -> Boxed<'s, Result<(), Error>>;

    /// Records that the run waits or sleeps outside any process: for a signal, and at most until `wakes_at_ms`, in
    /// milliseconds since 1970. A signal that this session has not read makes the run ready to continue.
    ///
    /// # Errors
    /// The store fails.
    fn suspend<'s>(
        &'s self,
        state: RunState,
        wakes_at_ms: Option<i64>,
        result: &'s str,
    ) -> Boxed<'s, Result<(), Error>> {
        let _ = wakes_at_ms;
        self.set_state(state, Some(result))
    }

    /// True if the engine continues a sleeping run when its time has come, with no process until then (K-43).
    fn is_woken(&self) -> bool {
        false
    }

    /// The worker that died with the run before this session took it.
    fn taken_from(&self) -> Option<&str> {
        None
    }

    /// Checks, by the clock of this machine, that no other process can have taken the run. Called immediately before
    /// each start of an effect.
    ///
    /// # Errors
    /// [`Error::Lapsed`]: no effect may start.
    fn check_lease(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Replaces the app bundle of a run that has one: from now on the run keeps and uses the bundle with this hash.
    ///
    /// # Errors
    /// The store fails, or keeps no apps.
    fn set_bundle(&self, bundle: Digest) -> Boxed<'_, Result<(), Error>> {
        let why = format!("it does not store apps of runs, so it cannot store the bundle {bundle}");
        let path = "of this machine".to_owned();
        Box::pin(async move { Err(Error::Store { path, why }) })
    }

    /// Marks the run as stopped because its large values cannot be reached. After its release it is taken again after a
    /// delay that grows each time, if the engine keeps such a delay.
    fn postpone(&self) {}
}

/// A run to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Unique for ever.
    pub id: String,
    /// The app's directory, absolute.
    pub app: String,
    /// The definition to run, such as the name of a pipeline.
    pub target: String,
    /// Version of the interpreter that the records are for.
    pub abi: u32,
    /// Milliseconds since 1970 in UTC.
    pub created_at_ms: i64,
    /// Everything else that a resume needs, as a JSON document in the driver's own versioned form.
    pub header: String,
    /// Origin of the run, and the earliest time at which it may begin.
    pub placement: Placement,
}

/// One entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Subject of the record: an effect's id, or a name that no effect has (it begins with `!`), such as `!cancel`.
    pub key: String,
    /// Hash of the request.
    pub request: Digest,
    /// The outcome, as a JSON document in the driver's own versioned form.
    pub body: String,
    /// Blobs that `body` refers to, so that they are kept as long as the record is.
    pub blobs: Vec<Digest>,
}

/// A record with its place in the journal of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positioned {
    /// From 1; later records have larger ones.
    pub position: u64,
    /// The record as it was appended.
    pub record: Record,
}

etude_core::words! {
    /// The state of a run, by its word in listings and filters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RunState {
        /// Accepted; no driver has begun the run.
        Queued = "queued",
        /// Held by a driver, or by a driver that died.
        Running = "running",
        /// Suspended until a signal arrives, outside any process.
        Waiting = "waiting",
        /// Suspended until a time, outside any process (K-43).
        Sleeping = "sleeping",
        /// Over, and everything worked.
        Succeeded = "succeeded",
        /// Over, and something did not work.
        Failed = "failed",
        /// Over because of a cancellation.
        Cancelled = "cancelled",
        /// Exported to another engine, where the run continues (K-64).
        Moved = "moved",
    }
}

impl RunState {
    /// True if the state of the run cannot change here.
    pub const fn is_final(self) -> bool {
        self.has_ended() || matches!(self, Self::Moved)
    }

    /// True if the run has come to its end.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Runs that a prune would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prunable {
    /// The runs, newest first.
    pub runs: Vec<RunRow>,
    /// Bytes of their records, results and of the values that no other run needs.
    pub bytes: u64,
}

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The run's row in a listing.
    pub row: RunRow,
    /// The run as it was created.
    pub run: NewRun,
    /// Records of the journal, in order.
    pub records: Vec<Record>,
    /// Signals for the run, in order.
    pub signals: Vec<Signal>,
    /// The result document, if the run is over or waits.
    pub result: Option<String>,
}

/// Origin of a cached output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheLabel {
    /// The app's directory.
    pub app: String,
    /// The pipeline of the run that stored it.
    pub pipeline: String,
    /// The step, by its path below the pipeline: `review[3]`, `group/check`.
    pub step: String,
}

/// Filter of cached outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheQuery {
    /// Only outputs of this app directory.
    pub app: Option<String>,
    /// Only outputs of this pipeline.
    pub pipeline: Option<String>,
    /// Only outputs stored before this time, in milliseconds since 1970.
    pub created_before_ms: Option<i64>,
}

impl CacheQuery {
    /// True if the output passes the filter.
    pub fn matches(&self, row: &CacheRow) -> bool {
        self.app.as_ref().is_none_or(|app| *app == row.label.app)
            && self.pipeline.as_ref().is_none_or(|pipeline| *pipeline == row.label.pipeline)
            && self.created_before_ms.is_none_or(|before| row.created_at_ms < before)
    }
}

/// A cached output in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRow {
    /// Origin of the output; the texts are empty if it was stored before labels existed.
    pub label: CacheLabel,
    /// Time of storage, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Length of the output's JSON, in bytes.
    pub bytes: u64,
    /// Number of times the output was used.
    pub hits: u64,
}

/// A message for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Subject of the signal: `!cancel`, or the effect id of a gate.
    pub key: String,
    /// Content, as a JSON document.
    pub body: String,
}

/// Result of sending a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signalled {
    /// The first signal of its key; it counts.
    Accepted,
    /// Another signal was there before; its content.
    TooLate(String),
}

/// The process or worker that holds a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOwner {
    /// Process id on this machine, if the holder is a process.
    pub pid: Option<u32>,
    /// Name for people: `pid 4711`, or the name of a worker.
    pub name: String,
}

impl RunOwner {
    /// A process of this machine.
    pub fn process(pid: u32) -> Self {
        Self { pid: Some(pid), name: format!("pid {pid}") }
    }
}

impl fmt::Display for RunOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Error of an engine's store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    Unknown(String),
    /// A shortened id fits several runs.
    #[error("`{prefix}` is a prefix of {count} run ids; use a longer prefix")]
    Ambiguous {
        /// The text that was given in place of an id.
        prefix: String,
        /// Number of runs that the prefix fits.
        count: u64,
    },
    /// There is already such a run.
    #[error("there is already a run `{0}`")]
    Exists(String),
    /// The run was exported with `--move` and continues where that file was imported (K-64).
    #[error("run `{0}` was moved to another engine and continues there")]
    Moved(String),
    /// Another process is executing the run.
    #[error("run `{run}` is being executed by another process{}", holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Busy {
        /// The run that cannot be opened now.
        run: String,
        /// The current owner, if known.
        holder: Option<RunOwner>,
    },
    /// This process could not renew its lease in time. It has released the run before others may take it.
    #[error("run `{run}` was released to other workers: this worker could not renew its lease in time")]
    Lapsed {
        /// The run that the lease was for.
        run: String,
    },
    /// The store has lost records that it had acknowledged. Nothing was written after the gap.
    #[error(
        "the database has lost acknowledged records of run `{run}` after position {position}; `etude runs resume` continues from there"
    )]
    Gap {
        /// The run whose journal has a gap.
        run: String,
        /// Position of the last record that is left.
        position: u64,
    },
    /// Another process has taken the run from this session. The pending write was not made.
    #[error("run `{run}` was taken over by another process")]
    Overtaken {
        /// The run that this session was opened for.
        run: String,
    },
    /// The store was written by a newer version.
    #[error("the journal {path} has format {found}; this version of etude knows formats up to {known}")]
    TooNew {
        /// The store as messages name it: a file, or the address of a database.
        path: String,
        /// The format number of the store.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// The store's content is damaged.
    #[error("the journal {path} is damaged: {why}")]
    Damaged {
        /// The store as messages name it: a file, or the address of a database.
        path: String,
        /// The fault that the check found, as a sentence fragment.
        why: String,
    },
    /// The store cannot be used: no room, no permission.
    #[error("the journal {path} cannot be used: {why}")]
    Store {
        /// The store as messages name it: a file, or the address of a database.
        path: String,
        /// The error of the system or database, as a sentence fragment.
        why: String,
    },
    /// The store of large values does not answer. Its contents are unknown, and the same call may succeed later, so no
    /// run fails because of it.
    #[error("the store of large values cannot be used: {0}")]
    ValuesAway(String),
    /// The store answers and refuses this process: a setting must change first, and waiting changes nothing.
    #[error("{why}")]
    Refused {
        /// The refusal, as a sentence fragment.
        why: String,
        /// The setup that is missing.
        hint: String,
    },
}
