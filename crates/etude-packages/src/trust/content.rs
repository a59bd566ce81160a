//! The content of packages and skills as hashes: the subject of an approval (C-1.11).

use std::io;
use std::path::Path;

use etude_core::digest::hex;
use etude_spec::application::StatePaths;
use sha2::{Digest, Sha256};

use super::manifest::Reading;

/// Two hashes over the content of a package or skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Hash of the part that only the author changes: of a package all but `app/`.
    pub contract: String,
    /// Hash of the part that the package's own commands may change: `app/` without its state. For a skill without `app/`, a
    /// hash of no files.
    pub payload: String,
}

impl Content {
    /// Both hashes combined: `sha256:…`.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.contract.as_bytes());
        hasher.update([0]);
        hasher.update(self.payload.as_bytes());
        format!("sha256:{}", hex(&hasher.finalize()))
    }
}

/// The content of a package: everything in its directory except `.git` and its state, which lies below `app/state`, `app/data`
/// and the globs `state_paths`.
///
/// # Errors
/// The content cannot be read, is too large, or contains an entry that cannot be hashed.
pub fn of_package(root: &Path, state_paths: &[String]) -> io::Result<Content> {
    Reading { state: Some(&StatePaths::new(state_paths)), ..Reading::default() }.read(root)?.approvable()
}

/// The content of everything below `root` except `.git`.
///
/// # Errors
/// The content cannot be read, is too large, or contains an entry that cannot be hashed.
pub fn of_tree(root: &Path) -> io::Result<Content> {
    Reading::default().read(root)?.approvable()
}
