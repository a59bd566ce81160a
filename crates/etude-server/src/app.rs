//! The served apps: their definitions and their runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude::definition::Definition;
use etude::disk::Disk;
use etude::runner::{Error, RunResult, Runner};
use etude_runs::target::Target;
use etude_runtime::driver::Progress;
use etude_runtime::engine::{Boxed, NewRun};
use etude_spec::Diagnostic;
use etude_spec::automation::Automation;
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::learned::Move;
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::response::{json_response, text_response};
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::Caller;

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

    /// The document of `etude route` for a request in words.
    ///
    /// # Errors
    /// Why it cannot be routed, such as a value that does not fit its parameter.
    fn route(&self, _app: &Path, _request: &str) -> Result<Value, Problem> {
        Err(Problem::not_found("this server routes no requests"))
    }

    /// Runs a command of an application: `argv` begins with its declared path.
    ///
    /// # Errors
    /// Why it could not be run.
    fn command(&self, _app: &Path, _slug: &str, _argv: &[String], _stdin: Option<String>) -> Result<Ran, String> {
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

/// Follows one run in this process.
pub trait RunObserver: Send {
    /// Takes what the driver reports. It must not wait for anything.
    fn observe(&mut self, progress: &Progress<'_>);

    /// The run has ended, waits, or was left to another process.
    fn end<'a>(self: Box<Self>, ended: &'a Result<RunResult, Error>) -> Boxed<'a, ()>;
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
    /// The app or the configuration cannot be read.
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
        NotLoaded::Unreadable(why) | NotLoaded::Unreachable(why) => Problem::new(Code::DefinitionInvalid, why),
    }
}

/// `GET /v1/apps`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let listed = tokio::task::spawn_blocking(move || {
        let apps = server.settings().apps.iter().map(|app| document(&server, &caller, app));
        apps.collect::<Result<Vec<Value>, Problem>>()
    });
    let apps = listed.await.map_err(|_| Problem::new(Code::Bug, "the list of apps panicked"))??;
    Ok(json_response(http::StatusCode::OK, &json!({ "apps": apps })))
}

/// `GET /v1/apps/{app}`.
pub(crate) async fn show(call: Call) -> Respond {
    let app = call
        .server
        .context()
        .app(call.param("app"))
        .cloned()
        .ok_or_else(|| Problem::not_found("there is no such app"))?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let document = tokio::task::spawn_blocking(move || document(&server, &caller, &app)).await;
    let document = document.map_err(|_| Problem::new(Code::Bug, "the document of the app panicked"))??;
    Ok(crate::response::tagged(&call.headers, document.to_string()))
}

/// An app with what the caller sees of it (S-16): a token for some targets sees neither the others nor their faults.
fn document(server: &Server, caller: &Caller, app: &ServedApp) -> Result<Value, Problem> {
    let mut document = server.apps().list(&app.dir).map_err(|why| Problem::new(Code::DefinitionInvalid, why))?;
    document["app"] = app.slug.as_str().into();
    if caller.only.is_empty() {
        return Ok(document);
    }
    for (list, name) in [("pipelines", "name"), ("machines", "name"), ("applications", "slug")] {
        if let Some(entries) = document[list].as_array_mut() {
            entries.retain(|entry| entry[name].as_str().is_some_and(|name| caller.covers(name)));
        }
    }
    document["diagnostics"] = json!([]);
    Ok(document)
}

/// `POST /v1/apps/{app}/route`.
pub(crate) async fn route(call: Call) -> Respond {
    let app = call
        .server
        .context()
        .app(call.param("app"))
        .cloned()
        .ok_or_else(|| Problem::not_found("there is no such app"))?;
    let members = call.json(&["request"]).await?;
    let request = request_of(members.text("request")?)?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let document = blocking(move || routed(&server, &caller, &app, &request)).await?;
    Ok(json_response(http::StatusCode::OK, &document))
}

/// The words of a request.
pub(crate) fn request_of(text: Option<String>) -> Result<String, Problem> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| Problem::invalid("/request", "`request` says in words what is wanted"))
}

/// The routing of a request, with nothing of what the token does not see (S-16).
pub(crate) fn routed(server: &Server, caller: &Caller, app: &ServedApp, request: &str) -> Result<Value, Problem> {
    let mut document = server.apps().route(&app.dir, request)?;
    let is_hidden = |name: &Value| name.as_str().is_some_and(|name| !caller.covers(name));
    if is_hidden(&document["pipeline"]) {
        for name in ["pipeline", "input", "sources", "unclear"] {
            document[name] = if name == "pipeline" { Value::Null } else { json!({}) };
        }
    }
    if let Some(candidates) = document["candidates"].as_array_mut() {
        candidates.retain(|candidate| !is_hidden(&candidate["name"]));
    }
    Ok(document)
}

/// `POST /v1/apps/{app}/commands/{slug}`: a command of an application.
pub(crate) async fn command(call: Call) -> Respond {
    let none = || Problem::not_found("there is no such application");
    let app = call.server.context().app(call.param("app")).cloned().ok_or_else(none)?;
    let slug = call.param("slug").to_owned();
    if !call.caller()?.covers(&slug) {
        return Err(none());
    }
    let members = call.json(&["argv", "stdin"]).await?;
    let argv = members.texts("argv")?.filter(|argv| !argv.is_empty());
    let argv = argv.ok_or_else(|| members.invalid("argv", "`argv` has the words of the command"))?;
    let stdin = members.text("stdin")?;
    let server = Arc::clone(&call.server);
    let ran = blocking(move || {
        let ran = server.apps().command(&app.dir, &slug, &argv, stdin);
        ran.map_err(|why| Problem::new(Code::DefinitionInvalid, why))
    });
    let refused = |code, envelope: &str, why: &'static str| {
        let envelope = serde_json::from_str::<Value>(envelope).unwrap_or_default();
        Err(Problem::new(code, why).with("envelope", envelope))
    };
    match ran.await? {
        Ran::Ended(envelope) => Ok(text_response(http::StatusCode::OK, envelope)),
        Ran::Unconfirmed(envelope) => {
            refused(Code::ConfirmationRequired, &envelope, "a person must confirm the command: etude apps run")
        }
        Ran::Unknown(envelope) => refused(Code::NotFound, &envelope, "there is no such application or command"),
        Ran::Invalid(envelope) => refused(Code::DefinitionInvalid, &envelope, "the application has errors"),
        Ran::NotTrusted(envelope) => {
            refused(Code::NotTrusted, &envelope, "the application is not trusted: etude trust")
        }
    }
}
