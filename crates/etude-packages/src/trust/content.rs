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
    /// What only its author changes: of a package all but `app/`.
    pub contract: String,
    /// What its own commands may change: `app/` without its state. Of no files for a skill without `app/`.
    pub payload: String,
}

impl Content {
    /// Both as one: `sha256:…`.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.contract.as_bytes());
        hasher.update([0]);
        hasher.update(self.payload.as_bytes());
        format!("sha256:{}", hex(&hasher.finalize()))
    }
}

/// The content of a package: everything in its directory but `.git` and its state, which is below `app/state`, `app/data`
/// and the globs `state_paths`.
///
/// # Errors
/// It cannot be read, is too large, or holds something that cannot be hashed.
pub fn of_package(root: &Path, state_paths: &[String]) -> io::Result<Content> {
    Reading { state: Some(&StatePaths::new(state_paths)), ..Reading::default() }.read(root)?.approvable()
}

/// The content of everything below `root` but `.git`.
///
/// # Errors
/// It cannot be read, is too large, or holds something that cannot be hashed.
pub fn of_tree(root: &Path) -> io::Result<Content> {
    Reading::default().read(root)?.approvable()
}
