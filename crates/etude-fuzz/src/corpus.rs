//! The initial inputs of targets: seeds and earlier findings in `corpus/TARGET/*`.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the corpus in this repository.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The inputs of a target with their names, ordered by name.
///
/// # Errors
/// The directory or one of its files cannot be read.
pub fn inputs(target: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory().join(target))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    found.sort();
    Ok(found)
}
