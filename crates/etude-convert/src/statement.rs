//! Numbered statements of a `SKILL.md`: headings, list items, sentences, rows of tables and code blocks (1.6).

mod sentence;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::json;

/// Maximum number of statements of a skill.
pub const MAX_STATEMENTS: usize = 2_000;

/// One numbered part of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Number from 1 in file order.
    pub id: u32,
    /// First line in the file, from 1.
    pub line: u32,
    /// Text without the markers of its block; the code of a code block.
    pub text: String,
    /// Kind of block that it is.
    pub form: Form,
}

/// Kind of block of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A title of a section: `#` to `######`.
    Heading {
        /// Level, from 1 for the outermost.
        level: u8,
    },
    /// An item of a list, without the lists and code blocks inside it.
    Item,
    /// A sentence of a paragraph.
    Sentence,
    /// A row of a table.
    Row,
    /// A code block.
    Code {
        /// The first word after the fence, in lower case; empty without one.
        language: String,
    },
    /// A block of HTML.
    Html,
}

/// Splits the body of a skill, which begins at byte `body` of `file`.
///
/// # Errors
/// The number of statements, if there are more than [`MAX_STATEMENTS`].
pub fn split(file: &str, body: usize) -> Result<Vec<Statement>, usize> {
    let text = file.get(body..).unwrap_or_default();
    let mut splitter =
        Splitter { text, lines_before: count_lines(&file[..file.len() - text.len()]), ..Splitter::default() };
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        splitter.event(event, range);
    }
    splitter.flush();
    if splitter.found.len() > MAX_STATEMENTS { Err(splitter.found.len()) } else { Ok(splitter.found) }
}

/// Statements as JSON lines `{"id","line","text"}`: the form in which models see them (1.6).
pub fn lines(statements: &[Statement]) -> String {
    let line =
        |statement: &Statement| json!({"id": statement.id, "line": statement.line, "text": statement.text}).to_string();
    statements.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|byte| *byte == b'\n').count()).unwrap_or(u32::MAX)
}

/// Range of a block without text: every range extends it.
const NOTHING: Range<usize> = Range { start: usize::MAX, end: 0 };

/// Block of inline text that is not complete.
struct Pending {
    form: Form,
    range: Range<usize>,
}

#[derive(Default)]
struct Splitter<'t> {
    text: &'t str,
    lines_before: u32,
    found: Vec<Statement>,
    pending: Option<Pending>,
    /// Open code block: start, language, code.
    code: Option<(usize, String, String)>,
    /// Open containers, the innermost last: true for an item of a list.
    containers: Vec<bool>,
    /// Number of open block quotes.
    quotes: usize,
    /// A place in the text, and the number of lines that end before it.
    counted: (usize, u32),
}

impl Splitter<'_> {
    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                self.flush();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split_whitespace().next().unwrap_or_default().to_ascii_lowercase()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((range.start, language, String::new()));
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((start, language, code)) = self.code.take() {
                    self.push(Form::Code { language }, start, code.trim_end().to_owned());
                }
            }
            Event::Text(part) if self.code.is_some() => {
                if let Some((_, _, code)) = &mut self.code {
                    code.push_str(&part);
                }
            }
            Event::Start(tag) => self.start(&tag, range),
            Event::End(tag) => self.end(tag),
            Event::Rule => self.flush(),
            _ => self.inline(range),
        }
    }

    fn start(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Paragraph if self.is_in_item() => {}
            Tag::Paragraph => self.flush(),
            Tag::Heading { level, .. } => self.open(Form::Heading { level: *level as u8 }),
            Tag::HtmlBlock => self.open(Form::Html),
            Tag::TableHead | Tag::TableRow => self.open(Form::Row),
            Tag::Item => {
                self.flush();
                self.containers.push(true);
            }
            Tag::List(_) | Tag::Table(_) => self.flush(),
            Tag::BlockQuote(_) => {
                self.flush();
                self.containers.push(false);
                self.quotes += 1;
            }
            _ => self.inline(range),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph if self.is_in_item() => {}
            TagEnd::Item => {
                self.flush();
                self.containers.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.containers.pop();
                self.quotes -= 1;
            }
            TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::HtmlBlock | TagEnd::TableHead | TagEnd::TableRow => {
                self.flush();
            }
            _ => {}
        }
    }

    fn is_in_item(&self) -> bool {
        self.containers.last().copied().unwrap_or(false)
    }

    fn open(&mut self, form: Form) {
        self.flush();
        self.pending = Some(Pending { form, range: NOTHING });
    }

    fn inline(&mut self, range: Range<usize>) {
        let form = if self.is_in_item() { Form::Item } else { Form::Sentence };
        let pending = self.pending.get_or_insert(Pending { form, range: NOTHING });
        pending.range.start = pending.range.start.min(range.start);
        pending.range.end = pending.range.end.max(range.end);
    }

    fn flush(&mut self) {
        let Some(Pending { form, range }) = self.pending.take() else { return };
        let Some(raw) = self.text.get(range.clone()) else { return };
        let parts =
            if form == Form::Sentence { sentence::split(raw) } else { Vec::from([Range { start: 0, end: raw.len() }]) };
        for part in parts {
            let text = match form {
                Form::Html => raw.trim_end().to_owned(),
                _ => self.one_line(&raw[part.clone()]),
            };
            if !text.is_empty() {
                self.push(form.clone(), range.start + part.start, text);
            }
        }
    }

    /// Text on one line, without the marks of block quotes.
    fn one_line(&self, raw: &str) -> String {
        let line = |line: &str| match self.quotes {
            0 => line.trim().to_owned(),
            _ => line.trim_start_matches([' ', '>']).trim_end().to_owned(),
        };
        let lines: Vec<String> = raw.lines().map(line).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    }

    fn push(&mut self, form: Form, start: usize, text: String) {
        let id = u32::try_from(self.found.len() + 1).unwrap_or(u32::MAX);
        // Statements come in order, except for a code block inside an item.
        let (at, lines) = if start < self.counted.0 { (0, 0) } else { self.counted };
        self.counted = (start, lines + count_lines(&self.text[at..start]));
        let line = self.lines_before + self.counted.1 + 1;
        self.found.push(Statement { id, line, text, form });
    }
}
