//! Reasons why a command cannot do its work: failures with an exit status and hints, or diagnostics.

use etude_core::failure::{Failure, FailureKind};
use etude_core::model::Usage;
use etude_runtime::engine::RunState;
use etude_spec::Diagnostic;

use crate::exit::Exit;

/// Reason why a command cannot do its work.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    pub(crate) failures: Vec<Failure>,
    pub(crate) hints: Vec<String>,
    /// Text for people in place of the failures: a headline, and diagnostics with the lines of their files.
    pub(crate) drawn: Option<String>,
    /// Usage of model calls before the problem.
    pub(crate) usage: Usage,
    /// Id of the run that stopped.
    pub(crate) run_id: Option<String>,
    /// State of the run, if it continues without the command.
    pub(crate) state: Option<RunState>,
}

impl Problem {
    pub(crate) fn new(exit: Exit, kind: FailureKind, message: impl Into<String>) -> Self {
        Self::of(exit, Failure::new(kind, message))
    }

    /// The end of a command that only follows a run, by a signal. The run continues in its state.
    pub(crate) fn left(id: &str, state: RunState) -> Self {
        let message = format!("a signal stopped following run `{id}`; the run continues");
        let problem = Self::new(Exit::Interrupted, FailureKind::Cancelled, message).of_run(id);
        Self { state: Some(state), ..problem }
    }

    /// A problem with a single failure, and no hints yet.
    pub(crate) fn of(exit: Exit, failure: Failure) -> Self {
        Self { exit, ..Self::of_failures(vec![failure]) }
    }

    /// A problem of wrong usage with several failures, and no hints yet.
    pub(crate) fn of_failures(failures: Vec<Failure>) -> Self {
        let (hints, usage) = (Vec::new(), Usage::default());
        Self { exit: Exit::Usage, failures, hints, drawn: None, usage, run_id: None, state: None }
    }

    /// Sets the usage of the model calls before the problem.
    pub(crate) fn spent(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }

    /// Sets the run that the problem stopped, and that can be resumed.
    pub(crate) fn of_run(self, run_id: &str) -> Self {
        Self { run_id: Some(run_id.to_owned()), ..self }
    }

    /// Adds the usage of earlier model calls.
    pub(crate) fn spent_before(mut self, usage: Usage) -> Self {
        self.usage.add(&usage);
        self
    }

    /// Problem of wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, FailureKind::InputInvalid, message)
    }

    /// Problem of a JSON text that becomes a tree, if a number would be rounded there.
    pub(crate) fn of_rounded(json: &str) -> Option<Self> {
        let number = etude_core::exact::rounded_whole(json)?;
        Some(Self::usage(format!("the number {number} would be rounded")).hint("write it as a string"))
    }

    /// Problem of the user's environment.
    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Self::new(Exit::Environment, FailureKind::Environment, message)
    }

    /// Messages of all failures, without the hints, as people read them.
    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn message(&self) -> String {
        if let Some(drawn) = &self.drawn {
            return drawn.clone();
        }
        self.failures.iter().map(|failure| failure.message.as_str()).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// Messages of all failures of a problem in one line, each with its place.
pub(crate) fn located(problem: &Problem) -> String {
    problem.failures.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// Message of a failure in one line, with its place.
pub(crate) fn line(failure: &Failure) -> String {
    match &failure.origin {
        Some(at) => format!("{}:{}:{}: {}", at.file, at.line, at.column, failure.message),
        None => failure.message.clone(),
    }
}

/// Reason why nothing can run.
#[derive(Debug)]
pub(crate) enum Refused {
    Problem(Problem),
    /// Diagnostics of definitions, and the usage of model calls before them.
    Invalid(Vec<Diagnostic>, Usage),
}

impl Refused {
    /// Adds the usage of earlier model calls.
    pub(crate) fn spent(self, usage: Usage) -> Self {
        match self {
            Self::Problem(problem) => Self::Problem(problem.spent_before(usage)),
            Self::Invalid(diagnostics, mut before) => {
                before.add(&usage);
                Self::Invalid(diagnostics, before)
            }
        }
    }
}

impl From<Vec<Diagnostic>> for Refused {
    fn from(diagnostics: Vec<Diagnostic>) -> Self {
        Self::Invalid(diagnostics, Usage::default())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

#[cfg(test)]
mod tests {
    use etude_core::plan::Origin;

    use super::*;

    /// cli: responses of a server and findings of `etude doctor` name the place of each fault of a configuration, in one line.
    #[test]
    fn faults_are_in_one_line_with_their_places() {
        let origin = Origin { file: "etude.yaml".into(), line: 2, column: 7 };
        let mut of_file = Failure::new(FailureKind::DefinitionInvalid, "`x` is not known");
        of_file.origin = Some(origin);
        let failures = vec![of_file, Failure::new(FailureKind::Environment, "the disk is full")];
        let problem = Problem { drawn: Some("error:\n  --> etude.yaml".to_owned()), ..Problem::of_failures(failures) };
        assert_eq!(located(&problem), "etude.yaml:2:7: `x` is not known; the disk is full");
    }
}
