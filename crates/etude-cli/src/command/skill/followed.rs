//! Observers of a call: the display and OpenTelemetry spans.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_invoke::chain::Event;
use etude_invoke::{Ended, Watch};
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

/// Notifies the display and OpenTelemetry.
pub(super) struct Followed {
    face: Face,
    telemetry: Spans,
}

impl Followed {
    /// Returns the observer and the spans, which the caller exports after the end of the call.
    pub(super) fn new(face: Face, telemetry: Telemetry) -> (Self, Spans) {
        let telemetry = Arc::new(Mutex::new(Some(telemetry)));
        (Self { face, telemetry: Arc::clone(&telemetry) }, telemetry)
    }
}

impl Watch for Followed {
    fn event(&mut self, event: &Event, took: Option<Duration>) {
        if let Some(telemetry) = &mut *self.telemetry.lock().unwrap_or_else(PoisonError::into_inner) {
            telemetry.invocation(event);
        }
        self.face.event(event, took);
    }

    fn log(&mut self, tool: &str, level: &str, text: &str) {
        self.face.log(tool, level, text);
    }

    fn emitted(&mut self, event: &Value) {
        self.face.emitted(event);
    }

    fn stderr(&mut self, tool: &str, text: &[u8]) {
        self.face.stderr(tool, text);
    }
}
