//! Who hears an answer while it comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etude_core::model::{Piece, TransportWait};

use crate::scrub::Scrubber;

/// A listener, and whether it was told anything yet. What it is told holds no secret, however it is cut into pieces.
pub(crate) struct Hearing<'a> {
    listener: &'a (dyn Fn(Piece<'_>) + Send + Sync),
    scrub: &'a Scrubber,
    /// False if waits alone are reported: the provider is not asked to stream then.
    pub(crate) is_streaming: bool,
    has_told: AtomicBool,
    /// The end of what came: it may be the beginning of a secret.
    held: Mutex<Vec<u8>>,
}

impl<'a> Hearing<'a> {
    pub(crate) fn new(listener: &'a (dyn Fn(Piece<'_>) + Send + Sync), scrub: &'a Scrubber) -> Self {
        Self { listener, scrub, is_streaming: true, has_told: AtomicBool::new(false), held: Mutex::default() }
    }

    /// Reports waits of the transport and no text.
    pub(crate) fn of_waits(listener: &'a (dyn Fn(Piece<'_>) + Send + Sync), scrub: &'a Scrubber) -> Self {
        Self { is_streaming: false, ..Self::new(listener, scrub) }
    }

    /// Reports that the transport waits before its next attempt.
    pub(crate) fn waiting(&self, wait: &TransportWait) {
        (self.listener)(Piece::Waiting(wait));
    }

    /// Tells more of the text.
    pub(crate) fn text(&self, text: &str) {
        self.tell(text, false);
    }

    /// The answer is whole: what was held back is not the beginning of anything.
    pub(crate) fn end(&self) {
        self.tell("", true);
    }

    /// A try begins: what an earlier one has told counts for nothing.
    pub(crate) fn begin(&self) {
        self.held().clear();
        if self.has_told.swap(false, Ordering::Relaxed) {
            (self.listener)(Piece::Again);
        }
    }

    fn tell(&self, text: &str, is_over: bool) {
        let mut held = self.held();
        let clean = self.scrub.clean_piece(&mut held, text.as_bytes(), is_over);
        if !clean.is_empty() {
            self.has_told.store(true, Ordering::Relaxed);
            (self.listener)(Piece::Text(&String::from_utf8_lossy(&clean)));
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<u8>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
