//! `etude runs cancel`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use etude::Disk;
use etude::definition::{self, Configuration, Definition, LoadError};
use etude::{crash, queue, skill_mode, stage_machine};
use etude_core::failure::{Failure, FailureKind};
use etude_runs::story::Pinned;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, Error, NewRun, RunState, RunView};
use etude_runtime::record;
use etude_spec::stage_machine::Rules;
use serde_json::json;

use super::{definition_of_run, document_of, find, place_of, remote, resume};
use crate::command::run::print;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::{paths, stdout};

/// Reason recorded in the journal and the result document.
pub(super) const CANCELLED: &str = "cancelled by `etude runs cancel`";

/// Maximum time in which the process that executes a run takes a cancellation, or leaves the run without it.
const MOMENT: Duration = Duration::from_secs(2);

/// Pause between two looks at the run.
const PAUSE: Duration = Duration::from_millis(50);

/// Cancels a run. The process that runs it is notified; without one, the destructor runs here.
pub(super) fn cancel(context: &Context, id: &str) -> Result<Exit, Refused> {
    if let Some(remote) = context.server()? {
        return Ok(remote::cancel(context, &remote, id)?);
    }
    let engine = context.engine(false)?;
    let mut view = find::find(context, &*engine, id)?;
    let id = view.row.id.clone();
    if view.row.state == RunState::Moved {
        return Err(of_engine(&etude_runtime::engine::Error::Moved(id)).into());
    }
    if view.row.state.is_final() {
        return Err(is_over(&id, view.row.state.word()).into());
    }
    let was_live = view.row.is_live;
    if was_live {
        let attempt = record::attempt_number(&view.records);
        engine.signal(&id, &record::cancel_signal(CANCELLED, attempt)).map_err(|e| of_engine(&e))?;
        if !is_left(&*engine, &view).map_err(|e| of_engine(&e))? {
            return Ok(cancelling(context, &id));
        }
        // The process read no more signals: the run was about to wait, or the process died.
        view = engine.view(&id).map_err(|e| of_engine(&e))?;
    }
    if view.row.state == RunState::Queued && cancel_queued(context, &*engine, &view)? {
        return Ok(Exit::Done);
    }
    #[cfg(feature = "postgres")]
    if view.run.placement.bundle.is_some() && engine.is_shared() {
        // A worker runs the destructor.
        super::follow::cancel(&*engine, &view, None, CANCELLED)?;
        return Ok(cancelling(context, &id));
    }
    if is_gone(context, &view.run) {
        return Ok(give_up(context, &engine, &id)?);
    }
    match resume::cancelled(context, &id, CANCELLED) {
        // A run that ended as cancelled is a success of this command.
        Ok(Exit::Interrupted) => Ok(Exit::Done),
        // Another process continues the run, and finds the signal.
        Err(_) if was_live && engine.row(&id).is_ok_and(|row| row.is_live) => Ok(cancelling(context, &id)),
        ended => ended,
    }
}

/// Waits until the process that executed a run has taken the cancellation. True if no process has the run any more and it has
/// neither ended nor taken it.
fn is_left(engine: &dyn Engine, before: &RunView) -> Result<bool, Error> {
    let (id, since) = (&before.row.id, Instant::now());
    let of_before = before.records.iter().filter(|record| record.key == record::CANCEL).count();
    loop {
        let row = engine.row(id)?;
        if row.state.is_final() || engine.records_of(id, record::CANCEL)?.len() > of_before {
            return Ok(false);
        }
        if !row.is_live || since.elapsed() >= MOMENT {
            return Ok(!row.is_live);
        }
        thread::sleep(PAUSE);
    }
}

pub(super) fn is_over(id: &str, status: &str) -> Problem {
    let problem = Problem::usage(format!("run `{id}` has ended: {status}"));
    problem.hint(format!("see its result: etude runs show {id}"))
}

pub(super) fn cancelling(context: &Context, id: &str) -> Exit {
    if context.is_json() {
        stdout::json(&json!({"run_id": id, "cancelling": true}));
    } else if !context.global.quiet {
        crate::render::say!("run {id} is being cancelled by the process that runs it");
    }
    Exit::Done
}

/// Cancels a run that has not begun; none of its steps run. Returns false if it has begun meanwhile.
fn cancel_queued(context: &Context, engine: &dyn Engine, view: &RunView) -> Result<bool, Problem> {
    // The result lists its steps if the definition is readable.
    let definition = definition_of_run(context, engine, &view.run).ok();
    let definition = definition.as_ref().map(|(_, definition)| definition);
    let id = &view.row.id;
    let cancelled = block_on(queue::cancel(engine, definition, id, CANCELLED))?.map_err(|e| of_engine(&e))?;
    if cancelled {
        show_end(context, engine, id, &format!("run {id} was cancelled before it started"))?;
    }
    Ok(cancelled)
}

/// True if the run cannot continue because its app or definition was moved away or deleted. An invalid definition does not
/// count as gone: it can be repaired, and its destructor runs then.
fn is_gone(context: &Context, run: &NewRun) -> bool {
    if run.placement.bundle.is_some() {
        return false;
    }
    Disk::open(&place_of(context, &run.app))
        .map_or(true, |disk| matches!(load(&disk, &run.target), Err(LoadError::Unknown { .. })))
}

fn load(disk: &Disk, target: &str) -> Result<Definition, LoadError> {
    match Target::parse(target) {
        Target::Pipeline(name) => definition::load(disk, &name, &Configuration::default()),
        Target::Skill(name) => skill_mode::load_as(disk, skill_mode::Defaults::default(), &name),
        Target::Machine(name) => stage_machine::load(disk, &name, &Rules::default()),
    }
}

/// Ends a run whose definition is gone, as cancelled. Its leftovers stay, because its destructor is gone as well.
fn give_up(context: &Context, engine: &Arc<dyn Engine>, id: &str) -> Result<Exit, Problem> {
    let session = engine.claim(id).map_err(|e| of_engine(&e))?;
    // Another process may have continued the run meanwhile.
    let view = engine.view(id).map_err(|e| of_engine(&e))?;
    if view.row.state.is_final() {
        return Err(is_over(id, view.row.state.word()));
    }
    // The files in the journal provide the list of its steps.
    let scratch = paths::scratch("run").map_err(Problem::environment)?;
    let pinned = Pinned::write(&view.records, &*engine.blobs(), &scratch.path().join("app")).ok().flatten();
    let disk = pinned.as_ref().and_then(|pinned| Disk::open(pinned.dir()).ok());
    let definition = disk.as_ref().and_then(|disk| load(disk, &view.run.target).ok());
    let failure = Failure::new(FailureKind::Cancelled, CANCELLED.to_owned());
    let ended = crash::end(engine, &*session, &view, definition.as_ref(), failure);
    block_on(ended)?.map_err(|e| of_engine(&e))?;
    let note = format!("run {id} was cancelled; its destructor did not run, because its app or definition is missing");
    show_end(context, &**engine, id, &note)?;
    Ok(Exit::Done)
}

fn show_end(context: &Context, engine: &dyn Engine, id: &str, note: &str) -> Result<(), Problem> {
    let view = engine.view(id).map_err(|e| of_engine(&e))?;
    let document = document_of(engine, &view)?;
    if !context.global.quiet {
        crate::render::say!("{note}");
    }
    print(context, &document);
    Ok(())
}

#[cfg(test)]
mod tests {
    use etude_runtime::blob::FileBlobs;
    use etude_runtime::engine::Placement;
    use etude_runtime::memory::MemoryEngine;

    use super::*;

    /// cli: a cancellation that comes when a run is about to wait is not lost: the process that had the run reads no signal any
    /// more. One that takes the cancellation keeps the run.
    #[test]
    fn a_run_that_begins_to_wait_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path(), false)));
        let run = NewRun {
            id: "r-1".to_owned(),
            app: "/app".to_owned(),
            target: "p".to_owned(),
            abi: 1,
            created_at_ms: 1,
            header: "{}".to_owned(),
            placement: Placement::default(),
        };
        let session = block_on(engine.create(&run)).expect("a runtime").expect("created");
        let before = engine.view("r-1").expect("a run");
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(PAUSE * 2);
                block_on(session.set_state(RunState::Waiting, Some("{}"))).expect("a runtime").expect("it waits");
            });
            assert!(is_left(&engine, &before).expect("looked at"));
        });
        let session = engine.claim("r-1").expect("no one has it");
        block_on(session.append(record::of_cancel(CANCELLED, 1))).expect("a runtime").expect("appended");
        assert!(!is_left(&engine, &before).expect("looked at"), "it is being cancelled");
    }
}
