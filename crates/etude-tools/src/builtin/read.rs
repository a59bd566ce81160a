//! `Read`: shows lines of a text file, with their numbers.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use crate::builtin::{Stop, number, object, text::cut, text::is_binary, text::open};
use crate::confine::{Access, PathArgument};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Reads a text file and returns its lines, each with its number and a tab before it. \
    Up to 2000 lines at once; `offset` and `limit` choose others. Paths are relative to the app's folder.";

/// Maximum number of lines per call.
const MAX_LINES: usize = 2_000;

/// Maximum length of a line, in characters.
const MAX_LINE: usize = 2_000;

/// Maximum length of a result in bytes, below the limit of all results, so that the last line is always there.
const MAX_BYTES: usize = 60 * 1024;

/// Maximum number of bytes that are read only to count the lines.
const COUNTED: u64 = 64 << 20;

pub(super) fn schema() -> Value {
    object(
        json!({
            "path": {"type": "string", "minLength": 1, "description": "The file."},
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "description": "How many lines."},
        }),
        &["path"],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let place = path.existing(Access::Read)?;
    let failed = |error: std::io::Error| ToolError::failed(format!("`{place}` cannot be read: {error}"));
    let file = open(&place)?;
    let len = file.metadata().map_err(failed)?.len();
    let mut file = BufReader::with_capacity(64 * 1024, file);
    if is_binary(file.fill_buf().map_err(failed)?) {
        let message = format!("`{place}` is a binary file of {len} bytes; look at it with a program through `Bash`");
        return Err(ToolError::failed(message));
    }
    let (offset, limit) = (number(args, "offset", 1), number(args, "limit", MAX_LINES).min(MAX_LINES));
    let mut page = Page::default();
    let (mut line, mut read, mut lines) = (Vec::new(), 0_u64, 0_usize);
    loop {
        if lines % 1_024 == 0 || read > COUNTED {
            stop.check()?;
        }
        line.clear();
        // One line may be the whole of a large file: the part beyond the limit is skipped, not kept.
        let got = file.by_ref().take(1 << 20).read_until(b'\n', &mut line).map_err(failed)?;
        if got == 0 {
            break;
        }
        let mut total = got as u64;
        if line.last() != Some(&b'\n') && got == 1 << 20 {
            total += skip_line(&mut file, stop).map_err(failed)??;
            // The limit may split a character, which is not a fault of the file.
            if let Err(error) = std::str::from_utf8(&line)
                && error.error_len().is_none()
            {
                line.truncate(error.valid_up_to());
            }
        }
        (read, lines) = (read + total, lines + 1);
        if lines >= offset && page.has_room(limit) {
            page.push(lines, &line);
        } else if read > COUNTED && lines > offset {
            return Ok(page.finish(offset, None));
        }
    }
    if lines == 0 {
        return Ok("[the file is empty]".to_owned());
    }
    if offset > lines {
        return Err(ToolError::failed(format!("`{place}` has {lines} lines; `offset` is {offset}")));
    }
    Ok(page.finish(offset, Some(lines)))
}

/// Skips the rest of a line, and returns its length in bytes.
fn skip_line(file: &mut impl BufRead, stop: &Stop) -> std::io::Result<Result<u64, ToolError>> {
    let mut skipped = 0;
    loop {
        if let Err(error) = stop.check() {
            return Ok(Err(error));
        }
        let buffer = file.fill_buf()?;
        let (len, done) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        file.consume(len);
        skipped += len as u64;
        if done {
            return Ok(Ok(skipped));
        }
    }
}

/// Lines to show, with facts about the file.
#[derive(Default)]
struct Page {
    text: String,
    lines: usize,
    full: bool,
    /// True if a byte was not UTF-8.
    replaced: bool,
    crlf: bool,
}

impl Page {
    fn has_room(&self, limit: usize) -> bool {
        !self.full && self.lines < limit
    }

    fn push(&mut self, number: usize, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        self.crlf |= line.ends_with(b"\r");
        let shown = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        self.replaced |= matches!(shown, std::borrow::Cow::Owned(_));
        let shown = format!("{number:>6}\t{}\n", cut(&shown, MAX_LINE));
        if self.text.len() + shown.len() > MAX_BYTES {
            self.full = true;
        } else {
            self.text.push_str(&shown);
            self.lines += 1;
        }
    }

    fn finish(mut self, offset: usize, total: Option<usize>) -> String {
        let last = offset + self.lines - 1;
        let of = total.map_or_else(|| "many".to_owned(), |total| total.to_string());
        if total != Some(last) {
            self.text.push_str(&format!("[lines {offset} to {last} of {of}; go on with `offset`: {}]\n", last + 1));
        }
        if self.replaced {
            self.text.push_str("[some bytes are not UTF-8 and are shown as \u{fffd}]\n");
        }
        if self.crlf {
            self.text.push_str("[lines end in CR LF]\n");
        }
        self.text
    }
}
