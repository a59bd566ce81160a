//! A walk through folders in a fixed order, without the files that `.gitignore` excludes.
//!
//! Each folder is opened in the one above it, by one name and without following links. A link that replaces a folder during
//! the walk leads nowhere.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_files::beneath::{Dir, EntryKind};
use globset::GlobMatcher;

use crate::builtin::Stop;
use crate::builtin::ignored::{Ignored, Level};
use crate::confine::ConfinedPath;
use crate::tool::ToolError;

/// Maximum number of files and directories that one call visits.
const MAX_COUNT: usize = 1_000_000;

/// Maximum depth of nested folders, because each one on the way is open.
const MAX_DEPTH: usize = 128;

/// A file, directory or link that a walk has found.
pub(crate) struct Entry<'w> {
    dir: &'w Dir,
    name: &'w OsStr,
    /// Path below the start of the walk.
    pub(crate) below: &'w Path,
    /// Path without links.
    pub(super) real: &'w Path,
    /// Kind of the entry. Links are not followed, and their targets are not read.
    pub(crate) kind: EntryKind,
}

impl Entry<'_> {
    /// Opens the entry for reading, if it is a regular file.
    pub(crate) fn open(&self) -> io::Result<std::fs::File> {
        self.dir.open_file(self.name)
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.dir.status(self.name)?.len)
    }

    /// Target of the entry, if it is a link.
    pub(crate) fn target(&self) -> io::Result<PathBuf> {
        self.dir.read_link(self.name)
    }
}

/// An open folder of the walk.
struct Folder {
    dir: Arc<Dir>,
    /// The entries that are left, the last name first.
    entries: Vec<(OsString, EntryKind)>,
}

/// Calls `visit` for everything below `start`, a directory, until it returns false. Symbolic links are visited and not
/// followed.
pub(crate) fn walk(
    start: &ConfinedPath,
    depth: Option<usize>,
    ignore: bool,
    stop: &Stop,
    mut visit: impl FnMut(&Entry<'_>) -> Result<bool, ToolError>,
) -> Result<(), ToolError> {
    let Some(dir) = start.as_dir() else { return Ok(()) };
    let mut ignored = if ignore { Ignored::above(start) } else { Ignored::nothing() };
    let (mut below, mut real) = (PathBuf::new(), start.real().to_owned());
    let mut folders = Vec::new();
    folders.extend(enter(Arc::clone(dir), &real, &mut ignored)?);
    let mut seen = 0_usize;
    while let Some(folder) = folders.last_mut() {
        let Some((name, kind)) = folder.entries.pop() else {
            folders.pop();
            ignored.leave();
            below.pop();
            real.pop();
            continue;
        };
        stop.check()?;
        seen += 1;
        if seen > MAX_COUNT {
            return Err(ToolError::failed(format!("there are more than {MAX_COUNT} files; give a narrower `path`")));
        }
        below.push(&name);
        real.push(&name);
        let is_dir = kind == EntryKind::Dir;
        if name != ".git" && !ignored.excludes(&real, is_dir) {
            let entry = Entry { dir: &folder.dir, name: &name, below: &below, real: &real, kind };
            if !visit(&entry)? {
                return Ok(());
            }
            if is_dir && depth.is_none_or(|depth| folders.len() < depth) {
                // An unreadable folder counts as missing: permissions differ inside large trees.
                let inner = folders.last().map(|folder| folder.dir.open_dir(&name)).and_then(Result::ok);
                if folders.len() == MAX_DEPTH {
                    let message =
                        format!("folders lie more than {MAX_DEPTH} deep in each other; give a narrower `path`");
                    return Err(ToolError::failed(message));
                }
                if let Some(inner) = inner
                    && let Some(inner) = enter(Arc::new(inner), &real, &mut ignored)?
                {
                    folders.push(inner);
                    continue;
                }
            }
        }
        below.pop();
        real.pop();
    }
    Ok(())
}

/// Reads a folder; `None` if it cannot be read.
fn enter(dir: Arc<Dir>, real: &Path, ignored: &mut Ignored) -> Result<Option<Folder>, ToolError> {
    // One more than the limit, so that too many are noticed.
    let Ok(mut entries) = dir.entries(MAX_COUNT + 1) else { return Ok(None) };
    entries.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    ignored.enter(|| Level::read(&dir, real, |name| entries.iter().any(|(found, _)| found == name)));
    Ok(Some(Folder { dir, entries }))
}

/// Compiles a pattern for paths below the start of a walk. Without a slash it matches at any depth, as in `.gitignore`.
pub(super) fn pattern(glob: &str) -> Result<GlobMatcher, ToolError> {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let anywhere = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let invalid = |message| ToolError::terminal("InputInvalid", message);
    etude_spec::glob::limit(&anywhere).map_err(|why| invalid(format!("the glob pattern is too large: {why}")))?;
    let built = etude_spec::glob::build(&anywhere, |glob| glob.literal_separator(true).empty_alternates(true));
    let built = built.map_err(|why| invalid(format!("`{glob}` is not a glob pattern: {why}")))?;
    Ok(built.compile_matcher())
}
