//! Failures that follow from the outcome of an effect, independent of the construct that started it.

use super::{Cx, NAMES_LIMIT};
use crate::cause::NO_RESPONSE;
use crate::effect::EffectId;
use crate::failure::{Failure, FailureKind};
use crate::model::{CallFailure, CallFailureKind, Usage};
use crate::outcome::{Exit, ProcessEnd};

/// The failure for an outcome of the wrong kind: the journal is damaged, or there is an internal error.
pub(super) fn unexpected_outcome(id: &EffectId) -> Failure {
    Failure::new(FailureKind::Internal, format!("internal error: the outcome of `{id}` does not match its effect"))
}

/// Turns the end of a process into a failure, unless its exit status is allowed.
pub(super) fn check_exit(what: &str, end: &ProcessEnd, allowed: &[i32]) -> Result<(), Failure> {
    let mut failure = match &end.exit {
        Exit::Status(status) if allowed.contains(status) => return Ok(()),
        Exit::Status(status) => {
            let mut failure = Failure::new(FailureKind::StepFailed, format!("{what} exited with status {status}"));
            failure.exit_status = Some(*status);
            failure
        }
        Exit::Signal { number, name } => {
            let why = Exit::why_signal(name);
            let message = format!("{what} was killed by {name} (signal {number}){why}");
            let mut failure = Failure::new(FailureKind::StepFailed, message);
            failure.signal = Some(name.clone());
            failure
        }
        Exit::NotStarted(why) => Failure::new(FailureKind::StepFailed, format!("{what} could not be started: {why}")),
    };
    failure.stderr = Some(end.stderr.clone());
    Err(failure)
}

/// The failure of the caller of a model call that failed.
pub(super) fn call_failed(who: &str, failure: &CallFailure) -> Failure {
    let kind = match failure.kind {
        CallFailureKind::Environment => FailureKind::Environment,
        CallFailureKind::Model | CallFailureKind::NotRecorded => FailureKind::ModelError,
    };
    Failure::new(kind, format!("{who}{NO_RESPONSE}{}", failure.message))
}

/// The number of tokens at which a response was cut off, with the owner of the `max_tokens` that decides. Empty in
/// earlier runs.
pub(super) fn limit(cx: &Cx, usage: &Usage, of: &str) -> String {
    let count = match usage.output_tokens {
        _ if cx.facts.abi < NAMES_LIMIT => return String::new(),
        0 => String::new(),
        tokens => format!("{tokens} tokens; "),
    };
    format!(" ({count}set by `max_tokens` of {of})")
}
