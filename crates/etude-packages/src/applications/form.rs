//! The result of a command, in the forms that middleware and callers need.

use etude_core::outcome::{Exit, Stderr};
use etude_core::tree;
use etude_invoke::chain::{Outcome, Throw, ThrowKind};
use etude_invoke::{Form, OWN_MIDDLEWARE, refusal};
use etude_process::{Bounded, Cancelled};
use serde_json::Value;

/// The form of a command of an application.
pub(super) struct CommandForm {
    /// True if the output is text, not JSON.
    pub(super) is_text: bool,
}

impl Form for CommandForm {
    type End = Result<Bounded, Cancelled>;

    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome {
        let Ok(end) = end else { return Err(Throw::new(ThrowKind::Failed, name, "it was cancelled")) };
        let text = String::from_utf8_lossy(&end.stdout);
        match &end.exit {
            _ if end.is_too_large => Err(Throw::new(ThrowKind::Failed, name, "it printed more than the limit")),
            Exit::Status(0) if !is_seen => Ok(None),
            Exit::Status(0) if self.is_text => Ok(Some(Value::from(text.as_ref()))),
            Exit::Status(0) => Ok(tree::parse(&text).ok()),
            Exit::Status(status) => Err(Throw::new(ThrowKind::Failed, name, format!("exited with status {status}"))),
            Exit::NotStarted(why) => Err(Throw::new(ThrowKind::Failed, name, why.clone())),
            Exit::Signal { name: signal, .. } => {
                let why = Exit::why_signal(signal);
                Err(Throw::new(ThrowKind::Failed, name, format!("was killed by {signal}{why}")))
            }
        }
    }

    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End {
        let stderr = match (own, &outcome) {
            (Some(Err(given_up)), _) => return Err(given_up),
            // An output that does not match its schema is shown as it is.
            (Some(Ok(end)), Err(throw))
                if throw.kind == ThrowKind::Returns && OWN_MIDDLEWARE.contains(&throw.tool.as_str()) =>
            {
                return Ok(end);
            }
            (Some(Ok(end)), _) => end.stderr,
            (None, _) => Stderr::default(),
        };
        let end = |exit, stdout| Bounded { exit, stdout, is_too_large: false, stderr };
        Ok(match outcome {
            Ok(value) => {
                let stdout = match value.unwrap_or(Value::Null) {
                    Value::String(text) if self.is_text => text,
                    value => value.to_string(),
                };
                end(Exit::Status(0), stdout.into_bytes())
            }
            Err(throw) => end(Exit::NotStarted(refusal(&throw)), Vec::new()),
        })
    }
}
