//! Events of an invocation session, for the observers of a run.

use std::time::Duration;

use etude_invoke::chain::{Event, EventKind};
use etude_runtime::driver::{MiddlewareEvent, MiddlewareEventKind};
use serde_json::Value;
use tokio::sync::mpsc;

use etude_invoke::Watch;

/// Sends the events of an invocation session to the observers of the run.
#[derive(Debug)]
pub struct EventRelay(mpsc::UnboundedSender<MiddlewareEvent>);

impl EventRelay {
    /// A relay into the channel `to`; events are dropped when its receiver is gone.
    pub fn new(to: mpsc::UnboundedSender<MiddlewareEvent>) -> Self {
        Self(to)
    }

    fn emit(&self, id: u64, tool: &str, serves: Option<&str>, what: MiddlewareEventKind) {
        // A finished run has dropped the receiver.
        let _ = self.0.send(MiddlewareEvent { id, tool: tool.to_owned(), serves: serves.map(str::to_owned), what });
    }
}

impl Watch for EventRelay {
    fn event(&mut self, event: &Event, took: Option<Duration>) {
        let took = took.unwrap_or_default();
        let what = match &event.kind {
            EventKind::Started => MiddlewareEventKind::Started,
            EventKind::Ended => MiddlewareEventKind::Ended { took, error: None },
            EventKind::Failed(throw) => {
                MiddlewareEventKind::Ended { took, error: Some((throw.kind.word(), throw.message.clone())) }
            }
        };
        self.emit(event.context.number(), &event.tool, event.serves.as_deref(), what);
    }

    fn log(&mut self, tool: &str, level: &str, text: &str) {
        self.emit(0, tool, None, MiddlewareEventKind::Log { level: level.to_owned(), text: text.to_owned() });
    }

    fn emitted(&mut self, event: &Value) {
        let tool = event.get("source").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.emit(0, &tool, None, MiddlewareEventKind::Emitted { event: event.to_string() });
    }

    fn stderr(&mut self, tool: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.emit(0, tool, None, MiddlewareEventKind::Stderr { text });
    }
}
