//! The position of a step in a run: its path, its rows of the report, its directory.

use std::sync::Arc;

use super::Path;
use crate::report::Item;

/// Where a step stands.
#[derive(Debug, Clone)]
pub(super) struct StepContext {
    /// Row of the report, if it has one.
    pub(super) row: Option<usize>,
    /// Row that its effects are booked on: its own, or that of the step that calls its pipeline.
    pub(super) ledger: Option<usize>,
    pub(super) path: Path,
    /// Directory of its pipeline.
    pub(super) dir: Arc<str>,
    /// The element that it works on, the innermost of several.
    pub(super) item: Option<Item>,
}
