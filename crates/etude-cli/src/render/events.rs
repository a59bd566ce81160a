//! Events of `--format jsonl`: one document a line, the result document last.

use etude_core::report::Event;
use etude_runs::story;
use etude_runtime::driver::Progress;
use serde_json::{Value, json};

use super::{middleware, waits};

/// Numbered lines of one run.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Number of lines so far, those of earlier processes included.
    count: u64,
    /// True for a run of a stage machine, whose lines are the events of stages.
    is_of_machine: bool,
}

impl Lines {
    pub(crate) fn new(is_of_machine: bool) -> Self {
        Self { count: 0, is_of_machine }
    }

    /// Document of an event; `None` if it is only for people, or was reported by an earlier process.
    pub(crate) fn json(&mut self, progress: &Progress<'_>) -> Option<Value> {
        match progress {
            Progress::Machine { event: Event::Stage { name, payload }, is_replay, .. } => {
                self.count += 1;
                let line = json!({"event": name, "seq": self.count, "payload": payload.value().unwrap_or_default()});
                (!is_replay).then_some(line)
            }
            Progress::Stderr { effect, bytes } if self.is_of_machine => {
                self.count += 1;
                let payload = json!({"effect": effect.as_str(), "text": String::from_utf8_lossy(bytes)});
                Some(json!({"event": "stderr", "seq": self.count, "payload": payload}))
            }
            Progress::Waiting { effect, wait } if self.is_of_machine => {
                self.count += 1;
                let payload = waits::json(effect, wait);
                Some(json!({"event": "transport_retry", "seq": self.count, "payload": payload}))
            }
            Progress::Middleware(reported) if self.is_of_machine => {
                self.count += 1;
                let (event, payload) = middleware::event(reported);
                Some(json!({"event": event, "seq": self.count, "payload": payload}))
            }
            _ if self.is_of_machine => None,
            other => json(other),
        }
    }
}

fn json(progress: &Progress<'_>) -> Option<Value> {
    match progress {
        Progress::Machine { event, rows, is_replay: false } => Some(story::event_json(event, rows)),
        // Pieces of responses are for people only: `agent_said` has the whole text.
        Progress::Machine { .. } | Progress::ModelResponse { .. } => None,
        Progress::Waiting { effect, wait } => {
            let mut line = waits::json(effect, wait);
            line["event"] = "transport_retry".into();
            Some(line)
        }
        Progress::Middleware(reported) => {
            let (event, mut line) = middleware::event(reported);
            line["event"] = event.into();
            Some(line)
        }
        Progress::Stderr { effect, bytes } => Some(json!({
            "event": "stderr",
            "effect": effect.as_str(),
            "text": String::from_utf8_lossy(bytes),
        })),
    }
}
