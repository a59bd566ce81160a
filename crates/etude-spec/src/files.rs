//! Files of an app: the text of definition files, and listings of the directories around them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnose::files as diagnose;
use crate::diagnostic::Diagnostic;
use crate::source::{FileKind, ReadFailure, SourceFile, Sources};

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
        ReadFailure::Outside => (diagnose::unreadable(path, "it lies outside the app's directory"), false),
        ReadFailure::WrongKind => (diagnose::unreadable(path, "it is not a regular file"), false),
        ReadFailure::Other(why) => (diagnose::unreadable(path, &why), false),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile::new(path, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let valid = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            Err((diagnose::not_utf8(path, &valid), false))
        }
    }
}

/// Name of a file next to `path` that ends in `.yml` instead of `.yaml`, if there is one.
pub(crate) fn misnamed(sources: &dyn Sources, path: &str) -> Option<String> {
    let other = format!("{}.yml", path.strip_suffix(".yaml")?);
    let is_file = matches!(sources.kind(&other), Ok(FileKind::File { .. }));
    is_file.then(|| other.rsplit_once('/').map_or(other.as_str(), |(_, name)| name).to_owned())
}

/// Text of a definition file that is known to exist.
pub(crate) fn source_text(sources: &dyn Sources, path: &str) -> Result<Arc<SourceFile>, Diagnostic> {
    source(sources, path).map_err(|(diagnostic, missing)| match missing {
        true => diagnose::unreadable(path, "it is no longer there"),
        false => diagnostic,
    })
}

/// Names of the files in the directory of `full`.
pub(crate) fn beside(sources: &dyn Sources, full: &str) -> Vec<String> {
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
