//! The wall clock of the server, which tests can move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The wall clock. Clones share their offset.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offset_ms: Arc<AtomicI64>,
}

impl Clock {
    /// Milliseconds since 1970 in UTC.
    pub fn now_ms(&self) -> i64 {
        etude::clock::now_ms().saturating_add(self.offset_ms.load(Ordering::Relaxed))
    }

    /// Sets the difference to the clock of the machine, in milliseconds.
    pub fn set_offset(&self, ms: i64) {
        self.offset_ms.store(ms, Ordering::Relaxed);
    }
}
