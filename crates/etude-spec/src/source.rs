//! Sources of definitions: files that the caller reads, and places in them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The files of one app that its definitions may see. Implemented outside this crate, which does no IO.
///
/// Paths are relative to the app's directory, with `/` between their parts and neither `.` nor `..` among them; the
/// empty path is the app's directory itself. An implementation answers [`ReadFailure::Outside`] for a path whose
/// symbolic links lead out of the app.
pub trait Sources: Sync {
    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// The reason why the file is not available.
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure>;

    /// Lists the direct entries of a directory, in any order.
    ///
    /// # Errors
    /// The reason why the directory is not available.
    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure>;

    /// Kind of the file at `path`.
    ///
    /// # Errors
    /// The reason why `path` is not available; [`ReadFailure::Missing`] if it does not exist.
    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure>;
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry, without the directory.
    pub name: String,
    /// Regular file, directory or neither.
    pub kind: FileKind,
}

/// The type of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File {
        /// True if any execute bit is set.
        executable: bool,
    },
    /// A directory.
    Dir,
    /// A socket, a pipe, a device.
    Other,
}

/// Reason why a file or directory cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFailure {
    /// The path does not exist.
    Missing,
    /// A symbolic link leads out of the app's directory.
    Outside,
    /// The path is not a regular file (or not a directory, where one is required).
    WrongKind,
    /// The file exceeds the size limit.
    TooLarge {
        /// The size in bytes.
        len: u64,
    },
    /// Any other reason, in the words of the operating system.
    Other(String),
}

/// A range of bytes in a [`SourceFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// End of the span: one past the last byte.
    pub end: u32,
}

impl Span {
    /// A span from byte offsets. Source files have at most 1 MiB, schemas 16 MiB: offsets always fit.
    pub fn new(start: usize, end: usize) -> Self {
        let fit = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { start: fit(start), end: fit(end.max(start)) }
    }

    /// The span as a range of bytes.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// True if the span covers no bytes.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The text of one file, with its name.
#[derive(Debug)]
pub struct SourceFile {
    path: String,
    text: String,
    lines: OnceLock<Vec<u32>>,
    /// Number of characters that begin before each block, so that a position in a long line is found without counting
    /// the whole line.
    blocks: OnceLock<Vec<u32>>,
}

/// Size of a block, in bytes.
const BLOCK: usize = 4096;

impl SourceFile {
    /// A file from its path, relative to the app's directory, and its text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { path: path.into(), text: text.into(), lines: OnceLock::new(), blocks: OnceLock::new() })
    }

    /// Path of the file, relative to the app's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The whole text; spans are offsets into it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of the text that `span` covers; empty if it lies outside.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub fn position(&self, byte: u32) -> (u32, u32) {
        let line = self.line(byte);
        let start = self.lines()[line as usize - 1] as usize;
        let until = self.text.floor_char_boundary((byte as usize).min(self.text.len()).max(start));
        let column = self.characters_before(until) - self.characters_before(start) + 1;
        (line, count(column))
    }

    /// The line of a byte, from 1.
    pub fn line(&self, byte: u32) -> u32 {
        count(self.lines().partition_point(|start| *start <= byte).max(1))
    }

    /// Number of characters that begin before byte `at`.
    fn characters_before(&self, at: usize) -> usize {
        let begun = |bytes: &[u8]| bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count();
        let blocks = self.blocks.get_or_init(|| {
            let mut total = 0;
            let blocks = self.text.as_bytes().chunks(BLOCK);
            let before = |block| {
                let before = total;
                total += begun(block);
                count(before)
            };
            blocks.map(before).collect()
        });
        let block = (at / BLOCK).min(blocks.len().saturating_sub(1));
        blocks.get(block).map_or(0, |before| *before as usize) + begun(&self.text.as_bytes()[block * BLOCK..at])
    }

    /// Byte range of line `line` (from 1), without its line break.
    pub fn line_range(&self, line: u32) -> Range<usize> {
        let lines = self.lines();
        let at = (line.max(1) as usize - 1).min(lines.len() - 1);
        let start = lines[at] as usize;
        let end = lines.get(at + 1).map_or(self.text.len(), |next| *next as usize);
        let text = self.text[start..end].trim_end_matches(['\n', '\r']);
        start..start + text.len()
    }

    fn lines(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let breaks = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(breaks.map(|(at, _)| count(at + 1))).collect()
        })
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl PartialEq for SourceFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl PartialOrd for SourceFile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.path.cmp(&other.path))
    }
}

impl fmt::Display for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// Joins `path` to `dir`, both with `/`, and removes `.` and `..`; `None` if the result leaves the app.
pub fn join(dir: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('\\') && path.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in dir.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

/// True if a file begins with the byte order mark of UTF-16, which is never UTF-8.
pub(crate) fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Files held in memory, for tests and for definitions without files.
#[derive(Debug, Clone, Default)]
pub struct MemorySources {
    files: BTreeMap<String, (Vec<u8>, bool)>,
    dirs: std::collections::BTreeSet<String>,
}

impl MemorySources {
    /// An app without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, with the directories above it.
    #[must_use]
    pub fn with(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.add(path, content.into(), false);
        self
    }

    /// Adds an executable file, with the directories above it.
    #[must_use]
    pub fn with_executable(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.add(path, content.into(), true);
        self
    }

    /// Adds an empty directory.
    #[must_use]
    pub fn with_dir(mut self, path: &str) -> Self {
        self.add_dirs(path);
        self
    }

    fn add(&mut self, path: &str, content: Vec<u8>, executable: bool) {
        if let Some((dir, _)) = path.rsplit_once('/') {
            self.add_dirs(dir);
        }
        self.files.insert(path.to_owned(), (content, executable));
    }

    fn add_dirs(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        self.dirs.extend(ends.map(|end| path[..end].to_owned()));
    }
}

impl Sources for MemorySources {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        match self.files.get(path) {
            Some((content, _)) if content.len() as u64 > limit => {
                Err(ReadFailure::TooLarge { len: content.len() as u64 })
            }
            Some((content, _)) => Ok(content.clone()),
            None if self.dirs.contains(path) => Err(ReadFailure::WrongKind),
            None => Err(ReadFailure::Missing),
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        if !dir.is_empty() && !self.dirs.contains(dir) {
            return Err(if self.files.contains_key(dir) { ReadFailure::WrongKind } else { ReadFailure::Missing });
        }
        let inside = |path: &str| {
            let rest = if dir.is_empty() { path } else { path.strip_prefix(dir)?.strip_prefix('/')? };
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
        };
        let files = self.files.iter().filter_map(|(path, (_, executable))| {
            Some(Entry { name: inside(path)?, kind: FileKind::File { executable: *executable } })
        });
        let dirs = self.dirs.iter().filter_map(|path| Some(Entry { name: inside(path)?, kind: FileKind::Dir }));
        Ok(files.chain(dirs).collect())
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        match self.files.get(path) {
            Some((_, executable)) => Ok(FileKind::File { executable: *executable }),
            None if path.is_empty() || self.dirs.contains(path) => Ok(FileKind::Dir),
            None => Err(ReadFailure::Missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-2.2: line and column count from 1, and columns count characters.
    #[test]
    fn columns_count_characters() {
        let file = SourceFile::new("x", "é: ü\nab\r\n\nz");
        assert_eq!(file.position(0), (1, 1));
        assert_eq!(file.position(4), (1, 4));
        assert_eq!(file.position(7), (2, 1));
        assert_eq!(file.position(12), (4, 1));
        assert_eq!(file.position(99), (4, 2));
        let long = SourceFile::new("x", "\n".to_owned() + &"aé".repeat(10_000));
        for pairs in [0, 1, 1365, 1366, 4096, 9999] {
            assert_eq!(long.position(1 + 3 * pairs), (2, 1 + 2 * pairs), "{pairs}");
        }
        assert_eq!(SourceFile::new("x", "").position(5), (1, 1));
        assert_eq!(&file.text()[file.line_range(2)], "ab");
    }

    /// a path that leaves the app is refused.
    #[test]
    fn a_path_that_leaves_the_app_is_refused() {
        assert_eq!(join("pipelines/p", "schemas/a.json").as_deref(), Some("pipelines/p/schemas/a.json"));
        assert_eq!(join("pipelines/p", "./../../tools/x").as_deref(), Some("tools/x"));
        assert_eq!(join("pipelines/p", "../../../x"), None);
        assert_eq!(join("pipelines/p", "/etc/passwd"), None);
    }
}
