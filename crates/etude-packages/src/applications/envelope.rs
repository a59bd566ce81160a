//! The result document of a command, whether it ran or not (C-1.13).

use std::io::{self, Write};

use etude_spec::{Diagnostic, render};
use serde_json::value::RawValue;
use serde_json::{Value, json};

etude_core::words! {
    /// The status of a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Status {
        /// The command succeeded and printed what its contract requires.
        Succeeded = "succeeded",
        /// The command failed.
        Failed = "failed",
        /// The command succeeded but violated its contract.
        ContractError = "contract_error",
        /// The command exceeded its time limit.
        TimedOut = "timed_out",
        /// The command was not started.
        Refused = "refused",
        /// The command waits for a person's confirmation.
        ConfirmationRequired = "confirmation_required",
    }
}

/// The result of a command, with all details.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Status of the command.
    pub status: Status,
    /// Slug of the package, as it was called.
    pub slug: String,
    /// Version of the package, as written in its contract; empty if the package was not found.
    pub version: String,
    /// Declared path of the command.
    pub command: String,
    /// The complete command line, even if it was not started.
    pub argv: Vec<String>,
    /// Exit status; `None` if the command has none.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended the command.
    pub signal: Option<String>,
    /// Stdout as one JSON value.
    pub output: Option<Box<RawValue>>,
    /// Beginning of a stdout that is not JSON.
    pub stdout_head: Option<String>,
    /// End of its stderr.
    pub stderr: String,
    /// Findings about the command.
    pub diagnostics: Vec<Diagnostic>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// The open request for a person's confirmation.
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

    /// Writes the document as one line. The output appears as the command printed it, so its numbers keep every digit.
    ///
    /// # Errors
    /// Writing to `out` failed.
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
        // A document is one line, however the command formats its output: line breaks in JSON only occur between tokens.
        writeln!(out, "{open},\"output\":{},{rest}", output.replace(['\n', '\r'], " "))
    }
}
