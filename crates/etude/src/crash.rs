//! Runs that end because nothing can go on with them: workers died with them, or their journal has a gap.

use std::sync::Arc;

use etude_core::failure::{Failure, FailureKind};
use etude_core::report::{Remains, RunResult, Status};
use etude_runtime::engine::{Engine, Error, RunState, RunView, Session};

use crate::definition::Definition;
use etude_runs::document::Document;
use etude_runs::inspect;
use etude_runs::target::Target;

/// The failure of a run that took all of these workers down (K-35).
pub fn failure(view: &RunView, dead: &[String]) -> Failure {
    let last = view.records.iter().rev().find(|record| !record.key.starts_with('!'));
    let last = last
        .map_or_else(|| "none has ended".to_owned(), |record| format!("the last one that ended is `{}`", record.key));
    let message =
        format!("{} workers died in a row with the run: {}; of its effects, {last}", dead.len(), dead.join(", "));
    Failure::new(FailureKind::Environment, message)
}

/// The failure of a run whose journal has lost acknowledged records after `position` (K-24).
pub fn gap(position: u64) -> Failure {
    let message = format!("the database has lost acknowledged records of the run after position {position}");
    Failure::new(FailureKind::Environment, message)
}

/// Ends a run with a failure, as it is. Neither its steps nor its destructor run; `etude runs resume` continues it.
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
    let took = view.row.started_at_ms.map_or(0, |began| session.now_ms().saturating_sub(began));
    let document = match so_far {
        Some(replayed) => {
            let result = RunResult { status: Status::Failed, errors: vec![failure], ..replayed.result };
            let mut document = Document::of(&view.row.id, &target, &result, &[], u64::try_from(took).unwrap_or(0));
            document.again_of.clone_from(&view.run.placement.again_of);
            document
        }
        None => {
            let remains = Remains { unfinished: Vec::new(), is_scope_over: true };
            let document = Document::not_started(Some(&target), &[failure], &Default::default());
            Document { run_id: Some(view.row.id.clone()), attempt: Some(1), remains: Some(remains), ..document }
        }
    };
    session.set_state(RunState::Failed, Some(&document.to_journal())).await
}
