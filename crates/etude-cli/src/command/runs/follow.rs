//! Follows a run that a worker drives, with the events, documents and exit statuses of a run of this process.

use std::time::{Duration, Instant};

use etude::definition::Definition;
use etude::queue;
use etude::runner::RunResult;
use etude_core::failure::FailureKind;
use etude_core::machine::Limits;
use etude_runs::document::Document;
use etude_runtime::driver::Stop;
use etude_runtime::engine::{Engine, Error, RunState, RunView};
use etude_runtime::record;
use serde_json::Value;
use tokio::sync::watch;

use super::watch::Follower;
use super::{document_of, pace};
use crate::command::run::finished;
use crate::context::{About, Context};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::remote::failure_of;
use crate::render::stopped::of_engine;
use crate::render::summary::AfterDecision;
use crate::runtime::block_on;
use crate::signals;

/// Minimum interval between two looks at the run.
const PAUSE: Duration = Duration::from_millis(100);

/// A run that another process drives, with the data to show it.
pub(crate) struct Followed<'a> {
    pub(crate) run_id: &'a str,
    /// Definition of the run; without it its steps are not shown.
    pub(crate) definition: Option<&'a Definition>,
    /// The run before it was continued. Its earlier steps are not shown, and a state counts only once it has changed.
    pub(crate) before: Option<&'a RunView>,
    /// Signals of the user; the first one cancels the run.
    pub(crate) stop: watch::Receiver<Stop>,
}

/// Follows a run until it ends or waits, and prints its result.
pub(crate) fn follow(context: &Context, engine: &dyn Engine, followed: Followed<'_>) -> Result<Exit, Problem> {
    let (run_id, definition) = (followed.run_id, followed.definition);
    let problem = match until_rest(context, engine, &followed) {
        Ok(Some(view)) => {
            let app = definition.map(|of| of.app.as_path());
            return Ok(finished(context, app, &ended(engine, &view)?, AfterDecision::Watch));
        }
        // Two signals: the run continues without an observer.
        Ok(None) => {
            let message = "a second signal stopped following the run; its worker cancels it";
            Problem::new(Exit::Interrupted, FailureKind::Cancelled, message)
        }
        Err(problem) => problem,
    };
    let target = definition.map(|definition| definition.target.clone());
    let about = About { run_id: Some(run_id), target: target.as_ref(), so_far: None };
    let problem = problem.hint(format!("the run is stored in the database; follow it: etude runs watch {run_id}"));
    Ok(context.report(about, &problem))
}

/// Waits until the run is at rest; `None` if the user does not want to wait for that.
fn until_rest(context: &Context, engine: &dyn Engine, followed: &Followed<'_>) -> Result<Option<RunView>, Problem> {
    let failed = |error: Error| of_engine(&error);
    let mut has_cancelled = false;
    let mut view = match followed.before {
        Some(before) => before.clone(),
        None => engine.view(followed.run_id).map_err(failed)?,
    };
    let blobs = engine.blobs();
    let mut follower = Follower::new(context, blobs, &view, followed.definition);
    if followed.before.is_some() {
        follower.skip(&view);
    }
    let before = followed.before.map(|view| view.row.change);
    loop {
        let since = Instant::now();
        view = engine.view(followed.run_id).map_err(failed)?;
        follower.feed(&view);
        let is_at_rest = view.row.state.is_final() || view.row.state == RunState::Waiting;
        if is_at_rest && before.is_none_or(|before| view.row.change != before) {
            follower.close();
            return Ok(Some(view));
        }
        let said = followed.stop.borrow().clone();
        match said {
            Stop::Cancel(reason) | Stop::Kill(reason) if !has_cancelled => {
                has_cancelled = true;
                cancel(engine, &view, followed.definition, &reason)?;
            }
            Stop::Kill(_) => {
                follower.close();
                return Ok(None);
            }
            said => pace::wait(pace::after(since.elapsed(), PAUSE), || *followed.stop.borrow() != said),
        }
    }
}

/// Cancels a run. A run that has not begun ends at once. Any other gets a signal, which its current or next worker finds.
pub(crate) fn cancel(
    engine: &dyn Engine,
    view: &RunView,
    definition: Option<&Definition>,
    reason: &str,
) -> Result<bool, Problem> {
    let id = &view.row.id;
    if view.row.state == RunState::Queued
        && block_on(queue::cancel(engine, definition, id, reason))?.map_err(|error| of_engine(&error))?
    {
        return Ok(true);
    }
    let attempt = record::attempt_number(&view.records);
    engine.signal(id, &record::cancel_signal(reason, attempt)).map_err(|error| of_engine(&error))?;
    Ok(false)
}

/// Result of a run, from its result document.
fn ended(engine: &dyn Engine, view: &RunView) -> Result<RunResult, Problem> {
    let document: Document = document_of(engine, view)?;
    let errors = document.members.get("errors").and_then(Value::as_array);
    let errors = errors.into_iter().flatten().filter_map(failure_of).collect();
    Ok(RunResult { run_id: view.row.id.clone(), document, errors, gates: Vec::new(), limits: Limits::default() })
}

/// Continues a run without a worker: puts it into its queue and follows it.
pub(crate) fn proceed(
    context: &Context,
    engine: &dyn Engine,
    before: &RunView,
    definition: Option<&Definition>,
) -> Result<Exit, Problem> {
    let stop = signals::listen_to_follow()?;
    block_on(engine.requeue(&before.row.id, etude_runtime::clock::now_ms()))?.map_err(|error| of_engine(&error))?;
    let followed = Followed { run_id: &before.row.id, definition, before: Some(before), stop };
    follow(context, engine, followed)
}
