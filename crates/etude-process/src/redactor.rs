//! What processes print on stderr is shown, kept and reported without secrets.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Takes something out of a stream of bytes.
pub trait StreamRedactor: Send + Sync + fmt::Debug {
    /// The next piece of a stream as it may be seen. The end of it that may be the beginning of what is taken out stays in
    /// `held`, which begins empty, until the next piece tells; nothing is held when the stream is over.
    fn draw<'p>(&self, held: &mut Vec<u8>, piece: &'p [u8], is_over: bool) -> Cow<'p, [u8]>;
}

/// What happens to the stderr of processes before it is shown, kept or quoted.
#[derive(Debug, Clone)]
pub enum Redaction {
    /// It passes this redactor.
    Redactor(Arc<dyn StreamRedactor>),
    /// It stays as it is: this process knows no secret that its children could print.
    NoSecrets,
}

impl From<Option<Arc<dyn StreamRedactor>>> for Redaction {
    /// A redactor of secrets, which does not exist if there are none.
    fn from(redactor: Option<Arc<dyn StreamRedactor>>) -> Self {
        redactor.map_or(Self::NoSecrets, Self::Redactor)
    }
}

/// One stream behind a redactor, if there is one.
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

    /// What may be seen of the stream with its next piece.
    pub(crate) fn piece<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        match self.redactor {
            Some(redactor) => redactor.draw(&mut self.held, piece, false),
            None => Cow::Borrowed(piece),
        }
    }

    /// What may be seen of what was held back, now that nothing more comes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.redactor.map(|redactor| redactor.draw(&mut self.held, &[], true).into_owned()).unwrap_or_default()
    }
}
