//! Requests in progress with an idempotency key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The lock of the requests with one key, which are handled one after the other.
type RequestLock = tokio::sync::Mutex<()>;

/// The requests of this process that are in progress, by key and body: a repetition waits for the response to the first one.
#[derive(Debug, Default)]
pub(crate) struct InProgress(Mutex<BTreeMap<String, Arc<RequestLock>>>);

impl InProgress {
    fn requests(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RequestLock>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other request has this key. The others wait until the result is dropped.
    pub(crate) async fn alone(&self, key: String) -> Alone<'_> {
        let request = Arc::clone(self.requests().entry(key.clone()).or_default());
        Alone { of: self, key, guard: Some(request.lock_owned().await) }
    }
}

/// The only request with its key that is in progress.
#[derive(Debug)]
pub(crate) struct Alone<'p> {
    of: &'p InProgress,
    key: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut requests = self.of.requests();
        self.guard = None;
        // Requests that wait share the lock.
        if requests.get(&self.key).is_some_and(|request| Arc::strong_count(request) == 1) {
            requests.remove(&self.key);
        }
    }
}
