//! The file of tokens: names, hashes and permissions.

use std::io;

use serde::{Deserialize, Serialize};

/// A token in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) blake3: String,
    pub(super) scopes: Vec<String>,
    #[serde(default)]
    pub(super) only: Vec<String>,
    pub(super) created_at_ms: i64,
    #[serde(default)]
    pub(super) expires_at_ms: Option<i64>,
}

/// The complete file.
#[derive(Deserialize)]
struct Content {
    version: u64,
    tokens: Vec<Kept>,
}

/// The tokens in the file.
///
/// # Errors
/// The file is damaged, or has a later version.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Vec<Kept>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let content: Content = serde_json::from_slice(bytes)?;
    match content.version {
        1 => Ok(content.tokens),
        _ => Err(io::Error::other("a later version of etude wrote it")),
    }
}
