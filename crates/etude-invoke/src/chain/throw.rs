//! Throws: errors that travel outward through the onion (D-7.5).

use etude_core::tool::ToolReply;
use serde_json::{Value, json};

/// An exception, as data.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Throw {
    /// The sort of error.
    pub kind: ThrowKind,
    /// The error in one sentence, for people.
    pub message: String,
    /// The tool whose function or middleware threw.
    pub tool: String,
    /// The reply for an agent. Documents omit it: only the message crosses a process boundary.
    pub reply: Option<Box<ToolReply>>,
}

etude_core::words! {
    /// Kinds of throws that callers distinguish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ThrowKind {
        /// A function failed.
        Failed = "failed",
        /// The arguments do not fit.
        Arguments = "arguments_invalid",
        /// The result does not fit.
        Returns = "result_invalid",
        /// The caller may not call this tool.
        NotAllowed = "not_allowed",
        /// A required approval was denied.
        NotTrusted = "not_trusted",
        /// A required approval is pending, and no one can be asked now.
        Waiting = "waiting",
        /// The tool does not exist.
        Unknown = "unknown_skill",
        /// A definition is invalid.
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

    /// The same throw, with the reply for an agent.
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
