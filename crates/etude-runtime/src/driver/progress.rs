//! Progress events of a run while the driver executes it.

use std::time::Duration;

use etude_core::effect::EffectId;
use etude_core::model::TransportWait;
use etude_core::report::{Event, StepRow};

/// A progress event.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The machine emitted an event.
    Machine {
        /// The event, which a replay emits again.
        event: &'a Event,
        /// A row per step of the plan.
        rows: &'a [StepRow],
        /// True if the event is from an earlier process.
        is_replay: bool,
    },
    /// A process wrote to stderr.
    Stderr {
        /// The process's effect.
        effect: &'a EffectId,
        /// The bytes as they came; a piece may end within a line.
        bytes: &'a [u8],
    },
    /// A model streams its response. No delta is in the journal or in a replay: the outcome of the effect has the whole
    /// response.
    ModelResponse {
        /// The call's effect.
        effect: &'a EffectId,
        /// The next piece of the text.
        text: &'a str,
        /// The model was asked again: deltas of this response before it are void.
        is_again: bool,
    },
    /// The transport of a model call waits before its next attempt. Not in the journal, and not repeated by a replay.
    Waiting {
        /// The call's effect.
        effect: &'a EffectId,
        /// The failed attempt, the wait and the attempt that follows.
        wait: &'a TransportWait,
    },
    /// Middleware around an effect emitted an event. None of these events is in the journal.
    Middleware(&'a MiddlewareEvent),
}

/// Event of an app's middleware, for the observer.
#[derive(Debug, Clone, PartialEq)]
pub struct MiddlewareEvent {
    /// Number of the invocation, unique within a run's process; 0 for an event outside any invocation.
    pub id: u64,
    /// The tool or middleware of the event.
    pub tool: String,
    /// The tool that the middleware serves; `None` for a tool.
    pub serves: Option<String>,
    /// The kind of event, with its facts.
    pub what: MiddlewareEventKind,
}

/// Kind of a middleware event, with its facts.
#[derive(Debug, Clone, PartialEq)]
pub enum MiddlewareEventKind {
    /// An invocation began.
    Started,
    /// An invocation ended, with a result or with a throw.
    Ended {
        /// Duration of the invocation.
        took: Duration,
        /// Word and sentence of the thrown error, if there was one.
        error: Option<(&'static str, String)>,
    },
    /// Middleware wrote a log line.
    Log {
        /// `trace`, `debug`, `info`, `warn` or `error`.
        level: String,
        /// One line, as the middleware wrote it.
        text: String,
    },
    /// Middleware emitted an event.
    Emitted {
        /// The event, a JSON object.
        event: String,
    },
    /// A program of a middleware wrote to stderr.
    Stderr {
        /// Text of one or more lines.
        text: String,
    },
}
