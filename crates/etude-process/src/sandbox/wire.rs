//! The rules of a sandbox as they go to the program that makes it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The rules of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    /// The version of Landlock's interface that is demanded.
    pub(super) landlock: u32,
    pub(super) network: bool,
    /// What of the system may be read and executed, by its name: only root could change what that means.
    pub(super) system: Vec<PathBuf>,
    /// How many descriptors are of what may be read and executed.
    pub(super) read: usize,
    /// How many descriptors after them are of what may be read, executed and written.
    pub(super) write: usize,
}

impl Rules {
    /// The rules as text; a path that is not UTF-8 cannot express.
    pub(super) fn to_text(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// The rules in a text that [`Rules::to_text`] has made.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
