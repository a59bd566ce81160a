//! The wall clock of the server, which tests can move.

use std::sync::Arc;

// Pages name no module of the runtime (law 11).
pub(crate) use etude_runtime::clock::{now_ms, rfc3339};
use tokio::sync::watch;

/// The wall clock. Clones share their offset.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offset_ms: Arc<watch::Sender<i64>>,
}

impl Clock {
    /// The current time in milliseconds since 1970, UTC.
    pub fn now_ms(&self) -> i64 {
        now_ms().saturating_add(*self.offset_ms.borrow())
    }

    /// Sets the difference to the clock of the machine, in milliseconds.
    pub fn set_offset(&self, ms: i64) {
        self.offset_ms.send_if_modified(|last| std::mem::replace(last, ms) != ms);
    }

    /// A receiver that changes when the clock is set.
    pub(crate) fn settings(&self) -> watch::Receiver<i64> {
        self.offset_ms.subscribe()
    }
}
