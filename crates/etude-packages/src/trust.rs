//! The user's approvals: packages, skills and folders of projects (C-1.11, C-0.4).
//!
//! Approvals are stored with the user, never in a project. An approval covers a path *and* its content: a package or skill that
//! has changed since is not approved. A trusted folder lets agents see the skills in it.

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

/// A package, skill or folder that a user trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalSubject {
    /// An Agent Application.
    Package,
    /// An Agent Skill.
    Skill,
    /// A folder, approved together with its content.
    Folder,
}

/// An approval, or a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Path of the subject, without links.
    pub path: PathBuf,
    /// Package, skill or folder at `path`.
    pub kind: ApprovalSubject,
    /// Agents may read the subject.
    pub activation: bool,
    /// Commands that the package's contract declares may run.
    pub execution: bool,
    /// The user blocks the subject.
    pub blocked: bool,
    /// The approved content; `None` for a folder.
    pub content: Option<Content>,
    /// State paths of a package besides `app/state` and `app/data`: globs, relative to the package.
    pub state_paths: Vec<String>,
    /// The system user who gave the approval.
    pub by: String,
    /// Time of the approval, RFC 3339 in UTC.
    pub at: String,
}

/// All approvals of a user at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals(pub(crate) Vec<Approval>);

impl Approvals {
    /// Every approval, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.0.iter()
    }

    /// The approval of exactly this path.
    pub fn of(&self, place: &Path) -> Option<&Approval> {
        let place = real(place);
        self.0.iter().find(|approval| approval.path == place)
    }

    /// True if the user blocks this path or a folder above it.
    pub fn is_blocked(&self, place: &Path) -> bool {
        let place = real(place);
        self.0.iter().any(|approval| approval.blocked && place.starts_with(&approval.path))
    }

    /// True if agents may see the skill in `directory`: the skill or a folder above it is approved.
    pub fn lets_activate(&self, directory: &Path) -> bool {
        self.readable(directory).is_some()
    }

    /// The reason why agents may read the skill in `directory`; `None` if they may not.
    pub(crate) fn readable(&self, directory: &Path) -> Option<Readable> {
        if self.0.is_empty() {
            return None;
        }
        let place = real(directory);
        if self.is_blocked(&place) {
            return None;
        }
        let approvals = || self.0.iter().filter(|approval| approval.activation);
        if approvals().any(|approval| approval.kind == ApprovalSubject::Folder && place.starts_with(&approval.path)) {
            return Some(Readable::Folder);
        }
        let approval =
            approvals().find(|approval| approval.kind != ApprovalSubject::Folder && approval.path == place)?;
        let keep = |path: &Path| path.file_name().is_some_and(|name| name == SKILL_FILE);
        let found = Reading { keep: Some(&keep), ..Reading::default() }.read(&place).ok()?;
        (approval.content == found.approvable().ok()).then_some(Readable::Content(found))
    }

    /// Path and approved content of the skill in `directory`; `None` if it is not approved for execution.
    pub(crate) fn executable(&self, directory: &Path) -> Option<(&Path, &Content)> {
        let approval =
            self.of(directory).filter(|approval| approval.kind == ApprovalSubject::Skill && approval.execution)?;
        if self.is_blocked(directory) {
            return None;
        }
        Some((&approval.path, approval.content.as_ref()?))
    }
}

/// The reason why agents may read a skill.
pub(crate) enum Readable {
    /// A folder above the skill is trusted, whatever it contains.
    Folder,
    /// The skill's content is approved. Holds the compared bytes, including the `SKILL.md`.
    Content(Manifest),
}

/// The path without links, or unchanged if it cannot be resolved.
pub(crate) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod edits;
#[cfg(test)]
mod tests;
