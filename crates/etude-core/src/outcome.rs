//! Outcomes of effects. Failures are data.

use crate::data::Json;
use crate::model::{CallFailure, ModelResponse};
use crate::tool::{ToolList, ToolReply};

/// The end of an effect, with the time it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The result, or the reason why there is none.
    pub outcome: Outcome,
    /// Duration of the effect, in milliseconds.
    pub elapsed_ms: u64,
}

/// The result of an effect, one variant per kind of effect and of end.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A process was started and has ended, or could not be started.
    Process(ProcessEnd),
    /// A model responded.
    Response(Box<ModelResponse>),
    /// A model call failed.
    CallFailed(CallFailure),
    /// The tools that an agent may call were listed.
    Opened(Box<ToolList>),
    /// A tool was called, or a person must approve the call first.
    Tool(Box<ToolReply>),
    /// A text was searched for secrets: the names of the secrets in it.
    Scanned(Vec<String>),
    /// The time is up.
    Slept,
    /// A person or a policy decided the gate.
    Decided(Decision),
    /// A cached output was looked up; `None` if there is none that fits.
    Recalled(Option<Json>),
    /// An output was put into the cache.
    Remembered,
    /// The effect was abandoned on request; everything it had started is gone.
    Abandoned,
    /// A process was abandoned on request; it had printed this on stderr.
    Stopped(Stderr),
}

/// The end of a process, with its output.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessEnd {
    /// Exit status, signal, or the reason why the process never started.
    pub exit: Exit,
    /// Output on stdout.
    pub stdout: Stdout,
    /// Output on stderr.
    pub stderr: Stderr,
    /// Execution environment of the process: sandbox and interpreter.
    pub conditions: Conditions,
}

/// The execution environment of a process, if a special one was requested.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Use of a warm interpreter; `None` if none was requested.
    pub worker: Option<Warmth>,
    /// The enforced sandbox rules in words: `no network; read …`; `None` if there are none.
    pub sandbox: Option<String>,
}

/// Use of a warm interpreter for a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warmth {
    /// The process was forked from the warm interpreter.
    Warm,
    /// The process ran in a new interpreter, for this reason.
    Cold(String),
}

/// The end of a process, as its parent observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// The process ended with this status.
    Status(i32),
    /// A signal ended the process, which did not handle it.
    Signal {
        /// The signal's number on the system that ran the process.
        number: i32,
        /// The signal's name, such as `SIGKILL`.
        name: String,
    },
    /// The process was never started, for this reason.
    NotStarted(String),
}

impl Exit {
    /// True for exit status 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Status(0)
    }

    /// Explanation of the signal `name` that ended a process, to follow the name in a sentence; empty if the name is
    /// enough. Only the signals that stop a process at the terminal have one: its host then ends it.
    pub fn why_signal(name: &str) -> &'static str {
        match name {
            "SIGTTIN" | "SIGTTOU" => ", because it read from the terminal, which is not available",
            _ => "",
        }
    }
}

/// Stdout of a process, parsed by the protocol of its effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Stdout {
    /// The value of `output` for a code step, the whole document for a validator.
    Value(Json),
    /// The output breaks the protocol.
    Unusable {
        /// The fault, as a sentence fragment: `stdout is empty`, `text after the JSON document`.
        problem: String,
        /// The beginning (or the faulty part) of the output, made printable; empty if there was no output.
        found: String,
    },
}

impl Stdout {
    /// The problem of a process without any output.
    pub const EMPTY: &str = "stdout is empty";
    /// The problem of a process with blanks as its only output.
    pub const BLANK: &str = "stdout contains only whitespace";

    /// True if the process printed nothing but blanks. Output that was lost does not count.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Unusable { problem, .. } if [Self::EMPTY, Self::BLANK].contains(&problem.as_str()))
    }
}

/// Stderr of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stderr {
    /// The last lines, at most 8 KiB, with invalid UTF-8 replaced.
    pub tail: String,
    /// Total number of lines.
    pub lines: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Digest of the blob with all of stderr, if it is longer than `tail`.
    pub blob: Option<crate::digest::Digest>,
}

/// The decision at a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// True if approved, false if denied.
    pub approved: bool,
    /// A structured answer, or `null`.
    pub answer: Json,
    /// The person, as the front end names them, such as by a token's name.
    pub by: String,
    /// Time of the decision, as RFC 3339 in UTC.
    pub at: String,
    /// The reason given for a denial.
    pub reason: Option<String>,
}
