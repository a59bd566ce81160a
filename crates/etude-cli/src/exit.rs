//! Exit statuses: a contract with scripts.

use etude::core::failure::Kind;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The run failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// A definition is wrong.
    Definition = 3,
    /// The environment is.
    Environment = 4,
    /// Something waits for somebody.
    Waiting = 5,
    /// A bug of ours.
    Bug = 70,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// The status for a run that ended with failures of these kinds, the first one first.
    pub(crate) fn of_kinds(kinds: &[Kind]) -> Self {
        match kinds.first() {
            None => Self::Done,
            Some(Kind::Cancelled) => Self::Interrupted,
            Some(Kind::DefinitionInvalid) => Self::Definition,
            Some(Kind::Environment) => Self::Environment,
            Some(Kind::Internal) => Self::Bug,
            Some(_) => Self::Failed,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
