//! The store of approvals: one file with the user's state, replaced as a whole under a lock.

use std::path::Path;

use super::{Approval, ApprovalSubject, Approvals, Content, real, wire};
use crate::ledger::{Ledger, LedgerError};
use etude_runtime::clock;

/// The approvals of one user.
#[derive(Debug, Clone)]
pub struct Store {
    ledger: Ledger,
}

impl Store {
    /// The approvals below the user's state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { ledger: Ledger::new(state_dir, "trust.json") }
    }

    /// Reads all approvals.
    ///
    /// # Errors
    /// The file cannot be read, or a later version of etude wrote it.
    pub fn approvals(&self) -> Result<Approvals, LedgerError> {
        self.ledger.read(wire::parse).map(Approvals)
    }

    /// Adds approvals. Each replaces an earlier one for the same path.
    pub(crate) fn add(&self, given: &[Approval]) -> Result<(), LedgerError> {
        self.change(|approvals| {
            approvals.retain(|known| !given.iter().any(|new| new.path == known.path));
            approvals.extend(given.iter().cloned());
        })
    }

    /// Withdraws the approvals at and below `path`, and blocks the path if `block` is set. Returns the withdrawn approvals.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn untrust(&self, path: &Path, block: bool, by: &str) -> Result<Vec<Approval>, LedgerError> {
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
                    kind: ApprovalSubject::Folder,
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

    /// Extends an approval to the changes of a package's own commands, from `before` to `after` (C-1.11). Does nothing if other
    /// content was approved, or if more than `app/` has changed. `after` must not be read from the package: it must contain the
    /// command's changes only, without other changes there.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn rebase(&self, root: &Path, before: &Content, after: &Content) -> Result<(), LedgerError> {
        if before == after || before.contract != after.contract {
            return Ok(());
        }
        self.change(|approvals| {
            let own = approvals.iter_mut().filter(|known| known.path == root && known.content.as_ref() == Some(before));
            own.for_each(|approval| approval.content = Some(after.clone()));
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Approval>)) -> Result<(), LedgerError> {
        let _lock = self.ledger.lock()?;
        let mut approvals = self.ledger.read(wire::parse)?;
        change(&mut approvals);
        approvals.sort_by(|a, b| a.path.cmp(&b.path));
        self.ledger.write(wire::document(approvals))
    }
}
