//! Exit statuses: a contract with scripts.

use etude_core::failure::{Failure, FailureKind};

/// Exit status of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The request succeeded.
    Done = 0,
    /// The run failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// A definition is invalid.
    Definition = 3,
    /// The environment lacks something: a key, a program, space.
    Environment = 4,
    /// A run or a command waits for a person.
    Waiting = 5,
    /// An internal error.
    Bug = 70,
    /// Stopped by Ctrl-C or a signal.
    Interrupted = 130,
}

impl Exit {
    /// Status for a run that ended with failures of these kinds, in order.
    pub(crate) fn of_kinds(kinds: &[FailureKind]) -> Self {
        match kinds.first() {
            None => Self::Done,
            Some(FailureKind::Cancelled) => Self::Interrupted,
            Some(FailureKind::DefinitionInvalid) => Self::Definition,
            Some(FailureKind::Environment) => Self::Environment,
            Some(FailureKind::Internal) => Self::Bug,
            Some(_) => Self::Failed,
        }
    }
}

impl Exit {
    /// Status for a run that ended with these failures, in order.
    pub(crate) fn of_failures(failures: &[Failure]) -> Self {
        let lacks = |failure: &Failure| {
            let details = failure.details.as_ref().and_then(|details| details.value().ok());
            details.is_some_and(|details| details["code"] == MISSING_CAPABILITY)
        };
        if failures.first().is_some_and(lacks) {
            return Self::Environment;
        }
        let kinds: Vec<FailureKind> = failures.iter().map(|failure| failure.kind).collect();
        Self::of_kinds(&kinds)
    }
}

/// Code word of a stage error that counts as an environment fault: the model lacks a capability that stages need.
pub(crate) const MISSING_CAPABILITY: &str = "MissingCapability";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
