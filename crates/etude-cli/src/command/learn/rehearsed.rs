//! Copy of the app in which a candidate is checked before it is written, so that `learned/` contains only checked files.

use std::fs;
use std::io;
use std::path::Path;

use etude::Disk;
use etude_spec::discover::LEARNED;
use etude_spec::learned::TESTS;
use etude_spec::source::{Entry, FileKind, Sources};
use tempfile::TempDir;

use super::candidates::Files;
use crate::paths;
use crate::problem::Problem;

/// Limits of a copy: size of a file and of all files in bytes, and number of files and directories. No candidate needs more.
const MAX_SIZE: u64 = 4 << 20;
const MAX_BYTES: usize = 64 << 20;
const MAX_ENTRIES: usize = 4_000;
/// Directory of the tools.
const TOOLS: &str = "tools";
/// Maximum depth of files, since a link may lead to a directory above it.
const MAX_DEPTH: usize = 6;

/// An app with one candidate. Dropping this value deletes it.
pub(super) struct Rehearsed {
    pub(super) disk: Disk,
    _dir: TempDir,
}

impl Rehearsed {
    /// Copies the parts of the app that a candidate can use, and writes the candidate beside them.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn new(app: &Disk, name: &str, files: &Files) -> Result<Self, Problem> {
        let broken = |why: io::Error| Problem::environment(format!("the app cannot be copied for a check: {why}"));
        let dir = paths::scratch("learn").map_err(Problem::environment)?;
        let root = fs::canonicalize(dir.path()).map_err(broken)?;
        let mut left = Left { bytes: MAX_BYTES, entries: MAX_ENTRIES };
        copy(app, "", &root, (MAX_DEPTH, &mut left)).map_err(broken)?;
        for (path, text) in files {
            write(&root.join(LEARNED).join(name).join(path), text.as_bytes()).map_err(broken)?;
        }
        Ok(Self { disk: Disk::open(&root).map_err(broken)?, _dir: dir })
    }
}

/// Remaining budget of a copy.
struct Left {
    bytes: usize,
    entries: usize,
}

/// Directories that other programs keep in a project.
const NOT_COPIED: [&str; 4] = [".git", ".venv", "node_modules", "__pycache__"];

/// Copies the files below a directory of the app, without cases and candidates.
fn copy(app: &Disk, dir: &str, to: &Path, (depth, left): (usize, &mut Left)) -> io::Result<()> {
    let mut entries = app.list(dir).unwrap_or_default();
    // Files that every candidate needs come first: SKILL.md, etude.yaml, the tools.
    let is_later = |entry: &Entry| (entry.kind == FileKind::Dir, entry.name != TOOLS);
    entries.sort_unstable_by(|a, b| is_later(a).cmp(&is_later(b)).then_with(|| a.name.cmp(&b.name)));
    let is_apart = |name: &str| dir.is_empty() && [LEARNED, TESTS].contains(&name) || NOT_COPIED.contains(&name);
    for entry in entries.into_iter().filter(|entry| !is_apart(&entry.name)) {
        let path = if dir.is_empty() { entry.name.clone() } else { format!("{dir}/{}", entry.name) };
        let Some(entries) = left.entries.checked_sub(1) else { break };
        left.entries = entries;
        match entry.kind {
            FileKind::Dir if depth > 0 => copy(app, &path, to, (depth - 1, left))?,
            FileKind::File { .. } => {
                // A file that is too large or unreadable is missing in the copy; the check reports it if it is needed.
                let Ok(bytes) = app.read(&path, MAX_SIZE.min(left.bytes as u64)) else { continue };
                left.bytes -= bytes.len();
                write(&to.join(&path), &bytes)?;
                if let Ok(meta) = fs::metadata(app.root().join(&path)) {
                    fs::set_permissions(to.join(&path), meta.permissions())?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)
}
