//! Secrets, and texts that must not hold any.

use std::fmt;

/// Secrets shorter than this are not looked for in texts: replacing every `a` would only destroy the text.
const SHORTEST_SCRUBBED: usize = 4;

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
        let mut secrets: Vec<String> =
            secrets.map(|secret| secret.0.trim().to_owned()).filter(|text| text.len() >= SHORTEST_SCRUBBED).collect();
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// `text` without secrets.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
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
    fn a_secret_within_another_leaves_no_rest() {
        let (short, long) = (Secret::new("canary"), Secret::new("canary-0001"));
        let scrub = Scrubber::new([&short, &long].into_iter());
        assert_eq!(scrub.clean("x canary-0001 canary"), "x *** ***");
    }
}
