//! `etude apps run`: a declared command of a package (C-1.13, C-1.14).

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etude_core::shell;
use etude_invoke::Invoker;
use etude_invoke::invoker::CancellationToken;
use etude_packages::applications::{
    Answer, CommandCall, DEFAULT_OUTPUT, DEFAULT_TIMEOUT, Envelope, Fresh, Invoked, Invoking, Limits, Person, Request,
    Status, Unconfirmed, Why, prepare,
};
use etude_process::Cancel;
use etude_runtime::clock;
use etude_runtime::driver::{MiddlewareEvent, Stop};
use tokio::sync::mpsc;

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::middleware;
use crate::render::runs::waiting::details;
use crate::render::text::{harmless, visible};
use crate::runtime::block_on;
use crate::typed::{Typed, typed};
use crate::{paths, signals, stdout};

pub(super) fn run(context: &Context, args: &args::AppsRun) -> Result<Exit, Problem> {
    let catalog = super::discover(context, &args.places.apps_path)?;
    let approvals = crate::command::skill::approvals(context)?;
    let call = match prepare(&catalog, &args.slug, &args.words, &args.args, &approvals) {
        Ok(call) => call,
        Err(refusal) => return Ok(refused(context, refusal.why, &refusal.envelope)),
    };
    let mut program_context = super::program_context(context, &args.env)?;
    program_context.stdin = args.stdin.as_deref().map(stdin).transpose()?;
    let cancel = program_context.cancel.clone();
    let invoking = Invoking {
        program_context,
        limits: Limits {
            timeout: args.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
            output: args.max_output.unwrap_or(DEFAULT_OUTPUT),
            is_text: args.expect.is_some(),
            is_strict: args.strict_schemas,
        },
        person: person(context, &cancel),
        state_dir: paths::state_dir().map_err(Problem::environment)?,
        trust: Some(context.trust()?),
        given_up: CancellationToken::new(),
    };
    let known = call.clone();
    let (forwarding, middleware_events) = mpsc::unbounded_channel();
    let invoker = super::invoker(context, forwarding)?;
    let is_quiet = context.global.quiet;
    let invoked = block_on(async move {
        let forwarder = tokio::spawn(emit(middleware_events, is_quiet));
        let invoked = invoked(call, &invoker, invoking).await;
        // Dropping the last chain closes the event channel.
        drop(invoker);
        let _ = forwarder.await;
        invoked
    })?;
    match invoked.map_err(|error| Problem::environment(error.to_string()))? {
        Invoked::Ended(envelope) => Ok(report(context, &envelope, cancel.is_cancelled())),
        Invoked::Unconfirmed(why) => unconfirmed(context, &known, why, cancel.is_cancelled()),
    }
}

/// Runs a command for the server, where no one can confirm it.
#[cfg(feature = "serve")]
pub(crate) fn of_server(context: &Context, command: etude_server::AppCommand) -> Result<etude_server::Ran, Problem> {
    use etude_server::{AppCommand, Ran};
    let AppCommand { slug, argv, stdin, given_up } = command;
    let catalog = super::discover(context, &[])?;
    let approvals = crate::command::skill::approvals(context)?;
    let call = match prepare(&catalog, &slug, &argv, &[], &approvals) {
        Ok(call) => call,
        Err(refusal) => {
            let document = document_of(&refusal.envelope);
            return Ok(match refusal.why {
                Why::Unknown | Why::Undeclared => Ran::Unknown(document),
                Why::Incompatible => Ran::Invalid(document),
                Why::NotTrusted => Ran::NotTrusted(document),
                Why::Denied => Ran::Ended(document),
            });
        }
    };
    let mut program_context = super::program_context(context, &[])?;
    program_context.stdin = stdin.map(|text| text.into_bytes().into());
    let cancel = program_context.cancel.clone();
    let invoking = Invoking {
        program_context,
        limits: Limits { timeout: DEFAULT_TIMEOUT, output: DEFAULT_OUTPUT, is_text: false, is_strict: false },
        person: Person::Later,
        state_dir: paths::state_dir().map_err(Problem::environment)?,
        trust: Some(context.trust()?),
        given_up: given_up.clone(),
    };
    let known = call.clone();
    let (forwarding, _) = mpsc::unbounded_channel();
    let invoker = super::invoker(context, forwarding)?;
    let invoked = block_on(async move {
        let is_given_up = given_up.clone();
        tokio::spawn(async move {
            is_given_up.cancelled().await;
            cancel.cancel();
        });
        let invoked = call.invoke(&invoker, invoking).await;
        invoker.close(given_up.cancelled()).await;
        invoked
    })?;
    match invoked.map_err(|error| Problem::environment(error.to_string()))? {
        Invoked::Ended(envelope) => Ok(Ran::Ended(document_of(&envelope))),
        Invoked::Unconfirmed(Unconfirmed::Denied(refusal)) => Ok(Ran::Ended(document_of(&refusal.envelope))),
        Invoked::Unconfirmed(Unconfirmed::Waiting { request, stale, fresh }) => {
            Ok(Ran::Unconfirmed(document_of(&known.waiting(&request, stale, &fresh))))
        }
        Invoked::Unconfirmed(Unconfirmed::Stale) => {
            Err(Problem::environment("the package has changed since it was confirmed"))
        }
        Invoked::Unconfirmed(Unconfirmed::Broken(why)) => Err(Problem::environment(why)),
    }
}

#[cfg(feature = "serve")]
fn document_of(envelope: &Envelope) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = envelope.write(&mut bytes);
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

/// The person who can confirm, at the terminal. Ctrl-C instead of an answer cancels the call.
fn person(context: &Context, cancel: &Cancel) -> Person {
    if !context.global.can_ask() {
        return Person::Later;
    }
    let cancel = cancel.clone();
    Person::Here(Arc::new(move |request: &Request, fresh: &Fresh| match ask(request, fresh) {
        Ok(Typed::Line(line)) => {
            let (approved, by) = (Typed::is_yes(&line), crate::command::user_name());
            Some(Answer { approved, by, at: clock::now_rfc3339(), reason: None })
        }
        Ok(Typed::Stopped(_)) => {
            cancel.cancel();
            None
        }
        Ok(Typed::End) | Err(_) => None,
    }))
}

/// Prints the messages of middleware and the outcomes of invocations.
async fn emit(mut middleware_events: mpsc::UnboundedReceiver<MiddlewareEvent>, is_quiet: bool) {
    while let Some(middleware_events) = middleware_events.recv().await {
        if let Some(line) = middleware::line(&middleware_events).filter(|_| !is_quiet) {
            crate::render::say!("{line}");
        }
    }
}

/// Invokes the command. Ctrl-C and other stop signals cancel it.
async fn invoked(call: CommandCall, invoker: &Invoker, invoking: Invoking) -> io::Result<Invoked> {
    let (cancel, given_up) = (invoking.program_context.cancel.clone(), invoking.given_up.clone());
    let is_given_up = given_up.clone();
    if let Ok(mut stop) = signals::listen() {
        tokio::spawn(async move {
            if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
                cancel.cancel();
                given_up.cancel();
            }
        });
    }
    let invoked = call.invoke(invoker, invoking).await;
    invoker.close(is_given_up.cancelled()).await;
    invoked
}

/// Reports why the command does not run now.
fn unconfirmed(context: &Context, call: &CommandCall, why: Unconfirmed, is_cancelled: bool) -> Result<Exit, Problem> {
    match why {
        Unconfirmed::Denied(refusal) => Ok(refused(context, refusal.why, &refusal.envelope)),
        Unconfirmed::Waiting { request, stale, fresh } => {
            let envelope = call.waiting(&request, stale, &fresh);
            super::print(context, &envelope);
            context.show(&envelope.diagnostics);
            Ok(if is_cancelled { Exit::Interrupted } else { Exit::Waiting })
        }
        Unconfirmed::Stale => Err(Problem::environment("the package has changed since it was confirmed")),
        Unconfirmed::Broken(why) => Err(Problem::environment(why)),
    }
}

/// Shows the exact command line that awaits confirmation.
pub(crate) fn show_request(request: &Request) {
    crate::render::say!("{} wants to run: {}", harmless(&request.slug), visible(&shell::line(&request.argv)));
    crate::render::say!("in {}", visible(&request.root.display().to_string()));
    if !request.env.is_empty() {
        let names: Vec<&str> = request.env.keys().map(String::as_str).collect();
        crate::render::say!("with the environment variables {}", visible(&names.join(", ")));
    }
    if let Some(stdin) = &request.stdin {
        crate::render::say!("with stdin {stdin}");
    }
}

/// Asks for confirmation at the terminal.
fn ask(request: &Request, fresh: &Fresh) -> Result<Typed, Problem> {
    show_request(request);
    if let Some(description) = &fresh.description {
        crate::render::say!("\n{}", harmless(description));
    }
    for state in &fresh.state {
        crate::render::say_part!("\nnow:\n{}", details(state));
    }
    typed("\nrun it once? [y/N] ")
}

/// Reads the bytes for the command's stdin.
fn stdin(source: &Path) -> Result<Arc<[u8]>, Problem> {
    let mut bytes = Vec::new();
    let read = match source.to_str() {
        Some("-") => io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        _ => std::fs::read(source).map(|read| bytes = read),
    };
    read.map_err(|error| Problem::usage(format!("`--stdin {}` cannot be read: {error}", source.display())))?;
    Ok(bytes.into())
}

fn refused(context: &Context, why: Why, envelope: &Envelope) -> Exit {
    super::print(context, envelope);
    context.show(&envelope.diagnostics);
    match why {
        Why::Unknown | Why::Undeclared => Exit::Usage,
        Why::Incompatible => Exit::Definition,
        Why::NotTrusted => Exit::Environment,
        Why::Denied => Exit::Failed,
    }
}

fn report(context: &Context, envelope: &Envelope, is_cancelled: bool) -> Exit {
    super::print(context, envelope);
    if !context.is_json() {
        if let Some(output) = &envelope.output {
            match serde_json::from_str::<String>(output.get()) {
                Ok(text) => stdout::text(&format!("{text}\n")),
                Err(_) => stdout::documents(|out| writeln!(out, "{}", output.get())),
            }
        }
        crate::render::say_part!("{}", harmless(&envelope.stderr));
    }
    context.show(&envelope.diagnostics);
    match envelope.status {
        _ if is_cancelled => Exit::Interrupted,
        Status::Succeeded => Exit::Done,
        _ => Exit::Failed,
    }
}
