//! What a run reports while it is driven.

use std::time::Duration;

use etude_core::effect::EffectId;
use etude_core::model::TransportWait;
use etude_core::report::{Event, StepRow};

/// What is reported while a run goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The machine has something to tell.
    Machine {
        /// The event, which a replay gives again.
        event: &'a Event,
        /// A row per step of the plan.
        rows: &'a [StepRow],
        /// True if it happened in an earlier process.
        is_replay: bool,
    },
    /// A process wrote to stderr.
    Stderr {
        /// The process's effect.
        effect: &'a EffectId,
        /// The bytes as they came; a piece may end within a line.
        bytes: &'a [u8],
    },
    /// A model goes on with its answer. Nothing of this is in the journal, and a replay tells nothing of it: the
    /// outcome of the effect has the whole answer.
    ModelResponse {
        /// The call's effect.
        effect: &'a EffectId,
        /// More of the text.
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
    /// Something happened in the layers around an effect. None of it is in the journal.
    Layers(&'a MiddlewareEvent),
}

/// What the middleware of an app reports to the observer.
#[derive(Debug, Clone, PartialEq)]
pub struct MiddlewareEvent {
    /// The invocation; 0 if it is about none. Never used again in a run's process.
    pub id: u64,
    /// The tool or layer that it is about.
    pub tool: String,
    /// What it is a layer of, if it is one.
    pub serves: Option<String>,
    /// The kind of event, with its facts.
    pub what: MiddlewareEventKind,
}

/// What happened in a chain of layers.
#[derive(Debug, Clone, PartialEq)]
pub enum MiddlewareEventKind {
    /// An invocation began.
    Started,
    /// An invocation ended, with a result or with a throw.
    Ended {
        /// From the beginning of the invocation to its end.
        took: Duration,
        /// The word for what it threw, and the sentence, if it did.
        error: Option<(&'static str, String)>,
    },
    /// A layer has something to say.
    Log {
        /// `trace`, `debug`, `info`, `warn` or `error`.
        level: String,
        /// One line, as the layer wrote it.
        text: String,
    },
    /// A layer emitted an event.
    Emitted {
        /// The event, a JSON object.
        event: String,
    },
    /// A program of a layer wrote to stderr.
    Stderr {
        /// Text of one or more lines.
        text: String,
    },
}
