//! The document about a command that was run, or was not (C-1.13).

use std::io::{self, Write};

use etude_spec::{Diagnostic, render};
use serde_json::value::RawValue;
use serde_json::{Value, json};

etude_core::words! {
    /// What became of a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Status {
        /// It ended well and said what it should.
        Succeeded = "succeeded",
        /// It did not end well.
        Failed = "failed",
        /// It ended well and did not keep to the contract.
        ContractError = "contract_error",
        /// It took too long.
        TimedOut = "timed_out",
        /// It was not started.
        Refused = "refused",
        /// It waits for a person.
        ConfirmationRequired = "confirmation_required",
    }
}

/// What became of a command, with everything about it.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The state that the command ended in.
    pub status: Status,
    /// The slug of the package, as it was called.
    pub slug: String,
    /// The version of the package, as written in its contract; empty if the package was not found.
    pub version: String,
    /// The declared path of the command.
    pub command: String,
    /// Everything that was started, or would have been.
    pub argv: Vec<String>,
    /// The exit status; `None` if there is none.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What it printed, as JSON.
    pub output: Option<Box<RawValue>>,
    /// The beginning of what it printed, where that is no JSON.
    pub stdout_head: Option<String>,
    /// The end of what it wrote on stderr.
    pub stderr: String,
    /// What to say about it.
    pub diagnostics: Vec<Diagnostic>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The request that waits for a person.
    pub confirmation: Option<Value>,
}

impl Envelope {
    pub(super) fn new(
        status: Status,
        slug: &str,
        version: &str,
        command: &str,
        argv: Vec<String>,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        Self {
            status,
            slug: slug.to_owned(),
            version: version.to_owned(),
            command: command.to_owned(),
            argv,
            exit_code: None,
            signal: None,
            output: None,
            stdout_head: None,
            stderr: String::new(),
            diagnostics,
            duration_ms: 0,
            confirmation: None,
        }
    }

    /// Writes the document as one line. The output is written as the command printed it: its numbers keep every digit.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let before = json!({
            "status": self.status.word(),
            "slug": self.slug,
            "version": self.version,
            "command": self.command,
            "argv": self.argv,
            "exitCode": self.exit_code,
        });
        let mut after = json!({
            "stderr": self.stderr,
            "diagnostics": self.diagnostics.iter().map(render::json).collect::<Vec<_>>(),
            "durationMs": self.duration_ms,
        });
        let optional = [
            ("signal", self.signal.as_deref().map(Value::from)),
            ("stdoutHead", self.stdout_head.as_deref().map(Value::from)),
            ("confirmation", self.confirmation.clone()),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                after[key] = value;
            }
        }
        let (before, after) = (before.to_string(), after.to_string());
        let output = self.output.as_deref().map_or("null", RawValue::get);
        let open = before.strip_suffix('}').unwrap_or(&before);
        let rest = after.strip_prefix('{').unwrap_or(&after);
        // A document is one line, however the command laid its answer out: line breaks in JSON stand between tokens only.
        writeln!(out, "{open},\"output\":{},{rest}", output.replace(['\n', '\r'], " "))
    }
}
