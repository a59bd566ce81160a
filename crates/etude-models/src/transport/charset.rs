//! Responses in another encoding than UTF-8, which JSON and event streams require.

use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::exchange::{FailedAs, TransportAttempt};
use crate::redact::Redactor;

/// Names of UTF-8 and of its part that is ASCII.
const PLAIN: [&str; 4] = ["utf-8", "utf8", "us-ascii", "ascii"];

/// Maximum length of a charset in a message, in characters.
const QUOTED_CHARS: usize = 40;

/// An encoding that the server declares. Some servers declare one and send UTF-8, so only the bytes decide.
#[derive(Clone)]
pub(super) struct Charset {
    name: String,
    /// The unfinished character at the end of the bytes so far.
    rest: Vec<u8>,
}

impl Charset {
    /// The `charset` of the content type, unless it is UTF-8.
    pub(super) fn foreign(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
        let (_, after) = kind.split_once("charset=")?;
        let name = after.split(';').next().unwrap_or_default().trim().trim_matches('"');
        (!name.is_empty() && !PLAIN.contains(&name)).then(|| Self { name: name.to_owned(), rest: Vec::new() })
    }

    /// True if the next bytes of the body cannot be UTF-8 without control characters.
    pub(super) fn encodes(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        if bytes.contains(&0) {
            return true;
        }
        match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.clear(),
            Err(error) if error.error_len().is_some() => return true,
            Err(error) => drop(self.rest.drain(..error.valid_up_to())),
        }
        false
    }

    /// The failure of a response in this encoding.
    pub(super) fn refusal(&self, place: &str, redactor: &Redactor) -> TransportAttempt {
        let name = redactor.quote(&self.name, QUOTED_CHARS);
        let message = format!(
            "the response from {place} is text in `{name}` instead of UTF-8; set the server, or the proxy before it, to UTF-8"
        );
        TransportAttempt::last(FailedAs::Exhausted, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(kind: &str) -> Option<Charset> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().expect("a header value"));
        Charset::foreign(&headers)
    }

    #[test]
    fn only_declared_encodings_other_than_utf_8_are_foreign() {
        for (kind, expected) in [
            ("application/json", None),
            ("application/json; charset=UTF-8", None),
            ("text/event-stream;charset=\"utf-8\"; x=1", None),
            ("application/json; charset=utf-16", Some("utf-16")),
            ("application/json; Charset=ISO-8859-1; x=1", Some("iso-8859-1")),
        ] {
            assert_eq!(foreign(kind).map(|charset| charset.name).as_deref(), expected, "{kind}");
        }
    }

    #[test]
    fn bytes_decide_also_if_a_character_is_cut() {
        let read = |pieces: &[&[u8]]| {
            let mut charset = foreign("text/plain; charset=latin1").expect("a charset");
            pieces.iter().map(|piece| charset.encodes(piece)).collect::<Vec<_>>()
        };
        assert_eq!(read(&[b"Gr\xc3", b"\xbc\xc3\x9fe"]), [false, false]);
        assert_eq!(read(&[b"Gr", b"\xfc\xdfe"]), [false, true]);
        assert_eq!(read(&[b"{\0\"\0"]), [true]);
    }
}
