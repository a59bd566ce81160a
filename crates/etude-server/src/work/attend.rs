//! A run in progress: the messages that it receives, and the consequences of its end.

use std::sync::{Arc, Mutex, PoisonError};

use etude::crash;
use etude::runner::{self, RunResult};
use etude::service::{self, RunHandle};
use etude_core::failure::FailureKind;
use etude_runs::pins::Change;
use etude_runtime::driver;
use etude_runtime::driver::Progress;
use etude_runtime::engine::{self, NewRun};
use etude_runtime::record;
use tokio::sync::mpsc;

use super::event::Event;
use super::{Control, Sending, Works};
use crate::app::RunObserver;
use crate::stopped::Reason;

/// An observer that can be taken once.
type Observed = Mutex<Option<Box<dyn RunObserver>>>;

/// The optional observer of a run of this process.
#[derive(Clone)]
pub(super) struct Following(Option<Arc<Observed>>);

impl Following {
    pub(super) fn new(observer: Option<Box<dyn RunObserver>>) -> Self {
        Self(observer.map(|observer| Arc::new(Mutex::new(Some(observer)))))
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn observe(&self, progress: &Progress<'_>) {
        let Some(observer) = &self.0 else { return };
        if let Some(observer) = &mut *observer.lock().unwrap_or_else(PoisonError::into_inner) {
            observer.observe(progress);
        }
    }

    /// Takes the observer, which then receives no more.
    fn take(self) -> Option<Box<dyn RunObserver>> {
        self.0?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(super) async fn attend(
    works: &Arc<Works>,
    run: NewRun,
    mut handle: RunHandle,
    mut controls: mpsc::UnboundedReceiver<Control>,
    following: Following,
) {
    let run_id = handle.run_id().to_owned();
    let mut is_lapsed = false;
    let ended = loop {
        let control = tokio::select! {
            ended = handle.wait() => break ended,
            Some(control) = controls.recv() => control,
        };
        match control {
            Control::Cancel(reason) => handle.cancel(&reason),
            Control::Kill(reason) => handle.kill(&reason),
            Control::Drain => handle.drain(),
            Control::Leave => handle.leave(),
            Control::Lapse => {
                is_lapsed = true;
                handle.leave();
            }
        }
    };
    let event = event_of(run_id.clone(), &ended, is_lapsed);
    if matches!(event, Event::Released { reason: "finished", .. }) {
        works.context.apps().leave(&run_id);
    }
    if let Ok(ended) = &ended
        && let Some(engine::Error::Gap { position, .. }) = service::engine_error(ended)
    {
        end_after_gap(works, &run_id, *position).await;
    }
    let sending = Sending::new(works);
    works.active().remove(&run_id);
    let is_worker = works.context.settings().worker.is_some();
    let is_going = is_lapsed || works.context.is_draining();
    let stopped = if is_going { None } else { why_stopped(&ended, is_worker) };
    let has_more = matches!(event, Event::Lost { reason: "overtaken", .. } | Event::Lost { message: Some(_), .. });
    // For a run of a server, the event `stopped` says more.
    if is_worker || stopped.is_none() || !has_more {
        works.observer.say(&event);
    }
    if let Some(reason) = stopped {
        note_stop(works, &run_id, reason);
    }
    works.wake.notify_one();
    works.stories.note_end(&run_id);
    // The place of the run is free already: a collector that does not respond delays no other run.
    if let (Ok(ended), Some(observer)) = (&ended, following.take()) {
        observer.end(ended).await;
    }
    if let Ok(Ok(ended)) = ended {
        let of = Arc::clone(works);
        // A failure here does not change the result of the run.
        let _ = tokio::task::spawn_blocking(move || of.context.apps().after(&run, &ended)).await;
    }
    drop(sending);
}

/// The event for the end of a run's work. The outer error is a panic of the driver.
fn event_of<E>(run_id: String, ended: &Result<Result<RunResult, runner::Error>, E>, is_lapsed: bool) -> Event {
    match ended {
        Ok(Ok(RunResult { document, .. })) => match document.status() {
            "waiting" => Event::Released { run_id, reason: "waiting" },
            "sleeping" => Event::Released { run_id, reason: "sleeping" },
            _ => Event::Released { run_id, reason: "finished" },
        },
        Ok(ended) if service::is_left(ended) && !is_lapsed => Event::Released { run_id, reason: "drained" },
        Ok(ended) => {
            let (reason, message) = reason_of(ended, is_lapsed);
            Event::Lost { run_id, reason, message }
        }
        Err(_) => Event::Lost { run_id, reason: "gap", message: None },
    }
}

/// The reason word of a lost run, and details.
fn reason_of(ended: &Result<RunResult, runner::Error>, is_lapsed: bool) -> (&'static str, Option<String>) {
    let word = match service::engine_error(ended) {
        Some(engine::Error::ValuesAway(why)) if !is_lapsed => return ("blobs", Some(why.clone())),
        Some(engine::Error::Lapsed { .. } | engine::Error::Store { .. }) => "lease",
        Some(engine::Error::Gap { .. }) => "gap",
        _ if is_lapsed => "lease",
        _ => match ended {
            // The records of the run cannot be used here.
            Err(error @ runner::Error::Drive { source: driver::Error::Record(_), .. }) => {
                return ("gap", Some(error.to_string()));
            }
            _ => "overtaken",
        },
    };
    (word, None)
}

/// Ends a run whose acknowledged records the database has lost (K-24). The run does not continue past the gap; `etude runs
/// resume` continues from the remaining records.
async fn end_after_gap(works: &Works, run_id: &str, position: u64) {
    let engine = works.context.engine();
    // Another worker may have the run by now; it continues from the remaining records.
    let Ok(session) = engine.claim(run_id) else { return };
    let Ok(view) = engine.view(run_id) else { return };
    let definition = works.context.definition_for(session.run()).ok().map(|(_, definition)| definition);
    let failure = crash::gap(position);
    // If that fails, the run is interrupted, and another worker continues it.
    let _ = crash::end(engine, &*session, &view, definition.as_ref(), failure).await;
}

/// The reason why a run stopped here. On a worker, an unreachable database and another worker with the run do not count: no run
/// fails because of them (K-23).
fn why_stopped<E>(ended: &Result<Result<RunResult, runner::Error>, E>, is_worker: bool) -> Option<Reason> {
    use engine::Error::{Busy, Lapsed, Overtaken, Store, ValuesAway};
    match ended {
        Ok(Ok(_)) => None,
        Ok(stopped) if service::is_left(stopped) => None,
        Ok(stopped) if is_worker => match service::engine_error(stopped) {
            Some(Busy { .. } | Lapsed { .. } | Overtaken { .. } | Store { .. } | ValuesAway(_)) => None,
            _ => stopped.as_ref().err().map(|error| Reason::lasting(FailureKind::Environment, error.to_string())),
        },
        Ok(Err(error)) => Some(why(error)),
        Err(_) => Some(Reason::lasting(FailureKind::Internal, "internal error: the driver panicked")),
    }
}

/// The reason why a run stopped on a server.
fn why(error: &runner::Error) -> Reason {
    use runner::Error::{Changed, Drive, Engine, Header, OtherAbi, Refused, Unpriced, Unreadable};
    match error {
        Changed { run_id, changes } => {
            let changes = changes.iter().map(|Change { path, what, .. }| format!("{what} `{path}`"));
            let changes = changes.collect::<Vec<_>>().join(", ");
            let way = format!("accept the changes with `etude runs resume {run_id} --accept-changes`");
            Reason::lasting(FailureKind::DefinitionInvalid, format!("{error}: {changes}; restore the files, or {way}"))
        }
        Unpriced(_) => Reason::lasting(FailureKind::Environment, error.to_string()),
        Refused { failure, .. } => Reason::lasting(failure.kind, failure.message.clone()),
        Drive { source: driver::Error::Mismatch { .. }, .. } => {
            Reason::lasting(FailureKind::DefinitionInvalid, error.to_string())
        }
        Header { .. } | Drive { source: driver::Error::Record(_) | driver::Error::UnsetVariable { .. }, .. } => {
            Reason::lasting(FailureKind::Environment, error.to_string())
        }
        // A server of the version that began the run may still exist.
        Engine(_) | OtherAbi { .. } | Unreadable(_) | Drive { .. } => Reason::passing(error.to_string()),
    }
}

/// Notes that a run stopped here, so that it is not continued forever.
pub(super) fn note_stop(works: &Works, run_id: &str, reason: Reason) {
    let records = works.context.engine().view(run_id).map_or(0, |view| record::progress(&view.records));
    works.observer.say(&Event::Stopped { run_id: run_id.to_owned(), message: reason.message.clone() });
    works.stops.note(run_id, records, reason);
}
