//! `etude apps run`: a declared command of a package (C-1.13, C-1.14).

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::Duration;

use etude::applications::{
    Answer, Call, Confirmations, DEFAULT_OUTPUT, DEFAULT_TIMEOUT, Envelope, Fresh, Limits, Request, Status,
    Surroundings, Verdict, Why, prepare,
};
use etude::clock;
use etude::runtime::driver::Stop;
use etude::trust::Content;

use crate::args;
use crate::context::{Context, Problem, block_on};
use crate::exit::Exit;
use crate::render::text::{harmless, visible};
use crate::{paths, signals, stdout};

pub(super) fn run(context: &Context, args: &args::AppsRun) -> Result<Exit, Problem> {
    let catalog = super::discover(context, &args.places.apps_path)?;
    let approvals = crate::command::skill::approvals(context)?;
    let call = match prepare(&catalog, &args.slug, &args.words, &args.args, &approvals) {
        Ok(call) => call,
        Err(refusal) => return Ok(refused(context, refusal.why, &refusal.envelope)),
    };
    let mut surroundings = super::surroundings(context, &args.env)?;
    let before = content(&call)?;
    if let (true, Some(content)) = (call.needs_confirmation(), &before)
        && let Some(exit) = confirm(context, &call, content, &surroundings)?
    {
        return Ok(exit);
    }
    surroundings.stdin = args.stdin.as_deref().map(stdin).transpose()?;
    let limits = Limits {
        timeout: args.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
        output: args.max_output.unwrap_or(DEFAULT_OUTPUT),
        is_text: args.expect.is_some(),
        is_strict: args.strict_schemas,
    };
    let envelope = with_signals(&surroundings, || call.run(&surroundings, &limits))?;
    rebase(context, &call, before.as_ref())?;
    Ok(report(context, &envelope, surroundings.cancel.is_cancelled()))
}

/// The content that a confirmation or an approval is bound to, if one is.
fn content(call: &Call<'_>) -> Result<Option<Content>, Problem> {
    if call.access.content.is_some() || !call.needs_confirmation() {
        return Ok(call.access.content.clone());
    }
    let unreadable =
        |error: io::Error| Problem::environment(format!("`{}` cannot be read: {error}", call.package.root.display()));
    call.package.content().map(Some).map_err(unreadable)
}

/// What the command has changed below `app/` goes on being approved.
fn rebase(context: &Context, call: &Call<'_>, before: Option<&Content>) -> Result<(), Problem> {
    let (Some(before), true) = (before, call.access.content.is_some()) else { return Ok(()) };
    let Ok(after) = call.package.content() else { return Ok(()) };
    context.trust()?.rebase(&call.package.root, before, &after).map_err(|error| Problem::environment(error.to_string()))
}

/// Sees to a person's confirmation; an exit status if the command does not run now.
fn confirm(
    context: &Context,
    call: &Call<'_>,
    content: &Content,
    surroundings: &Surroundings,
) -> Result<Option<Exit>, Problem> {
    let store = Confirmations::new(&paths::state_dir().map_err(Problem::environment)?);
    let environment = |error: &dyn std::error::Error| Problem::environment(error.to_string());
    let digest = content.digest();
    let mut has_asked = false;
    loop {
        match store.ask(call, &digest).map_err(|error| environment(&error))? {
            Verdict::Confirmed(_) => return Ok(None),
            Verdict::Denied(answer) => {
                let refusal = call.denied(&answer.by, answer.reason.as_deref());
                return Ok(Some(refused(context, refusal.why, &refusal.envelope)));
            }
            Verdict::Waiting { request, stale } => {
                let fresh = call.fresh(surroundings);
                if !context.can_ask() || has_asked {
                    let envelope = call.waiting(&request, stale, &fresh);
                    super::print(context, &envelope);
                    context.show(&envelope.diagnostics);
                    return Ok(Some(Exit::Waiting));
                }
                has_asked = true;
                let approved = ask(&request, &fresh);
                let answer =
                    Answer { approved, by: crate::command::user_name(), at: clock::now_rfc3339(), reason: None };
                store.answer(&request.id, answer).map_err(|error| environment(&error))?;
            }
        }
    }
}

/// Asks at the terminal.
fn ask(request: &Request, fresh: &Fresh) -> bool {
    crate::render::say!("{} wants to run: {}", harmless(&request.slug), visible(&request.argv.join(" ")));
    crate::render::say!("in {}", request.root.display());
    if let Some(description) = &fresh.description {
        crate::render::say!("\n{}", harmless(description));
    }
    for state in &fresh.state {
        crate::render::say!("\nnow: {}", harmless(&state.to_string()));
    }
    crate::render::say_part!("\nrun it once? [y/N] ");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

/// What the command reads.
fn stdin(source: &Path) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let read = match source.to_str() {
        Some("-") => io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        _ => std::fs::read(source).map(|read| bytes = read),
    };
    read.map_err(|error| Problem::usage(format!("`--stdin {}` cannot be read: {error}", source.display())))?;
    String::from_utf8(bytes).map_err(|_| Problem::usage(format!("`--stdin {}` is not UTF-8", source.display())))
}

/// Does `work` while Ctrl-C and its relatives give the command up.
fn with_signals<T: Send>(surroundings: &Surroundings, work: impl FnOnce() -> T + Send) -> Result<T, Problem> {
    let cancel = surroundings.cancel.clone();
    block_on(async {
        if let Ok(mut stop) = signals::listen() {
            tokio::spawn(async move {
                if stop.wait_for(|stop| *stop != Stop::No).await.is_ok() {
                    cancel.cancel();
                }
            });
        }
        tokio::task::block_in_place(work)
    })
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
            let text = serde_json::from_str::<String>(output.get()).unwrap_or_else(|_| output.get().to_owned());
            stdout::text(&format!("{text}\n"));
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
