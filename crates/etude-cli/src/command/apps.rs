//! `etude apps`: Agent Applications (C-1).

mod check;
mod list;
mod run;
mod show;

use std::path::PathBuf;

use etude::invocation::EventRelay;
use etude_invoke::Invoker;
use etude_invoke::Project;
use etude_packages::applications::{Catalog, Envelope, Places, ProgramContext};
use etude_process::Cancel;
use etude_runtime::driver::MiddlewareEvent;
use tokio::sync::mpsc;

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::programs::{INHERITED, middleware_settings};
use crate::{paths, stdout};

pub(crate) use list::documents;
#[cfg(feature = "serve")]
pub(crate) use run::of_server;
pub(crate) use run::show_request;

pub(crate) fn apps(context: &Context, command: &args::Apps) -> Exit {
    let done = match command {
        args::Apps::List(args) => list::list(context, args),
        args::Apps::Show(args) => show::show(context, args),
        args::Apps::Check(args) => check::check(context, args),
        args::Apps::Run(args) => run::run(context, args),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

/// Discovers the packages that are visible from the user's directory.
pub(crate) fn discover(context: &Context, paths: &[PathBuf]) -> Result<Catalog, Problem> {
    if let Some(missing) = paths.iter().find(|path| !path.is_dir()) {
        let problem = Problem::usage(format!("`--apps-path`: there is no directory `{}`", missing.display()));
        return Err(paths::absent(problem, missing));
    }
    let project = project_dir(context)?;
    let home = paths::home();
    Ok(Catalog::discover(&Places { project: &project, home: home.as_deref(), paths }))
}

/// Directory of the user's app; outside of an app, the current directory.
fn project_dir(context: &Context) -> Result<PathBuf, Problem> {
    let start = context.start_dir()?;
    match &context.global.app {
        Some(_) => Ok(start),
        None => Ok(etude::app::find(&start).unwrap_or(start)),
    }
}

/// Environment of package commands: a few variables, and those that the user names. Keys are never among them.
fn program_context(context: &Context, granted: &[String]) -> Result<ProgramContext, Problem> {
    let dir = project_dir(context)?;
    let redacted = context.settings(&dir)?.withheld_env;
    if let Some(name) = granted.iter().find(|name| redacted.contains(name)) {
        return Err(Problem::usage(format!("`{name}` contains a key of a model provider; commands never receive it")));
    }
    let names = INHERITED.into_iter().chain(granted.iter().map(String::as_str));
    let environment = names.filter_map(|name| std::env::var_os(name).map(|value| (name.into(), value))).collect();
    let scratch = paths::state_dir().map_err(Problem::environment)?.join("scratch");
    let granted = granted.to_vec();
    Ok(ProgramContext { environment, granted, stdin: None, scratch, cancel: Cancel::new(), run_effect: None })
}

/// Opens the chains of the user's app. `middleware_events` receives the messages of middleware, and with `--verbose` an event
/// for every invocation.
fn invoker(context: &Context, middleware_events: mpsc::UnboundedSender<MiddlewareEvent>) -> Result<Invoker, Problem> {
    let dir = project_dir(context)?;
    let redacted = context.settings(&dir)?.withheld_env;
    let access = middleware_settings().access(redacted, false);
    let project = Project::of_app(&dir, context.modules());
    Ok(Invoker::open(&dir, project, access, Box::new(EventRelay::new(middleware_events)), context.global.is_verbose()))
}

/// Prints the document if JSON is wanted, and the diagnostics in any case.
fn print(context: &Context, envelope: &Envelope) {
    if context.is_json() {
        stdout::documents(|out| envelope.write(out));
    }
}
