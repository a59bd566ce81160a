//! Files that an import reads: bounded in number, size and depth, and never through a link.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etude_convert::import::{Finding, ImportKind, MAX_BYTES, Source};
use etude_files::regular;

use crate::problem::Problem;

/// Maximum number of files, and maximum depth of nested directories.
const MAX_FILES: usize = 2_000;
const MAX_DEPTH: usize = 8;

/// Maximum size of all texts together, in bytes.
const MAX_TOTAL: usize = 64 << 20;

/// Files to import.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Files that are not read, with reasons.
    pub(super) findings: Vec<Finding>,
    sources: Vec<Source>,
    /// Total size of the texts, in bytes.
    bytes: usize,
    /// Folders that are not read.
    skipped: Vec<PathBuf>,
    /// Path of each file on disk.
    places: BTreeMap<String, PathBuf>,
}

/// Kinds with a folder of their own, in search order.
const IN_FOLDERS: [ImportKind; 2] = [ImportKind::ClaudeCode, ImportKind::Actions];

/// Gathers the files of a workflow file or folder, under the names that the user knows. `root` is the same path without links.
/// `from` selects the folder of a project that is read; without it, the first existing one.
pub(super) fn gather(given: &Path, root: &Path, from: Option<ImportKind>) -> Result<Gathered, Problem> {
    let mut gathered = Gathered::default();
    if root.is_file() {
        gathered.file(given.display().to_string(), root)?;
        return Ok(gathered);
    }
    let kinds: Vec<ImportKind> = from.map_or_else(|| IN_FOLDERS.to_vec(), |kind| vec![kind]);
    let there: Vec<(&str, ImportKind)> = kinds
        .into_iter()
        .filter_map(|kind| Some((kind.folder()?, kind)))
        .filter(|(folder, _)| is_straight(root, folder))
        .collect();
    let (dir, name) = match there.first() {
        Some((folder, _)) => (root.join(folder), given.join(folder)),
        None => (root.to_owned(), given.to_owned()),
    };
    if there.is_empty() && from.is_some_and(|kind| kind.folder().is_none()) {
        // Files of other programs do not belong to this import.
        gathered.skipped = IN_FOLDERS.iter().filter_map(|kind| kind.folder()).map(|folder| root.join(folder)).collect();
    }
    for (folder, kind) in there.iter().skip(1) {
        let reason = format!("only one folder is imported; import this one with `--from {}`", kind.word());
        gathered.find(&given.join(folder).display().to_string(), "the folder", &reason);
    }
    gathered.dir(&dir, &name.display().to_string(), 0)?;
    Ok(gathered)
}

impl Gathered {
    fn dir(&mut self, dir: &Path, name: &str, depth: usize) -> Result<(), Problem> {
        let broken = |e: io::Error| Problem::environment(format!("`{name}` cannot be read: {e}"));
        if depth > MAX_DEPTH {
            self.find(name, "the folder", "it is nested too deeply");
            return Ok(());
        }
        let mut entries = fs::read_dir(dir).map_err(broken)?.collect::<Result<Vec<_>, _>>().map_err(broken)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let own = entry.file_name();
            let shown = format!("{}/{}", name.trim_end_matches('/'), own.to_string_lossy());
            if own.to_str().is_none() {
                self.find(&shown, "the file", "its name is not UTF-8");
                continue;
            }
            let kind = entry.file_type().map_err(broken)?;
            if kind.is_symlink() {
                self.find(&shown, "the file", "it is a link");
            } else if kind.is_dir() {
                if self.skipped.contains(&entry.path()) {
                    continue;
                }
                self.dir(&entry.path(), &shown, depth + 1)?;
            } else {
                self.file(shown, &entry.path())?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: String, place: &Path) -> Result<(), Problem> {
        if self.sources.len() == MAX_FILES {
            return Err(
                Problem::usage(format!("there are more than {MAX_FILES} files")).hint("name a folder with fewer files")
            );
        }
        let text = match regular::read_text(place, MAX_BYTES) {
            Ok(text) => Some(text),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge) => None,
            Err(error) => {
                self.find(&name, "the file", &error.to_string());
                return Ok(());
            }
        };
        self.bytes += text.as_deref().map_or(0, str::len);
        if self.bytes > MAX_TOTAL {
            return Err(Problem::usage(format!("the files have more than {} MiB", MAX_TOTAL >> 20))
                .hint("name a folder with fewer files"));
        }
        self.places.insert(name.clone(), place.to_owned());
        self.sources.push(Source { path: name, text });
        Ok(())
    }

    fn find(&mut self, file: &str, what: &str, reason: &str) {
        self.findings.push(Finding {
            file: file.to_owned(),
            line: 1,
            what: what.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Kind of the files, taken from the first file that shows it.
    pub(super) fn kind(&self) -> Option<ImportKind> {
        let of_claude = |source: &Source| source.path.split('/').any(|part| part == ".claude");
        if self.sources.iter().any(of_claude) {
            return Some(ImportKind::ClaudeCode);
        }
        self.sources.iter().find_map(|source| ImportKind::detect(&source.path, source.text.as_deref()?))
    }

    /// Files of this kind; for workflows, only those with the right extensions.
    pub(super) fn sources_of(&self, kind: ImportKind) -> Vec<Source> {
        let is_workflow =
            |source: &&Source| [".yml", ".yaml", ".lobster", ".json"].iter().any(|end| source.path.ends_with(end));
        match kind {
            ImportKind::ClaudeCode => self.sources.clone(),
            _ if self.sources.len() == 1 => self.sources.clone(),
            _ => self.sources.iter().filter(is_workflow).cloned().collect(),
        }
    }

    /// Copies a file with its mode.
    pub(super) fn copy(&self, from: &str, to: &Path) -> io::Result<()> {
        let place = self.places.get(from).ok_or(io::ErrorKind::NotFound)?;
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(place, to).map(drop)
    }
}

/// True if `folder` is a directory below `root`, and no link is on the way.
fn is_straight(root: &Path, folder: &str) -> bool {
    let mut path = root.to_owned();
    folder.split('/').all(|name| {
        path.push(name);
        fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir())
    })
}
