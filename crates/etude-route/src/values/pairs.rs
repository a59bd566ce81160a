//! `NAME=VALUE` in a request, with the same effect as `-i`.

use std::ops::Range;

/// Pair in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Text before the `=`.
    pub name: String,
    /// Text after the `=`, without quotation marks.
    pub value: String,
    /// Byte range of the whole pair.
    pub span: Range<usize>,
}

/// All pairs of `request`, with any names. A pair begins a word; its value ends at a blank, or with the quotation mark or
/// bracket that it begins with.
pub fn pairs(request: &str) -> Vec<Pair> {
    let mut found: Vec<Pair> = Vec::new();
    let mut from = 0;
    while let Some(at) = request[from..].find('=').map(|at| from + at) {
        from = at + 1;
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let start = request[..at].char_indices().rev().take_while(|(_, c)| is_name(*c)).last().map(|(start, _)| start);
        let Some(start) = start else { continue };
        let name = &request[start..at];
        let starts_word = request[..start]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || matches!(c, '(' | ',' | ';' | ':' | '"' | '\'' | '`'));
        let is_inside = found.last().is_some_and(|last| last.span.contains(&start));
        let begins_well = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if !starts_word || is_inside || !begins_well || request[at + 1..].starts_with('=') {
            continue;
        }
        let (length, value) = value(&request[at + 1..]);
        if value.is_empty() && length == 0 {
            continue;
        }
        from = at + 1 + length;
        found.push(Pair { name: name.to_owned(), value: value.to_owned(), span: start..from });
    }
    found
}

/// Length of a value in bytes, and its text.
fn value(rest: &str) -> (usize, &str) {
    let Some(open) = rest.chars().next() else { return (0, "") };
    let close = match open {
        '"' | '\'' | '`' => open,
        '“' => '”',
        '[' | '{' => {
            let length = bracketed(rest);
            return (length, &rest[..length]);
        }
        _ => {
            let word = rest.split(char::is_whitespace).next().unwrap_or_default();
            let word = word.trim_end_matches([',', ';', ')', '!', '?', '.', '"', '\'', '`']);
            return (word.len(), word);
        }
    };
    let inner = &rest[open.len_utf8()..];
    match inner.find(close) {
        Some(end) => (open.len_utf8() + end + close.len_utf8(), &inner[..end]),
        None => {
            let word = rest.split(char::is_whitespace).next().unwrap_or_default();
            (word.len(), word)
        }
    }
}

/// Length of a JSON list or object in bytes; that of a word if it does not end.
fn bracketed(rest: &str) -> usize {
    let (mut depth, mut is_text, mut is_escaped) = (0usize, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '[' | '{' if !is_text => depth += 1,
            ']' | '}' if !is_text => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    rest.find(char::is_whitespace).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_with_their_values() {
        let found = |request| pairs(request).into_iter().map(|pair| (pair.name, pair.value)).collect::<Vec<_>>();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found("count=3"), [pair("count", "3")]);
        assert_eq!(found("sort them, count=3, folder=\"my mail\""), [pair("count", "3"), pair("folder", "my mail")]);
        assert_eq!(found("tags=[\"a b\", \"c\"] now"), [pair("tags", "[\"a b\", \"c\"]")]);
        assert_eq!(found("url=https://x.de/?a=b"), [pair("url", "https://x.de/?a=b")]);
        assert_eq!(found("a == b, 2=3, x = y, https://x.de/?a=b, =3"), []);
        assert_eq!(found("size=2.5."), [pair("size", "2.5")]);
    }
}
