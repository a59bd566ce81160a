//! Failures that follow from the outcome of an effect, whatever construct started it.

use super::{Cx, NAMES_LIMIT};
use crate::effect::EffectId;
use crate::failure::{Failure, FailureKind};
use crate::model::{CallFailure, CallFailureKind, Usage};
use crate::outcome::{Exit, ProcessEnd};

/// An outcome that no effect of this kind can have: a damaged journal or a defect of ours.
pub(super) fn not_an_answer(id: &EffectId) -> Failure {
    Failure::new(FailureKind::Internal, format!("the outcome of `{id}` is of another kind than the effect"))
}

/// Says how a process ended, if that is a failure.
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

/// What a call without an answer comes to for the caller that wanted one.
pub(super) fn call_failed(who: &str, failure: &CallFailure) -> Failure {
    let kind = match failure.kind {
        CallFailureKind::Environment => FailureKind::Environment,
        CallFailureKind::Model | CallFailureKind::NotRecorded => FailureKind::ModelError,
    };
    Failure::new(kind, format!("{who} got no answer: {}", failure.message))
}

/// At how many tokens an answer was cut off, and which `max_tokens` decides on that. Earlier runs were not shown it.
pub(super) fn limit(cx: &Cx, usage: &Usage, of: &str) -> String {
    let count = match usage.output_tokens {
        _ if cx.facts.abi < NAMES_LIMIT => return String::new(),
        0 => String::new(),
        tokens => format!("{tokens} tokens; "),
    };
    format!(" ({count}`max_tokens` of {of} decides)")
}
