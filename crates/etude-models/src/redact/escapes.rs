//! Secrets in escaped text: JSON of any program, and JSON in strings of JSON, at any depth.
//!
//! Unescaped, a text and a secret have no backslashes, and each escape is its character. This is the same for every depth of
//! nesting and for every choice of escapes, so one search finds all of them.

use std::ops::Range;

/// Maximum number of characters of an escape after its backslashes: `u00e9`.
const ESCAPE_LEN: usize = 5;

/// Maximum number of times that a text is read as JSON before its escapes are merged. Only then does an escape show whose own
/// characters are escapes.
const MAX_READ: usize = 3;

/// `text` without backslashes and with each escape as its character. Takes time in proportion to the length.
pub(super) fn unescaped(text: &str) -> String {
    Layer::decode(text, after_backslashes, false).text
}

/// `text` with `***` in place of each of `secrets`, which are unescaped. `None` if there are none.
pub(super) fn cleaned(text: &str, secrets: &[String]) -> Option<String> {
    let mut redacted: Option<String> = None;
    for depth in 0..=MAX_READ {
        let now = redacted.as_deref().unwrap_or(text);
        // Most texts have no secret, and need no way back.
        let Some(plain) = layers(now, secrets, depth, false) else { break };
        if !find(&plain, secrets).is_empty() {
            let mapped = layers(now, secrets, depth, true);
            redacted = mapped.and_then(|layers| cleaned_through(now, &layers, secrets)).or(redacted);
        }
    }
    redacted
}

/// True if `text` has one of `secrets`, which are unescaped.
pub(super) fn has_one(text: &str, secrets: &[String]) -> bool {
    (0..=MAX_READ)
        .map_while(|depth| layers(text, secrets, depth, false))
        .any(|layers| !find(&layers, secrets).is_empty())
}

/// A text in which escapes are read, with the way back to the text before.
struct Layer {
    text: String,
    /// Pairs of offsets in this text and in the one before, in ascending order, wherever their distance changes. Empty in a
    /// layer without a way back.
    offsets: Vec<(usize, usize)>,
}

/// The layers of a text that is read as JSON `depth` times, and whose escapes are merged then. `None` if that shows nothing
/// that fewer layers do not show.
fn layers(text: &str, secrets: &[String], depth: usize, is_mapped: bool) -> Option<Vec<Layer>> {
    if secrets.is_empty() || !text.contains('\\') {
        return None;
    }
    let mut layers: Vec<Layer> = Vec::new();
    for _ in 0..depth {
        let above = layers.last().map_or(text, |layer| &layer.text);
        if !has_escapes_of_escapes(above) {
            return None;
        }
        let layer = Layer::decode(above, |text| &text[1..], is_mapped);
        layers.push(layer);
    }
    let merged = Layer::decode(layers.last().map_or(text, |layer| &layer.text), after_backslashes, is_mapped);
    layers.push(merged);
    Some(layers)
}

/// True if `text` has an escape of a character of which escapes consist: `u` or a hexadecimal digit.
fn has_escapes_of_escapes(text: &str) -> bool {
    text.match_indices("\\u00").any(|(at, _)| {
        let c = code_unit(&text[at + 1..]).and_then(char::from_u32);
        c.is_some_and(|c| c == 'u' || c.is_ascii_hexdigit())
    })
}

/// The places of `secrets` in the last of `layers`, in ascending order.
fn find(layers: &[Layer], secrets: &[String]) -> Vec<Range<usize>> {
    let Some(plain) = layers.last().map(|layer| &layer.text) else { return Vec::new() };
    let places = |secret: &String| {
        let length = secret.len();
        plain.match_indices(secret.as_str()).map(move |(at, _)| at..at + length).collect::<Vec<_>>()
    };
    let mut found: Vec<Range<usize>> = secrets.iter().flat_map(places).collect();
    found.sort_unstable_by_key(|range| range.start);
    found
}

fn cleaned_through(text: &str, layers: &[Layer], secrets: &[String]) -> Option<String> {
    let found = find(layers, secrets);
    if found.is_empty() {
        return None;
    }
    let source = |at: usize| layers.iter().rev().fold(at, |at, layer| layer.source(at));
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut end) = (0, 0);
    for range in found {
        if range.start >= end {
            out.push_str(&text[copied..source(range.start)]);
            out.push_str("***");
        }
        end = end.max(range.end);
        copied = source(end);
    }
    Some(out + &text[copied..])
}

impl Layer {
    /// `text` with each escape as its character. `skip` returns a text without the backslashes at its start that belong to one
    /// escape.
    fn decode(text: &str, skip: impl Fn(&str) -> &str, is_mapped: bool) -> Self {
        let mut out = Self { text: String::with_capacity(text.len()), offsets: Vec::new() };
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            out.text.push_str(&rest[..at]);
            let start = text.len() - rest.len() + at;
            let tail = skip(&rest[at..]);
            // Backslashes at the end escape nothing.
            let Some((c, len)) = escape(tail) else { return out };
            let begin = out.text.len();
            out.text.push(c);
            rest = &tail[len..];
            if is_mapped {
                out.offsets.extend([(begin, start), (out.text.len(), text.len() - rest.len())]);
            }
        }
        out.text.push_str(rest);
        out
    }

    /// The offset in the text before that belongs to `at` in this one.
    fn source(&self, at: usize) -> usize {
        match self.offsets[..self.offsets.partition_point(|(known, _)| *known <= at)].last() {
            Some((known, source)) => source + (at - known),
            None => at,
        }
    }
}

/// `text` after the backslashes at its start, some of which may be escapes themselves.
fn after_backslashes(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches('\\');
        match code_unit(text) {
            Some(0x5c) => text = &text[ESCAPE_LEN..],
            _ => return text,
        }
    }
}

/// The character at the start of `tail`, after backslashes, and its length there; `None` at the end.
fn escape(tail: &str) -> Option<(char, usize)> {
    let c = tail.chars().next()?;
    Some(match c {
        'b' => ('\u{8}', 1),
        'f' => ('\u{c}', 1),
        'n' => ('\n', 1),
        'r' => ('\r', 1),
        't' => ('\t', 1),
        'u' => match code_unit(tail) {
            Some(high @ 0xd800..0xdc00) => low_surrogate(&tail[ESCAPE_LEN..]).map_or((c, 1), |(low, len)| {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                (char::from_u32(code).unwrap_or(c), ESCAPE_LEN + len)
            }),
            Some(unit) => char::from_u32(unit).map_or((c, 1), |c| (c, ESCAPE_LEN)),
            None => (c, 1),
        },
        _ => (c, c.len_utf8()),
    })
}

/// The second half of a pair, with its backslashes, and its length.
fn low_surrogate(rest: &str) -> Option<(u32, usize)> {
    let tail = rest.trim_start_matches('\\');
    let low = code_unit(tail).filter(|low| tail.len() < rest.len() && (0xdc00..0xe000).contains(low))?;
    Some((low, rest.len() - tail.len() + ESCAPE_LEN))
}

/// The number in `uXXXX` at the start of a text.
fn code_unit(text: &str) -> Option<u32> {
    let hex = text.strip_prefix('u')?.get(..4)?;
    hex.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests;
