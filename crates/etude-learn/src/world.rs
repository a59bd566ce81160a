//! What the learner knows of the app: its tools, its rules, its settings.

use etude_core::shell::LineWord;
use serde_json::Value;

/// Whether a call changes something outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It only reads.
    Reads,
    /// It changes something, or it is not known: counts as a write.
    Writes,
}

/// A tool of the app.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name by which traces and steps call it.
    pub name: String,
    /// Whether it changes something.
    pub class: Class,
    /// JSON Schema of its arguments; `null` if it is not known.
    pub schema: Value,
}

/// The app as the learner needs it.
pub trait World {
    /// A tool; `None`: the app does not have it.
    fn tool(&self, name: &str) -> Option<Tool>;
    /// Whether the tool is never learned (`learn.exclude`).
    fn is_excluded(&self, tool: &str) -> bool;
    /// Whether values of fields of this name are not written to files (`learn.redact`).
    fn is_redacted(&self, field: &str) -> bool;
    /// Whether the app has a `SKILL.md`.
    fn has_skill(&self) -> bool;
    /// The sections of `SKILL.md` about these tools (2.7), byte for byte.
    fn rules(&self, tools: &[&str]) -> String;
    /// The words of a command line of simple commands, in order; `None` for every other line.
    fn words(&self, line: &str) -> Option<Vec<LineWord>>;
    /// Distinct requests before a family is learned.
    fn min_requests(&self) -> usize;
    /// Whether a pipeline with this name exists that was learned from this family.
    fn is_own(&self, name: &str, family: &str) -> bool;
    /// Whether a pipeline with this name exists that was not learned from this family.
    fn is_taken(&self, name: &str, family: &str) -> bool;
}
