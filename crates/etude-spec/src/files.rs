//! Files of an app: the text of definition files, and listings of the directories around them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnose::files as diagnose;
use crate::diagnostic::Diagnostic;
use crate::source::{Entry, FileKind, ReadFailure, SourceFile, Sources};

/// Maximum size of a definition file, in bytes.
pub(crate) const MAX_SIZE: u64 = 1 << 20;

/// Maximum number of files below a directory that a run is pinned to.
const MAX_FILES: usize = 10_000;

/// Text of a definition file, or the fault, with true if a directory merely has no definition.
pub(crate) fn source(sources: &dyn Sources, path: &str) -> Result<Arc<SourceFile>, (Diagnostic, bool)> {
    let bytes = sources.read(path, MAX_SIZE).map_err(|failure| match failure {
        ReadFailure::Missing => {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            (diagnose::no_pipeline_file(dir, misnamed(sources, path).as_deref()), true)
        }
        ReadFailure::TooLarge { len } => (diagnose::too_large(path, len, MAX_SIZE), false),
        ReadFailure::Outside => (unreadable(path, "it lies outside the app's directory"), false),
        ReadFailure::WrongKind => (unreadable(path, "it is not a regular file"), false),
        ReadFailure::Other(why) => (unreadable(path, &why), false),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile::new(path, text)),
        Err(error) => Err((diagnose::not_utf8(path, error.as_bytes()), false)),
    }
}

fn unreadable(path: &str, why: &str) -> Diagnostic {
    diagnose::unreadable(path, why).hint("make it a regular file of the app that you can read, or remove it")
}

/// Entries of the directory `dir` of an app; none if it does not exist.
///
/// # Errors
/// The directory exists but cannot be listed.
pub(crate) fn entries_of(sources: &dyn Sources, dir: &str) -> Result<Vec<Entry>, Diagnostic> {
    let why = match sources.list(dir) {
        Ok(entries) => return Ok(entries),
        Err(ReadFailure::Missing) => return Ok(Vec::new()),
        Err(ReadFailure::WrongKind) => "it is not a directory".to_owned(),
        Err(ReadFailure::Outside) => "it lies outside the app's directory".to_owned(),
        Err(ReadFailure::Other(why)) => why,
        Err(ReadFailure::TooLarge { .. }) => "it cannot be listed".to_owned(),
    };
    Err(diagnose::unreadable(dir, &why).hint("make it a directory of the app that you can read, or remove it"))
}

/// Name of a file next to `path` that ends in `.yml` instead of `.yaml`, if there is one.
pub(crate) fn misnamed(sources: &dyn Sources, path: &str) -> Option<String> {
    let other = format!("{}.yml", path.strip_suffix(".yaml")?);
    let is_file = matches!(sources.kind(&other), Ok(FileKind::File { .. }));
    is_file.then(|| other.rsplit_once('/').map_or(other.as_str(), |(_, name)| name).to_owned())
}

/// Path of a file in `dir` that differs from `name` only in its case, if there is no file `name`.
pub(crate) fn miscased(sources: &dyn Sources, dir: &str, name: &str) -> Option<String> {
    let entries = sources.list(dir).unwrap_or_default();
    if entries.iter().any(|entry| entry.name == name) {
        return None;
    }
    let is_other =
        |entry: &&Entry| matches!(entry.kind, FileKind::File { .. }) && entry.name.eq_ignore_ascii_case(name);
    let found = entries.iter().find(is_other)?;
    Some(if dir.is_empty() { found.name.clone() } else { format!("{dir}/{}", found.name) })
}

/// Text of a definition file that is known to exist.
pub(crate) fn source_text(sources: &dyn Sources, path: &str) -> Result<Arc<SourceFile>, Diagnostic> {
    source(sources, path).map_err(|(diagnostic, missing)| match missing {
        true => diagnose::unreadable(path, "it is no longer there"),
        false => diagnostic,
    })
}

/// Names of the files in the directory of `full`.
pub(crate) fn siblings(sources: &dyn Sources, full: &str) -> Vec<String> {
    let dir = full.rsplit_once('/').map_or("", |(dir, _)| dir);
    let entries = sources.list(dir).unwrap_or_default();
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| matches!(entry.kind, FileKind::File { .. }))
        .map(|entry| entry.name)
        .collect();
    names.sort();
    names
}

/// Adds the regular files below `dir`, except hidden ones and caches of interpreters.
pub(crate) fn below(files: &mut BTreeSet<String>, sources: &dyn Sources, dir: &str) {
    let mut open = vec![dir.to_owned()];
    let mut looked_at = 0;
    while let Some(dir) = open.pop() {
        looked_at += 1;
        // Symbolic links that form a cycle would give an endless number of directories.
        if looked_at > MAX_FILES {
            return;
        }
        for entry in sources.list(&dir).unwrap_or_default() {
            if entry.name.starts_with('.') || entry.name == "__pycache__" || entry.name == "node_modules" {
                continue;
            }
            let path = format!("{dir}/{}", entry.name);
            match entry.kind {
                FileKind::File { .. } => drop(files.insert(path)),
                FileKind::Dir => open.push(path),
                FileKind::Other => {}
            }
            if files.len() >= MAX_FILES {
                return;
            }
        }
    }
}
