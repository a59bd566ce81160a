//! Secrets, and redaction of texts that must not contain any.

mod cut;
mod escapes;
mod pieces;
mod settled;

use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// Minimum length of a secret that is searched in texts, in bytes: replacing every `a` would only destroy the text.
const MIN_REDACTED: usize = 4;

/// Minimum length of a secret whose encoded forms are searched too, in bytes: shorter ones would match anything.
const SHORTEST_ENCODED: usize = 8;

/// Maximum depth of JSON in strings of JSON, up to which an escaped secret is found.
const MAX_NESTED: usize = 3;

/// Characters that programs keep in percent-encoded text, beside letters, digits and `-._`: the strictest ones, forms of the
/// web, Python's `quote`, and JavaScript's `encodeURIComponent` and `encodeURI`.
const KEPT: [&str; 5] = ["~", "*", "~/", "~!'()*", "~!'()*;,/?:@&=+$#"];

/// Words before the credentials of a header. A text that repeats a header often repeats the credentials only.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// A value that is never printed: `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text of a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The text itself, for the one place that sends it.
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

/// Removes secrets from texts of other authors.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
    /// The secrets without escapes, for texts that are escaped.
    unescaped: Vec<String>,
}

impl Redactor {
    /// A redactor for all of `secrets`. Longer ones are replaced first, so that a secret that contains another leaves nothing
    /// behind.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Self {
        Self::longer_than(MIN_REDACTED, secrets)
    }

    /// A redactor for data: for those of `secrets` that cannot be there by chance. Headers and variables also hold words,
    /// paths, addresses and numbers, which can.
    pub fn for_data<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Self {
        Self::longer_than(SHORTEST_ENCODED, secrets.filter(|secret| is_peculiar(secret.0.trim())))
    }

    fn longer_than<'a>(shortest: usize, secrets: impl Iterator<Item = &'a Secret>) -> Self {
        let known = secrets.flat_map(|secret| with_credentials(secret.0.trim())).filter(|text| text.len() >= shortest);
        let mut secrets: Vec<String> = known.flat_map(forms).collect();
        longest_first(&mut secrets);
        let mut unescaped: Vec<String> = secrets.iter().flat_map(|secret| unescaped_forms(secret)).collect();
        unescaped.retain(|secret| secret.len() >= shortest);
        longest_first(&mut unescaped);
        Self { secrets, unescaped }
    }

    /// `text` without secrets.
    pub fn redact(&self, text: &str) -> String {
        self.cleaned(text).unwrap_or_else(|| text.to_owned())
    }

    /// `text` without secrets, and without parts of them where it was cut (`…`). `None` if it has none: most texts have none,
    /// and are not copied. The text may be JSON or contain it, where any character can be an escape.
    pub fn cleaned(&self, text: &str) -> Option<String> {
        let mut found = self.secrets.iter().filter(|secret| text.contains(secret.as_str())).peekable();
        let is_there = found.peek().is_some();
        let whole = is_there.then(|| found.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***")));
        let whole = escapes::cleaned(whole.as_deref().unwrap_or(text), &self.unescaped).or(whole);
        self.cleaned_cuts(whole.as_deref().unwrap_or(text)).or(whole)
    }

    /// `value` without secrets in its texts and its keys.
    pub fn redact_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.cleaned(&text).unwrap_or(text)),
            Value::Array(items) => items.into_iter().map(|item| self.redact_value(item)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, member)| (self.cleaned(&key).unwrap_or(key), self.redact_value(member)))
                .collect(),
            other => other,
        }
    }

    /// True if there are no secrets to search.
    pub fn is_idle(&self) -> bool {
        self.secrets.is_empty()
    }

    /// True if a text or a key in `value` contains a secret.
    pub fn finds_in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.finds_in(text),
            Value::Array(items) => items.iter().any(|item| self.finds_in_value(item)),
            Value::Object(members) => {
                members.iter().any(|(key, member)| self.finds_in(key) || self.finds_in_value(member))
            }
            _ => false,
        }
    }

    /// True if `text` contains a secret.
    pub fn finds_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret.as_str())) || escapes::has_one(text, &self.unescaped)
    }

    /// The start of `text` without secrets, on one line, at most `chars` characters. Redaction comes before cutting: half a
    /// key is still a leak.
    pub(crate) fn quote(&self, text: &str, chars: usize) -> String {
        let redact = self.redact(text);
        let line = redact.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(chars) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }

    /// The end of `text` without secrets, at most `chars` characters.
    pub(crate) fn tail(&self, text: &str, chars: usize) -> String {
        let redact = self.redact(text);
        let trimmed = redact.trim();
        let skip = trimmed.chars().count().saturating_sub(chars);
        trimmed.chars().skip(skip).collect()
    }
}

/// True if a secret is never written by chance: it has letters and digits, and is neither a path nor an address.
fn is_peculiar(secret: &str) -> bool {
    let has = |what: fn(char) -> bool| secret.chars().any(what);
    let leads_somewhere =
        secret.contains("://") || ["/", "./", "../", "~"].iter().any(|start| secret.starts_with(start));
    has(|c| c.is_alphabetic()) && has(|c| c.is_ascii_digit()) && !leads_somewhere
}

/// A secret, and its credentials alone if it is a header with a scheme.
fn with_credentials(secret: &str) -> impl Iterator<Item = &str> {
    let rest = SCHEMES.iter().find_map(|scheme| secret.strip_prefix(scheme)).map(str::trim);
    std::iter::once(secret).chain(rest)
}

fn longest_first(secrets: &mut Vec<String>) {
    secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    secrets.dedup();
}

/// A secret without escapes, also as it reads after a backslash that escapes the first character in the text only.
fn unescaped_forms(secret: &str) -> [String; 2] {
    [escapes::unescaped(secret), escapes::unescaped(&format!("\\{secret}"))]
}

/// All forms of a secret: in JSON, in JSON inside JSON, in an address, and in base64, also in the middle of longer data. A
/// secret of ASCII letters and digits looks the same in JSON, so only the others have more forms. Whole texts are searched
/// without escapes too, so these forms in JSON are for streams.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    let mut nested = vec![secret.to_owned()];
    for _ in 0..MAX_NESTED {
        nested = nested.iter().flat_map(|text| in_json(text)).collect();
        nested.sort_unstable();
        nested.dedup();
        forms.extend_from_slice(&nested);
    }
    // In a JSON pointer.
    forms.push(secret.replace('~', "~0").replace('/', "~1"));
    if secret.len() < SHORTEST_ENCODED {
        return forms;
    }
    for kept in KEPT {
        for encoded in [percent(secret, kept, true), percent(secret, kept, false)] {
            // Forms of the web write a blank as a plus sign.
            forms.extend([encoded.replace("%20", "+"), encoded]);
        }
    }
    let encoded = std::iter::once(secret.to_owned()).chain(in_json(secret));
    forms.extend(encoded.flat_map(|text| in_base64(&text)));
    forms
}

/// A text as programs write it in a JSON string. JSON requires few escapes. Python, Java and others escape all characters
/// outside of ASCII, with digits of either case, Go and .NET those with a meaning in HTML, and many programs slashes.
fn in_json(text: &str) -> Vec<String> {
    let is_foreign = |c: char| !(' '..='~').contains(&c);
    let spellings = [
        spelled(text, |_| false, false),
        spelled(text, |_| false, true),
        spelled(text, is_foreign, false),
        spelled(text, is_foreign, true),
        spelled(text, |c| "<>&\u{2028}\u{2029}".contains(c), false),
        spelled(text, |c| is_foreign(c) || "<>&'\"+`".contains(c), true),
    ];
    let mut all: Vec<String> = spellings.iter().map(|text| text.replace('/', "\\/")).collect();
    all.extend(spellings);
    all.sort_unstable();
    all.dedup();
    all
}

/// A text as it appears in a JSON string, with the characters that JSON requires to be escaped, and all others for which
/// `is_escaped` is true, as escapes.
fn spelled(text: &str, is_escaped: impl Fn(char) -> bool, is_upper: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let short = match c {
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\\' => Some(c),
            '"' if !is_escaped(c) => Some(c),
            _ => None,
        };
        if let Some(short) = short {
            out.extend(['\\', short]);
        } else if c >= ' ' && !is_escaped(c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a string cannot fail.
                let _ = if is_upper { write!(out, "\\u{unit:04X}") } else { write!(out, "\\u{unit:04x}") };
            }
        }
    }
    out
}

/// A text as it appears in base64, at any position in the encoded data.
fn in_base64(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for shift in 0..3 {
        // Three bytes are four characters, so the data before moves the rest by zero, one or two bytes. The characters at both
        // ends also contain bits of the neighbours.
        let moved = [vec![0; shift], secret.as_bytes().to_vec()].concat();
        let first = (shift * 8).div_ceil(6);
        let whole = moved.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            forms.push(engine.encode(&moved)[first..whole].to_owned());
        }
    }
    forms
}

/// Percent-encodes everything but letters, digits, `-._` and the characters in `kept`.
fn percent(text: &str, kept: &str, is_upper: bool) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        // Writing into a string cannot fail.
        let _ = match byte {
            b'-' | b'.' | b'_' => write!(out, "{}", char::from(byte)),
            _ if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => write!(out, "{}", char::from(byte)),
            _ if is_upper => write!(out, "%{byte:02X}"),
            _ => write!(out, "%{byte:02x}"),
        };
        out
    })
}

/// Shows neither the secrets nor their number.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
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
    fn a_quote_is_redacted_before_it_is_cut() {
        let secret = Secret::new("sk-canary-0001");
        let redactor = Redactor::new([&secret].into_iter());
        assert_eq!(redactor.quote("bad key sk-canary-0001", 12), "bad key ***");
        assert_eq!(redactor.tail("bad key sk-canary-0001", 6), "ey ***");
    }

    #[test]
    fn values_are_cleaned_with_their_keys() {
        let redactor = Redactor::new([&Secret::new("sk-canary")].into_iter());
        let value = serde_json::json!({"sk-canary": [1, {"a": "is sk-canary"}]});
        assert_eq!(redactor.redact_value(value), serde_json::json!({"***": [1, {"a": "is ***"}]}));
        // L-4: a text that is JSON, and a pointer.
        let redactor = Redactor::new([&Secret::new("sk/canary~0001")].into_iter());
        let value = serde_json::json!({"/a/sk~1canary~00001": "{\"k\": \"\\u0073k\\/canary~0001\"}"});
        assert_eq!(redactor.redact_value(value), serde_json::json!({"/a/***": "{\"k\": \"***\"}"}));
    }

    #[test]
    fn a_secret_is_found_in_other_forms() {
        let text = "sk\"a/b+c\\d=0815";
        let redactor = Redactor::new([&Secret::new(text)].into_iter());
        let json = serde_json::json!({ "key": text }).to_string();
        assert_eq!(redactor.redact(&json), r#"{"key":"***"}"#);
        assert_eq!(redactor.redact(&format!("?key={}&x=1", percent(text, "~", true))), "?key=***&x=1");
        assert_eq!(redactor.redact(&format!("?key={}&x=1", percent(text, "~", false))), "?key=***&x=1");
        for before in ["", "u", "us", "use", "user:"] {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let encoded = engine.encode(format!("{before}{text}:after"));
                let redact = redactor.redact(&encoded);
                assert!(redact.contains("***") && redact.len() < 20, "{before}: {encoded} became {redact}");
            }
        }
        assert_eq!(redactor.redact("nothing of it"), "nothing of it");
        assert!(redactor.finds_in(&json) && !redactor.finds_in("nothing of it"));
    }

    /// A secret is found in addresses, whichever program wrote them.
    #[test]
    fn a_secret_is_found_in_addresses() {
        let redactor = Redactor::new([&Secret::new("k/+=0815 ~(a)*@b")].into_iter());
        for encoded in [
            "k%2F%2B%3D0815%20~%28a%29%2A%40b",
            "k%2f%2b%3d0815+%7e%28a%29*%40b",
            "k/%2B%3D0815%20~%28a%29%2A%40b",
            "k%2F%2B%3D0815%20~(a)*%40b",
            "k/+=0815%20~(a)*@b",
        ] {
            assert_eq!(redactor.redact(&format!("?a={encoded}&c=d")), "?a=***&c=d", "{encoded}");
        }
    }

    /// L-4: a secret is found in JSON inside JSON, and in base64 of JSON.
    #[test]
    fn a_secret_is_found_in_json_inside_of_json() {
        let text = "sk-live/\"Zq+7\\Tt9xyzzy42";
        let redactor = Redactor::new([&Secret::new(text)].into_iter());
        let mut inner = serde_json::json!({ "key": text }).to_string();
        let mut slashed = inner.replace('/', "\\/");
        for depth in 1..=MAX_NESTED {
            for nested in [&inner, &slashed] {
                let redacted = redactor.redact(&format!("pre {nested} post"));
                assert!(redacted.contains("***") && !redacted.contains("Tt9xyzzy42"), "{depth}: {redacted}");
            }
            inner = serde_json::json!({ "body": inner }).to_string();
            slashed = serde_json::json!({ "body": slashed }).to_string().replace('/', "\\/");
        }
        for before in ["", "u", "us"] {
            let encoded = STANDARD_NO_PAD.encode(format!("{before}{}", serde_json::json!({ "key": text })));
            let redacted = redactor.redact(&encoded);
            assert!(redacted.contains("***") && redacted.len() < 25, "{before}: {encoded} became {redacted}");
        }
        let plain = Redactor::new([&Secret::new("sk-canary-0001")].into_iter());
        assert_eq!(plain.secrets.len(), 1 + 3, "nothing more to look for than in base64, which has three places");
    }

    #[test]
    fn json_is_cleaned_however_it_is_escaped() {
        let redactor = Redactor::new([&Secret::new("sk-canary/0001")].into_iter());
        let redact = |text: &str| redactor.cleaned(text);
        assert_eq!(redact(r#"{"a": "is sk-canary/0001"}"#).as_deref(), Some(r#"{"a": "is ***"}"#));
        assert_eq!(redact(r#"{"a": "is sk-canary\/0001"}"#).as_deref(), Some(r#"{"a": "is ***"}"#));
        assert_eq!(redact(r#"{"\u0073k-canary\/0001": [1]}"#).as_deref(), Some(r#"{"***": [1]}"#));
        assert_eq!(redact(r#"{"a": "\u00e9 sk-canary"}"#), None);
        assert_eq!(
            redact(r#"It is:```{"a": "\u0073k-canary/0001"}```"#).as_deref(),
            Some(r#"It is:```{"a": "***"}```"#)
        );
    }

    #[test]
    fn words_paths_addresses_and_numbers_are_left_in_data() {
        let common = [
            "application/json",
            "no-cache",
            "/srv/project2",
            "http://localhost:8080/v1",
            "4417123456",
            "2026-11-22",
            "lm-studio",
        ];
        let secrets: Vec<Secret> = common.iter().copied().chain(["sk-canary-0001"]).map(Secret::new).collect();
        let redactor = Redactor::for_data(secrets.iter());
        common.iter().for_each(|text| assert_eq!(redactor.cleaned(text), None, "{text}"));
        assert_eq!(redactor.cleaned("is sk-canary-0001").as_deref(), Some("is ***"));
    }

    #[test]
    fn a_secret_beside_another_is_found_however_either_is_written() {
        let secrets = [Secret::new("sk-canary-0001"), Secret::new("zz\\/secret-0001")];
        let redactor = Redactor::new(secrets.iter());
        assert_eq!(redactor.cleaned("one sk-canary-0001 two zz\\/secret-0001").as_deref(), Some("one *** two ***"));
    }

    #[test]
    fn credentials_are_found_without_the_word_before_them() {
        let redactor = Redactor::new([&Secret::new("Bearer canary-0001")].into_iter());
        assert_eq!(redactor.redact("you sent Bearer canary-0001"), "you sent ***");
        assert_eq!(redactor.redact("you sent canary-0001"), "you sent ***");
    }

    #[test]
    fn a_secret_within_another_leaves_no_rest() {
        let (short, long) = (Secret::new("canary"), Secret::new("canary-0001"));
        let redactor = Redactor::new([&short, &long].into_iter());
        assert_eq!(redactor.redact("x canary-0001 canary"), "x *** ***");
    }
}
