//! Secrets in escaped text: JSON of any program, and JSON in strings of JSON, at any depth.
//!
//! Unescaped, a text and a secret have no backslashes, and each escape is its character. This is the same for every depth of
//! nesting and for every choice of escapes, so one search finds all of them.

use std::ops::Range;

/// Maximum number of characters of an escape after its backslashes: `u00e9`.
const ESCAPE_LEN: usize = 5;

/// `text` without backslashes and with each escape as its character. Takes time in proportion to the length.
pub(super) fn unescaped(text: &str) -> String {
    walk(text, |_, _| ())
}

/// `text` with `***` in place of each of `secrets`, which are unescaped. `None` if there are none.
pub(super) fn cleaned(text: &str, secrets: &[String]) -> Option<String> {
    let plain = find(text, secrets)?;
    let mut found: Vec<Range<usize>> = Vec::new();
    for secret in secrets {
        found.extend(plain.match_indices(secret.as_str()).map(|(at, _)| at..at + secret.len()));
    }
    found.sort_unstable_by_key(|range| range.start);
    let mut offsets = Vec::new();
    walk(text, |at, source| offsets.push((at, source)));
    let source = |at: usize| match offsets[..offsets.partition_point(|(known, _)| *known <= at)].last() {
        Some((known, source)) => source + (at - known),
        None => at,
    };
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

/// True if `text` has one of `secrets`, which are unescaped.
pub(super) fn has_one(text: &str, secrets: &[String]) -> bool {
    find(text, secrets).is_some()
}

/// `text` without escapes, if it has escapes and one of `secrets`.
fn find(text: &str, secrets: &[String]) -> Option<String> {
    if secrets.is_empty() || !text.contains('\\') {
        return None;
    }
    let plain = unescaped(text);
    secrets.iter().any(|secret| plain.contains(secret.as_str())).then_some(plain)
}

/// The unescaped text. `mark` gets pairs of offsets in it and in `text`, in ascending order, wherever their distance changes.
fn walk(text: &str, mut mark: impl FnMut(usize, usize)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let start = text.len() - rest.len() + at;
        let tail = after_backslashes(&rest[at..]);
        // Backslashes at the end escape nothing.
        let Some((c, len)) = escape(tail) else { return out };
        mark(out.len(), start);
        out.push(c);
        rest = &tail[len..];
        mark(out.len(), text.len() - rest.len());
    }
    out.push_str(rest);
    out
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
