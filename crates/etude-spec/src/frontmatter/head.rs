//! The frontmatter at the start of a Markdown file, found without reading the body (C-1.3, C-2.3).

use std::sync::Arc;

use crate::source::{SourceFile, Span, is_utf16};

/// Maximum size of frontmatter, in bytes (C-1.3).
pub const LIMIT: usize = 64 * 1024;

/// Frontmatter of a file whose body may not have been read.
#[derive(Debug, Clone)]
pub struct Head {
    /// The file, with its text up to the end of the frontmatter.
    pub file: Arc<SourceFile>,
    /// The YAML without its `---` lines; empty if there is a fault.
    pub yaml: Span,
    /// Start of the body, as a byte offset into the file.
    pub body: usize,
    /// True if the file begins with a byte order mark.
    pub has_bom: bool,
    /// Reason why there is no frontmatter.
    pub fault: Option<Fault>,
}

impl Head {
    /// Reads the frontmatter of a complete text.
    pub fn parse(path: &str, bytes: &[u8]) -> Self {
        match scan(path, bytes, true) {
            Scan::Done(head) => head,
            // A complete text has no further bytes.
            Scan::More => Self::parse(path, b""),
        }
    }
}

/// Reason why a file has no usable frontmatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The first line is not `---`.
    Missing,
    /// No later line is `---`.
    Unclosed,
    /// The frontmatter has more than [`LIMIT`] bytes.
    TooLarge,
    /// The frontmatter is not UTF-8.
    NotUtf8,
    /// The file begins with the byte order mark of UTF-16.
    Utf16,
}

/// Result of scanning the start of a file.
#[derive(Debug, Clone)]
pub enum Scan {
    /// The scan needs more of the file.
    More,
    /// The frontmatter is complete, or there is none.
    Done(Head),
}

/// Scans the first bytes of a file for the frontmatter; `complete` means that these are all. The first line must be
/// exactly `---`, and the frontmatter ends at the next such line. Trailing blanks of both lines do not count.
pub fn scan(path: &str, bytes: &[u8], complete: bool) -> Scan {
    let has_bom = bytes.starts_with(b"\xef\xbb\xbf");
    let start = if has_bom { 3 } else { 0 };
    let fault = |fault, until: usize| Scan::Done(head(path, &bytes[..until.min(bytes.len())], has_bom, fault));
    if is_utf16(bytes) {
        return fault(Fault::Utf16, 0);
    }
    let Some(open) = line_end(bytes, start) else {
        return match complete {
            false if bytes.len() <= LIMIT => Scan::More,
            _ if is_mark(&bytes[start..]) => fault(Fault::Unclosed, bytes.len()),
            _ => fault(Fault::Missing, LIMIT),
        };
    };
    if !is_mark(&bytes[start..open]) {
        return fault(Fault::Missing, open);
    }
    let mut at = open;
    loop {
        if at - open > LIMIT {
            return fault(Fault::TooLarge, open);
        }
        let (line, end) = match line_end(bytes, at) {
            Some(end) => (&bytes[at..end], end),
            None if !complete && bytes.len() - open <= LIMIT => return Scan::More,
            None => (&bytes[at..], bytes.len()),
        };
        if is_mark(line) && (complete || line.ends_with(b"\n")) {
            return Scan::Done(build(path, bytes, has_bom, open..at, end));
        }
        if end == bytes.len() && !line.ends_with(b"\n") || end == bytes.len() && complete {
            let why = if bytes.len() - open > LIMIT { Fault::TooLarge } else { Fault::Unclosed };
            return fault(why, open);
        }
        if end == bytes.len() {
            return if bytes.len() - open > LIMIT { fault(Fault::TooLarge, open) } else { Scan::More };
        }
        at = end;
    }
}

/// End of the line that begins at `at`, after its line break.
fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at..].iter().position(|byte| *byte == b'\n').map(|length| at + length + 1)
}

fn is_mark(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| rest.iter().all(|byte| b" \t\r\n".contains(byte)))
}

fn build(path: &str, bytes: &[u8], has_bom: bool, yaml: std::ops::Range<usize>, body: usize) -> Head {
    match std::str::from_utf8(&bytes[..body]) {
        Ok(text) => Head {
            file: SourceFile::new(path, text),
            yaml: Span::new(yaml.start, yaml.end),
            body,
            has_bom,
            fault: None,
        },
        Err(_) => Head { body, ..head(path, &bytes[..body], has_bom, Fault::NotUtf8) },
    }
}

fn head(path: &str, bytes: &[u8], has_bom: bool, fault: Fault) -> Head {
    let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let start = if has_bom { 3 } else { 0 };
    Head { file: SourceFile::new(path, valid), yaml: Span::new(start, start), body: start, has_bom, fault: Some(fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(text: &str) -> Head {
        Head::parse("SKILL.md", text.as_bytes())
    }

    /// C-1.3: the delimiter must be a whole line; both line endings are accepted.
    #[test]
    fn the_delimiter_is_a_line() {
        for (text, yaml, body) in [
            ("---\na: b --- c\n--- \nbody\n---\n", "a: b --- c\n", "body\n---\n"),
            ("---\r\na: b\r\n---\r\nbody", "a: b\r\n", "body"),
            ("\u{feff}---\na: b\n---", "a: b\n", ""),
            ("---\n---\n", "", ""),
        ] {
            let head = done(text);
            assert_eq!(head.fault, None, "{text:?}");
            assert_eq!((head.file.slice(head.yaml), &text[head.body..]), (yaml, body));
        }
    }

    /// C-1.3, C-2.9: each fault of frontmatter is distinguished.
    #[test]
    fn faults_are_distinguished() {
        assert_eq!(done("").fault, Some(Fault::Missing));
        assert_eq!(done("a: b\n").fault, Some(Fault::Missing));
        assert_eq!(done("\n---\na: b\n---\n").fault, Some(Fault::Missing));
        assert_eq!(done("---\na: b\n").fault, Some(Fault::Unclosed));
        assert_eq!(done("---").fault, Some(Fault::Unclosed));
        assert_eq!(done(&format!("---\n{}---\n", "k: v\n".repeat(20_000))).fault, Some(Fault::TooLarge));
        assert_eq!(Head::parse("x", b"---\na: \xe9\n---\n").fault, Some(Fault::NotUtf8));
        assert_eq!(Head::parse("x", b"\xff\xfe-\0-\0-\0\n\0").fault, Some(Fault::Utf16));
        assert_eq!(Head::parse("x", b"\xfe\xff\0-\0-\0-\0\n").fault, Some(Fault::Utf16));
    }

    /// C-2.3: a scan reads no more of a file than its frontmatter, and notices when it has enough.
    #[test]
    fn every_prefix_gives_the_same_answer_or_asks_for_more() {
        let text = "---\nname: x\ndescription: d\n---\nbody\n";
        for length in 0..=text.len() {
            match scan("x", &text.as_bytes()[..length], false) {
                Scan::More => assert!(length < 32, "{length}"),
                Scan::Done(head) => assert_eq!((head.fault, head.body), (None, 31), "{length}"),
            }
        }
    }
}
