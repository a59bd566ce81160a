//! `Grep`: finds lines of files by a regular expression.

use std::fs::File;
use std::io;
use std::path::Path;

use etude_files::beneath::EntryKind;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};

use crate::builtin::text::{Unread, bytes, cut, is_binary};
use crate::builtin::{Stop, count, flag, number, object, text, walk};
use crate::confine::{Access, PathArgument};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Searches files line by line with a regular expression (Rust syntax: no look-around \
    and no back-references). Returns `path:line: text`, or with `mode` the paths or the counts alone, in alphabetical \
    order, without what `.gitignore` excludes and without binary files.";

/// Maximum number of lines in one result, including context.
const MAX_LINES: usize = 400;

pub(super) fn schema() -> Value {
    object(
        json!({
            "pattern": {"type": "string", "minLength": 1, "description": "The regular expression."},
            "path": {"type": "string", "minLength": 1, "description": "A file or folder; by default the app's."},
            "glob": {"type": "string", "minLength": 1, "description": "Only files whose path matches, such as `*.rs`."},
            "mode": {"enum": ["lines", "files", "count"], "description": "What is returned; by default `lines`."},
            "ignore_case": {"type": "boolean"},
            "context": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Lines shown around each match."},
        }),
        &["pattern"],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let start = path.existing(Access::Read)?;
    let glob = text(args, "glob").map(walk::pattern).transpose()?;
    let mut search = Search {
        regex: compile(text(args, "pattern").unwrap_or_default(), flag(args, "ignore_case"))?,
        mode: text(args, "mode").unwrap_or("lines").to_owned(),
        context: number(args, "context", 0),
        out: Vec::new(),
        matches: 0,
        files: 0,
        skipped: 0,
    };
    if start.as_dir().is_some() {
        walk::walk(&start, None, true, stop, |entry| {
            let shown = start.shown_below(entry.real);
            let matches = glob.as_ref().is_none_or(|glob| glob.is_match(entry.below));
            if entry.kind == EntryKind::File && matches && !stop.withheld.holds(path, entry.below) {
                search.file(entry.open(), &shown, stop)?;
            }
            Ok(!search.is_full())
        })?;
    } else if !stop.withheld.holds(path, Path::new("")) {
        search.file(start.open(), &start.to_string(), stop)?;
    }
    Ok(search.finish())
}

fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, ToolError> {
    let built = RegexBuilder::new(pattern).case_insensitive(ignore_case).size_limit(4 << 20).build();
    built.map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        ToolError::terminal("InputInvalid", format!("`{pattern}` is not a regular expression: {why}"))
    })
}

struct Search {
    regex: Regex,
    mode: String,
    context: usize,
    out: Vec<String>,
    matches: usize,
    files: usize,
    /// Number of files that are binary, too large or unreadable.
    skipped: usize,
}

impl Search {
    fn is_full(&self) -> bool {
        self.out.len() >= MAX_LINES
    }

    fn file(&mut self, file: io::Result<File>, shown: &str, stop: &Stop) -> Result<(), ToolError> {
        let content = match file.map_err(Unread::Failed).and_then(|file| bytes(file, stop)) {
            Ok(content) if !is_binary(&content) => content,
            Err(Unread::Stopped(error)) => return Err(error),
            _ => {
                self.skipped += 1;
                return Ok(());
            }
        };
        let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
        // Empty text after the last line break is not a line.
        let lines = if lines.last().is_some_and(|line| line.is_empty()) { &lines[..lines.len() - 1] } else { &lines };
        let hits: Vec<usize> = (0..lines.len()).filter(|at| self.regex.is_match(end(lines[*at]))).collect();
        if hits.is_empty() {
            return Ok(());
        }
        self.files += 1;
        self.matches += hits.len();
        match self.mode.as_str() {
            "files" => self.out.push(shown.to_owned()),
            "count" => self.out.push(format!("{shown}: {}", hits.len())),
            _ => self.lines(shown, lines, &hits),
        }
        Ok(())
    }

    fn lines(&mut self, shown: &str, lines: &[&[u8]], hits: &[usize]) {
        let mut next = 0;
        for hit in hits {
            let from = hit.saturating_sub(self.context).max(next);
            let to = (hit + self.context + 1).min(lines.len());
            if self.context > 0 && from > next && !self.out.is_empty() {
                self.out.push("--".to_owned());
            }
            for (at, line) in lines.iter().enumerate().take(to).skip(from) {
                if self.is_full() {
                    return;
                }
                let mark = if hits.binary_search(&at).is_ok() { ':' } else { '-' };
                let line = String::from_utf8_lossy(end(line));
                self.out.push(format!("{shown}{mark}{}{mark} {}", at + 1, cut(&line, 300)));
            }
            next = to.max(next);
        }
    }

    fn finish(mut self) -> String {
        if self.matches == 0 {
            self.out.push("[no line matches]".to_owned());
        } else if self.is_full() {
            let found = format!("{} in {}", count(self.matches, "match"), count(self.files, "file"));
            self.out.push(format!(
                "[cut after {MAX_LINES} lines, {found} so far; use a narrower pattern, `path` or `glob`, or `mode`: files]"
            ));
        }
        if self.skipped > 0 {
            self.out.push(format!("[{} not searched: binary, too large or not readable]", count(self.skipped, "file")));
        }
        self.out.join("\n")
    }
}

/// A line without its carriage return.
fn end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
