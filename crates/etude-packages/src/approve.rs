//! Approval of a package, of a skill, or of a folder with everything in it (C-1.11, C-0.4).

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::applications::{Package, Source};
use crate::ledger::LedgerError;
use crate::trust::{Approval, ApprovalSubject, Content, Store, of_tree};
use etude_runtime::clock;

/// The permissions of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grants {
    /// Agents may read the package or skill.
    pub activation: bool,
    /// Commands may run; implies activation.
    pub execution: bool,
}

/// Reason why an approval was not given or stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing exists at the path.
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// A file that is not the `APP.md` of a package or the `SKILL.md` of a skill. Its folder may contain others, which the user
    /// has not named.
    #[error("`{}` is not an `APP.md` or `SKILL.md` of a package or skill", .0.display())]
    NotOne(PathBuf),
    /// The folder is too large to be a project: no one can have reviewed all of it.
    #[error("`{}` has more than {MAX_DIRECTORIES} directories, which is too many to review", .0.display())]
    TooLarge(PathBuf),
    /// The content of a package or skill cannot be hashed, or could change without a change of its hash.
    #[error("`{}` cannot be trusted: {source}", path.display())]
    Unreadable {
        /// The directory of the package or skill.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file of approvals cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Approves a package, a skill, their `APP.md` or `SKILL.md` at `path`, or a folder with everything in it. Returns the new
/// approvals.
/// Returns the approvals that were given.
///
/// # Errors
/// Nothing exists at `path`, the content cannot be read, or the approval cannot be stored.
pub fn approve(store: &Store, path: &Path, grants: Grants, by: &str) -> Result<Vec<Approval>, Error> {
    let missing = || Error::Missing(path.to_owned());
    let meta = fs::metadata(path).map_err(|_| missing())?;
    let directory = if meta.is_dir() { path } else { path.parent().ok_or_else(missing)? };
    let directory = fs::canonicalize(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
        .map_err(|_| missing())?;
    let mut places = members(&directory).ok_or_else(|| Error::TooLarge(directory.clone()))?;
    let is_file = !meta.is_dir();
    let is_one = places
        .iter()
        .any(|(place, kind)| *place == directory && (*kind == ApprovalSubject::Package || places.len() == 1));
    let is_named = path.file_name().is_some_and(|name| name == "APP.md" || name == "SKILL.md");
    if is_file && !(is_one && is_named) {
        return Err(Error::NotOne(path.to_owned()));
    }
    if !is_one {
        places.push((directory, ApprovalSubject::Folder));
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

/// The content that an approval is bound to, and the state paths of a package.
fn content(place: &Path, kind: ApprovalSubject) -> io::Result<(Option<Content>, Vec<String>)> {
    match kind {
        ApprovalSubject::Package => {
            let package = Package::load(place, Source::Path, place);
            let (_, content) = package.approved()?;
            Ok((Some(content), package.contract.state_paths()))
        }
        ApprovalSubject::Skill => Ok((Some(of_tree(place)?), Vec::new())),
        ApprovalSubject::Folder => Ok((None, Vec::new())),
    }
}

/// Limits of the search below a folder: depth, and number of directories.
const MAX_DEPTH: usize = 8;
const MAX_DIRECTORIES: usize = 20_000;

/// Directories that contain neither packages nor skills.
const SKIPPED: [&str; 4] = [".git", "node_modules", "target", ".venv"];

/// The packages and skills at and below `directory`; `None` if it exceeds the limit of directories.
fn members(directory: &Path) -> Option<Vec<(PathBuf, ApprovalSubject)>> {
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(directory.to_owned(), 0)]);
    let mut looked_at = 0;
    while let Some((place, depth)) = queue.pop_front() {
        looked_at += 1;
        if looked_at > MAX_DIRECTORIES {
            return None;
        }
        if place.join("APP.md").is_file() {
            found.push((place, ApprovalSubject::Package));
            continue;
        }
        // The root of an app may have a SKILL.md as well; it is a folder with skills and packages below.
        if place.join("SKILL.md").is_file() && !place.join("pipelines").is_dir() {
            found.push((place, ApprovalSubject::Skill));
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
