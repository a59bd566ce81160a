//! Giving approvals: to a package, to a skill, or to a folder with everything that lies in it (C-1.11, C-0.4).

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::applications::{Package, Source};
use crate::ledger::LedgerError;
use crate::trust::{Approval, Content, Kind, Store, of_tree};
use etude_runtime::clock;

/// The permissions of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grants {
    /// Agents may read it.
    pub activation: bool,
    /// Its commands may run; implies activation.
    pub execution: bool,
}

/// Approvals could not be given or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to trust.
    #[error("there is nothing at `{}`", .0.display())]
    Missing(PathBuf),
    /// It is a file that stands for no package and no skill. Its folder may hold others, which no one has named.
    #[error("`{}` is no `APP.md` or `SKILL.md` of a package or skill", .0.display())]
    NotOne(PathBuf),
    /// It is no project: no one can have looked at all of it.
    #[error("`{}` has more than {MAX_DIRECTORIES} directories, which is more than anybody can have looked at", .0.display())]
    TooLarge(PathBuf),
    /// The content of a package or skill cannot be hashed, or not so that it stays what it is.
    #[error("`{}` cannot be trusted: {source}", path.display())]
    Unreadable {
        /// The directory of the package or skill.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file of approvals.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Approves what is at `path`: a package, a skill, their `APP.md` or `SKILL.md`, or a folder with everything in it.
/// Returns the approvals that were given.
///
/// # Errors
/// There is nothing, it cannot be read, or the approval cannot be kept.
pub fn approve(store: &Store, path: &Path, grants: Grants, by: &str) -> Result<Vec<Approval>, Error> {
    let missing = || Error::Missing(path.to_owned());
    let meta = fs::metadata(path).map_err(|_| missing())?;
    let directory = if meta.is_dir() { path } else { path.parent().ok_or_else(missing)? };
    let directory = fs::canonicalize(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
        .map_err(|_| missing())?;
    let mut places = members(&directory).ok_or_else(|| Error::TooLarge(directory.clone()))?;
    let is_file = !meta.is_dir();
    let is_one =
        places.iter().any(|(place, kind)| *place == directory && (*kind == Kind::Package || places.len() == 1));
    let is_named = path.file_name().is_some_and(|name| name == "APP.md" || name == "SKILL.md");
    if is_file && !(is_one && is_named) {
        return Err(Error::NotOne(path.to_owned()));
    }
    if !is_one {
        places.push((directory, Kind::Folder));
    }
    let at = clock::now_rfc3339();
    let mut given = Vec::new();
    for (place, kind) in places {
        let (content, state_paths) =
            content(&place, kind).map_err(|source| Error::Unreadable { path: place.clone(), source })?;
        given.push(Approval {
            path: place,
            kind,
            activation: grants.activation || grants.execution,
            execution: grants.execution,
            blocked: false,
            content,
            state_paths,
            by: by.to_owned(),
            at: at.clone(),
        });
    }
    store.add(&given)?;
    Ok(given)
}

/// The content that an approval is bound to, and where a package keeps its state.
fn content(place: &Path, kind: Kind) -> io::Result<(Option<Content>, Vec<String>)> {
    match kind {
        Kind::Package => {
            let package = Package::load(place, Source::Path, place);
            let (_, content) = package.approved()?;
            Ok((Some(content), package.contract.state_paths()))
        }
        Kind::Skill => Ok((Some(of_tree(place)?), Vec::new())),
        Kind::Folder => Ok((None, Vec::new())),
    }
}

/// How far below a folder its packages and skills may lie, and how many directories are looked at.
const MAX_DEPTH: usize = 8;
const MAX_DIRECTORIES: usize = 20_000;

/// Directories that hold neither.
const SKIPPED: [&str; 4] = [".git", "node_modules", "target", ".venv"];

/// The packages and skills at and below `directory`; `None` if there is more of it than is looked at.
fn members(directory: &Path) -> Option<Vec<(PathBuf, Kind)>> {
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(directory.to_owned(), 0)]);
    let mut looked_at = 0;
    while let Some((place, depth)) = queue.pop_front() {
        looked_at += 1;
        if looked_at > MAX_DIRECTORIES {
            return None;
        }
        if place.join("APP.md").is_file() {
            found.push((place, Kind::Package));
            continue;
        }
        // The root of an app has a SKILL.md, too; it is a folder with skills and packages below.
        if place.join("SKILL.md").is_file() && !place.join("pipelines").is_dir() {
            found.push((place, Kind::Skill));
            continue;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                queue.push_back((entry.path(), depth + 1));
            }
        }
    }
    Some(found)
}
