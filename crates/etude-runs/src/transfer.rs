//! Transfer of runs between engines: exports and imports (K-64, K-65).
//!
//! An export is a tar: `manifest.json`, a file of JSON lines for each run (`runs/ID.jsonl`), the values that they need
//! (`values/HASH`), and as the last entry `checksum`, the BLAKE3 of all bytes before it. Entries are sorted by name and
//! have no times, so that equal runs give equal bytes.

mod read;
mod survey;
mod tar;
mod wire;
mod write;

use std::path::{Path, PathBuf};

use etude_core::digest::Digest;
use etude_runtime::engine::{self, Engine, NewRun};

/// Name of the first entry.
const MANIFEST: &str = "manifest.json";

/// Options of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Export {
    /// True to move unfinished runs, with their app as a bundle. Otherwise they are left out.
    pub moves: bool,
}

/// Packs the app of a run as a bundle and keeps it among the values of the engine. Returns its hash, or the reason why
/// the run cannot be moved.
pub type Pack<'p> = dyn FnMut(&NewRun) -> Result<Digest, String> + 'p;

/// Result of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    /// Number of runs in the file.
    pub runs: u64,
    /// Number of runs in the file that were moved.
    pub moved: u64,
    /// The runs that are not in the file, by id.
    pub skipped: Vec<Skipped>,
    /// Number of values in the file.
    pub values: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// A run that was left out of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The id of the run that is not in the file.
    pub run_id: String,
    /// The reason, to follow the id in a sentence, such as `has not ended: waiting`.
    pub why: String,
    /// True if the run has only not ended: [`Export::moves`] would move it.
    pub can_move: bool,
}

/// Result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of runs that were added.
    pub runs: u64,
    /// Number of runs that existed already, and stay as they are.
    pub present: u64,
    /// Number of values that the added runs need.
    pub values: u64,
}

/// Error of an export or import.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file exists.
    #[error("`{}` already exists and was not overwritten", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written. No run was moved.
    #[error("`{}` cannot be written: {why}", path.display())]
    Write {
        /// The path of the export.
        path: PathBuf,
        /// The error of the file system, as a sentence fragment.
        why: String,
    },
    /// The file is on the disk, and the engine failed while moving its runs: all of them are moved, or none.
    #[error("`{}` was written, but its runs may not have been moved: {source}", path.display())]
    NotMoved {
        /// The export, which is whole.
        path: PathBuf,
        /// The engine's error while it marked the runs as moved.
        source: engine::Error,
    },
    /// The file is on the disk and some of its runs are moved. Its other runs were continued here, and the file could
    /// not be written without them.
    #[error("`{}` contains runs that continued here and were not moved ({}), and cannot be rewritten: {source}", path.display(), runs.join(", "))]
    Stale {
        /// The export, which is whole.
        path: PathBuf,
        /// Ids of the runs in the file that were continued here.
        runs: Vec<String>,
        /// The error of writing the file without these runs.
        source: Box<Error>,
    },
    /// The file cannot be opened.
    #[error("`{}` cannot be read: {why}", path.display())]
    Read {
        /// The path of the export.
        path: PathBuf,
        /// The error of the file system, as a sentence fragment.
        why: String,
    },
    /// The file is not an export. Nothing was written.
    #[error("`{}` is refused: `{entry}` {why}", path.display())]
    Refused {
        /// The path of the file.
        path: PathBuf,
        /// The name of the entry in the archive, with the line if one is at fault.
        entry: String,
        /// The fault, to follow the name of the entry in a sentence.
        why: String,
    },
    /// Unfinished runs name queues that the fleet does not have: such queues take no submissions, and no worker reads
    /// them. Nothing was written.
    #[error("the fleet has no queue `{}`, which unfinished runs of the file need; it has `{}`", missing.join("`, `"), known.join("`, `"))]
    UnknownQueues {
        /// The missing queues.
        missing: Vec<String>,
        /// The fleet's queues.
        known: Vec<String>,
    },
    /// A value cannot be kept. No run that needs it was added.
    #[error("cannot store the value {digest}: {why}")]
    Value {
        /// The digest that names the value.
        digest: Digest,
        /// The error of the store, as a sentence fragment.
        why: String,
    },
    /// The engine fails.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

/// Writes the runs of an engine to a new file. Runs that have ended are copied. With [`Export::moves`] the others are
/// moved: as soon as the file is on the disk they are [`etude_runtime::engine::RunState::Moved`] here. A run that a
/// process executes is left out, and so is a run with unreadable data.
///
/// # Errors
/// The file exists or cannot be written, or the engine fails. No file remains then, unless it has runs that were moved
/// already.
pub fn export(engine: &dyn Engine, how: Export, pack: &mut Pack<'_>, file: &Path) -> Result<Exported, Error> {
    write::export(engine, how, pack, file)
}

/// Adds the runs of an export to an engine: first the values, then each run in one transaction. An interrupted import
/// can be repeated. The file is checked as a whole before anything is written.
///
/// # Errors
/// The file is refused, its unfinished runs name missing queues, or the engine fails: then each run is whole or absent.
pub fn import(engine: &dyn Engine, file: &Path) -> Result<Imported, Error> {
    read::import(engine, file)
}

#[cfg(test)]
mod tests;
