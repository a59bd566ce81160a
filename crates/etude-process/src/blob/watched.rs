//! A store that remembers an outage. A run does not fail because its store is unreachable; it is left for later.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use etude_core::data::Blob;
use etude_core::digest::Digest;

use super::{BlobStore, Scratch};

/// The cause of an [`io::Error`] from a [`BlobStore`] that is unreachable: the same call may succeed later.
#[derive(Debug)]
pub struct Unavailable {
    /// Response of the store or of the network, for people.
    pub why: String,
    /// The store responds but refuses this process: one of the two is configured wrongly.
    pub is_refused: bool,
}

impl Unavailable {
    /// The cause inside `error`, if it is an outage.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unavailable {}

/// The store of one run, with its first outage.
#[derive(Debug, Clone)]
pub struct Watched {
    store: Arc<dyn BlobStore>,
    outage: Arc<OnceLock<String>>,
}

impl Watched {
    /// A watched store without an outage so far.
    pub fn new(store: Arc<dyn BlobStore>) -> Self {
        Self { store, outage: Arc::default() }
    }

    /// Reason of the first outage; `None` if there was none.
    pub fn outage(&self) -> Option<&str> {
        self.outage.get().map(String::as_str)
    }

    fn note(&self, error: &io::Error) {
        if let Some(cause) = Unavailable::of(error) {
            self.outage.get_or_init(|| cause.to_string());
        }
    }
}

impl BlobStore for Watched {
    fn scratch(&self) -> io::Result<Scratch> {
        self.store.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>> {
        self.store.keep(scratch, digest, len).inspect_err(|error| self.note(error))
    }

    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        self.store.open(digest).inspect_err(|error| self.note(error))
    }

    fn has(&self, digest: Digest) -> bool {
        self.store.has(digest)
    }
}
