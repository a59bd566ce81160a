//! A small JSON file with the user's state: read whole, replaced whole, changed under a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One such file.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    path: PathBuf,
}

/// The file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It cannot be read, written or locked.
    #[error("`{}` cannot be used: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what was written there.
    #[error("`{}` is damaged: {source}; move it away to begin anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// It was written by a later version of etude.
    #[error("`{}` was written by a later version of etude", .0.display())]
    Later(PathBuf),
}

/// Holds other processes off until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl Ledger {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        Self { path: dir.join(name) }
    }

    fn io(&self, source: io::Error) -> LedgerError {
        LedgerError::Io { path: self.path.clone(), source }
    }

    /// What the file holds; nothing, if it is not there.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, LedgerError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(self.io(error)),
        };
        serde_json::from_slice(&bytes).map_err(|source| LedgerError::Damaged { path: self.path.clone(), source })
    }

    pub(crate) fn check_version(&self, found: u32, known: u32) -> Result<(), LedgerError> {
        if found > known { Err(LedgerError::Later(self.path.clone())) } else { Ok(()) }
    }

    /// Waits until nobody else changes the file.
    pub(crate) fn lock(&self) -> Result<Lock, LedgerError> {
        let lock = || {
            fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
            let file = OpenOptions::new().create(true).append(true).open(self.path.with_extension("lock"))?;
            file.lock()?;
            Ok(file)
        };
        lock().map(Lock).map_err(|error| self.io(error))
    }

    /// Replaces the file: whoever reads sees the old content or the new one.
    pub(crate) fn write<T: Serialize>(&self, content: &T) -> Result<(), LedgerError> {
        let new = self.path.with_extension("new");
        let write = || {
            let text = serde_json::to_vec_pretty(content).map_err(io::Error::other)?;
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        write().map_err(|error| self.io(error))
    }

    /// Adds a line to the file: what happened, for whoever looks back.
    pub(crate) fn note<T: Serialize>(&self, entry: &T) -> Result<(), LedgerError> {
        let note = || {
            let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
            line.push(b'\n');
            OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&line)
        };
        note().map_err(|error| self.io(error))
    }
}
