//! Secrets, and texts that must not hold any.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use serde_json::Value;

/// Secrets shorter than this are not looked for in texts: replacing every `a` would only destroy the text.
const SHORTEST_SCRUBBED: usize = 4;

/// Secrets shorter than this are looked for as they are only: their encoded forms are found in anything.
const SHORTEST_ENCODED: usize = 8;

/// A value that is never printed: `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Removes secrets from texts that others wrote.
#[derive(Clone, Default)]
pub struct Scrubber {
    secrets: Vec<String>,
}

impl Scrubber {
    /// A scrubber for all of `secrets`. Longer ones go first, so that a secret that contains another leaves nothing.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Self {
        let known = secrets.map(|secret| secret.0.trim()).filter(|text| text.len() >= SHORTEST_SCRUBBED);
        let mut secrets: Vec<String> = known.flat_map(forms).collect();
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// `text` without secrets.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }

    /// `value` without secrets in its texts and in its keys.
    pub fn clean_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.clean(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.clean_value(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(key, member)| (self.clean(&key), self.clean_value(member))).collect()
            }
            other => other,
        }
    }

    /// The next piece of a stream without secrets. What may be the beginning of one at its end
    /// stays in `held` until the next piece tells; nothing is held when the stream is over.
    pub fn clean_piece<'p>(&self, held: &mut Vec<u8>, piece: &'p [u8], is_over: bool) -> Cow<'p, [u8]> {
        let joined = if held.is_empty() {
            Cow::Borrowed(piece)
        } else {
            held.extend_from_slice(piece);
            Cow::Owned(std::mem::take(held))
        };
        let end = if is_over { joined.len() } else { self.end_of_certain(&joined) };
        held.extend_from_slice(&joined[end..]);
        let is_clean =
            |bytes: &[u8]| self.secrets.iter().all(|secret| memmem::find(bytes, secret.as_bytes()).is_none());
        match joined {
            Cow::Borrowed(bytes) if is_clean(&bytes[..end]) => Cow::Borrowed(&bytes[..end]),
            joined => Cow::Owned(self.secrets.iter().fold(joined[..end].to_vec(), without)),
        }
    }

    /// How much of `bytes` no secret goes on behind. Where one that is whole would be cut by that, it is none of it: it may
    /// be the beginning of a longer one.
    fn end_of_certain(&self, bytes: &[u8]) -> usize {
        let longest = self.secrets.first().map_or(0, String::len);
        let begins_at = |secret: &String| {
            let most = secret.len().saturating_sub(1).min(bytes.len());
            (1..=most)
                .rev()
                .find(|len| bytes.ends_with(&secret.as_bytes()[..*len]))
                .map_or(bytes.len(), |n| bytes.len() - n)
        };
        let mut end = self.secrets.iter().map(begins_at).min().unwrap_or(bytes.len());
        loop {
            let from = end.saturating_sub(longest);
            let whole = self.secrets.iter().flat_map(|secret| {
                memmem::find_iter(&bytes[from..], secret.as_bytes())
                    .map(move |at| (from + at, from + at + secret.len()))
            });
            match whole.filter(|(begin, over)| *begin < end && *over > end).map(|(begin, _)| begin).min() {
                Some(begin) => end = begin,
                None => return end,
            }
        }
    }

    /// True if there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.secrets.is_empty()
    }

    /// True if `text` holds a secret.
    pub fn finds_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret.as_str()))
    }

    /// The start of `text` without secrets, on one line, at most `chars` characters. Scrubbing comes before cutting:
    /// half a key is still a leak.
    pub(crate) fn quote(&self, text: &str, chars: usize) -> String {
        let clean = self.clean(text);
        let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(chars) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }

    /// The end of `text` without secrets, at most `chars` characters.
    pub(crate) fn tail(&self, text: &str, chars: usize) -> String {
        let clean = self.clean(text);
        let trimmed = clean.trim();
        let skip = trimmed.chars().count().saturating_sub(chars);
        trimmed.chars().skip(skip).collect()
    }
}

fn without(bytes: Vec<u8>, secret: &String) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = &*bytes;
    while let Some(at) = memmem::find(rest, secret.as_bytes()) {
        clean.extend_from_slice(&rest[..at]);
        clean.extend_from_slice(b"***");
        rest = &rest[at + secret.len()..];
    }
    clean.extend_from_slice(rest);
    clean
}

/// A secret as it is, and as it looks in JSON, in an address, and in base64, also in the middle of something longer.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    let json = serde_json::Value::from(secret).to_string();
    forms.push(json[1..json.len() - 1].to_owned());
    if secret.len() < SHORTEST_ENCODED {
        return forms;
    }
    forms.extend([percent(secret, true), percent(secret, false)]);
    for shift in 0..3 {
        // Three bytes are four characters: what stands before moves the rest by none, one or two bytes. The characters at
        // both ends are also made of the neighbours' bits.
        let moved = [vec![0; shift], secret.as_bytes().to_vec()].concat();
        let first = (shift * 8).div_ceil(6);
        let whole = moved.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            forms.push(engine.encode(&moved)[first..whole].to_owned());
        }
    }
    forms
}

/// Percent-encoded, all but letters, digits and `-._~`.
fn percent(text: &str, is_upper: bool) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        // Writing into a string cannot fail.
        let _ = match byte {
            b'-' | b'.' | b'_' | b'~' => write!(out, "{}", char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => write!(out, "{}", char::from(byte)),
            _ if is_upper => write!(out, "%{byte:02X}"),
            _ => write!(out, "%{byte:02x}"),
        };
        out
    })
}

/// Secrets are not printed, not even their number is of use to anybody.
impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrubber")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints_itself() {
        let secret = Secret::new("sk-canary-0001");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    }

    #[test]
    fn a_quote_is_scrubbed_before_it_is_cut() {
        let secret = Secret::new("sk-canary-0001");
        let scrub = Scrubber::new([&secret].into_iter());
        assert_eq!(scrub.quote("bad key sk-canary-0001", 12), "bad key ***");
        assert_eq!(scrub.tail("bad key sk-canary-0001", 6), "ey ***");
    }

    #[test]
    fn values_are_cleaned_with_their_keys() {
        let scrub = Scrubber::new([&Secret::new("sk-canary")].into_iter());
        let value = serde_json::json!({"sk-canary": [1, {"a": "is sk-canary"}]});
        assert_eq!(scrub.clean_value(value), serde_json::json!({"***": [1, {"a": "is ***"}]}));
    }

    #[test]
    fn a_secret_is_found_in_other_forms() {
        let text = "sk\"a/b+c\\d=0815";
        let scrub = Scrubber::new([&Secret::new(text)].into_iter());
        let json = serde_json::json!({ "key": text }).to_string();
        assert_eq!(scrub.clean(&json), r#"{"key":"***"}"#);
        assert_eq!(scrub.clean(&format!("?key={}&x=1", percent(text, true))), "?key=***&x=1");
        assert_eq!(scrub.clean(&format!("?key={}&x=1", percent(text, false))), "?key=***&x=1");
        for before in ["", "u", "us", "use", "user:"] {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let encoded = engine.encode(format!("{before}{text}:after"));
                let clean = scrub.clean(&encoded);
                assert!(clean.contains("***") && clean.len() < 20, "{before}: {encoded} became {clean}");
            }
        }
        assert_eq!(scrub.clean("nothing of it"), "nothing of it");
        assert!(scrub.finds_in(&json) && !scrub.finds_in("nothing of it"));
    }

    /// However a stream is cut into pieces, what comes out is what comes out of the whole.
    #[test]
    fn a_stream_is_cleaned_wherever_it_is_cut() {
        let secrets = ["canary", "canary-0001", "sk-second\"0815", "aab"].map(Secret::new);
        let scrub = Scrubber::new(secrets.iter());
        let text = "x canary canary-0001 canary-000 sk-second\"0815 sk-second\\\"0815 aaab aaaab cana \u{e4} canary-0001canary sk-";
        let whole = scrub.clean(text);
        assert!(whole.starts_with("x *** *** ***-000 *** ***"), "{whole}");
        for size in 1..text.len() {
            let (mut held, mut seen) = (Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                seen.extend_from_slice(&scrub.clean_piece(&mut held, piece, false));
            }
            seen.extend_from_slice(&scrub.clean_piece(&mut held, &[], true));
            assert_eq!((String::from_utf8_lossy(&seen), held.len()), (whole.as_str().into(), 0), "in pieces of {size}");
        }
    }

    /// What cannot be the beginning of a secret is not held back: somebody may wait for it.
    #[test]
    fn only_beginnings_of_secrets_are_held_back() {
        let scrub = Scrubber::new([&Secret::new("sk-canary-0001")].into_iter());
        let mut held = Vec::new();
        assert_eq!(&*scrub.clean_piece(&mut held, b"50 % done", false), b"50 % done");
        assert_eq!(&*scrub.clean_piece(&mut held, b"key: sk-can", false), b"key: ");
        assert_eq!(&*scrub.clean_piece(&mut held, b"cel", false), b"sk-cancel");
    }

    #[test]
    fn a_secret_within_another_leaves_no_rest() {
        let (short, long) = (Secret::new("canary"), Secret::new("canary-0001"));
        let scrub = Scrubber::new([&short, &long].into_iter());
        assert_eq!(scrub.clean("x canary-0001 canary"), "x *** ***");
    }
}
