//! Secrets, and texts that must not hold any.

use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
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

    #[test]
    fn a_secret_within_another_leaves_no_rest() {
        let (short, long) = (Secret::new("canary"), Secret::new("canary-0001"));
        let scrub = Scrubber::new([&short, &long].into_iter());
        assert_eq!(scrub.clean("x canary-0001 canary"), "x *** ***");
    }
}
