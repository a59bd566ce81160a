//! The end of runs on request.

use std::sync::Arc;

use etude::runner::Resume;
use etude::{crash, queue};
use etude_core::failure::{Failure, FailureKind};
use etude_runtime::engine::RunRow;
use etude_runtime::record;

use super::{Control, Works, drive};
use crate::app::NotLoaded;
use crate::notice;
use crate::problem::{Problem, engine_failed};

/// Cancels or kills a run that has not ended, even one of another process. Blocks.
pub(crate) fn cancel_run(works: &Arc<Works>, row: &RunRow, reason: &str, kills: bool) -> Result<(), Problem> {
    let runtime = tokio::runtime::Handle::current();
    let engine = works.context.engine();
    if !works.has(&row.id) {
        let definition = works.context.definition(&row.app, &row.target).ok().map(|(_, definition)| definition);
        let is_done = queue::cancel(&**engine, definition.as_ref(), &row.id, reason);
        if runtime.block_on(is_done).map_err(|e| engine_failed(&e))? {
            return Ok(());
        }
    }
    let view = engine.view(&row.id).map_err(|e| engine_failed(&e))?;
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
        return Ok(());
    }
    // A run that no process executes is continued, so that its destructor runs.
    if works.drives(&row.placement) && !view.row.is_live {
        notice::report_before(&works.notices, &view.row)?;
        if let Ok(session) = engine.claim(&row.id) {
            if let Err(NotLoaded::Unknown { .. }) = works.context.definition_for(session.run()) {
                // No process could drive the run. Its steps are shown with the files in its journal.
                let definition = works.context.definition_of(&view);
                let failure = Failure::new(FailureKind::Cancelled, reason.to_owned());
                let ended = crash::end(engine, &*session, &view, definition.as_deref(), failure);
                return runtime.block_on(ended).map_err(|e| engine_failed(&e));
            }
            drive(works, session, Resume { accept_changes: true, attempt: None })?;
        }
    }
    Ok(())
}
