//! Faults of the values that a skill declares itself, regardless of its levels.

use crate::cascade::schemas;
use crate::cascade::skill::Skill;
use crate::cascade::{lists, log};
use crate::diagnostic::Diagnostic;

/// Checks of what skills declare themselves. A schema that several skills share is compiled once.
#[derive(Debug, Default)]
pub(super) struct Checks {
    schemas: schemas::Known,
}

impl Checks {
    /// Faults of the metadata of `skill`.
    pub(super) fn faults(&mut self, skill: &Skill) -> Vec<Diagnostic> {
        let mut found = self.schemas.faults(skill);
        found.extend(log::faults(skill));
        found.extend(lists::faults(skill));
        found
    }
}
