//! What happens to the runs of a worker.

use std::fmt;

use serde_json::{Value, json};

/// What happened to a run of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker drives it now.
    Claimed {
        /// The run.
        run_id: String,
        /// The worker that died with it.
        taken_from: Option<String>,
    },
    /// The worker does not drive it any more.
    Released {
        /// The run.
        run_id: String,
        /// `finished`, `waiting` or `drained`.
        reason: &'static str,
    },
    /// The worker came to a stop with it, or another one has it.
    Lost {
        /// The run.
        run_id: String,
        /// `lease`, `overtaken`, or `gap` if its records or its app cannot be used.
        reason: &'static str,
    },
    /// The database cannot be reached.
    Disconnected,
    /// There is one again.
    Connected {
        /// The time without one, in milliseconds.
        after_ms: u64,
    },
}

impl Event {
    /// The event as a line.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Claimed { run_id, taken_from } => {
                json!({"event": "claimed", "run_id": run_id, "taken_from": taken_from})
            }
            Self::Released { run_id, reason } => json!({"event": "released", "run_id": run_id, "reason": reason}),
            Self::Lost { run_id, reason } => json!({"event": "lost", "run_id": run_id, "reason": reason}),
            Self::Disconnected => json!({"event": "disconnected"}),
            Self::Connected { after_ms } => json!({"event": "connected", "after_ms": after_ms}),
        }
    }
}

/// Receives the events of a worker.
pub type Events = Box<dyn Fn(&Event) + Send + Sync>;

/// Where events go.
#[derive(Default)]
pub(crate) struct Observer(std::sync::OnceLock<Events>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn set(&self, events: Events) {
        // Set once, before anything happens.
        let _ = self.0.set(events);
    }

    pub(crate) fn say(&self, event: &Event) {
        if let Some(events) = self.0.get() {
            events(event);
        }
    }
}
