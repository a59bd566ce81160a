//! What travels outward through the onion when something goes wrong (D-7.5).

use etude_core::tool::ToolReply;
use serde_json::{Value, json};

/// An exception, as data.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Throw {
    /// What sort of thing went wrong.
    pub kind: ThrowKind,
    /// What went wrong, for people.
    pub message: String,
    /// The tool whose function or layer threw.
    pub tool: String,
    /// What an agent gets for it. Not in documents: what crosses a process has the message alone.
    pub reply: Option<Box<ToolReply>>,
}

etude_core::words! {
    /// Sorts of throws that callers tell apart.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ThrowKind {
        /// A function failed.
        Failed = "failed",
        /// Arguments do not fit.
        Arguments = "arguments_invalid",
        /// A result does not fit.
        Returns = "result_invalid",
        /// The caller may not call this tool.
        NotAllowed = "not_allowed",
        /// A person had to say yes and did not.
        NotTrusted = "not_trusted",
        /// A person has to say yes and no one can be asked now.
        Waiting = "waiting",
        /// There is no such tool.
        Unknown = "unknown_skill",
        /// A definition does not hold.
        Definition = "definition_invalid",
        /// The environment lacks something, such as a model.
        Environment = "environment",
    }
}

impl Throw {
    /// A throw that names `tool` as its origin. `message` is one sentence.
    pub fn new(kind: ThrowKind, tool: &str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), tool: tool.to_owned(), reply: None }
    }

    /// The same throw, with what an agent gets for it.
    #[must_use]
    pub fn with(mut self, reply: ToolReply) -> Self {
        self.reply = Some(Box::new(reply));
        self
    }

    /// The throw as a document: `{"kind", "tool", "message"}`.
    pub fn json(&self) -> Value {
        json!({"kind": self.kind.word(), "tool": self.tool, "message": self.message})
    }
}
