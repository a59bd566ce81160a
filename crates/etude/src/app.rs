//! Finding an app.

use std::path::{Path, PathBuf};

/// True if `dir` is an app: it has `SKILL.md`, `pipelines/` or `machines/`.
pub fn is_app(dir: &Path) -> bool {
    dir.join("pipelines").is_dir() || dir.join("machines").is_dir() || dir.join("SKILL.md").is_file()
}

/// The nearest app at or above `dir`.
pub fn find(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| is_app(dir)).map(Path::to_owned)
}
