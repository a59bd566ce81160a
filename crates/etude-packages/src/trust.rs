//! What the user has approved: packages, skills and folders of projects (C-1.11, C-0.4).
//!
//! Approvals lie with the user, never in a project. One is for a place *and* its content: a package or skill that has
//! changed since is not what was approved. A folder that is trusted lets agents see the skills in it.

mod content;
mod manifest;
mod snapshot;
mod store;
mod wire;

use std::path::{Path, PathBuf};

use etude_spec::skill::SKILL_FILE;

pub use content::{Content, of_package, of_tree};
pub(crate) use manifest::{Manifest, Reading, mode};
pub(crate) use snapshot::{Snapshot, StateIn};
pub use store::Store;

/// What an approval is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An Agent Application.
    Package,
    /// An Agent Skill.
    Skill,
    /// A folder, for the sake of what is in it.
    Folder,
}

/// One approval, or its opposite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Where it is, without links.
    pub path: PathBuf,
    /// What lies at `path`: package, skill or folder.
    pub kind: Kind,
    /// Agents may read it.
    pub activation: bool,
    /// Commands of the package may run, if the contract declares them.
    pub execution: bool,
    /// The user wants nothing of it.
    pub blocked: bool,
    /// What was approved. A folder has none.
    pub content: Option<Content>,
    /// Where a package keeps its state besides `app/state` and `app/data`: globs, relative to it.
    pub state_paths: Vec<String>,
    /// The user of the system who approved it.
    pub by: String,
    /// When, as RFC 3339 in UTC.
    pub at: String,
}

/// All approvals of a user, as they were at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals(pub(crate) Vec<Approval>);

impl Approvals {
    /// Every approval, by path in order.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.0.iter()
    }

    /// The approval for exactly this place.
    pub fn of(&self, place: &Path) -> Option<&Approval> {
        let place = real(place);
        self.0.iter().find(|approval| approval.path == place)
    }

    /// True if the user wants nothing of this place, or of a folder above it.
    pub fn is_blocked(&self, place: &Path) -> bool {
        let place = real(place);
        self.0.iter().any(|approval| approval.blocked && place.starts_with(&approval.path))
    }

    /// True if agents may know of the skill in `directory`: it is approved, or a folder above it is.
    pub fn lets_activate(&self, directory: &Path) -> bool {
        self.readable(directory).is_some()
    }

    /// Why agents may read the skill in `directory`; `None` if they may not.
    pub(crate) fn readable(&self, directory: &Path) -> Option<Readable> {
        if self.0.is_empty() {
            return None;
        }
        let place = real(directory);
        if self.is_blocked(&place) {
            return None;
        }
        let approvals = || self.0.iter().filter(|approval| approval.activation);
        if approvals().any(|approval| approval.kind == Kind::Folder && place.starts_with(&approval.path)) {
            return Some(Readable::Folder);
        }
        let approval = approvals().find(|approval| approval.kind != Kind::Folder && approval.path == place)?;
        let keep = |path: &Path| path.file_name().is_some_and(|name| name == SKILL_FILE);
        let found = Reading { keep: Some(&keep), ..Reading::default() }.read(&place).ok()?;
        (approval.content == found.approvable().ok()).then_some(Readable::Content(found))
    }

    /// The skill in `directory`, if it is approved for execution, and the content that was approved.
    pub(crate) fn executable(&self, directory: &Path) -> Option<(&Path, &Content)> {
        let approval = self.of(directory).filter(|approval| approval.kind == Kind::Skill && approval.execution)?;
        if self.is_blocked(directory) {
            return None;
        }
        Some((&approval.path, approval.content.as_ref()?))
    }
}

/// Why agents may read a skill.
pub(crate) enum Readable {
    /// A folder above it is trusted, with whatever is in it.
    Folder,
    /// Its content was approved. These are the bytes that were compared; the `SKILL.md` is kept.
    Content(Manifest),
}

/// A path without links, where that can be found out.
pub(crate) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(all(test, unix))]
mod edits;
#[cfg(test)]
mod tests;
