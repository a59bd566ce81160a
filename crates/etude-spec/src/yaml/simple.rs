//! Fast reader for the part of YAML that nearly every definition uses.
//!
//! It reads block mappings and lists, plain and quoted scalars on one line, flow collections on one line, and comments
//! on their own lines. Anything else gives `None`, and the full parser decides. Both readers agree on all texts read
//! here, which a test checks on thousands of texts. A folder of a thousand skills is checked in a fraction of the time
//! that way.

use std::borrow::Cow;

use crate::source::Span;
use crate::yaml::node::{Entries, Node, Scalar, Style, Value};

/// Maximum nesting depth; deeper values go to the parser.
const MAX_DEPTH: usize = 24;

/// Maximum number of keys; larger mappings go to the parser, because keys are compared one by one here.
const MAX_KEYS: usize = 48;

/// Reads `text`, which begins at byte `base` of its file; `None` if the text is not simple enough.
pub(super) fn read(text: &str, base: usize) -> Option<Node<'_>> {
    let mut reader = Reader { text, base, lines: lines(text)?, at: 0, depth: 0 };
    let indent = reader.lines.first()?.indent;
    let root = reader.block(indent)?;
    (reader.at == reader.lines.len()).then_some(root)
}

/// A line that is not blank.
struct Line {
    /// Number of blanks before it; after a dash, the column of the next text.
    indent: usize,
    start: usize,
    /// End without trailing blanks.
    end: usize,
}

fn lines(text: &str) -> Option<Vec<Line>> {
    let bytes = text.as_bytes();
    // Without a branch for each byte, so that the compiler looks at many of them at once.
    let (is_control, is_ascii) = bytes.iter().fold((false, true), |(is_control, is_ascii), byte| {
        let is_this = (*byte < b' ') & (*byte != b'\n') | (*byte == 0x7f);
        (is_control | is_this, is_ascii & byte.is_ascii())
    });
    let is_odd = |c: char| {
        c != '\n' && (c.is_control() || matches!(c, '\u{feff}' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{fffe}'..))
    };
    if is_control || (!is_ascii && text.contains(is_odd)) {
        return None;
    }
    let mut lines = Vec::with_capacity(16);
    let mut start = 0;
    while start < bytes.len() {
        let next = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        let line = &bytes[start..next];
        let is_text = |byte: &u8| *byte != b' ';
        if let (Some(indent), Some(last)) = (line.iter().position(is_text), line.iter().rposition(is_text))
            && line[indent] != b'#'
        {
            lines.push(Line { indent, start: start + indent, end: start + last + 1 });
        }
        start = next + 1;
    }
    Some(lines)
}

struct Reader<'s> {
    text: &'s str,
    base: usize,
    lines: Vec<Line>,
    at: usize,
    depth: usize,
}

impl<'s> Reader<'s> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.base + start, self.base + end)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn scalar(&self, start: usize, end: usize, style: Style) -> Node<'s> {
        let quotes = usize::from(style != Style::Plain);
        let text = Cow::Borrowed(&self.text[start + quotes..end - quotes]);
        Node { value: Value::Scalar(Scalar { text, style }), span: self.span(start, end) }
    }

    /// An omitted value at `at`.
    fn nothing(&self, at: usize) -> Node<'s> {
        Node { value: Value::Scalar(Scalar { text: Cow::Borrowed("~"), style: Style::Plain }), span: self.span(at, at) }
    }

    /// Reads the value that begins on this line, at `indent`.
    fn block(&mut self, indent: usize) -> Option<Node<'s>> {
        let line = self.lines.get(self.at)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH || line.indent != indent {
            return None;
        }
        let (start, end) = (line.start, line.end);
        let node = if self.is_item(start, end) { self.list(indent) } else { self.mapping(indent) };
        self.depth -= 1;
        node
    }

    fn is_item(&self, start: usize, end: usize) -> bool {
        self.byte(start) == Some(b'-') && (end == start + 1 || self.byte(start + 1) == Some(b' '))
    }

    fn mapping(&mut self, indent: usize) -> Option<Node<'s>> {
        let mut entries: Vec<(Node<'s>, Node<'s>)> = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            if line.indent != indent || (self.is_item(line.start, line.end) && !entries.is_empty()) {
                break;
            }
            let (start, end) = (line.start, line.end);
            let colon = self.key(start, end)?;
            if colon + 1 < end && self.byte(colon + 1) != Some(b' ') {
                return None;
            }
            let key = self.scalar(start, colon, Style::Plain);
            if entries.len() == MAX_KEYS || entries.iter().any(|(known, _)| known.key() == key.key()) {
                return None;
            }
            let value = self.after(colon + 1, end, indent, true)?;
            entries.push((key, value));
        }
        let (first, last) = (entries.first()?.0.span.start, entries.last()?);
        let end = last.1.span.end.max(last.0.span.end);
        Some(Node { value: Value::Map(Entries(entries)), span: Span { start: first, end } })
    }

    fn list(&mut self, indent: usize) -> Option<Node<'s>> {
        let mut items: Vec<Node<'s>> = Vec::new();
        let first = self.lines.get(self.at)?.start;
        while let Some(line) = self.lines.get(self.at) {
            if line.indent != indent || !self.is_item(line.start, line.end) {
                break;
            }
            let (start, end) = (line.start, line.end);
            let inner = start + 1 + self.text[start + 1..end].bytes().take_while(|byte| *byte == b' ').count();
            let is_collection = inner < end
                && (self.is_item(inner, end) || self.key(inner, end).is_some_and(|at| self.is_colon(at, end)));
            items.push(if is_collection {
                // A collection that begins after the dash is indented by its own column.
                let column = indent + (inner - start);
                self.lines[self.at] = Line { indent: column, start: inner, end };
                self.block(column)?
            } else {
                self.after(start + 1, end, indent, false)?
            });
        }
        let last = items.last()?.span.end;
        let span = self.span(first, first);
        Some(Node { value: Value::Seq(items), span: Span { start: span.start, end: last.max(span.start) } })
    }

    fn is_colon(&self, at: usize, end: usize) -> bool {
        at + 1 == end || self.byte(at + 1) == Some(b' ')
    }

    /// Reads the value after a colon or a dash of this line, whose indentation is `indent`: on the line, or on the
    /// lines below.
    fn after(&mut self, from: usize, end: usize, indent: usize, is_entry: bool) -> Option<Node<'s>> {
        let start = from + self.text[from..end.max(from)].bytes().take_while(|byte| *byte == b' ').count();
        self.at += 1;
        let next = self.lines.get(self.at).map(|line| (line.indent, self.is_item(line.start, line.end)));
        if start < end {
            // Text that continues below is left to the parser.
            if next.is_some_and(|(next, _)| next > indent) {
                return None;
            }
            return self.inline(start, end);
        }
        match next {
            Some((next, _)) if next > indent => self.block(next),
            // The dashes of a list may stand at the column of its key.
            Some((next, true)) if next == indent && is_entry => {
                // For the parser such a list begins with its first value, if that follows its dash.
                if self.lines.get(self.at).is_some_and(|line| line.end == line.start + 1) {
                    return None;
                }
                let mut list = self.block(next)?;
                let Value::Seq(items) = &list.value else { return None };
                list.span.start = items.first()?.span.start;
                Some(list)
            }
            // For the parser such a value stands at the colon, or after the dash.
            _ if is_entry => Some(self.nothing(from - 1)),
            _ if matches!(self.byte(from), None | Some(b'\n')) => Some(self.nothing(from)),
            _ => None,
        }
    }

    /// Position of the colon after a plain key.
    fn key(&self, start: usize, end: usize) -> Option<usize> {
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'/');
        let bytes = &self.text.as_bytes()[start..end];
        if !is_key(*bytes.first()?) {
            return None;
        }
        let length = bytes.iter().take_while(|byte| is_key(**byte) || **byte == b'-').count();
        (bytes.get(length) == Some(&b':')).then_some(start + length)
    }

    /// Reads a scalar or flow collection that is the rest of its line.
    fn inline(&mut self, start: usize, end: usize) -> Option<Node<'s>> {
        let text = &self.text[start..end];
        match text.as_bytes()[0] {
            b'[' | b'{' => {
                let (node, at) = self.flow(start, end, 0)?;
                (at == end).then_some(node)
            }
            b'"' | b'\'' => {
                let (node, at) = self.quoted(start, end)?;
                (at == end).then_some(node)
            }
            first => {
                let is_signed = first == b'-' && text.as_bytes().get(1).is_some_and(u8::is_ascii_alphanumeric);
                let is_indicator = b"-?:,[]{}#&*!|>%@`".contains(&first) && !is_signed;
                let is_break = |pair: &[u8]| pair == b": " || pair == b" #";
                let is_odd = is_indicator || text.ends_with(':') || text.as_bytes().windows(2).any(is_break);
                (!is_odd).then(|| self.scalar(start, end, Style::Plain))
            }
        }
    }

    /// Reads a quoted text without escapes, and returns its end.
    fn quoted(&self, start: usize, end: usize) -> Option<(Node<'s>, usize)> {
        let quote = self.byte(start)?;
        let style = if quote == b'"' { Style::Double } else { Style::Single };
        let inner = &self.text.as_bytes()[start + 1..end];
        let close = inner.iter().position(|byte| *byte == quote)?;
        let at = start + 1 + close + 1;
        let is_escaped = inner[..close].contains(&b'\\') && style == Style::Double;
        (!is_escaped && self.byte(at).filter(|_| at < end) != Some(quote)).then(|| (self.scalar(start, at, style), at))
    }

    fn blanks(&self, at: usize, end: usize) -> usize {
        at + self.text[at..end].bytes().take_while(|byte| *byte == b' ').count()
    }

    /// Reads one value of a flow collection, and returns its end.
    fn flow(&self, start: usize, end: usize, depth: usize) -> Option<(Node<'s>, usize)> {
        match self.byte(start).filter(|_| start < end && depth < MAX_DEPTH)? {
            b'[' => self.flow_list(start, end, depth),
            b'{' => self.flow_mapping(start, end, depth),
            b'"' | b'\'' => self.quoted(start, end),
            _ => {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_$./".contains(&byte);
                let bytes = &self.text.as_bytes()[start..end];
                let is_signed = bytes[0] == b'-' && bytes.get(1).is_some_and(u8::is_ascii_alphanumeric);
                if !is_word(bytes[0]) && !is_signed {
                    return None;
                }
                let length = bytes.iter().take_while(|byte| is_word(**byte) || b"-*()=@+~^ ".contains(byte)).count();
                let length = self.text[start..start + length].trim_end_matches(' ').len();
                Some((self.scalar(start, start + length, Style::Plain), start + length))
            }
        }
    }

    fn flow_list(&self, start: usize, end: usize, depth: usize) -> Option<(Node<'s>, usize)> {
        let mut items = Vec::new();
        let mut at = self.blanks(start + 1, end);
        while self.byte(at).filter(|_| at < end)? != b']' {
            let (item, after) = self.flow(at, end, depth + 1)?;
            items.push(item);
            at = self.comma(after, end, b']')?;
        }
        Some((Node { value: Value::Seq(items), span: self.span(start, at + 1) }, at + 1))
    }

    fn flow_mapping(&self, start: usize, end: usize, depth: usize) -> Option<(Node<'s>, usize)> {
        let mut entries: Vec<(Node<'s>, Node<'s>)> = Vec::new();
        let mut at = self.blanks(start + 1, end);
        while self.byte(at).filter(|_| at < end)? != b'}' {
            let colon = self.key(at, end)?;
            let key = self.scalar(at, colon, Style::Plain);
            if self.byte(colon + 1) != Some(b' ')
                || entries.len() == MAX_KEYS
                || entries.iter().any(|(known, _)| known.key() == key.key())
            {
                return None;
            }
            let (value, after) = self.flow(self.blanks(colon + 1, end), end, depth + 1)?;
            entries.push((key, value));
            at = self.comma(after, end, b'}')?;
        }
        Some((Node { value: Value::Map(Entries(entries)), span: self.span(start, at + 1) }, at + 1))
    }

    /// Position of the next value or of the end of a flow collection.
    fn comma(&self, at: usize, end: usize, close: u8) -> Option<usize> {
        let at = self.blanks(at, end);
        match self.byte(at).filter(|_| at < end)? {
            b',' => Some(self.blanks(at + 1, end)),
            byte => (byte == close).then_some(at),
        }
    }
}

#[cfg(test)]
mod tests;
