//! Who hears an answer while it comes.

use std::sync::atomic::{AtomicBool, Ordering};

use etude_core::model::Piece;

/// A listener, and whether it was told anything yet.
pub(crate) struct Hearing<'a> {
    listener: &'a (dyn Fn(Piece<'_>) + Send + Sync),
    has_told: AtomicBool,
}

impl<'a> Hearing<'a> {
    pub(crate) fn new(listener: &'a (dyn Fn(Piece<'_>) + Send + Sync)) -> Self {
        Self { listener, has_told: AtomicBool::new(false) }
    }

    /// Tells more of the text.
    pub(crate) fn text(&self, text: &str) {
        if !text.is_empty() {
            self.has_told.store(true, Ordering::Relaxed);
            (self.listener)(Piece::Text(text));
        }
    }

    /// A try begins: what an earlier one has told counts for nothing.
    pub(crate) fn begin(&self) {
        if self.has_told.swap(false, Ordering::Relaxed) {
            (self.listener)(Piece::Again);
        }
    }
}
