//! The position of a step in a run: its path, its rows of the report, its directory.

use std::sync::Arc;

use super::Path;
use crate::report::Item;

/// The position of a step in its run.
#[derive(Debug, Clone)]
pub(super) struct StepContext {
    /// Row of the report; `None` if the step has none.
    pub(super) row: Option<usize>,
    /// Row that the step's effects are booked on: its own, or that of the step that calls its pipeline.
    pub(super) ledger: Option<usize>,
    pub(super) path: Path,
    /// Directory of the step's pipeline, relative to the app's.
    pub(super) dir: Arc<str>,
    /// The element that the step works on, the innermost of several.
    pub(super) item: Option<Item>,
}
