//! The results of runs: those in the journal, and intermediate ones of runs without a result.

use etude::definition::Definition;
use etude_runs::document::Document;
use etude_runs::inspect::{Replay, open_gates};
use etude_runs::listing::{self, active};
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, RunRow, RunState, RunView};
use serde_json::Value;

use crate::context::Context;
use crate::problem::{Problem, engine_failed};

/// The result document of a run, if it has one.
pub(crate) fn result_of(engine: &dyn Engine, row: &RunRow) -> Result<Option<Document>, Problem> {
    if !has_result(row.state) {
        return Ok(None);
    }
    let text = engine.result(&row.id).map_err(|e| engine_failed(&e))?;
    Ok(text.and_then(|text| parsed(engine, &text)))
}

/// The same for a row of a list, with the reason if it cannot be read.
pub(crate) fn result_in_list(engine: &dyn Engine, row: &RunRow) -> Result<(Option<Document>, Option<String>), Problem> {
    if !has_result(row.state) {
        return Ok((None, None));
    }
    let read = listing::readable_result(engine, &row.id).map_err(|e| engine_failed(&e))?;
    Ok(match read {
        Ok(text) => (text.and_then(|text| parsed(engine, &text)), None),
        Err(why) => (None, Some(why)),
    })
}

/// The same for a run whose result was read.
pub(crate) fn result_in(engine: &dyn Engine, view: &RunView) -> Option<Document> {
    view.result.as_ref().filter(|_| has_result(view.row.state)).and_then(|text| parsed(engine, text))
}

/// False for a run in progress: the result of an earlier attempt is not its own.
const fn has_result(state: RunState) -> bool {
    !matches!(state, RunState::Queued | RunState::Running | RunState::Moved)
}

fn parsed(engine: &dyn Engine, text: &str) -> Option<Document> {
    Document::from_journal(text, &*engine.blobs()).ok()
}

/// The result of a run, or its state so far according to the journal.
pub(crate) fn result_so_far(context: &Context, view: &RunView) -> Option<Document> {
    result_in(&**context.engine(), view).or_else(|| so_far(context, view))
}

/// The state so far of a run without a result, from its journal and its definition.
fn so_far(context: &Context, view: &RunView) -> Option<Document> {
    let definition = context.definition_of(view)?;
    let row = &view.row;
    let result = match row.state == RunState::Queued && row.started_at_ms.is_none() {
        true => etude::queue::untouched(&view.run, &definition, &*context.engine().blobs())?,
        false => replayed(context, view, &definition)?,
    };
    let active_ms = active::so_far(&**context.engine(), row, etude_runtime::clock::now_ms()).ok()?;
    Some(Document::of(&row.id, &Target::parse(&row.target), &result, &[], active_ms))
}

fn replayed(context: &Context, view: &RunView, definition: &Definition) -> Option<etude_core::report::RunResult> {
    let (mut replay, _) = Replay::new(view, &definition.plan, &definition.app, context.engine().blobs()).ok()?;
    while replay.advance().ok()?.is_some() {}
    Some(replay.machine().snapshot())
}

/// The entries of `waiting` in the result document of a run: those of its last wait, or according to its journal if it is at
/// work. Some may have a decision that the run has not read yet.
pub(crate) fn waiting_of(context: &Context, view: &RunView) -> Vec<Value> {
    let found = match view.row.state {
        RunState::Waiting => result_in(&**context.engine(), view).map(|document| document.waiting),
        RunState::Running => waiting_so_far(context, view),
        _ => None,
    };
    found.unwrap_or_default()
}

fn waiting_so_far(context: &Context, view: &RunView) -> Option<Vec<Value>> {
    let definition = context.definition_of(view)?;
    let (result, gates) = open_gates(view, &definition.plan, &definition.app, &context.engine().blobs()).ok()?;
    Some(Document::of(&view.row.id, &Target::parse(&view.row.target), &result, &gates, 0).waiting)
}
