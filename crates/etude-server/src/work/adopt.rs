//! Runs that are continued without the queue: those of dead workers and stopped servers, and those whose question has an answer.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use etude::crash;
use etude::runner::Resume;
use etude::service;
use etude_core::failure::Failure;
use etude_core::machine::ABI;
use etude_runs::listing;
use etude_runtime::engine::{Cause, DamagedRun, Error, Limits, Query, RunRow, RunState, RunView, Takes};
use etude_runtime::record;

use super::event::Event;
use super::{Looked, Works, drive};
use crate::notice;
use crate::problem::{Problem, engine_failed};
use crate::result::result_in;
use crate::stopped::{MAX_ATTEMPTS, Next, Reason};

/// Number of looks for which a worker leaves a run that stopped on it to other workers.
const POLLS_FOR_OTHERS: u32 = 10;

/// Continues interrupted runs of servers, and runs whose question has an answer or whose deadline has passed.
pub(super) fn adopt(works: &Arc<Works>) -> Result<(), Problem> {
    let engine = works.context.engine();
    let (apps, worker) = (works.context.dirs(), &works.context.settings().worker);
    if apps.is_empty() && worker.is_none() {
        return Ok(());
    }
    let mut looked = Looked::new(works);
    let is_own = |row: &RunRow| is_own(works, row);
    let running =
        Query { apps: apps.clone(), states: vec![RunState::Running], is_interrupted: Some(true), ..Query::default() };
    for row in engine.list(&running).map_err(|e| engine_failed(&e))?.into_iter().filter(is_own) {
        looked.note(adopt_interrupted(works, &row.id))?;
    }
    report_damaged(works);
    if worker.is_some() {
        // The queue has those waiting runs of a worker that have an answer.
        return looked.end();
    }
    // Read before the list: a later write makes another version.
    let version = engine.version().map_err(|e| engine_failed(&e))?;
    // Deadlines are timers of runs: they follow the clock of the machine.
    let now_ms = etude_runtime::clock::now_ms();
    if works.settled().is_some_and(|settled| settled.holds(version, now_ms)) {
        return looked.end();
    }
    let waiting = Query { apps, states: vec![RunState::Waiting], ..Query::default() };
    let (mut is_settled, mut until_ms) = (true, None);
    for row in engine.list(&waiting).map_err(|e| engine_failed(&e))?.into_iter().filter(is_own) {
        match wait(works, &row, now_ms) {
            Ok(Wait::Over) => {
                is_settled = false;
                looked.note(continue_run(works, &row.id))?;
            }
            Ok(Wait::Until(at_ms)) => until_ms = until_ms.into_iter().chain(at_ms).min(),
            // The result of the run may be lost.
            Err(problem) => {
                is_settled = false;
                looked.note(Err(problem))?;
            }
        }
    }
    works.settle(is_settled.then_some(Settled { version, until_ms }));
    looked.end()
}

/// Reports the runs that lists leave out, each once.
fn report_damaged(works: &Works) {
    let mut reported = works.damaged.lock().unwrap_or_else(PoisonError::into_inner);
    let events = damage(&mut reported, works.context.engine().damaged());
    events.iter().for_each(|event| works.observer.say(event));
}

/// The events of damaged runs that were not reported before.
fn damage(reported: &mut BTreeSet<String>, damaged: Vec<DamagedRun>) -> Vec<Event> {
    let new = damaged.into_iter().filter(|run| reported.insert(run.id.clone()));
    new.map(|DamagedRun { id, why }| Event::JournalFailed { message: format!("run `{id}` cannot be read: {why}") })
        .collect()
}

/// Continues a run that was interrupted, or gives it up if too many processes died with it.
fn adopt_interrupted(works: &Arc<Works>, run_id: &str) -> Result<(), Problem> {
    let deaths = works.context.engine().deaths(run_id).map_err(|e| engine_failed(&e))?;
    match &works.context.settings().worker {
        Some(worker) if worker.max_crashes == 0 || deaths < worker.max_crashes => {
            take_over(works, run_id, worker.poll * POLLS_FOR_OTHERS)
        }
        Some(_) => crashed(works, run_id),
        None if deaths < MAX_ATTEMPTS => continue_run(works, run_id),
        None => leave_alone(works, run_id),
    }
}

/// True if this process continues the run without a request.
fn is_own(works: &Works, row: &RunRow) -> bool {
    match &works.context.settings().worker {
        Some(worker) => row.placement.bundle.is_some() && worker.queues.iter().any(|of| of == row.placement.queue()),
        None => {
            row.placement.bundle.is_none() && (works.context.settings().adopts_all || row.placement.cause != Cause::Cli)
        }
    }
}

/// True if the run waits, and either has no reason to continue or is continued by this server once there is room. Blocks.
pub(crate) fn keeps_waiting(works: &Works, row: &RunRow) -> Result<bool, Problem> {
    let is_waiting = row.state == RunState::Waiting;
    Ok(is_waiting && (is_own(works, row) || wait(works, row, etude_runtime::clock::now_ms())? != Wait::Over))
}

/// Marks that no waiting run of this server can continue in this version of the journal, until the first of their deadlines.
/// Without it, each look would read every waiting run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    version: u64,
    until_ms: Option<i64>,
}

impl Settled {
    fn holds(self, version: u64, now_ms: i64) -> bool {
        self.version == version && self.until_ms.is_none_or(|until_ms| now_ms < until_ms)
    }
}

/// The remaining wait of a waiting run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The run has a reason to continue.
    Over,
    /// The run waits for an answer, at most until this deadline.
    Until(Option<i64>),
}

/// Takes over a run that a worker has left, by death or release. A run that this worker cannot continue is left to others for a
/// while, and ends as failed if it stops too often (K-46). A run of another version of the interpreter is left alone (K-62).
fn take_over(works: &Arc<Works>, run_id: &str, pause: Duration) -> Result<(), Problem> {
    if works.context.is_draining() || !works.has_place() || works.active().contains_key(run_id) {
        return Ok(());
    }
    match next_step(works, run_id, pause)? {
        Next::Later => return Ok(()),
        Next::Stuck(reason) => {
            return end_as_failed(works, run_id, |_| failure_of(&reason));
        }
        Next::Continue => {}
    }
    let run = works.context.engine().view(run_id).map_err(|e| engine_failed(&e))?.run;
    if run.abi != ABI {
        return Ok(());
    }
    // The worker counts its own places; the engine enforces the limits of the queue and the tenant (K-33).
    let limits = Limits { queue: run.placement.queue().to_owned(), max_runs: u32::MAX, takes: Takes::Bundles };
    match works.context.engine().take(run_id, &limits, works.context.clock().now_ms()) {
        Ok(Some(session)) => drive(works, session, Resume::default()),
        Ok(None) | Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => Ok(()),
        Err(error) => Err(engine_failed(&error)),
    }
}

/// Ends a run that too many workers died with (K-35).
fn crashed(works: &Arc<Works>, run_id: &str) -> Result<(), Problem> {
    let engine = works.context.engine();
    let dead = engine.dead_workers(run_id).map_err(|e| engine_failed(&e))?;
    end_as_failed(works, run_id, |view| crash::failure(view, &dead))
}

/// Ends a run that cannot continue. Nothing happens if another process has it.
fn end_as_failed(works: &Arc<Works>, run_id: &str, failure: impl FnOnce(&RunView) -> Failure) -> Result<(), Problem> {
    let engine = works.context.engine();
    let session = match engine.claim(run_id) {
        Ok(session) => session,
        Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => return Ok(()),
        Err(error) => return Err(engine_failed(&error)),
    };
    let view = engine.view(run_id).map_err(|e| engine_failed(&e))?;
    let definition = match works.context.settings().worker {
        Some(_) => works.context.definition_for(session.run()).ok().map(|(_, definition)| Arc::new(definition)),
        None => works.context.definition_of(&view),
    };
    service::end_leftovers(run_id);
    let failure = failure(&view);
    works.observer.say(&Event::GivenUp { run_id: run_id.to_owned(), message: failure.message.clone() });
    let ended = crash::end(engine, &*session, &view, definition.as_deref(), failure);
    tokio::runtime::Handle::current().block_on(ended).map_err(|e| engine_failed(&e))?;
    works.stops.forget(run_id);
    works.context.apps().leave(run_id);
    Ok(())
}

/// The failure of a run that stopped too often here.
fn failure_of(reason: &Reason) -> Failure {
    let message = format!("the run stopped {MAX_ATTEMPTS} times without a new record: {}", reason.message);
    Failure::new(reason.kind, message)
}

/// Leaves a run alone that kills its servers: it is shown as interrupted. Processes that the last server has left behind are
/// ended, once.
fn leave_alone(works: &Works, run_id: &str) -> Result<(), Problem> {
    let left_alone = || works.left_alone.lock().unwrap_or_else(PoisonError::into_inner);
    if left_alone().contains(run_id) {
        return Ok(());
    }
    match works.context.engine().claim(run_id) {
        Ok(_session) => {
            service::end_leftovers(run_id);
            works.observer.say(&Event::LeftAlone { run_id: run_id.to_owned() });
        }
        // Another server does it.
        Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => {}
        Err(error) => return Err(engine_failed(&error)),
    }
    left_alone().insert(run_id.to_owned());
    Ok(())
}

/// The next step for a run that may have stopped here.
fn next_step(works: &Works, run_id: &str, pause: Duration) -> Result<Next, Problem> {
    let records = || {
        works.context.engine().view(run_id).map(|view| record::progress(&view.records)).map_err(|e| engine_failed(&e))
    };
    works.stops.next(run_id, pause, records)
}

/// The remaining wait of a waiting run.
fn wait(works: &Works, row: &RunRow, now_ms: i64) -> Result<Wait, Problem> {
    let view = works.context.engine().view(&row.id).map_err(|e| engine_failed(&e))?;
    let Some(document) = result_in(&**works.context.engine(), &view) else { return Ok(Wait::Until(None)) };
    let is_answered = |waiting| listing::decision(&view.signals, waiting).is_some();
    if document.waiting.iter().any(is_answered) || is_to_be_cancelled(&view) {
        return Ok(Wait::Over);
    }
    // A deadline counts while something waits within it: an abandoned one leaves no record.
    let deadlines = document.waiting.iter().filter_map(|of| listing::deadline(&view, listing::effect_of(of)));
    Ok(match deadlines.min() {
        Some(at_ms) if at_ms <= now_ms => Wait::Over,
        at_ms => Wait::Until(at_ms),
    })
}

/// True if a cancellation of the current attempt was requested and is not in its journal yet, or if a kill was requested.
fn is_to_be_cancelled(view: &RunView) -> bool {
    let last = record::Continuation::last(&view.records);
    let (from, number) = last.map_or((0, 1), |(at, last)| (at, last.attempt().number));
    let key = record::cancel_key(number);
    let is_cancelled = view.records.iter().skip(from).any(|record| record.key == record::CANCEL);
    let kill_key = record::kill_key(number);
    view.signals.iter().any(|signal| !is_cancelled && signal.key == key || signal.key == kill_key)
}

/// Continues a run that no process executes, within the limits of the queue. Nothing happens if another process was faster, or if
/// workers take the run from its queue.
pub(crate) fn continue_run(works: &Arc<Works>, run_id: &str) -> Result<(), Problem> {
    if works.context.is_draining() || !works.has_place() || works.active().contains_key(run_id) {
        return Ok(());
    }
    let row = works.context.engine().row(run_id).map_err(|e| engine_failed(&e))?;
    if !works.drives(&row.placement) {
        return Ok(());
    }
    if !works.can_read(&row.app) {
        return Ok(());
    }
    match next_step(works, run_id, Duration::ZERO)? {
        Next::Continue => {}
        Next::Later => return Ok(()),
        Next::Stuck(reason) => {
            notice::report_before(&works.notices, &row)?;
            return end_as_failed(works, run_id, |_| failure_of(&reason));
        }
    }
    let Some(limits) = works.limits_of_queues().into_iter().next() else { return Ok(()) };
    notice::report_before(&works.notices, &row)?;
    match works.context.engine().take(run_id, &limits, works.context.clock().now_ms()) {
        Ok(Some(session)) => drive(works, session, Resume::default()),
        Ok(None) | Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => Ok(()),
        Err(error) => Err(engine_failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ADR 0188: a run that lists leave out is reported once.
    #[test]
    fn a_damaged_run_is_reported_once() {
        let damaged = |id: &str| DamagedRun { id: id.to_owned(), why: "`x` is not a cause".to_owned() };
        let mut reported = BTreeSet::new();
        let message = "run `r-1` cannot be read: `x` is not a cause".to_owned();
        assert_eq!(damage(&mut reported, vec![damaged("r-1")]), [Event::JournalFailed { message }]);
        assert_eq!(damage(&mut reported, vec![damaged("r-1"), damaged("r-2")]).len(), 1);
    }

    /// S-84: waiting runs are read again after each write, and when the first of their deadlines has passed.
    #[test]
    fn waiting_runs_are_settled_until_something_changes() {
        let settled = |until_ms| Settled { version: 7, until_ms };
        assert!(settled(None).holds(7, i64::MAX) && settled(Some(10)).holds(7, 9));
        assert!(!settled(None).holds(8, 0) && !settled(Some(10)).holds(7, 10));
    }
}
