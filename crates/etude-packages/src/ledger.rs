//! A small JSON file with the user's state: read and replaced as a whole, and changed under a lock.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use etude_files::private;
use etude_files::whole::{self, Access, Durability};

/// Version of the file formats. It grows when older versions of etude could not read them.
const VERSION: u64 = 1;

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    path: PathBuf,
}

/// Reason why a file of the user's state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be read, written or locked.
    #[error("`{}` cannot be used: {source}", path.display())]
    Io {
        /// The path of the ledger, absolute.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file is not valid JSON of its form.
    #[error("`{}` is damaged: {source}; move it away to start with an empty file", path.display())]
    Damaged {
        /// The path of the ledger, absolute.
        path: PathBuf,
        /// The first error of the JSON text.
        source: serde_json::Error,
    },
    /// A later version of etude wrote the file.
    #[error("`{}` was written by a later version of etude", .0.display())]
    Later(PathBuf),
}

/// Keeps other processes from changing the file until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl Ledger {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        Self { path: dir.join(name) }
    }

    fn io(&self, source: io::Error) -> LedgerError {
        LedgerError::Io { path: self.path.clone(), source }
    }

    /// The parsed content of the file; the default value if the file does not exist.
    pub(crate) fn read<T: Default>(&self, parse: fn(Value) -> Result<T, serde_json::Error>) -> Result<T, LedgerError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(self.io(error)),
        };
        let damaged = |source| LedgerError::Damaged { path: self.path.clone(), source };
        let document: Value = serde_json::from_slice(&bytes).map_err(damaged)?;
        if document["version"].as_u64().is_some_and(|version| version > VERSION) {
            return Err(LedgerError::Later(self.path.clone()));
        }
        parse(document).map_err(damaged)
    }

    /// Locks the file against changes by other processes. Blocks.
    pub(crate) fn lock(&self) -> Result<Lock, LedgerError> {
        private::lock(&self.path.with_extension("lock")).map(Lock).map_err(|error| self.io(error))
    }

    /// Replaces the file: a reader sees the old content or the new one.
    pub(crate) fn write(&self, mut content: Value) -> Result<(), LedgerError> {
        content["version"] = VERSION.into();
        let text = serde_json::to_vec_pretty(&content).map_err(io::Error::other);
        let written = text.and_then(|text| whole::replace(&self.path, &text, Access::Owner, Durability::Power));
        written.map_err(|error| self.io(error))
    }

    /// Appends a line to the file, as a record for later review.
    pub(crate) fn note(&self, entry: &Value) -> Result<(), LedgerError> {
        let line = format!("{entry}\n");
        let noted = private::append(&self.path).and_then(|mut file| file.write_all(line.as_bytes()));
        noted.map_err(|error| self.io(error))
    }
}
