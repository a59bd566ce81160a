//! Observers of a call: the display and OpenTelemetry spans.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_invoke::chain::{Event, EventKind};
use etude_invoke::{Ended, Watch};
use etude_models::Redactor;
use serde_json::Value;

use super::watch::Face;
use crate::telemetry::Telemetry;

/// Spans of a call, until it ends.
pub(super) type Spans = Arc<Mutex<Option<Telemetry>>>;

/// Exports the spans of a call that has ended.
pub(super) async fn finish_spans(spans: &Spans, ended: &Ended) {
    let spans = spans.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(spans) = spans {
        spans.finish_call(ended.outcome.as_ref().err()).await;
    }
}

/// A call that has ended, without secrets in its error and in the arguments of its history.
pub(super) fn redacted(redactor: &Redactor, mut ended: Ended) -> Ended {
    if let Err(throw) = &mut ended.outcome {
        throw.message = redactor.redact(&throw.message);
    }
    ended.history = ended.history.into_iter().map(|entry| redactor.redact_value(entry)).collect();
    ended
}

/// Notifies the display and OpenTelemetry, without secrets. Stderr is redacted where it is read.
pub(super) struct Followed {
    face: Face,
    telemetry: Spans,
    redactor: Arc<Redactor>,
}

impl Followed {
    /// Returns the observer and the spans, which the caller exports after the end of the call.
    pub(super) fn new(face: Face, telemetry: Telemetry, redactor: Arc<Redactor>) -> (Self, Spans) {
        let telemetry = Arc::new(Mutex::new(Some(telemetry)));
        (Self { face, telemetry: Arc::clone(&telemetry), redactor }, telemetry)
    }
}

impl Watch for Followed {
    fn event(&mut self, event: &Event, took: Option<Duration>) {
        if let Some(telemetry) = &mut *self.telemetry.lock().unwrap_or_else(PoisonError::into_inner) {
            telemetry.invocation(event);
        }
        match &event.kind {
            EventKind::Failed(throw) => {
                let mut throw = throw.clone();
                throw.message = self.redactor.redact(&throw.message);
                self.face.event(&Event { kind: EventKind::Failed(throw), ..event.clone() }, took);
            }
            EventKind::Started | EventKind::Ended => self.face.event(event, took),
        }
    }

    fn log(&mut self, tool: &str, level: &str, text: &str) {
        self.face.log(tool, level, &self.redactor.redact(text));
    }

    fn emitted(&mut self, event: &Value) {
        self.face.emitted(&self.redactor.redact_value(event.clone()));
    }

    fn stderr(&mut self, tool: &str, text: &[u8]) {
        self.face.stderr(tool, text);
    }
}
