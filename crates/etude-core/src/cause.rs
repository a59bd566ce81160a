//! Causes of failures for which a fix is known. A journal stores only the message, so a cause is read from it, with the words
//! with which the interpreter writes it.

use crate::failure::{Failure, FailureKind};

/// Between the caller of a model and the reason of the call's failure.
pub(crate) const NO_RESPONSE: &str = " got no response: ";

/// Owner of the `max_tokens` that cut off a response, at the end of a message.
pub(crate) const OF_PROVIDER: &str = "its provider";

/// The limit of an agent's turns, at the end of a message.
pub(crate) const MAX_TURNS: &str = "`max_turns`";

/// A cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'f> {
    /// A model did not respond; the reason is that of the call.
    NoResponse(&'f str),
    /// A response was longer than the provider may make it.
    MaxTokens,
    /// An agent needed more turns than it may take.
    MaxTurns,
    /// A step exceeded its own time limit.
    Timeout,
}

impl Failure {
    /// The cause of the failure, if a fix of it is known.
    pub fn cause(&self) -> Option<Cause<'_>> {
        match self.kind {
            FailureKind::StepTimeout => Some(Cause::Timeout),
            FailureKind::ModelTruncated => {
                let is_of_provider = self.message.trim_end_matches(')').ends_with(OF_PROVIDER);
                is_of_provider.then_some(Cause::MaxTokens)
            }
            FailureKind::BudgetExceeded => self.message.ends_with(MAX_TURNS).then_some(Cause::MaxTurns),
            FailureKind::ModelError | FailureKind::Environment | FailureKind::StageError | FailureKind::StageFailed => {
                self.message.split_once(NO_RESPONSE).map(|(_, reason)| Cause::NoResponse(reason))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages are those of the tests of the interpreter.
    #[test]
    fn a_cause_follows_from_kind_and_message() {
        let truncated = "the response of test/model to llm step `x` was cut off at the maximum length";
        let of_provider = format!("{truncated} (2 tokens; set by `max_tokens` of the step or of its provider)");
        let of_step = format!("{truncated} (`max_tokens` is 2)");
        let turns = "skill `tidy` did not finish within 3 turns; raise the limit with `max_turns`";
        let silent = "stage `a` got no response: HTTP 503";
        for (kind, message, expected) in [
            (FailureKind::ModelTruncated, &*of_provider, Some(Cause::MaxTokens)),
            (FailureKind::ModelTruncated, &of_step, None),
            (FailureKind::BudgetExceeded, turns, Some(Cause::MaxTurns)),
            (FailureKind::BudgetExceeded, "the run reached its budget", None),
            (FailureKind::StageError, silent, Some(Cause::NoResponse("HTTP 503"))),
            (FailureKind::StepFailed, silent, None),
            (FailureKind::StepTimeout, "code step `a` exceeded its timeout of 1 s", Some(Cause::Timeout)),
        ] {
            assert_eq!(Failure::new(kind, message).cause(), expected, "{message}");
        }
    }
}
