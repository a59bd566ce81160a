//! A store that remembers that it could not be reached: a run does not fail for that, and is left for later.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use etude_core::data::Blob;
use etude_core::digest::Digest;

use super::{BlobStore, Scratch};

/// The cause of an [`io::Error`] of a [`BlobStore`] that cannot be reached: the same call may succeed later.
#[derive(Debug)]
pub struct Unavailable {
    /// What the store or the way to it answered, for people.
    pub why: String,
    /// It answers and refuses this process: it is set up in another way than it should be, here or there.
    pub is_refused: bool,
}

impl Unavailable {
    /// The cause, if that is one.
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

/// A store as one run sees it.
#[derive(Debug, Clone)]
pub struct Watched {
    store: Arc<dyn BlobStore>,
    outage: Arc<OnceLock<String>>,
}

impl Watched {
    /// A store that has been reached so far.
    pub fn new(store: Arc<dyn BlobStore>) -> Self {
        Self { store, outage: Arc::default() }
    }

    /// Why it could not be reached, if it could not.
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
