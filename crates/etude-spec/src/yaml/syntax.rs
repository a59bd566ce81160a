//! Errors of the YAML parser, in helpful words.

use std::sync::Arc;

use granit_parser::{ErrorKind, ScanError};

use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};
use crate::wording::quoted;
use crate::yaml::build::MAX_DEPTH;
use crate::yaml::diagnose;

/// Diagnostic for an error of the parser in `text`, which begins at byte `base` of `file`.
pub(crate) fn diagnose(file: &Arc<SourceFile>, text: &str, base: usize, error: &ScanError) -> Diagnostic {
    let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    let at = text.floor_char_boundary(at);
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        let end = text.ceil_char_boundary((at + 1).min(text.len()));
        return diagnose::too_deep(file, Span::new(base + at, base + end), MAX_DEPTH);
    }
    let line = line_around(text, at);
    let before = text[..line.start].trim_end_matches(['\n', '\r']);
    let previous = line_around(text, before.len());
    for range in [line.clone(), previous] {
        if let Some((span, why, hint)) = line_fault(text, range, at) {
            return diagnose::syntax(file, Span::new(base + span.0, base + span.1), &why, Some(hint));
        }
    }
    let quoted = matches!(
        error.kind(),
        ErrorKind::UnclosedQuotedScalar
            | ErrorKind::DocumentIndicatorInQuotedScalar
            | ErrorKind::InvalidQuotedScalarIndent
            | ErrorKind::UnexpectedEof
    );
    if let Some(open) = opening_quote(&text[..at]).filter(|_| quoted) {
        let hint = "add the closing quote at the end of the text";
        return diagnose::syntax(
            file,
            Span::new(base + open, base + open + 1),
            "a quoted text is not closed",
            Some(hint.into()),
        );
    }
    if let Some(open) = opening_bracket(&text[..at]).filter(|_| *error.kind() == ErrorKind::InvalidColonPlacement) {
        let (bracket, close) = if text[open..].starts_with('[') { ('[', ']') } else { ('{', '}') };
        let (why, hint) = (format!("`{bracket}` is not closed"), format!("add the closing `{close}`"));
        return diagnose::syntax(file, Span::new(base + open, base + open + 1), &why, Some(hint));
    }
    // At the end of a file there is nothing to underline, so the last line with text is marked.
    let at = if text[at..].trim().is_empty() { text.trim_end().len().saturating_sub(1) } else { at };
    let at = text.floor_char_boundary(at);
    let width = text[at..].chars().next().map_or(0, char::len_utf8);
    let (why, hint) = words(error, &text[line]);
    diagnose::syntax(file, Span::new(base + at, base + at + width), &why, hint)
}

/// The quote that opened the text at the end of `before`: the last one on the last line with an odd number.
fn opening_quote(before: &str) -> Option<usize> {
    let mut end = before.len();
    for line in before.lines().rev() {
        let start = line.as_ptr() as usize - before.as_ptr() as usize;
        let odd = ['"', '\''].into_iter().find(|quote| line.matches(*quote).count() % 2 == 1);
        if let Some(quote) = odd {
            return before[start..end].rfind(quote).map(|at| start + at);
        }
        end = start;
    }
    None
}

/// The innermost bracket that is open at the end of `before`.
fn opening_bracket(before: &str) -> Option<usize> {
    let mut closed = 0_usize;
    for (at, byte) in before.bytes().enumerate().rev() {
        match byte {
            b']' | b'}' => closed += 1,
            b'[' | b'{' if closed == 0 => return Some(at),
            b'[' | b'{' => closed -= 1,
            _ => {}
        }
    }
    None
}

fn line_around(text: &str, at: usize) -> std::ops::Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let end = text[at..].find('\n').map_or(text.len(), |n| at + n);
    start..end
}

type Fault = ((usize, usize), String, String);

/// A fault that is visible in one line: a tab, a missing blank after a colon, a value that must be quoted.
fn line_fault(text: &str, range: std::ops::Range<usize>, at: usize) -> Option<Fault> {
    let line = &text[range.clone()];
    let indent = line.len() - line.trim_start().len();
    if let Some(tab) = line[..indent].find('\t') {
        let place = (range.start + tab, range.start + indent);
        return Some((
            place,
            "a tab is used for indentation".into(),
            "indent with spaces: YAML allows no tabs here".into(),
        ));
    }
    let start =
        indent + line[indent..].strip_prefix("- ").map_or(0, |rest| line.len() - indent - rest.trim_start().len());
    let body = &line[start..];
    let key = &body[..body.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(body.len())];
    let rest = &body[key.len()..];
    if key.is_empty() || !rest.starts_with(':') {
        return None;
    }
    let value = &rest[1..];
    let place = |from: usize, to: usize| (range.start + start + from, range.start + start + to);
    if !value.is_empty() && !value.starts_with([' ', '\t', ':', '/']) {
        let why = format!("a space is missing after the colon of `{key}`");
        return Some((place(0, key.len() + 1), why, format!("write {}", quoted(&format!("{key}: {value}")))));
    }
    let scalar = value.trim();
    let from = key.len() + 1 + (value.len() - value.trim_start().len());
    let is_plain = !scalar.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#']);
    if is_plain && (scalar.contains(": ") || scalar.ends_with(':')) && at >= range.start {
        let why = format!("the value of `{key}` contains a colon and is not quoted");
        return Some((place(from, from + scalar.len()), why, in_quotes(key, scalar)));
    }
    if scalar.starts_with("{{") {
        let why = format!("the value of `{key}` begins with `{{{{` and is not quoted");
        return Some((place(from, from + scalar.len()), why, in_quotes(key, scalar)));
    }
    if scalar.starts_with(['@', '`', '%']) {
        let why = format!("the value of `{key}` begins with {}, which YAML reserves", quoted(&scalar[..1]));
        return Some((place(from, from + 1), why, in_quotes(key, scalar)));
    }
    None
}

/// The words for text after the quote that ends a value.
fn after_quote(kind: &ErrorKind, line: &str) -> (String, Option<String>) {
    let is_single = *kind == ErrorKind::InvalidTrailingSingleQuotedScalar;
    let (quote, other, doubled) = if is_single { ('\'', '"', "''") } else { ('"', '\'', "\\\"") };
    let key = line.trim_start().trim_start_matches("- ").split(':').next().unwrap_or_default();
    let block = format!("write the text as a block: `{key}: |`, and the text on the next line, indented further");
    let is_block = !key.contains(['{', '[', '"', '\'', ' ']) && !key.is_empty();
    let hint = match line.contains(other) {
        false => format!("put the whole text in `{other}`, or write `{doubled}` for a quote inside it"),
        true if is_block => block,
        true => format!("write `{doubled}` for a quote inside the text"),
    };
    (format!("text follows the `{quote}` that ends the value"), Some(hint))
}

/// The hint on a value that must be quoted. A text with both kinds of quotes would need escapes, so it goes into a block.
fn in_quotes(key: &str, scalar: &str) -> String {
    if scalar.contains('"') && scalar.contains('\'') {
        return format!("write it as a block: `{key}: |`, and the text on the next line, indented further");
    }
    let quote = if scalar.contains('"') { '\'' } else { '"' };
    format!("put it in quotes: `{key}: {quote}…{quote}`")
}

/// The parser's own words, with better ones for the most common errors.
fn words(error: &ScanError, line: &str) -> (String, Option<String>) {
    let hint = match error.kind() {
        ErrorKind::UnclosedFlowCollection { open } | ErrorKind::MismatchedFlowCollectionEnd { open, .. } => {
            let close = if *open == '[' { ']' } else { '}' };
            return (format!("`{open}` is not closed"), Some(format!("add the closing `{close}`")));
        }
        ErrorKind::UnexpectedEofFlowSequence | ErrorKind::ExpectedFlowSequenceSeparator => {
            Some("close the list with `]`, and separate its elements with `,`".into())
        }
        ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator => Some(
            "close the mapping with `}`, and separate its entries with `,`; text with braces must be quoted".into(),
        ),
        ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            return after_quote(error.kind(), line);
        }
        ErrorKind::UnknownQuotedScalarEscape => {
            Some("in double quotes a backslash is written `\\\\`; single quotes keep it unchanged".into())
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart => Some("use spaces: YAML allows no tabs here".into()),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => Some(format!(
            "every entry of a mapping has the form `key: value`; {} has no colon followed by a space",
            quoted(line.trim())
        )),
        ErrorKind::ExpectedBlockMappingKey | ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockSequenceEntry => {
            Some("the lines of one mapping or list must be indented alike".into())
        }
        _ => None,
    };
    (error.info().to_lowercase().trim_end_matches('.').to_owned(), hint)
}
