//! Serialized rules of a sandbox, for the program that sets it up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    /// Required ABI version of Landlock.
    pub(super) landlock: u32,
    pub(super) network: bool,
    /// System paths that may be read and executed. They are passed by name, because only root could change their target.
    pub(super) system: Vec<PathBuf>,
    /// Number of descriptors of readable and executable paths.
    pub(super) read: usize,
    /// Number of descriptors after them, of readable, executable and writable paths.
    pub(super) write: usize,
}

impl Rules {
    /// The rules as JSON text. Fails for a path that is not UTF-8.
    pub(super) fn to_text(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// Parses the text of [`Rules::to_text`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
