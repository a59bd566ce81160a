//! What became of an effect. Failures are data.

use crate::data::Json;
use crate::model::{CallFailure, ModelResponse};
use crate::tool::{ToolList, ToolReply};

/// The end of an effect, with the time it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The result, or the reason why there is none.
    pub outcome: Outcome,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// What became of an effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A process was started and has ended, or could not be started.
    Process(ProcessEnd),
    /// A model answered.
    Response(Box<ModelResponse>),
    /// A model gave no answer.
    CallFailed(CallFailure),
    /// The tools that an agent may call.
    Opened(Box<ToolList>),
    /// A tool was called, or must not be before somebody was asked.
    Tool(Box<ToolReply>),
    /// A text was looked through: the names of the secrets in it.
    Scanned(Vec<String>),
    /// The time was up.
    Slept,
    /// A person or a policy decided the gate.
    Decided(Decision),
    /// A cached output was looked up.
    Recalled(Option<Json>),
    /// An output was put into the cache.
    Remembered,
    /// The effect was given up, as asked; whatever it had started is gone.
    Abandoned,
    /// The same of a process that had printed this on stderr by then.
    Stopped(Stderr),
}

/// The end of a process, with its output.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessEnd {
    /// Exit status, signal, or the reason why it never started.
    pub exit: Exit,
    /// What it printed on stdout.
    pub stdout: Stdout,
    /// What it printed on stderr.
    pub stderr: Stderr,
    /// What it ran under: sandbox and interpreter.
    pub conditions: Conditions,
}

/// Under what a process ran, where something was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Whether a warm interpreter ran it; `None`: none was asked for.
    pub worker: Option<Warmth>,
    /// What was enforced, in words: `no network; read …`; `None`: nothing.
    pub sandbox: Option<String>,
}

/// Whether a warm interpreter ran a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warmth {
    /// A fork of the warm interpreter ran it.
    Warm,
    /// A new interpreter had to; why.
    Cold(String),
}

/// The end of a process, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// Killed by a signal that it did not handle.
    Signal {
        /// The signal's number on the system that ran the process.
        number: i32,
        /// Its name, such as `SIGKILL`.
        name: String,
    },
    /// It was never started; why.
    NotStarted(String),
}

impl Exit {
    /// True for exit status 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Status(0)
    }

    /// Why the signal `name` ended a process, to follow the name in a sentence; empty where the name says it. A process that
    /// the terminal stops is ended by its host.
    pub fn why_signal(name: &str) -> &'static str {
        match name {
            "SIGTTIN" | "SIGTTOU" => ", because it asked for input at the terminal, which it does not have",
            _ => "",
        }
    }
}

/// What a process printed on stdout, read as the protocol of its effect demands.
#[derive(Debug, Clone, PartialEq)]
pub enum Stdout {
    /// For a code step the value of `output`; for a validator the whole document.
    Value(Json),
    /// Not what the protocol demands.
    Unusable {
        /// What is wrong, as a sentence fragment: `stdout is empty`, `text after the JSON document`.
        problem: String,
        /// The beginning (or the offending part) of what was printed, made printable; empty if nothing was.
        found: String,
    },
}

impl Stdout {
    /// The problem of a process that printed not one byte.
    pub const EMPTY: &str = "stdout is empty";
    /// The problem of one that printed blanks alone.
    pub const BLANK: &str = "stdout holds nothing but blanks";

    /// True if nothing was printed that could be meant. An output that was lost is not that.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Unusable { problem, .. } if [Self::EMPTY, Self::BLANK].contains(&problem.as_str()))
    }
}

/// What a process printed on stderr.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stderr {
    /// The last lines, at most 8 KiB, with invalid UTF-8 replaced.
    pub tail: String,
    /// How many lines there were in all.
    pub lines: u64,
    /// How many bytes there were in all.
    pub bytes: u64,
    /// Where all of it is kept, if it is longer than `tail`.
    pub blob: Option<crate::digest::Digest>,
}

/// The answer to a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Approved or denied.
    pub approved: bool,
    /// A structured answer, or `null`.
    pub answer: Json,
    /// The person as the front end names them, such as a token's name.
    pub by: String,
    /// When, as RFC 3339 in UTC.
    pub at: String,
    /// The reason given for a denial.
    pub reason: Option<String>,
}
