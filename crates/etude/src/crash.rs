//! Runs that end because they cannot continue: their workers died, their journal has a gap, or their definition is gone.

use std::mem;
use std::sync::Arc;

use etude_core::failure::{Failure, FailureKind};
use etude_core::report::{Remains, RunResult, Status, StepRow, StepStatus};
use etude_runtime::engine::{Engine, Error, RunState, RunView, Session};
use etude_runtime::record;

use crate::definition::Definition;
use etude_runs::document::Document;
use etude_runs::inspect::{self, Replayed};
use etude_runs::listing::active;
use etude_runs::target::Target;

/// The failure of a run whose workers, all of `dead`, died one after the other (K-35).
pub fn failure(view: &RunView, dead: &[String]) -> Failure {
    let last = view.records.iter().rev().find(|record| !record.key.starts_with('!'));
    let last = last.map_or_else(
        || "no effect has ended".to_owned(),
        |record| format!("the last completed effect is `{}`", record.key),
    );
    let message =
        format!("{} workers in a row died while they executed the run: {}; {last}", dead.len(), dead.join(", "));
    Failure::new(FailureKind::Environment, message)
}

/// The failure of a run whose journal has lost acknowledged records after `position` (K-24).
pub fn gap(position: u64) -> Failure {
    let message = format!("the database has lost acknowledged records of the run after position {position}");
    Failure::new(FailureKind::Environment, message)
}

/// True if no effect of the current attempt has ended: the run was queued again, and has not begun since.
fn is_untouched(view: &RunView) -> bool {
    let own = |(at, _)| view.records.iter().skip(at).all(|record| record.key.starts_with('!'));
    record::Continuation::last(&view.records).is_some_and(own)
}

/// Ends a run with a failure, in its current state; the kind `cancelled` ends it as cancelled. Neither its steps nor its
/// destructor run; `etude runs resume` continues it.
///
/// # Errors
/// Another process has the run, or the journal fails.
pub async fn end(
    engine: &Arc<dyn Engine>,
    session: &dyn Session,
    view: &RunView,
    definition: Option<&Definition>,
    failure: Failure,
) -> Result<(), Error> {
    let target = Target::parse(&view.row.target);
    let so_far = definition.and_then(|definition| {
        inspect::replay(view, &definition.plan, &definition.app, &engine.blobs()).ok().flatten()
    });
    let (state, status) = match failure.kind {
        FailureKind::Cancelled => (RunState::Cancelled, Status::Cancelled),
        _ => (RunState::Failed, Status::Failed),
    };
    let duration_ms = active::before(&**engine, &view.row.id, &view.records, view.row.created_at_ms, session.now_ms());
    let document = match so_far {
        Some(Replayed { mut result, .. }) => {
            let has_not_begun = failure.kind == FailureKind::QueueExpired && is_untouched(view);
            for row in result.steps.iter_mut().filter(|row| row.status == StepStatus::Running) {
                *row = match has_not_begun && row.effects.is_empty() {
                    true => StepRow::new(row.phase, mem::take(&mut row.name), row.kind),
                    false => StepRow { status: StepStatus::Cancelled, ..row.clone() },
                };
            }
            let result = RunResult { status, errors: vec![failure], ..result };
            Document::of(&view.row.id, &target, &result, &[], duration_ms)
        }
        None => {
            let usage = record::usage_of(view.records.iter(), &*engine.blobs());
            let remains = Remains { unfinished: Vec::new(), is_scope_over: true };
            let mut document = Document::not_started(Some(&target), &[failure], &usage);
            document.members.insert("status".into(), state.word().into());
            let (run_id, attempt) = (Some(view.row.id.clone()), Some(record::attempt_number(&view.records)));
            Document { run_id, attempt, duration_ms, remains: Some(remains), ..document }
        }
    };
    let document = Document { again_of: view.run.placement.again_of.clone(), ..document };
    session.set_state(state, Some(&document.to_journal())).await
}
