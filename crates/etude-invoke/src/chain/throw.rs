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

/// Sorts of throws that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrowKind {
    /// A function failed.
    Failed,
    /// Arguments do not fit.
    Arguments,
    /// A result does not fit.
    Returns,
    /// The caller may not call this tool.
    NotAllowed,
    /// Somebody had to say yes and did not.
    NotTrusted,
    /// Somebody has to say yes and no one can be asked now.
    Waiting,
    /// There is no such tool.
    Unknown,
    /// A definition does not hold.
    Definition,
    /// The surroundings lack something, such as a model.
    Environment,
}

impl ThrowKind {
    const ALL: [Self; 9] = [
        Self::Failed,
        Self::Arguments,
        Self::Returns,
        Self::NotAllowed,
        Self::NotTrusted,
        Self::Waiting,
        Self::Unknown,
        Self::Definition,
        Self::Environment,
    ];

    /// The word in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Arguments => "arguments_invalid",
            Self::Returns => "result_invalid",
            Self::NotAllowed => "not_allowed",
            Self::NotTrusted => "not_trusted",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown_skill",
            Self::Definition => "definition_invalid",
            Self::Environment => "environment",
        }
    }

    /// The sort that a word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Throw {
    /// A throw by `tool`.
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
