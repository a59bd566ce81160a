//! Files of the repository, read once, or made up by a test.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::rust::Source;

/// Files by path from the repository's root, with `/` separators. A file that is not UTF-8 has no text.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
    sources: OnceLock<Vec<Source>>,
}

/// A fault against a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path of the file, from the repository's root.
    pub path: String,
    /// Line number, from 1; 0 if the file as a whole is at fault.
    pub line: usize,
    /// Fault and remedy.
    pub what: String,
}

impl Violation {
    /// Creates a violation at a line.
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }

    /// Creates a violation of a whole file.
    pub fn of(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 0, what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Tree {
    /// Reads the repository: files that git tracks or would track, or without git everything but build output.
    pub fn of_repository() -> Self {
        let root = root();
        let paths = tracked(&root).unwrap_or_else(|| walked(&root));
        let read = |path: String| {
            let bytes = fs::read(root.join(&path)).ok()?;
            Some((path, String::from_utf8(bytes).ok()))
        };
        Self::new(paths.into_iter().filter_map(read).collect())
    }

    /// Builds a tree from paths and texts, for tests.
    pub fn made_up(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect())
    }

    fn new(files: BTreeMap<String, Option<String>>) -> Self {
        Self { files, sources: OnceLock::new() }
    }

    /// Sources of the product, parsed once.
    pub fn sources(&self) -> &[Source] {
        self.sources.get_or_init(|| Source::all(self))
    }

    /// Text of a file; `None` if it is missing or not UTF-8.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// All paths, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Files that have a text, sorted by path.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Files that have a text and whose path has this suffix.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| path.ends_with(end))
    }

    /// True for a file, and for a directory that contains one. The empty path is the root.
    pub fn has(&self, path: &str) -> bool {
        path.is_empty() || self.files.contains_key(path) || self.has_below(path)
    }

    /// True for a directory that contains a file.
    pub fn has_below(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        self.files.range(below.clone()..).next().is_some_and(|(path, _)| path.starts_with(&below))
    }
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(listed.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(root.join(&dir)) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && ![".git", "target"].contains(&path.as_str()) => dirs.push(path),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_the_same_sources_are_found() {
        let walked = walked(&root());
        for path in ["Cargo.toml", "crates/xtask/src/tree.rs"] {
            assert!(walked.iter().any(|found| found == path), "{path}");
        }
        assert!(walked.iter().all(|path| !path.starts_with("target/") && !path.starts_with(".git/")));
    }

    #[test]
    fn a_directory_is_known_by_what_lies_in_it() {
        let tree = Tree::made_up(&[("docs/adr/0001-a.md", ""), ("docs-old/x", "")]);
        assert!(tree.has("docs") && tree.has("docs/adr") && tree.has("docs/adr/0001-a.md") && tree.has(""));
        assert!(!tree.has("docs/ad") && !tree.has("doc"));
    }
}
