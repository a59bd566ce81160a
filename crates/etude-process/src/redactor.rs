//! Redaction of the stderr of processes, before it is shown, kept or reported.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Redacts a stream of bytes.
pub trait StreamRedactor: Send + Sync + fmt::Debug {
    /// The next redacted piece of a stream. A suffix that may be the beginning of a secret stays in `held` until the next
    /// piece decides. `held` must be empty at first, and nothing stays in it when the stream is over.
    fn draw<'p>(&self, held: &mut Vec<u8>, piece: &'p [u8], is_over: bool) -> Cow<'p, [u8]>;
}

/// Treatment of the stderr of processes before it is shown, kept or quoted.
#[derive(Debug, Clone)]
pub enum Redaction {
    /// Stderr passes this redactor.
    Redactor(Arc<dyn StreamRedactor>),
    /// Stderr stays unchanged: this process knows no secret that its children could print.
    NoSecrets,
}

impl From<Option<Arc<dyn StreamRedactor>>> for Redaction {
    /// `None` means that there are no secrets to redact.
    fn from(redactor: Option<Arc<dyn StreamRedactor>>) -> Self {
        redactor.map_or(Self::NoSecrets, Self::Redactor)
    }
}

/// A stream with its optional redactor.
pub(crate) struct RedactedStream<'v> {
    redactor: Option<&'v dyn StreamRedactor>,
    held: Vec<u8>,
}

impl<'v> RedactedStream<'v> {
    pub(crate) fn new(redaction: &'v Redaction) -> Self {
        let redactor = match redaction {
            Redaction::Redactor(redactor) => Some(&**redactor),
            Redaction::NoSecrets => None,
        };
        Self { redactor, held: Vec::new() }
    }

    /// Redacts the next piece of the stream.
    pub(crate) fn piece<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        match self.redactor {
            Some(redactor) => redactor.draw(&mut self.held, piece, false),
            None => Cow::Borrowed(piece),
        }
    }

    /// The redacted rest of the stream, which was held until its end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.redactor.map(|redactor| redactor.draw(&mut self.held, &[], true).into_owned()).unwrap_or_default()
    }
}
