//! An empty journal, created once: separate tests kill its creation, so it need not be repeated for each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::test::Test;

/// Puts an empty journal into its place.
pub(super) fn put(test: &Test) {
    static TEMPLATE: OnceLock<(TempDir, Vec<PathBuf>)> = OnceLock::new();
    let (dir, files) = TEMPLATE.get_or_init(build);
    let place = test.path("home/.local/state/etude");
    fs::create_dir_all(place.join("locks")).expect("a directory can be made");
    for file in files {
        copy(&dir.path().join(file), &place.join(file));
    }
}

fn build() -> (TempDir, Vec<PathBuf>) {
    let test = Test::new();
    test.run(&["runs", "list", "--format", "json"]).exit(0);
    let dir = tempfile::tempdir().expect("a directory can be made");
    let files = ["journal.db", "journal.db-wal"].map(PathBuf::from);
    for file in &files {
        copy(&test.path("home/.local/state/etude").join(file), &dir.path().join(file));
    }
    (dir, files.to_vec())
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|e| panic!("`{}`: {e}", from.display()));
}
