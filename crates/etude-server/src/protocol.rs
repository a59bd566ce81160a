//! State that all requests of the protocol of agents share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etude_mcp::Unfinished;
use tokio::sync::watch;

/// State that all requests of the protocol of agents share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) unfinished: Arc<Unfinished>,
    /// The address of the pages of another server that serves the apps, if this process has no pages.
    others_pages: Mutex<Option<String>>,
    /// The last digest of everything that tools are made of.
    pub(crate) definitions: watch::Sender<u64>,
}

impl Shared {
    /// The address of the pages of another server that serves the apps, if this process has no pages.
    pub(crate) fn others_pages(&self) -> MutexGuard<'_, Option<String>> {
        self.others_pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
