//! Diagnosis of a stdout that violates the protocol.

use std::collections::BTreeMap;
use std::fmt::Write;

use etude_core::effect::Protocol;
use etude_core::hidden::is_hidden;
use etude_core::outcome::Stdout;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Error};

/// Maximum length of the excerpt that is shown, in characters.
const EXCERPT: usize = 400;

/// Maximum number of offsets that are tried as the start of a document after other text.
const CANDIDATES: usize = 32;

/// Length of the text in which such offsets are searched, in bytes: noise before a document is short.
const SEARCHED: usize = 64 * 1024;

/// The whitespace of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// Words that programs print for values that JSON does not have, with a hint for each.
const FOREIGN_WORDS: [(&str, &str); 10] = [
    ("NaN", "print null or a string instead"),
    ("-NaN", "print null or a string instead"),
    ("nan", "print null or a string instead"),
    ("Infinity", "print null or a string instead"),
    ("-Infinity", "print null or a string instead"),
    ("inf", "print null or a string instead"),
    ("None", "print JSON, in Python with `json.dumps`"),
    ("True", "print JSON, in Python with `json.dumps`"),
    ("False", "print JSON, in Python with `json.dumps`"),
    ("undefined", "print JSON, in JavaScript with `JSON.stringify`"),
];

/// The diagnosis of `bytes`, which do not match `protocol`.
pub(super) fn diagnose(protocol: Protocol, bytes: &[u8]) -> Stdout {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            let (problem, at) = problem(protocol, text);
            Stdout::Unusable { problem, found: excerpt(bytes, at) }
        }
        Err(error) => not_utf8(bytes, error.valid_up_to(), 0),
    }
}

/// The diagnosis of `bytes` with invalid UTF-8 at `at`; `before` bytes of stdout precede them.
pub(super) fn not_utf8(bytes: &[u8], at: usize, before: u64) -> Stdout {
    let problem = format!("stdout is not UTF-8: byte 0x{:02x} at offset {}", bytes[at], before + at as u64);
    Stdout::Unusable { problem, found: excerpt(bytes, at.saturating_sub(EXCERPT / 4)) }
}

/// The problem, and the offset at which the excerpt starts.
fn problem(protocol: Protocol, text: &str) -> (String, usize) {
    if text.is_empty() {
        return (Stdout::EMPTY.to_owned(), 0);
    }
    let body = text.trim_start_matches(BLANKS);
    let start = text.len() - body.len();
    if body.is_empty() {
        return (Stdout::BLANK.to_owned(), 0);
    }
    if body.starts_with('\u{feff}') {
        return ("a byte order mark before the JSON document; print plain UTF-8".to_owned(), start);
    }
    let mut stream = Deserializer::from_str(body).into_iter::<&RawValue>();
    match stream.next() {
        Some(Ok(first)) => {
            let end = stream.byte_offset();
            let rest = body[end..].trim_start_matches(BLANKS);
            if rest.is_empty() {
                (wrong_document(protocol, first.get()), start)
            } else {
                after_first(protocol, first.get(), text, text.len() - rest.len())
            }
        }
        Some(Err(error)) => syntax(protocol, text, start, &error),
        None => (Stdout::BLANK.to_owned(), 0),
    }
}

/// Describes a single JSON value of the wrong kind.
fn wrong_document(protocol: Protocol, document: &str) -> String {
    let kind = match document.as_bytes().first() {
        Some(b'{') => return members(document),
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "`null`",
        _ => "a number",
    };
    match protocol {
        Protocol::Step => format!("{kind} instead of an object: print it as `{{\"output\": …}}`"),
        Protocol::Document | Protocol::Text => format!("{kind} that cannot be read"),
    }
}

fn members(document: &str) -> String {
    // A map cannot hold a repeated name, so a document that parses and has `output` has it twice.
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(document) {
        Err(error) => format!("stdout is not valid JSON: {error}"),
        Ok(members) if members.contains_key("output") => "the member `output` occurs twice".to_owned(),
        Ok(members) if members.is_empty() => "the JSON object is empty: it has no member `output`".to_owned(),
        Ok(members) => {
            let mut names = String::new();
            for name in members.keys().take(8) {
                let comma = if names.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                let _ = write!(names, "{comma}`{}`", visible(name, 40));
            }
            let more = if members.len() > 8 { format!(" and {} more", members.len() - 8) } else { String::new() };
            format!("the JSON object has no member `output`; it has {names}{more}")
        }
    }
}

/// Describes a JSON value followed by other text, which starts at `rest`.
fn after_first(protocol: Protocol, first: &str, text: &str, rest: usize) -> (String, usize) {
    let scalar = !first.starts_with(['{', '[']);
    if let Some(count) = values(&text[rest..]) {
        let count = if count < CANDIDATES { (count + 1).to_string() } else { "many".to_owned() };
        return (format!("{count} JSON values on stdout instead of one"), rest);
    }
    if document_start(protocol, text, rest).is_some() {
        return ("text before the JSON document; print diagnostics to stderr".to_owned(), 0);
    }
    if scalar {
        return (no_json(protocol), 0);
    }
    ("text after the JSON document; print diagnostics to stderr".to_owned(), rest)
}

/// Describes text without a JSON document. The hint names `output: text`.
fn no_json(protocol: Protocol) -> String {
    let remedy = if protocol == Protocol::Step { "; if the text is the output, set `output: text`" } else { "" };
    format!("stdout is text, not JSON{remedy}")
}

/// Number of JSON values in `text`, at most [`CANDIDATES`]; `None` if it contains anything else.
fn values(text: &str) -> Option<usize> {
    let mut count = 0;
    for value in Deserializer::from_str(text).into_iter::<IgnoredAny>().take(CANDIDATES) {
        value.ok()?;
        count += 1;
    }
    Some(count)
}

/// Describes a syntax error in the text from `start`.
fn syntax(protocol: Protocol, text: &str, start: usize, error: &Error) -> (String, usize) {
    let at = start + offset(&text[start..], error);
    let shown = at.saturating_sub(EXCERPT / 4).max(start);
    let (line, column) = position(text, at);
    if let Some((word, hint)) = foreign_word(text, at) {
        return (format!("`{word}` is not JSON, at line {line} column {column}; {hint}"), shown);
    }
    let opens = text[start..].starts_with(['{', '[']);
    if opens && text[at..].starts_with('\'') {
        let hint = "in Python print `json.dumps(…)`, not the object itself";
        return (format!("JSON has no single quotes, at line {line} column {column}; {hint}"), shown);
    }
    if error.classify() == Category::Eof {
        let end = text.trim_end_matches(BLANKS).len();
        return ("the JSON document is cut off: stdout ends inside it".to_owned(), end.saturating_sub(EXCERPT / 2));
    }
    if document_start(protocol, text, start + 1).is_some() {
        return ("text before the JSON document; print diagnostics to stderr".to_owned(), start);
    }
    if !opens && !text[start..].starts_with('"') {
        return (no_json(protocol), start);
    }
    let message = error.to_string();
    let closes = text[at..].starts_with(['}', ']']) && text[..at].trim_end_matches(BLANKS).ends_with(',');
    let message = if closes { "a comma before the closing bracket" } else { before_position(&message) };
    (format!("stdout is not valid JSON: {message} at line {line} column {column}"), shown)
}

/// A message of the parser without its position, which is relative to another start than the user's.
fn before_position(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or_default()
}

/// Offset, at `from` or later, of a JSON object (or of an array, if the protocol allows it) that extends to the end.
fn document_start(protocol: Protocol, text: &str, from: usize) -> Option<usize> {
    let opening: &[char] = if protocol == Protocol::Step { &['{'] } else { &['{', '['] };
    let (from, end) = (text.ceil_char_boundary(from), text.floor_char_boundary(from + SEARCHED));
    let places = text[from..end].match_indices(opening).map(|(at, _)| from + at);
    places.take(CANDIDATES).find(|at| serde_json::from_str::<&RawValue>(&text[*at..]).is_ok())
}

/// The foreign word at `at` with its hint, if there is one.
fn foreign_word(text: &str, at: usize) -> Option<(&'static str, &'static str)> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let begin = text[..at].trim_end_matches(in_word).len();
    let end = at + text[at..].find(|c| !in_word(c)).unwrap_or(text.len() - at);
    FOREIGN_WORDS.into_iter().find(|(word, _)| *word == &text[begin..end])
}

/// Offset of a parser error in `text`, on a character boundary.
fn offset(text: &str, error: &Error) -> usize {
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    text.floor_char_boundary(before + error.column().saturating_sub(1))
}

/// Line and column (in characters) of an offset, from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    (text[..at].matches('\n').count() + 1, text[line_start..at].chars().count() + 1)
}

/// A printable excerpt of `bytes` from `at`.
fn excerpt(bytes: &[u8], at: usize) -> String {
    let at = at.min(bytes.len());
    // Half a character is never shown: start at its first byte.
    let start =
        (at.saturating_sub(3)..=at).rev().find(|i| bytes.get(*i).is_none_or(|b| b & 0xc0 != 0x80)).unwrap_or(at);
    let end = bytes.len().min(start + EXCERPT * 4);
    let text = String::from_utf8_lossy(&bytes[start..end]);
    let shown = visible(&text, EXCERPT);
    let lead = if start == 0 { "" } else { "…" };
    format!("{lead}{shown}")
}

/// At most `limit` characters of `text` on one line: hidden characters, line breaks and tabs are escaped.
fn visible(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    let mut count = 0;
    for (at, c) in text.char_indices() {
        let is_escaped = c.is_control() || is_hidden(text, at, c);
        let piece = if is_escaped { c.escape_default().to_string() } else { c.to_string() };
        count += piece.chars().count();
        if count > limit {
            shown.push('…');
            break;
        }
        shown.push_str(&piece);
    }
    shown
}

#[cfg(test)]
mod tests;
