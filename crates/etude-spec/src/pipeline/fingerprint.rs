//! Parts of a cache key besides the input: the step's definition, scripts and schemas.

use std::collections::BTreeSet;

use etude_core::digest::{Digest, Hasher};

use crate::source::Sources;
use crate::yaml::Node;

/// Maximum size of a file whose content is hashed, in bytes; of a larger one only the name counts.
const MAX_SIZE: u64 = 64 << 20;

/// Hash of a step's definition (with aliases expanded, without comments and layout) and of the content of `files`,
/// except the step's own file `own`.
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
