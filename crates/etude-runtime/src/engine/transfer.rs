//! The contract of moving runs between engines: what an export takes of a run, and what an import adds (K-64, K-65).

use super::{Error, NewRun, Record, RunState, Signal, UniqueKey};
use etude_core::digest::Digest;

/// Copies runs out of an engine and into it.
pub trait Transfer: Send + Sync {
    /// Everything about a run that another engine needs to have it, from one moment. `run_id` is a whole id.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn capture(&self, run_id: &str) -> Result<Captured, Error>;

    /// Notes that these runs are somewhere else from now on ([`RunState::Moved`]), all in one transaction: each that is still as it
    /// was captured, has not ended and has no driver. None of their earlier sessions writes any more. Returns the ids of the others,
    /// which stay as they are. When this returns, it survives what the engine's appends survive.
    ///
    /// # Errors
    /// The store fails; then none is moved.
    fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error>;

    /// Adds a whole run in one transaction, as it was captured: a run that has not ended may be continued from then on. The values
    /// that it needs are kept already. False if there is a run of that id, which stays as it is.
    ///
    /// # Errors
    /// The store fails; then there is nothing of the run.
    fn admit(&self, run: &ArchivedRun) -> Result<bool, Error>;
}

/// A run as an engine hands it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Its state with all records and signals, without the values that they refer to.
    pub run: ArchivedRun,
    /// What it was like at that moment.
    pub stamp: Stamp,
    /// A driver has it right now.
    pub is_live: bool,
}

/// A run at a moment, to notice whether anything has happened to it since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The id of the run that was captured.
    pub run_id: String,
    /// The engine's own number of what has happened to it.
    pub version: i64,
    /// The state of the run then.
    pub state: RunState,
    /// Number of its records.
    pub records: u64,
    /// Number of its signals.
    pub signals: u64,
}

/// A run apart from any engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRun {
    /// What it was created with.
    pub run: NewRun,
    /// The state that the run continues in after an import.
    pub state: RunState,
    /// When a driver first had it, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// When its state last changed, in milliseconds since 1970.
    pub changed_at_ms: i64,
    /// In the order of their keys, so that two captures of a run are equal.
    pub keys: Vec<UniqueKey>,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// Its signals, in order.
    pub signals: Vec<Signal>,
    /// The result document as JSON; `None`: the run has none yet.
    pub result: Option<String>,
    /// Values that it needs besides those of its records, such as its bundle. A capture has none: an engine does not read what is in
    /// headers and results.
    pub values: Vec<Digest>,
}
