//! Mapping from positions in a scalar's text to positions in the file.

use std::ops::Range;

use crate::source::{SourceFile, Span};
use crate::yaml::node::{Node, Style, Value};

/// Locator of positions of a scalar's text in the file. Positions must be requested in ascending order, so that any
/// number of them costs one pass over the scalar.
///
/// Quotes, escapes, indentation and folding only change blanks and line breaks, or stand for exactly one character. So
/// the n-th non-blank character of the text is the n-th one of the source.
pub struct Locator<'a> {
    text: &'a str,
    source: &'a str,
    start: usize,
    style: Style,
    at_text: usize,
    at_source: usize,
}

impl<'a> Locator<'a> {
    /// A locator for the scalar `node` of `file`; `None` for a list or mapping.
    pub fn new(file: &'a SourceFile, node: &'a Node<'_>) -> Option<Self> {
        let Value::Scalar(scalar) = &node.value else {
            return None;
        };
        let source = file.slice(node.span);
        let skipped = match scalar.style {
            // The parser's span of a block begins with its content, after the header.
            Style::Plain | Style::Block => 0,
            Style::Single | Style::Double => usize::from(source.starts_with(['"', '\''])),
        };
        Some(Self {
            text: &scalar.text,
            source,
            start: node.span.start as usize,
            style: scalar.style,
            at_text: 0,
            at_source: skipped,
        })
    }

    /// Span in the file of `range`, a byte range of the text.
    pub fn span(&mut self, range: Range<usize>) -> Span {
        let start = self.advance(range.start);
        // The end follows the last character of the range; the next character may lie further away.
        let last = self.text[..range.end.min(self.text.len())].char_indices().next_back().map_or(0, |(at, _)| at);
        let mut ahead = Self { ..*self };
        let last = ahead.advance(last.max(range.start));
        let end = last + ahead.width(last - self.start);
        Span::new(start, end.max(start))
    }

    /// Advances to byte `to` of the text and returns its position in the file.
    fn advance(&mut self, to: usize) -> usize {
        while self.at_text < to {
            let Some(c) = self.text[self.at_text..].chars().next() else {
                break;
            };
            if !c.is_whitespace() {
                self.skip_blanks();
                self.at_source += self.width(self.at_source);
            }
            self.at_text += c.len_utf8();
        }
        let next_is_blank = self.text[self.at_text..].chars().next().is_none_or(char::is_whitespace);
        if !next_is_blank {
            self.skip_blanks();
        }
        self.start + self.at_source.min(self.source.len())
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.source[self.at_source.min(self.source.len())..];
            let blanks = rest.len() - rest.trim_start().len();
            let escaped = self.style == Style::Double && is_escaped_blank(&rest[blanks..]);
            self.at_source += blanks + if escaped { 2 } else { 0 };
            if blanks == 0 && !escaped {
                return;
            }
        }
    }

    /// Number of source bytes that write the character at `at`.
    fn width(&self, at: usize) -> usize {
        let rest = &self.source[at.min(self.source.len())..];
        let mut chars = rest.chars();
        let width = match (self.style, chars.next(), chars.next()) {
            (_, None, _) => 0,
            (Style::Single, Some('\''), Some('\'')) => 2,
            (Style::Double, Some('\\'), Some(next)) => match next {
                'x' => 4,
                'u' => 6,
                'U' => 10,
                other => 1 + other.len_utf8(),
            },
            (_, Some(c), _) => c.len_utf8(),
        };
        // An escape that writes a blank (`\x20`) puts text and source out of step: then no width is certain.
        rest.floor_char_boundary(width)
    }
}

/// True for an escape of double quotes that writes a blank or nothing.
fn is_escaped_blank(source: &str) -> bool {
    let mut chars = source.chars();
    chars.next() == Some('\\')
        && matches!(chars.next(), Some('n' | 't' | 'r' | ' ' | '\n' | 'v' | 'f' | '_' | 'N' | 'L' | 'P' | '\t'))
}
