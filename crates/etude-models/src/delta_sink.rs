//! Who observes an answer while it comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etude_core::model::{Piece, TransportWait};

use crate::redact::Redactor;

/// A listener, and whether it has received anything yet. What it receives holds no secret, however it is cut into pieces.
pub(crate) struct DeltaSink<'a> {
    on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync),
    redactor: &'a Redactor,
    /// False if waits alone are reported: the provider is not asked to stream then.
    pub(crate) is_streaming: bool,
    has_emitted: AtomicBool,
    /// The end of what came: it may be the beginning of a secret.
    held: Mutex<Vec<u8>>,
}

impl<'a> DeltaSink<'a> {
    pub(crate) fn new(on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync), redactor: &'a Redactor) -> Self {
        Self { on_delta, redactor, is_streaming: true, has_emitted: AtomicBool::new(false), held: Mutex::default() }
    }

    /// Reports waits of the transport and no text.
    pub(crate) fn of_waits(on_delta: &'a (dyn Fn(Piece<'_>) + Send + Sync), redactor: &'a Redactor) -> Self {
        Self { is_streaming: false, ..Self::new(on_delta, redactor) }
    }

    /// Reports that the transport waits before its next attempt.
    pub(crate) fn waiting(&self, wait: &TransportWait) {
        (self.on_delta)(Piece::Waiting(wait));
    }

    /// Tells more of the text.
    pub(crate) fn text(&self, text: &str) {
        self.emit(text, false);
    }

    /// The answer is whole: what was held back is not the beginning of anything.
    pub(crate) fn end(&self) {
        self.emit("", true);
    }

    /// A try begins: deltas of an earlier one are void.
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
