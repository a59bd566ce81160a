//! The contract of moving runs between engines: the content of an export, and the effect of an import (K-64, K-65).

use super::{Error, NewRun, Record, RunState, Signal, UniqueKey};
use etude_core::digest::Digest;

/// Copies runs out of an engine and into it.
pub trait Transfer: Send + Sync {
    /// Everything that another engine needs to continue a run, as of one moment. `run_id` is a whole id.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn capture(&self, run_id: &str) -> Result<Captured, Error>;

    /// Marks these runs as moved to another engine ([`RunState::Moved`]), all in one transaction: each run that is
    /// unchanged since its capture, has not ended and has no driver. Their earlier sessions cannot write any more.
    /// Returns the ids of the other runs, which stay as they are. The marks are as durable as the engine's appends.
    ///
    /// # Errors
    /// The store fails; then no run is moved.
    fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error>;

    /// Adds a whole captured run in one transaction: an unfinished run may be continued from then on. The values that
    /// it needs are kept already. False if a run with that id exists; it stays as it is.
    ///
    /// # Errors
    /// The store fails; then no part of the run is stored.
    fn admit(&self, run: &ArchivedRun) -> Result<bool, Error>;
}

/// A run as an engine exports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// State, records and signals of the run, without the values that they refer to.
    pub run: ArchivedRun,
    /// Stamp of the run at the moment of the capture.
    pub stamp: Stamp,
    /// True if a driver has the run right now.
    pub is_live: bool,
}

/// Stamp of a run at a moment, to detect later changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The id of the run that was captured.
    pub run_id: String,
    /// The engine's own version number of the run.
    pub version: i64,
    /// The state of the run at that moment.
    pub state: RunState,
    /// Number of its records.
    pub records: u64,
    /// Number of its signals.
    pub signals: u64,
}

/// A run in a form that is independent of any engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRun {
    /// The run as it was created.
    pub run: NewRun,
    /// The state that the run continues in after an import.
    pub state: RunState,
    /// Time at which a driver first had the run, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// Time of the last change of state, in milliseconds since 1970.
    pub changed_at_ms: i64,
    /// Unique keys in the order of their texts, so that two captures of a run are equal.
    pub keys: Vec<UniqueKey>,
    /// Records of the journal, in order.
    pub records: Vec<Record>,
    /// Signals for the run, in order.
    pub signals: Vec<Signal>,
    /// The result document as JSON; `None`: the run has none yet.
    pub result: Option<String>,
    /// Values besides those of the records, such as the run's bundle. Empty in a capture: an engine does not read
    /// headers and results.
    pub values: Vec<Digest>,
}
