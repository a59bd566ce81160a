//! Agent Applications.

use std::path::Path;

/// Where a package keeps its state.
pub fn state_paths(_root: &Path) -> Vec<String> {
    Vec::new()
}
