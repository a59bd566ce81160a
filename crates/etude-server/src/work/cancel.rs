//! The end of runs on request.

use std::sync::Arc;

use etude::runner::Resume;
use etude::{crash, queue};
use etude_core::failure::{Failure, FailureKind};
use etude_runtime::engine::{Error, RunRow, RunState, RunView};
use etude_runtime::record;

use super::{Control, Works, drive};
use crate::app::NotLoaded;
use crate::notice;
use crate::problem::{Problem, engine_failed};

/// Cancels or kills a run that has not ended, even one of another process. False if the run ended before it could take the
/// request. Blocks.
pub(crate) fn cancel_run(works: &Arc<Works>, row: &RunRow, reason: &str, kills: bool) -> Result<bool, Problem> {
    let runtime = tokio::runtime::Handle::current();
    let engine = works.context.engine();
    if !works.has(&row.id) {
        let definition = works.context.definition(&row.app, &row.target).ok().map(|(_, definition)| definition);
        let is_done = queue::cancel(&**engine, definition.as_ref(), &row.id, reason);
        if runtime.block_on(is_done).map_err(|e| engine_failed(&e))? {
            return Ok(true);
        }
    }
    let view = engine.view(&row.id).map_err(|e| engine_failed(&e))?;
    if view.row.state.is_final() {
        return Ok(is_taken(&view));
    }
    let attempt = record::attempt_number(&view.records);
    // Write to the journal first: this process may die now, and a run that is about to wait reads no message. The kill comes
    // before the cancellation: a process that does not support kills cancels the run, and one that does must not find the
    // cancellation alone.
    let kill = kills.then(|| record::kill_signal(reason, attempt));
    for signal in kill.iter().chain([&record::cancel_signal(reason, attempt)]) {
        engine.signal(&row.id, signal).map_err(|e| engine_failed(&e))?;
    }
    let control = if kills { Control::Kill(reason.to_owned()) } else { Control::Cancel(reason.to_owned()) };
    if works.control(&row.id, control) {
        return Ok(true);
    }
    // Read again: the process that had the run may have read its last signal before this one was written.
    let view = engine.view(&row.id).map_err(|e| engine_failed(&e))?;
    if view.row.state.is_final() {
        return Ok(is_taken(&view));
    }
    match view.row.is_live {
        true => drop(works.cancelling().insert(row.id.clone())),
        false => continue_cancelled(works, &view, reason)?,
    }
    Ok(true)
}

/// Continues runs that another process has left without taking a cancellation that this server accepted. A run that cannot be
/// read stops no other. Blocks.
pub(super) fn continue_left(works: &Arc<Works>) -> Result<(), Problem> {
    let ids = works.cancelling().clone();
    let mut looked = Ok(());
    for id in ids {
        match continue_one(works, &id) {
            Ok(true) => {}
            Ok(false) => drop(works.cancelling().remove(&id)),
            Err(problem) => looked = Err(problem),
        }
    }
    looked
}

/// True if another process still has the run.
fn continue_one(works: &Arc<Works>, run_id: &str) -> Result<bool, Problem> {
    let engine = works.context.engine();
    let row = match engine.row(run_id) {
        Ok(row) => row,
        Err(Error::Unknown(_)) => return Ok(false),
        Err(error) => return Err(engine_failed(&error)),
    };
    if row.is_live || row.state.is_final() {
        return Ok(!row.state.is_final());
    }
    let view = engine.view(run_id).map_err(|e| engine_failed(&e))?;
    if let Some(reason) = requested(&view) {
        continue_cancelled(works, &view, &reason)?;
    }
    Ok(false)
}

/// True if the current attempt of the run has taken a cancellation.
fn is_taken(view: &RunView) -> bool {
    let from = record::Continuation::last(&view.records).map_or(0, |(at, _)| at);
    let has_taken = view.records.iter().skip(from).any(|record| record.key == record::CANCEL);
    view.row.state == RunState::Cancelled || has_taken
}

/// The reason of a requested cancellation of the current attempt.
fn requested(view: &RunView) -> Option<String> {
    let attempt = record::attempt_number(&view.records);
    let keys = [record::cancel_key(attempt), record::kill_key(attempt)];
    let signal = view.signals.iter().find(|signal| keys.contains(&signal.key))?;
    Some(record::cancel_reason(&signal.body))
}

/// Continues a run that no process executes, so that its destructor runs.
fn continue_cancelled(works: &Arc<Works>, view: &RunView, reason: &str) -> Result<(), Problem> {
    let engine = works.context.engine();
    if !works.drives(&view.row.placement) {
        return Ok(());
    }
    notice::report_before(&works.notices, &view.row)?;
    let Ok(session) = engine.claim(&view.row.id) else { return Ok(()) };
    if let Err(NotLoaded::Unknown { .. }) = works.context.definition_for(session.run()) {
        // No process could drive the run. Its steps are shown with the files in its journal.
        let definition = works.context.definition_of(view);
        let failure = Failure::new(FailureKind::Cancelled, reason.to_owned());
        let ended = crash::end(engine, &*session, view, definition.as_deref(), failure);
        return tokio::runtime::Handle::current().block_on(ended).map_err(|e| engine_failed(&e));
    }
    drive(works, session, Resume { accept_changes: true, attempt: None })
}
