//! What the program around the server knows: the definitions of the served apps, and what their runs are made with.

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
use etude_spec::learned::State;
use serde_json::{Value, json};

use crate::problem::{Code, Problem};

/// Configuration, definitions and models, which the program around the server knows.
pub trait Apps: Send + Sync {
    /// The directory in which the app of a run lies. That of a run with a bundle is made.
    ///
    /// # Errors
    /// Why there is none, such as a bundle that is not kept any more, or a database that does not answer.
    fn place(&self, run: &NewRun) -> Result<PathBuf, NotLoaded> {
        Ok(PathBuf::from(&run.app))
    }

    /// A run has ended here: what [`Apps::place`] made for it may go.
    fn leave(&self, _run_id: &str) {}

    /// Loads a pipeline, machine or skill of the app in the directory `app`.
    ///
    /// # Errors
    /// There is no such target, or its definition does not hold.
    fn load(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded>;

    /// Whether the app and its configuration can be read. While they cannot, none of its runs begins.
    ///
    /// # Errors
    /// Why not.
    fn check_readable(&self, _app: &Path) -> Result<(), String> {
        Ok(())
    }

    /// The models that a run of `definition` may ask and whose price is not known here: no limit of money bounds them.
    fn unpriced(&self, _app: &Path, _definition: &Definition) -> Vec<String> {
        Vec::new()
    }

    /// What the run `run` of `definition` is made with.
    ///
    /// # Errors
    /// Why it cannot run here, such as a missing key, or a step that its queue does not allow.
    fn runner(&self, run: &NewRun, disk: &Disk, definition: &Definition) -> Result<Runner, String>;

    /// What follows a run that is about to be driven, such as an exporter of spans; `None` if nothing does.
    fn observer(&self, _run: &NewRun) -> Option<Box<dyn RunObserver>> {
        None
    }

    /// A run has ended here: what follows from it may begin, such as the candidate that shadows it. Its own end is known already.
    fn after(&self, _run: &NewRun, _ended: &RunResult) {}

    /// The document of `etude list` for the app, with its diagnostics.
    ///
    /// # Errors
    /// Why the app cannot be read.
    fn list(&self, app: &Path) -> Result<Value, String>;

    /// The skills that agents may use in the app: names and descriptions.
    fn skills(&self, _app: &Path) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The text of such a skill.
    fn skill(&self, _app: &Path, _name: &str) -> Option<String> {
        None
    }

    /// The document of `etude route` for a request in words, and what its model calls have cost.
    ///
    /// # Errors
    /// Why it cannot be routed, such as a value that does not fit its parameter.
    fn route(&self, _app: &Path, _request: &str) -> Result<(Value, Usage), Problem> {
        Err(Problem::not_found("this server routes no requests"))
    }

    /// Runs a command of an application: `argv` begins with its declared path. It ends when it is given up.
    ///
    /// # Errors
    /// Why it could not be run.
    fn command(&self, _app: &Path, _command: AppCommand) -> Result<Ran, String> {
        Err("this server runs no commands".to_owned())
    }

    /// The document of `etude learn status` for the app.
    ///
    /// # Errors
    /// Why nothing is known of what was learned, as where learning is switched off.
    fn learned(&self, _app: &Path) -> Result<Value, Problem> {
        Ok(json!({"pipelines": []}))
    }

    /// What is known of one learned pipeline, and where its values come from; `None` if the app has learned none by this name.
    ///
    /// # Errors
    /// As [`Apps::learned`].
    fn learned_pipeline(&self, _app: &Path, _name: &str) -> Result<Option<Value>, Problem> {
        Ok(None)
    }

    /// Promotes or demotes a learned pipeline: the document of `etude learn promote`; `None` if there is no such pipeline.
    ///
    /// # Errors
    /// Why it stays where it is.
    fn move_learned(&self, _app: &Path, _name: &str, _change: Move) -> Result<Option<Value>, Problem> {
        Ok(None)
    }

    /// What a server does by itself for the app, as its file is now.
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn automation(&self, app: &Path) -> Result<Automation, String> {
        let _ = app;
        Ok(Automation::default())
    }

    /// A text of the configuration with its variables replaced; `None` if one of them is not set.
    fn expand(&self, text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}

/// What a person does with a learned pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// A higher state, if its conditions hold.
    Promote {
        /// The state; one state up if there is none.
        to: Option<State>,
        /// Without enough comparisons, and with writes beyond `learn.writes`.
        accepts_risk: bool,
        /// Who accepts it: the name of the token.
        by: String,
    },
    /// Out of the routing table.
    Demote {
        /// Why, as it is shown.
        reason: Option<String>,
    },
}

/// Follows one run in this process.
pub trait RunObserver: Send {
    /// Takes what the driver reports. It must not wait for anything.
    fn observe(&mut self, progress: &Progress<'_>);

    /// The run has ended, waits, or was left to another process.
    fn end<'a>(self: Box<Self>, ended: &'a Result<RunResult, Error>) -> Boxed<'a, ()>;
}

/// A command of an application that a server runs.
#[derive(Debug)]
pub struct AppCommand {
    /// The slug of the application.
    pub slug: String,
    /// Its words, which begin with its declared path.
    pub argv: Vec<String>,
    /// The text on its stdin; `None`: an empty stdin.
    pub stdin: Option<String>,
    /// The server ends, and does not wait for the command any more.
    pub given_up: CancellationToken,
}

/// What became of a command, with its envelope (C-1.13) as JSON.
#[derive(Debug)]
pub enum Ran {
    /// It has run, or a person has denied it.
    Ended(String),
    /// It waits for the confirmation of a person.
    Unconfirmed(String),
    /// There is no such package or command.
    Unknown(String),
    /// The package has errors.
    Invalid(String),
    /// The package is not trusted.
    NotTrusted(String),
}

/// Why a target cannot be loaded.
#[derive(Debug)]
pub enum NotLoaded {
    /// The app has no such target.
    Unknown {
        /// Those that it has.
        known: Vec<String>,
    },
    /// A definition does not hold.
    Invalid(Vec<Diagnostic>),
    /// The app or the configuration cannot be read, as while it is edited or replaced.
    Unreadable(String),
    /// Where the app is kept does not answer. Nothing is known of it (K-23).
    Unreachable(String),
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
