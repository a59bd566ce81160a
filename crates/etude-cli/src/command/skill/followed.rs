//! A call that somebody watches, and of which spans are made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude::invoke::Watch;
use etude::invoke::chain::Event;
use serde_json::Value;

use super::watch::Face;
use crate::telemetry::Telemetry;

/// Tells whoever watches, and OpenTelemetry.
pub(super) struct Followed {
    pub(super) face: Face,
    /// Taken when the call is over.
    pub(super) telemetry: Arc<Mutex<Option<Telemetry>>>,
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
