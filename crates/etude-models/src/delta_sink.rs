//! Sink for the deltas of a response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etude_core::model::{Piece, TransportWait};

use crate::redact::Redactor;

/// An observer, and whether it has received anything yet. It never receives a secret, even if the secret is split between
/// deltas.
pub(crate) struct DeltaSink<'a> {
    on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync),
    redactor: &'a Redactor,
    /// False if only waits are reported. Then the provider is not asked to stream.
    pub(crate) is_streaming: bool,
    has_emitted: AtomicBool,
    /// The end of the received text, which may be the beginning of a secret.
    held: Mutex<Vec<u8>>,
}

impl<'a> DeltaSink<'a> {
    pub(crate) fn new(on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync), redactor: &'a Redactor) -> Self {
        Self { on_delta, redactor, is_streaming: true, has_emitted: AtomicBool::new(false), held: Mutex::default() }
    }

    /// A sink that reports waits of the transport and no text.
    pub(crate) fn of_waits(on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync), redactor: &'a Redactor) -> Self {
        Self { is_streaming: false, ..Self::new(on_delta, redactor) }
    }

    /// Reports that the transport waits before its next attempt.
    pub(crate) fn waiting(&self, wait: &TransportWait) {
        (self.on_delta)(Piece::Waiting(wait));
    }

    /// Reports more text.
    pub(crate) fn text(&self, text: &str) {
        self.emit(text, false);
    }

    /// Ends the response: the held text is not the beginning of a secret.
    pub(crate) fn end(&self) {
        self.emit("", true);
    }

    /// Begins an attempt: deltas of an earlier one are void.
    pub(crate) fn begin(&self) {
        self.held().clear();
        if self.has_emitted.swap(false, Ordering::Relaxed) {
            (self.on_delta)(Piece::Restarted);
        }
    }

    fn emit(&self, text: &str, is_over: bool) {
        let mut held = self.held();
        let redact = self.redactor.redact_piece(&mut held, text.as_bytes(), is_over);
        if !redact.is_empty() {
            self.has_emitted.store(true, Ordering::Relaxed);
            (self.on_delta)(Piece::Text(&String::from_utf8_lossy(&redact)));
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<u8>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
