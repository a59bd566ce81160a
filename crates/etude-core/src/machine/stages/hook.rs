//! A script of a machine: one process, its time limit, and its reply (`b-stages` §20.4).

use std::task::Poll;

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::effect::{Chunk, Effect, EffectId, Inherits, ProcessCall, Protocol, Setting, Stdin};
use crate::machine::{Cx, Path};
use crate::outcome::{Exit, Outcome, ProcessEnd, Stdout};
use crate::plan::stages::Script;
use crate::report::duration;

/// A script in progress.
#[derive(Debug)]
pub(super) struct Hook {
    id: EffectId,
    timer: EffectId,
    call: ProcessCall,
    stdin: Document,
    timeout_ms: u64,
    is_late: bool,
    is_answered: bool,
}

/// Reply of a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// No output or only blanks, with exit status 0.
    Nothing,
    /// A JSON value, with exit status 0.
    Value(Value),
    /// The script exited with an error, or printed something that is not JSON.
    Broken {
        why: String,
        exit_code: Option<i32>,
        stderr_tail: String,
        /// The output on stdout, if that is JSON.
        stdout: Option<Value>,
    },
}

impl Reply {
    /// Facts about a script's process, for the context of a failure.
    pub(super) fn facts(exit_code: Option<i32>, stderr_tail: &str) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("exitCode".to_owned(), json!(exit_code));
        facts.insert("stderrTail".to_owned(), json!(stderr_tail));
        facts
    }

    /// The facts about this reply's process.
    pub(super) fn fields(&self) -> Map<String, Value> {
        match self {
            Self::Broken { exit_code, stderr_tail, .. } => Self::facts(*exit_code, stderr_tail),
            Self::Nothing | Self::Value(_) => Self::facts(Some(0), ""),
        }
    }
}

impl Hook {
    /// A script that runs as effect `path`. `key` stays the same if its stage restarts.
    pub(super) fn new(path: &Path, key: &str, attempt: u32, script: &Script, dir: &str, stdin: Document) -> Self {
        let call = ProcessCall {
            command: script.command.clone(),
            dir: dir.to_owned(),
            env: Vec::new(),
            key: key.to_owned(),
            attempt,
            stdin: Stdin(vec![Chunk::Text(stdin.to_string().into())]),
            protocol: Protocol::Document,
            // The script only decides, and needs nothing of the user for that (B-20.4).
            setting: Setting { inherits: Inherits::Basics, ..Setting::default() },
        };
        let (id, timer) = (path.attempt(1), path.aside("timeout"));
        Self { id, timer, call, stdin, timeout_ms: script.timeout_ms, is_late: false, is_answered: false }
    }

    /// Ready with the script's reply, or `None` if it was abandoned.
    pub(super) fn poll(&mut self, cx: &mut Cx, ledger: Option<usize>) -> Poll<Option<Reply>> {
        let call = &self.call;
        if let Poll::Ready(done) = cx.run_effect(&self.id, || Effect::Process(Box::new(call.clone()))) {
            cx.forget(&self.timer);
            cx.book(ledger, &self.id, &done);
            return Poll::Ready(match done.outcome {
                Outcome::Process(end) if !self.is_late => Some(reply(&end)),
                outcome if self.is_late => Some(self.late(outcome)),
                _ => None,
            });
        }
        let ms = self.timeout_ms;
        if !self.is_late && cx.run_effect(&self.timer, || Effect::Sleep { ms, deadline: false }).is_ready() {
            self.is_late = true;
            cx.abandon(&self.id);
        }
        Poll::Pending
    }

    /// The reply of a script that did not end in time; its stderr may explain why.
    fn late(&self, outcome: Outcome) -> Reply {
        let stderr_tail = match outcome {
            Outcome::Stopped(stderr) | Outcome::Process(ProcessEnd { stderr, .. }) => stderr.tail,
            _ => String::new(),
        };
        let why = format!("did not end within {}", duration(self.timeout_ms));
        Reply::Broken { why, exit_code: None, stderr_tail, stdout: None }
    }

    /// The same script again, with the answer to its question (B-20.4).
    pub(super) fn answered(&self, answer: &Value) -> Self {
        let stdin = self.stdin.overlaid(json!({"answer": answer}));
        let mut call = self.call.clone();
        call.key = format!("{}-answered", self.call.key);
        call.stdin = Stdin(vec![Chunk::Text(stdin.to_string().into())]);
        let path = Path::root(&format!("{}-answered", self.id));
        let (id, timer) = (path.attempt(1), path.aside("timeout"));
        Self { id, timer, call, stdin, timeout_ms: self.timeout_ms, is_late: false, is_answered: true }
    }

    /// True if the script was called with an answer.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Identifies the script; stays the same if its stage restarts.
    pub(super) fn key(&self) -> &str {
        &self.call.key
    }

    /// Id of the effect for a question of the script.
    pub(super) fn question_id(&self) -> EffectId {
        Path::root(self.id.as_str()).aside("ask")
    }

    /// Abandons the script; it is polled until it is gone.
    pub(super) fn stop(&self, cx: &mut Cx) {
        cx.abandon(&self.id);
    }

    /// Abandons the script for good: its process died with the run's process.
    pub(super) fn forget(&self, cx: &mut Cx) {
        cx.forget(&self.id);
        cx.forget(&self.timer);
    }
}

/// The reply in the output of a script's process.
pub(super) fn reply(end: &ProcessEnd) -> Reply {
    let stdout = match &end.stdout {
        Stdout::Value(json) => json.value().ok(),
        Stdout::Unusable { .. } => None,
    };
    let broken = |why: String, exit_code| Reply::Broken {
        why,
        exit_code,
        stderr_tail: end.stderr.tail.clone(),
        stdout: stdout.clone(),
    };
    match (&end.exit, &end.stdout) {
        (Exit::Status(0), Stdout::Value(_)) => match stdout {
            Some(value) => Reply::Value(value),
            None => broken("printed a value that cannot be parsed".to_owned(), Some(0)),
        },
        (Exit::Status(0), stdout) if stdout.is_nothing() => Reply::Nothing,
        (Exit::Status(0), Stdout::Unusable { problem, .. }) => {
            broken(format!("must print one JSON object: {problem}"), Some(0))
        }
        (Exit::Status(status), _) => broken(format!("exited with status {status}"), Some(*status)),
        (Exit::Signal { name, .. }, _) => broken(format!("was killed by {name}{}", Exit::why_signal(name)), None),
        (Exit::NotStarted(why), _) => broken(format!("could not be started: {why}"), None),
    }
}
