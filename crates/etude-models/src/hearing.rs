//! Who hears an answer while it comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etude_core::model::Piece;

use crate::scrub::Scrubber;

/// A listener, and whether it was told anything yet. What it is told holds no secret, however it is cut into pieces.
pub(crate) struct Hearing<'a> {
    listener: &'a (dyn Fn(Piece<'_>) + Send + Sync),
    scrub: &'a Scrubber,
    has_told: AtomicBool,
    /// The end of what came: it may be the beginning of a secret.
    held: Mutex<String>,
}

impl<'a> Hearing<'a> {
    pub(crate) fn new(listener: &'a (dyn Fn(Piece<'_>) + Send + Sync), scrub: &'a Scrubber) -> Self {
        Self { listener, scrub, has_told: AtomicBool::new(false), held: Mutex::default() }
    }

    /// Tells more of the text.
    pub(crate) fn text(&self, text: &str) {
        let mut held = self.held();
        if held.is_empty() {
            let settled = self.scrub.settled(text.as_bytes());
            self.tell(&text[..settled]);
            held.push_str(&text[settled..]);
            return;
        }
        held.push_str(text);
        let settled = self.scrub.settled(held.as_bytes());
        self.tell(&held[..settled]);
        held.drain(..settled);
    }

    /// The answer is whole: what was held back is not the beginning of anything.
    pub(crate) fn end(&self) {
        self.tell(&std::mem::take(&mut *self.held()));
    }

    /// A try begins: what an earlier one has told counts for nothing.
    pub(crate) fn begin(&self) {
        self.held().clear();
        if self.has_told.swap(false, Ordering::Relaxed) {
            (self.listener)(Piece::Again);
        }
    }

    fn tell(&self, text: &str) {
        if !text.is_empty() {
            self.has_told.store(true, Ordering::Relaxed);
            let cleaned = self.scrub.cleaned(text);
            (self.listener)(Piece::Text(cleaned.as_deref().unwrap_or(text)));
        }
    }

    fn held(&self) -> MutexGuard<'_, String> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
