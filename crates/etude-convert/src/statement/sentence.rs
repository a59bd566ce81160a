//! Division of a paragraph into sentences.

use std::ops::Range;

/// Words after which a full stop does not end a sentence.
const ABBREVIATIONS: [&str; 12] = ["e.g", "i.e", "etc", "vs", "cf", "approx", "incl", "excl", "fig", "no", "dr", "mr"];

/// The sentences of a paragraph as ranges of its text. Code spans are not divided.
pub(super) fn split(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut start) = (Vec::new(), 0);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'`' => at = after_code(text, at),
            b'.' | b'!' | b'?' => {
                let end = after_closing(text, at + 1);
                if is_boundary(text, start..at, end) {
                    found.push(start..end);
                    start = end + text[end..].len() - text[end..].trim_start().len();
                    at = start;
                } else {
                    at += 1;
                }
            }
            _ => at += 1,
        }
    }
    if !text[start..].trim().is_empty() {
        found.push(start..text.len());
    }
    found
}

/// End of a code span that begins at `at`; the next byte if the span has no end.
fn after_code(text: &str, at: usize) -> usize {
    let ticks = text[at..].bytes().take_while(|byte| *byte == b'`').count();
    let rest = &text[at + ticks..];
    let fence = "`".repeat(ticks);
    rest.find(&fence).map_or(at + ticks, |end| at + ticks + end + ticks)
}

/// End of quotes, brackets and emphasis that close after a full stop.
fn after_closing(text: &str, at: usize) -> usize {
    let is_closing = |c: &char| matches!(c, '"' | '\'' | ')' | ']' | '*' | '_' | '”' | '’' | '.' | '!' | '?');
    at + text[at..].chars().take_while(is_closing).map(char::len_utf8).sum::<usize>()
}

/// True if a sentence ends at `end`; `before` is the text in front of its full stop.
fn is_boundary(text: &str, before: Range<usize>, end: usize) -> bool {
    let mut after = text[end..].chars();
    let is_apart = after.next().is_none_or(char::is_whitespace);
    let next = text[end..].trim_start().chars().next();
    let continues = next.is_some_and(|c| c.is_lowercase() || matches!(c, ',' | ';'));
    let word = text[before].rsplit([' ', '\n', '(', '[']).next().unwrap_or_default().to_lowercase();
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) && next.is_some();
    is_apart && !continues && !is_number && !ABBREVIATIONS.contains(&word.as_str())
}
