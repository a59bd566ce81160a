//! Reports of a running session.

use std::time::Duration;

use serde_json::Value;

use crate::chain::Event;

/// The observer of a session.
pub trait Watch: Send {
    /// An invocation began or ended; at the end, `took` is its duration.
    fn event(&mut self, event: &Event, took: Option<Duration>);
    /// A tool wrote a log line.
    fn log(&mut self, tool: &str, level: &str, text: &str);
    /// An event was emitted: `{id, topic, source, data, timestamp}`.
    fn emitted(&mut self, event: &Value);
    /// A code tool wrote to stderr.
    fn stderr(&mut self, tool: &str, text: &[u8]);
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Watch for Silent {
    fn event(&mut self, _event: &Event, _took: Option<Duration>) {}
    fn log(&mut self, _tool: &str, _level: &str, _text: &str) {}
    fn emitted(&mut self, _event: &Value) {}
    fn stderr(&mut self, _tool: &str, _text: &[u8]) {}
}
