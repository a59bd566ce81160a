//! What a cached output depends on besides its input: the step's definition, scripts and schemas.

use std::collections::BTreeSet;

use etude_core::digest::{Digest, Hasher};

use crate::source::Sources;
use crate::yaml::Node;

/// Largest file whose content is hashed, in bytes; of a larger one only the name counts.
const MAX_SIZE: u64 = 64 << 20;

/// The hash of a step's definition (aliases expanded, comments and layout left out) and of the content of `files`,
/// but for the file `own` that the step itself stands in.
pub(crate) fn of(sources: &dyn Sources, step: &Node<'_>, files: &BTreeSet<String>, own: &str) -> Digest {
    let mut hasher = Hasher::new("step definition");
    hasher.field(step.to_json().unwrap_or_default().as_bytes());
    for path in files.iter().filter(|path| *path != own) {
        hasher.field(path.as_bytes());
        match sources.read(path, MAX_SIZE) {
            Ok(content) => hasher.field(&content),
            Err(_) => hasher.field(b""),
        };
    }
    hasher.finish()
}
