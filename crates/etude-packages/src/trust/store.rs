//! Where approvals are kept: one file with the user's state, replaced as a whole under a lock.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Approval, Approvals, Content, Kind, of_tree, real, wire};
use crate::applications::{self, state_paths};
use crate::ledger::{Ledger, LedgerError};
use etude_runtime::clock;

/// The approvals of one user.
#[derive(Debug, Clone)]
pub struct Store {
    ledger: Ledger,
}

/// What is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grants {
    /// Agents may read it.
    pub activation: bool,
    /// Its commands may run; implies activation.
    pub execution: bool,
}

/// Approvals could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
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
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of approvals.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Store {
    /// The approvals below the user's state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { ledger: Ledger::new(state_dir, "trust.json") }
    }

    /// All approvals.
    ///
    /// # Errors
    /// The file cannot be read, or is of a later version.
    pub fn approvals(&self) -> Result<Approvals, StoreError> {
        Ok(Approvals(self.ledger.read(wire::parse)?))
    }

    /// Trusts what is at `path`: a package, a skill, their `APP.md` or `SKILL.md`, or a folder with everything in it.
    /// Returns the approvals that were given.
    ///
    /// # Errors
    /// There is nothing, it cannot be read, or the approval cannot be kept.
    pub fn trust(&self, path: &Path, grants: Grants, by: &str) -> Result<Vec<Approval>, StoreError> {
        let missing = || StoreError::Missing(path.to_owned());
        let meta = fs::metadata(path).map_err(|_| missing())?;
        let directory = if meta.is_dir() { path } else { path.parent().ok_or_else(missing)? };
        let directory = fs::canonicalize(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
            .map_err(|_| missing())?;
        let mut places = members(&directory).ok_or_else(|| StoreError::TooLarge(directory.clone()))?;
        let is_file = !meta.is_dir();
        let is_one =
            places.iter().any(|(place, kind)| *place == directory && (*kind == Kind::Package || places.len() == 1));
        let is_named = path.file_name().is_some_and(|name| name == "APP.md" || name == "SKILL.md");
        if is_file && !(is_one && is_named) {
            return Err(StoreError::NotOne(path.to_owned()));
        }
        if !is_one {
            places.push((directory, Kind::Folder));
        }
        let at = clock::now_rfc3339();
        let mut given = Vec::new();
        for (place, kind) in places {
            let state_paths = if kind == Kind::Package { state_paths(&place) } else { Vec::new() };
            let content = match kind {
                Kind::Package => Some(applications::approvable(&place)),
                Kind::Skill => Some(of_tree(&place)),
                Kind::Folder => None,
            };
            let content =
                content.transpose().map_err(|source| StoreError::Unreadable { path: place.clone(), source })?;
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
        self.change(|approvals| {
            approvals.retain(|known| !given.iter().any(|new| new.path == known.path));
            approvals.extend(given.iter().cloned());
        })?;
        Ok(given)
    }

    /// Takes back what was approved at `path` and below it, and blocks it with `block`. Returns what was taken back.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn untrust(&self, path: &Path, block: bool, by: &str) -> Result<Vec<Approval>, StoreError> {
        let mut place = real(path);
        if place.is_file() {
            place.pop();
        }
        let mut taken = Vec::new();
        self.change(|approvals| {
            taken = approvals.extract_if(.., |known| known.path.starts_with(&place)).collect();
            if block {
                approvals.push(Approval {
                    path: place.clone(),
                    kind: Kind::Folder,
                    activation: false,
                    execution: false,
                    blocked: true,
                    content: None,
                    state_paths: Vec::new(),
                    by: by.to_owned(),
                    at: clock::now_rfc3339(),
                });
            }
        })?;
        Ok(taken)
    }

    /// Takes the content of a package as approved that its own commands have changed from `before` to `after` (C-1.11).
    /// Nothing happens if something else was approved, or if more than `app/` has changed. `after` must not be read from the
    /// package: it holds what the command wrote, not what else may have changed there.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn rebase(&self, root: &Path, before: &Content, after: &Content) -> Result<(), StoreError> {
        if before == after || before.contract != after.contract {
            return Ok(());
        }
        self.change(|approvals| {
            let own = approvals.iter_mut().filter(|known| known.path == root && known.content.as_ref() == Some(before));
            own.for_each(|approval| approval.content = Some(after.clone()));
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Approval>)) -> Result<(), StoreError> {
        let _lock = self.ledger.lock()?;
        let mut approvals = self.ledger.read(wire::parse)?;
        change(&mut approvals);
        approvals.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self.ledger.write(wire::document(approvals))?)
    }
}

/// How far below a folder its packages and skills may lie, and how many directories are looked at.
const MAX_DEPTH: usize = 8;
pub(super) const MAX_DIRECTORIES: usize = 20_000;

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
