//! Opening files below a directory, on Windows: links are resolved by the caller.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A directory.
#[derive(Debug)]
pub(super) struct Dir;

/// Why a file was not opened.
pub(super) enum Refused {
    /// The caller has to resolve the links first.
    Outside,
    /// Anything else.
    #[expect(dead_code, reason = "the same shape as on Unix")]
    Failed(io::Error),
}

impl Dir {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        path.metadata().map(|_| Self)
    }

    pub(super) fn open_beneath(&self, _path: &str) -> Result<File, Refused> {
        Err(Refused::Outside)
    }

    pub(super) fn metadata_beneath(&self, _path: &str) -> Result<Metadata, Refused> {
        Err(Refused::Outside)
    }
}

/// There is no such permission here.
pub(super) fn is_executable(_meta: &Metadata) -> bool {
    false
}
