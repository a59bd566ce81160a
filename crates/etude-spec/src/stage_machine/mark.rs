//! Marking of diagnostics with system B's names for them (`b-stages` §18).

use crate::check::Findings;
use crate::diagnostic::Diagnostic;

/// Class of faults in definitions.
pub(super) const VALIDATION: &str = "Validation";

/// Class of faults that only a runner can have, found early.
pub(super) const HOST: &str = "ExtensionHost";

/// Name of most faults of a definition.
pub(super) const INVALID: &str = "StageDefinitionInvalid";

/// Ranks of the checks, in their order (`b-stages` §2.5).
pub(super) mod rank {
    /// The text is unreadable.
    pub(in super::super) const TEXT: u8 = 1;
    /// A field is missing or has the wrong type.
    pub(in super::super) const FIELDS: u8 = 2;
    /// The turn cap; in a machine, its stages.
    pub(in super::super) const CAP: u8 = 3;
    /// Placeholders; in a machine, its hooks.
    pub(in super::super) const BODY: u8 = 4;
    /// A schema is invalid, or has a form that is not allowed.
    pub(in super::super) const SCHEMAS: u8 = 5;
    /// Transitions.
    pub(in super::super) const NEXT: u8 = 6;
}

/// Runs `work` and marks its findings as faults of the value at `path`.
pub(super) fn marked<'s, T>(
    found: &mut Findings<'s>,
    path: &str,
    rank: u8,
    work: impl FnOnce(&mut Findings<'s>) -> T,
) -> T {
    let before = found.list.len();
    let out = work(found);
    for diagnostic in &mut found.list[before..] {
        mark(diagnostic, path, rank);
    }
    out
}

/// Marks a fault that has no mark.
pub(super) fn mark(diagnostic: &mut Diagnostic, path: &str, rank: u8) {
    if diagnostic.rule.is_none() {
        *diagnostic = diagnostic.clone().rule(VALIDATION, INVALID, path, rank);
    }
}

/// Marks all faults that have no mark.
pub(super) fn mark_all(list: &mut [Diagnostic], rank: u8) {
    list.iter_mut().for_each(|diagnostic| mark(diagnostic, "", rank));
}
