//! The app as the learner sees it: its tools, rules and settings.

use etude_core::shell::LineWord;
use serde_json::Value;

/// Effect class of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The tool only reads.
    Reads,
    /// The tool changes something, or its class is unknown.
    Writes,
}

/// A tool of the app.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name by which traces and steps call it.
    pub name: String,
    /// Effect class; an unknown one counts as a write.
    pub class: Class,
    /// JSON Schema of its arguments; `null` if it is not known.
    pub schema: Value,
}

/// Tools, rules and settings of an app, which the learner reads.
pub trait World {
    /// Tool with this name; `None` if the app does not have it.
    fn tool(&self, name: &str) -> Option<Tool>;
    /// True if the tool is never learned (`learn.exclude`).
    fn is_excluded(&self, tool: &str) -> bool;
    /// True if values of fields of this name are not written to files (`learn.redact`).
    fn is_redacted(&self, field: &str) -> bool;
    /// True if the app has a `SKILL.md`.
    fn has_skill(&self) -> bool;
    /// The sections of `SKILL.md` about these tools (2.7), byte for byte.
    fn rules(&self, tools: &[&str]) -> String;
    /// Words of a command line of simple commands, in order; `None` for every other line.
    fn words(&self, line: &str) -> Option<Vec<LineWord>>;
    /// Minimum number of distinct requests before a family is learned.
    fn min_requests(&self) -> usize;
    /// True if a pipeline with this name exists and was learned from this family.
    fn is_own(&self, name: &str, family: &str) -> bool;
    /// True if a pipeline with this name exists and was not learned from this family.
    fn is_taken(&self, name: &str, family: &str) -> bool;
}
