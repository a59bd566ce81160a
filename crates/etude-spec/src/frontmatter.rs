//! Markdown files that begin with YAML: `---`, the YAML, `---`, the body.

mod head;

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Node, diagnose};

pub use head::{Fault, Head, LIMIT, Scan, scan};

/// Frontmatter and body of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The YAML without its `---` lines; `None` if the file does not begin with `---`.
    pub yaml: Option<Span>,
    /// The text after the frontmatter.
    pub body: Span,
}

/// Splits a file into frontmatter and body. The first line must be `---`; the YAML ends at the next line that is `---`
/// (B-F4, C-1.3).
///
/// # Errors
/// The YAML has no end.
pub fn split(file: &Arc<SourceFile>) -> Result<Parts, Box<Diagnostic>> {
    let text = file.text();
    let start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let end = text.len();
    let first = text[start..].split_inclusive('\n').next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Ok(Parts { yaml: None, body: Span::new(start, end) });
    }
    let open = start + first.len();
    if let Some((close, body)) = end_of_yaml(text, open) {
        return Ok(Parts { yaml: Some(Span::new(open, close)), body: Span::new(body, end) });
    }
    let why = "the YAML at the start of the file does not end";
    let hint = "add a line `---` after it".to_owned();
    Err(Box::new(diagnose::syntax(file, Span::new(start, start + 3), why, Some(hint))))
}

/// The line that ends the YAML starting at byte `open`: its start, and the start of the next line.
pub(crate) fn end_of_yaml(text: &str, open: usize) -> Option<(usize, usize)> {
    lines(text, open).find(|(_, line)| line.trim_end() == "---").map(|(at, line)| (at, at + line.len()))
}

/// Lines of `text` from byte `from` on, with their line breaks and start offsets.
pub(crate) fn lines(text: &str, from: usize) -> impl Iterator<Item = (usize, &str)> {
    let begin = move |at: &mut usize, line: &str| {
        *at += line.len();
        *at - line.len()
    };
    text[from..].split_inclusive('\n').scan(from, move |at, line| Some((begin(at, line), line)))
}

/// Parses the frontmatter of a split file; spans are offsets into the whole file.
pub fn parse<'s>(file: &'s Arc<SourceFile>, parts: &Parts) -> (Option<Node<'s>>, Vec<Diagnostic>) {
    match parts.yaml {
        Some(span) => yaml::parse_part(file, file.slice(span), span.start as usize),
        None => (None, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_split_and_places_count_from_the_start() {
        let file = SourceFile::new("SKILL.md", "---\nname: app\nbad: *x\n---\nDo it.\n---\n");
        let parts = split(&file).unwrap();
        assert_eq!(file.slice(parts.body), "Do it.\n---\n");
        let (root, diagnostics) = parse(&file, &parts);
        assert_eq!(root.unwrap().as_map().unwrap().get("name").unwrap().as_text(), Some("app"));
        assert_eq!(diagnostics[0].position(), Some((3, 6)));
    }

    /// B-F4: only a line that is exactly `---` ends the frontmatter; `...` ends a YAML document.
    #[test]
    fn a_line_of_dots_ends_no_frontmatter() {
        let file = SourceFile::new("stage.md", "---\nid: a\n...\nname: A\n --- \n---\nDo it.\n");
        let parts = split(&file).unwrap();
        assert_eq!(file.slice(parts.body), "Do it.\n");
        assert!(split(&SourceFile::new("stage.md", "---\nid: a\n...\nDo it.\n")).is_err());
    }

    #[test]
    fn a_file_without_frontmatter_is_all_body() {
        let file = SourceFile::new("SKILL.md", "Do it.\n");
        assert_eq!(split(&file).unwrap(), Parts { yaml: None, body: Span::new(0, 7) });
    }

    #[test]
    fn frontmatter_that_does_not_end_is_an_error() {
        let file = SourceFile::new("SKILL.md", "---\nname: app\n");
        assert!(split(&file).unwrap_err().message.contains("does not end"));
    }
}
