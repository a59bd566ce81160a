//! `etude runs resume` and `etude runs retry`: continue a run.

use std::sync::Arc;

use etude::attempts::{Ended, Next, Refused as NotContinued};
use etude::definition::Definition;
use etude::runner::{Resume, Watch};
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::Limits;
use etude_core::report::Event;
use etude_core::shell;
use etude_runs::target::Target;
use etude_runtime::driver::{Progress, Stop};
use etude_runtime::engine::{Engine, RunState, RunView};
use etude_runtime::record::Continuation;

use super::find::find;
#[cfg(feature = "postgres")]
use super::replace;
use super::{definition_to_drive, document_of, over, place_of, remote};
use crate::args;
use crate::command::run::{answer, conclude, watched};
use crate::context::{About, Context};
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;
#[cfg(feature = "postgres")]
use crate::runtime::block_on;
use crate::settings::Need;
use crate::signals;

/// Options with which a run is continued.
struct Wanted<'a> {
    id: &'a str,
    /// Name of the step to start again from.
    from: Option<&'a str>,
    accept_changes: bool,
    limits: Limits,
    strict: bool,
    /// Stop that the user has already requested.
    stop: Option<Stop>,
}

pub(super) fn resume(context: &Context, args: &args::RunsResume) -> Exit {
    match context.server() {
        Ok(None) => {}
        Ok(Some(remote)) => return remote::resume(context, &remote, args),
        Err(problem) => return context.report(None, &problem),
    }
    let (limits, strict) = limits(&args.limits);
    let wanted = Wanted { id: &args.id, from: None, accept_changes: args.accept_changes, limits, strict, stop: None };
    continued(context, wanted).unwrap_or_else(|refused| not_continued(context, &args.id, &refused))
}

pub(super) fn retry(context: &Context, args: &args::RunsRetry) -> Exit {
    match context.server() {
        Ok(None) => {}
        Ok(Some(remote)) => return remote::retry(context, &remote, args),
        Err(problem) => return context.report(None, &problem),
    }
    let (limits, strict) = limits(&args.limits);
    let (from, accept_changes) = (Some(args.from.as_str()), args.accept_changes);
    let wanted = Wanted { id: &args.id, from, accept_changes, limits, strict, stop: None };
    continued(context, wanted).unwrap_or_else(|refused| not_continued(context, &args.id, &refused))
}

/// Continues a run without a process, only to cancel it: its destructor still runs.
pub(super) fn cancelled(context: &Context, id: &str, reason: &str) -> Result<Exit, Refused> {
    let stop = Some(Stop::Cancel(reason.to_owned()));
    continued(context, Wanted { id, from: None, accept_changes: true, limits: Limits::default(), strict: false, stop })
}

fn limits(args: &args::NewLimits) -> (Limits, bool) {
    (Limits { max_cost_usd: args.max_cost, max_tokens: args.max_tokens, timeout_ms: args.timeout }, args.strict)
}

fn continued(context: &Context, wanted: Wanted<'_>) -> Result<Exit, Refused> {
    let engine = context.engine(wanted.strict)?;
    let view = find(context, &*engine, wanted.id)?;
    if wanted.from.is_none() && view.row.state == RunState::Succeeded {
        return Ok(over(context, &*engine, &view)?);
    }
    if view.row.state == RunState::Moved {
        return Err(of_engine(&etude_runtime::engine::Error::Moved(view.row.id)).into());
    }
    #[cfg(feature = "postgres")]
    if view.run.placement.bundle.is_some() && engine.is_shared() {
        return on_fleet(context, &*engine, &view, &wanted);
    }
    #[cfg(feature = "postgres")]
    if view.run.placement.bundle.is_some() && wanted.accept_changes && wanted.stop.is_none() {
        return Err(replace::keeps_its_app(&view.row.id).into());
    }
    let (disk, definition) = definition_to_drive(context, &*engine, &view.run)
        .map_err(|refused| without_definition(context, refused, &view, &wanted))?;
    next(&*engine, &view, &definition, &wanted)?;
    // The user may be asked a question and take time to answer. Others can use the run meanwhile.
    let runner = context.runner(&disk, &definition, Arc::clone(&engine), Need::Ask)?;
    let session = engine.claim(&view.row.id).map_err(|e| of_engine(&e))?;
    // Another process may have continued the run meanwhile.
    let view = engine.view(&view.row.id).map_err(|e| of_engine(&e))?;
    let attempt = match next(&*engine, &view, &definition, &wanted)? {
        Next::Over => return Ok(over(context, &*engine, &view)?),
        Next::Continues => None,
        Next::Attempt(attempt) => Some(attempt),
    };
    let mut note = attempt.as_ref().and_then(|attempt| announcement(context, &view, attempt));
    let accept_changes = wanted.accept_changes;
    let ended = watched(context, &definition.target, async |mut watch| {
        if let Some(stop) = wanted.stop {
            watch.stop = signals::listen_after(stop).unwrap_or(watch.stop);
        }
        // The note is printed only once the attempt is accepted.
        let inner = watch.emit;
        let mut emit = |progress: Progress<'_>| {
            let is_shown = match &progress {
                Progress::Machine { event, is_replay, .. } => !is_replay || matches!(event, Event::StepEnded { .. }),
                _ => true,
            };
            if let Some(note) = note.take_if(|_| is_shown) {
                crate::render::say!("{note}");
            }
            inner(progress);
        };
        let watch = Watch { emit: &mut emit, ..watch };
        runner.resume(session, &definition, &disk, Resume { accept_changes, attempt }, watch).await
    })?;
    let ended = answer::while_waiting(context, &runner, &definition, ended)?;
    let exit = conclude(context, &definition, &disk, ended)?;
    #[cfg(feature = "postgres")]
    if view.run.placement.bundle.is_some() && engine.row(&view.row.id).is_ok_and(|row| row.state.has_ended()) {
        crate::bundles::workspace::remove(&view.row.id);
    }
    Ok(exit)
}

/// Puts a run of a fleet into its queue, with the records of a new attempt, and follows it. With accepted changes, the run gets
/// the app of the command line, since a bundle itself cannot change.
#[cfg(feature = "postgres")]
fn on_fleet(context: &Context, engine: &dyn Engine, view: &RunView, wanted: &Wanted<'_>) -> Result<Exit, Refused> {
    let (bundle, run) = match wanted.accept_changes {
        true => replace::with_app(context, engine, &view.run).map(|(bundle, run)| (Some(bundle), run))?,
        false => (None, view.run.clone()),
    };
    let (disk, definition) = definition_to_drive(context, engine, &run)?;
    let of_app = (&disk, &definition);
    match bundle {
        Some(_) => replace::check(context, engine, &run, of_app)?,
        None if view.row.state == RunState::Queued => {
            return Ok(super::follow::proceed(context, engine, view, Some(&definition))?);
        }
        None => {}
    }
    // Claim first, so that the error names a worker that owns the run.
    let session = engine.claim(&view.row.id).map_err(|e| of_engine(&e))?;
    let view = engine.view(&view.row.id).map_err(|e| of_engine(&e))?;
    let attempt = match next(engine, &view, &definition, wanted)? {
        Next::Over => return Ok(over(context, engine, &view)?),
        Next::Continues => None,
        Next::Attempt(attempt) => Some(attempt),
    };
    if let Some(bundle) = bundle {
        replace::take(engine, &*session, &view, of_app, bundle)?;
    }
    if let Some(attempt) = &attempt {
        if let Some(note) = announcement(context, &view, attempt) {
            crate::render::say!("{note}");
        }
        block_on(session.append(attempt.to_record()))?.map_err(|e| of_engine(&e))?;
    }
    drop(session);
    let view = engine.view(&view.row.id).map_err(|e| of_engine(&e))?;
    Ok(super::follow::proceed(context, engine, &view, Some(&definition))?)
}

fn announcement(context: &Context, view: &RunView, attempt: &Continuation) -> Option<String> {
    let is_said = !context.global.quiet && view.row.state.is_final();
    is_said.then(|| format!("note: attempt {} of run {}; completed steps are kept", attempt.number, view.row.id))
}

fn next(engine: &dyn Engine, view: &RunView, definition: &Definition, wanted: &Wanted<'_>) -> Result<Next, Problem> {
    let ended = Ended { view, definition, blobs: &engine.blobs(), limits: wanted.limits };
    let next = match wanted.from {
        None => ended.resume(),
        Some(step) => ended.retry(step).map(Next::Attempt),
    };
    next.map_err(|refused| problem(&refused, wanted))
}

/// The words after `etude` that continue the run in the same way.
fn resume_command(id: &str, wanted: &Wanted<'_>) -> String {
    let changes = if wanted.accept_changes { " --accept-changes" } else { "" };
    match wanted.from {
        None => format!("runs resume {id}{changes}"),
        Some(step) => format!("runs retry {id} --from {}{changes}", shell::word(step)),
    }
}

/// Adds what to do without the app or the definition of a run.
fn without_definition(context: &Context, refused: Refused, view: &RunView, wanted: &Wanted<'_>) -> Refused {
    let mut problem = match refused {
        Refused::Problem(problem) => problem,
        invalid => return invalid,
    };
    let id = &view.row.id;
    let is_app_gone = view.run.placement.bundle.is_none() && !place_of(context, &view.run.app).is_dir();
    if is_app_gone {
        problem = problem
            .hint(format!("if the app was moved, pass its directory: etude -C DIR {}", resume_command(id, wanted)));
    }
    // Exit status 2: there is no definition of this name.
    if (is_app_gone || problem.exit == Exit::Usage) && !view.row.state.is_final() {
        problem = problem.hint(format!("or cancel the run: etude runs cancel {id}"));
    }
    problem.into()
}

fn problem(refused: &NotContinued, wanted: &Wanted<'_>) -> Problem {
    match refused {
        NotContinued::Exhausted(exhausted) => {
            let failure = Failure::new(FailureKind::BudgetExceeded, refused.to_string());
            let again = resume_command(&exhausted.run_id, wanted);
            Problem::of(Exit::Failed, failure)
                .spent(exhausted.spent)
                .hint(format!("raise it: etude {again} {}", exhausted.option))
        }
        NotContinued::UnknownStep(unknown) => Problem::usage(unknown.to_string()).hint(unknown.hint()),
        NotContinued::Moved(run) => of_engine(&etude_runtime::engine::Error::Moved(run.clone())),
        NotContinued::Damaged { .. } => Problem::environment(refused.to_string()),
    }
}

/// Reports a run that could not be continued; the document names it and its target.
fn not_continued(context: &Context, id: &str, refused: &Refused) -> Exit {
    let engine = context.engine(false).ok();
    let view = engine.as_ref().and_then(|engine| find(context, &**engine, id).ok());
    let target = view.as_ref().map(|view| Target::parse(&view.row.target));
    let so_far = engine.as_ref().zip(view.as_ref()).and_then(|(engine, view)| document_of(&**engine, view).ok());
    let run_id = view.as_ref().map(|view| view.row.id.as_str());
    context.refuse(About { run_id, target: target.as_ref(), so_far: so_far.as_ref() }, refused)
}
