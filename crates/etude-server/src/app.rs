//! Interface to the surrounding program: definitions of the served apps, and the runners of their runs.

use std::path::{Path, PathBuf};

use etude::Disk;
use etude::definition::Definition;
use etude::runner::{Error, RunResult, Runner};
use etude_core::model::Usage;
use etude_invoke::invoker::CancellationToken;
use etude_runs::target::Target;
use etude_runtime::driver::Progress;
use etude_runtime::engine::{Boxed, NewRun};
use etude_spec::Diagnostic;
use etude_spec::automation::Automation;
use etude_spec::learned::LearnedState;
use serde_json::{Value, json};

use crate::problem::{Code, Problem};
use crate::token::Caller;

/// Configuration, definitions and models of the surrounding program.
pub trait Apps: Send + Sync {
    /// The directory of a run's app. For a run with a bundle, the directory is created.
    ///
    /// # Errors
    /// There is no such directory: for example, the bundle has been removed, or the database does not answer.
    fn place(&self, run: &NewRun) -> Result<PathBuf, NotLoaded> {
        Ok(PathBuf::from(&run.app))
    }

    /// Called when a run has ended in this process: the directory that [`Apps::place`] created may be removed.
    fn leave(&self, _run_id: &str) {}

    /// Loads a pipeline, machine or skill of the app in the directory `app`.
    ///
    /// # Errors
    /// The app has no such target, or its definition is invalid.
    fn load(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded>;

    /// Checks that the app and its configuration can be read. While they cannot, none of its runs begins.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    fn check_readable(&self, _app: &Path) -> Result<(), String> {
        Ok(())
    }

    /// The models of `definition` without a known price: a limit of money cannot bound their calls.
    fn unpriced(&self, _app: &Path, _definition: &Definition) -> Vec<String> {
        Vec::new()
    }

    /// The runner of `run` with this definition.
    ///
    /// # Errors
    /// The reason why the run cannot execute here, such as a missing key, or a step that its queue does not allow.
    fn runner(&self, run: &NewRun, disk: &Disk, definition: &Definition) -> Result<Runner, String>;

    /// The observer of a run that is about to be driven, such as an exporter of spans; `None` if there is none.
    fn observer(&self, _run: &NewRun) -> Option<Box<dyn RunObserver>> {
        None
    }

    /// Called when a run has ended in this process and its end is recorded: follow-up work may begin, such as the candidate that
    /// shadows the run.
    fn after(&self, _run: &NewRun, _ended: &RunResult) {}

    /// The document of `etude list` for the app, with its diagnostics.
    ///
    /// # Errors
    /// The reason why the app cannot be read.
    fn list(&self, app: &Path) -> Result<Value, String>;

    /// The skills that agents may use in the app: names and descriptions.
    fn skills(&self, _app: &Path) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The text of the skill `name`; `None` if agents may not use such a skill.
    fn skill(&self, _app: &Path, _name: &str) -> Option<String> {
        None
    }

    /// The document of `etude route` for a request in words, and the usage of its model calls.
    ///
    /// # Errors
    /// The reason why the request cannot be routed, such as a value that does not fit its parameter.
    fn route(&self, _app: &Path, _request: &str) -> Result<(Value, Usage), Problem> {
        Err(Problem::not_found("this server routes no requests"))
    }

    /// Runs a command of an application: `argv` begins with its declared path. The command ends when it is given up.
    ///
    /// # Errors
    /// The reason why the command could not be run.
    fn command(&self, _app: &Path, _command: AppCommand) -> Result<Ran, String> {
        Err("this server runs no commands".to_owned())
    }

    /// The document of `etude learn status` for the app.
    ///
    /// # Errors
    /// The reason why there is no status, such as that learning is switched off.
    fn learned(&self, _app: &Path) -> Result<Value, Problem> {
        Ok(json!({"pipelines": []}))
    }

    /// The state of one learned pipeline, with the origin of its values; `None` if the app has learned none by this name.
    ///
    /// # Errors
    /// See [`Apps::learned`].
    fn learned_pipeline(&self, _app: &Path, _name: &str) -> Result<Option<Value>, Problem> {
        Ok(None)
    }

    /// Promotes or demotes a learned pipeline: the document of `etude learn promote`; `None` if there is no such pipeline.
    ///
    /// # Errors
    /// The reason why the state does not change.
    fn move_learned(&self, _app: &Path, _name: &str, _change: Move) -> Result<Option<Value>, Problem> {
        Ok(None)
    }

    /// The schedules, webhooks, notices and limits of the app, as its file is now.
    ///
    /// # Errors
    /// The reason why the file cannot be read.
    fn automation(&self, app: &Path) -> Result<Automation, String> {
        let _ = app;
        Ok(Automation::default())
    }

    /// A text of the configuration with its variables replaced; `None` if one of them is not set.
    fn expand(&self, text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}

/// A person's change to the state of a learned pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// Moves the pipeline to a higher state, if the conditions hold.
    Promote {
        /// The new state; `None`: one state up.
        to: Option<LearnedState>,
        /// True to promote without enough comparisons, and with writes beyond `learn.writes`.
        accepts_risk: bool,
        /// The name of the token that accepts the risk.
        by: String,
    },
    /// Removes the pipeline from the routing table.
    Demote {
        /// The displayed reason.
        reason: Option<String>,
    },
}

/// Observer of one run in this process.
pub trait RunObserver: Send {
    /// Takes an event of the driver. It must not block.
    fn observe(&mut self, progress: &Progress<'_>);

    /// Called when the run has ended, waits, or was left to another process.
    fn end<'a>(self: Box<Self>, ended: &'a Result<RunResult, Error>) -> Boxed<'a, ()>;
}

/// A command of an application that a server runs.
#[derive(Debug)]
pub struct AppCommand {
    /// The slug of the application.
    pub slug: String,
    /// The words of the command, which begin with its declared path.
    pub argv: Vec<String>,
    /// The text on its stdin; `None`: an empty stdin.
    pub stdin: Option<String>,
    /// Cancelled when a stopping server gives the command up.
    pub given_up: CancellationToken,
}

/// Outcome of a command, with its envelope (C-1.13) as JSON.
#[derive(Debug)]
pub enum Ran {
    /// The command has run, or a person has denied it.
    Ended(String),
    /// The command waits for a person's confirmation.
    Unconfirmed(String),
    /// There is no such package or command.
    Unknown(String),
    /// The package has errors.
    Invalid(String),
    /// The package is not trusted.
    NotTrusted(String),
}

/// Reason why a target cannot be loaded.
#[derive(Debug)]
pub enum NotLoaded {
    /// The app has no such target.
    Unknown {
        /// The targets of the app.
        known: Vec<String>,
    },
    /// The definition has errors.
    Invalid(Vec<Diagnostic>),
    /// The app or the configuration cannot be read, for example while it is edited or replaced.
    Unreadable(String),
    /// The storage of the app does not answer, so its state is unknown (K-23).
    Unreachable(String),
}

impl NotLoaded {
    /// The same without targets that the caller may not see (S-16).
    pub(crate) fn seen_by(mut self, caller: &Caller) -> Self {
        if let Self::Unknown { known } = &mut self {
            known.retain(|name| caller.covers(name));
        }
        self
    }
}

/// The problem of a target that cannot be loaded. `pointer` is the member that names it.
pub(crate) fn not_loaded(error: NotLoaded, pointer: &str, name: &str) -> Problem {
    match error {
        NotLoaded::Unknown { known } => {
            let problem = Problem::invalid(pointer, format!("the app has no `{name}`"));
            crate::query::hinted(problem, name, &known.iter().map(String::as_str).collect::<Vec<_>>())
        }
        NotLoaded::Invalid(diagnostics) => {
            let documents: Vec<Value> = diagnostics.iter().map(etude_spec::render::json).collect();
            Problem::new(Code::DefinitionInvalid, format!("the definition of `{name}` has errors"))
                .with("diagnostics", documents)
        }
        // The contract has two codes with this status, and the server does not drain.
        NotLoaded::Unreadable(why) | NotLoaded::Unreachable(why) => Problem::new(Code::JournalUnavailable, why),
    }
}
