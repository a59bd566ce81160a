//! Redaction of bytes that arrive in pieces.

use std::borrow::Cow;
use std::sync::Arc;

use etude_process::StreamRedactor;
use memchr::memmem;

use super::{Redactor, Secret};

impl Redactor {
    /// A redactor for the stderr of processes; `None` if there is no secret to redact.
    pub fn for_stderr<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Option<Arc<dyn StreamRedactor>> {
        let redactor = Self::new(secrets);
        (!redactor.is_idle()).then(|| Arc::new(redactor) as Arc<dyn StreamRedactor>)
    }

    /// Redacts the next piece of a stream. A suffix that may be the beginning of a secret stays in `held` until the next piece
    /// decides. Nothing is held when the stream is over.
    pub fn redact_piece<'p>(&self, held: &mut Vec<u8>, piece: &'p [u8], is_over: bool) -> Cow<'p, [u8]> {
        let joined = if held.is_empty() {
            Cow::Borrowed(piece)
        } else {
            held.extend_from_slice(piece);
            Cow::Owned(std::mem::take(held))
        };
        let end = if is_over { joined.len() } else { self.settled(&joined) };
        held.extend_from_slice(&joined[end..]);
        let is_clean =
            |bytes: &[u8]| self.secrets.iter().all(|secret| memmem::find(bytes, secret.as_bytes()).is_none());
        match joined {
            Cow::Borrowed(bytes) if is_clean(&bytes[..end]) => Cow::Borrowed(&bytes[..end]),
            joined => Cow::Owned(self.secrets.iter().fold(joined[..end].to_vec(), without)),
        }
    }
}

impl StreamRedactor for Redactor {
    fn draw<'p>(&self, held: &mut Vec<u8>, piece: &'p [u8], is_over: bool) -> Cow<'p, [u8]> {
        self.redact_piece(held, piece, is_over)
    }
}

fn without(bytes: Vec<u8>, secret: &String) -> Vec<u8> {
    let mut redact = Vec::with_capacity(bytes.len());
    let mut rest = &*bytes;
    while let Some(at) = memmem::find(rest, secret.as_bytes()) {
        redact.extend_from_slice(&rest[..at]);
        redact.extend_from_slice(b"***");
        rest = &rest[at + secret.len()..];
    }
    redact.extend_from_slice(rest);
    redact
}

#[cfg(test)]
mod tests {
    use crate::redact::Secret;

    use super::*;

    /// A stream gives the same redacted text, wherever it is cut into pieces.
    #[test]
    fn a_stream_is_cleaned_wherever_it_is_cut() {
        let secrets = ["canary", "canary-0001", "sk-second\"0815", "aab"].map(Secret::new);
        let redactor = Redactor::new(secrets.iter());
        let text = "x canary canary-0001 canary-000 sk-second\"0815 sk-second\\\"0815 aaab aaaab cana \u{e4} canary-0001canary sk-";
        let whole = redactor.redact(text);
        assert!(whole.starts_with("x *** *** ***-000 *** ***"), "{whole}");
        for size in 1..text.len() {
            let (mut held, mut seen) = (Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                seen.extend_from_slice(&redactor.redact_piece(&mut held, piece, false));
            }
            seen.extend_from_slice(&redactor.redact_piece(&mut held, &[], true));
            assert_eq!((String::from_utf8_lossy(&seen), held.len()), (whole.as_str().into(), 0), "in pieces of {size}");
        }
    }

    /// Bytes that cannot be the beginning of a secret are not held back, since an observer may wait for them.
    #[test]
    fn only_beginnings_of_secrets_are_held_back() {
        let redactor = Redactor::new([&Secret::new("sk-canary-0001")].into_iter());
        let mut held = Vec::new();
        assert_eq!(&*redactor.redact_piece(&mut held, b"50 % done", false), b"50 % done");
        assert_eq!(&*redactor.redact_piece(&mut held, b"key: sk-can", false), b"key: ");
        assert_eq!(&*redactor.redact_piece(&mut held, b"cel", false), b"sk-cancel");
    }
}
