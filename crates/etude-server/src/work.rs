//! The runs that this server drives: taken from the queue, adopted, and left to the next server at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude::attempts;
use etude::document::Document;
use etude::runner::{self, Resume};
use etude::runs;
use etude::service::{self, Parts, RunHandle};
use etude::target::Target;
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::Limits as RunLimits;
use etude_runtime::engine::{Cause, Engine, NewRun, Query, RunRow, RunState, Session};
use etude_runtime::record;
use tokio::sync::{Notify, mpsc};

use crate::app::NotLoaded;
use crate::problem::Problem;
use crate::run::{blocking, engine_failed, result_of};
use crate::server::Server;
use crate::worker::{Event, Observer};

/// The longest time between two looks for queued runs, runs to adopt, and answers.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The time that runs have to stop after the drain timeout.
const LEAVE: Duration = Duration::from_millis(700);

/// How often this server tries to continue a run that stops without a new record.
const MAX_ATTEMPTS: u32 = 3;

/// A message to a run in progress.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Cancel(String),
    Kill(String),
    Drain,
    Leave,
}

/// The runs that this server drives.
#[derive(Debug, Default)]
pub(crate) struct Works {
    active: Mutex<BTreeMap<String, mpsc::UnboundedSender<Control>>>,
    /// Runs that stopped here without an end: how often, and how many records they had.
    stopped: Mutex<BTreeMap<String, (u32, usize)>>,
    /// Somebody has queued or ended a run.
    pub(crate) wake: Notify,
    over: Notify,
    /// Where the events of a worker go.
    pub(crate) observer: Observer,
}

impl Works {
    fn active(&self) -> MutexGuard<'_, BTreeMap<String, mpsc::UnboundedSender<Control>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of runs that this process drives.
    pub(crate) fn count(&self) -> usize {
        self.active().len()
    }

    /// Tells a run something. False if this server does not drive it.
    pub(crate) fn control(&self, run_id: &str, control: Control) -> bool {
        self.active().get(run_id).is_some_and(|run| run.send(control).is_ok())
    }

    fn control_all(&self, control: &Control) {
        self.active().values().for_each(|run| drop(run.send(control.clone())));
    }

    async fn all_over(&self) {
        loop {
            let over = self.over.notified();
            if self.active().is_empty() {
                return;
            }
            over.await;
        }
    }
}

/// Begins queued runs and adopts others until the server stops.
pub(crate) async fn work(server: Arc<Server>) {
    let mut stopping = server.stopping();
    let mut news = server.news_of_journal();
    let mut adopted: Option<Instant> = None;
    loop {
        if server.is_draining() {
            return;
        }
        let adopts = adopted.is_none_or(|at| at.elapsed() >= LOOK);
        if adopts {
            adopted = Some(Instant::now());
        }
        look(&server, adopts).await;
        tokio::select! {
            () = server.works().wake.notified() => {}
            _ = news.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// Begins queued runs, and adopts others if `adopts`.
pub(crate) async fn look(server: &Arc<Server>, adopts: bool) {
    let of = Arc::clone(server);
    // A journal that fails is reported by requests; the next look may find it again.
    let _ = blocking(move || {
        begin_queued(&of)?;
        expire(&of)?;
        if adopts { adopt(&of) } else { Ok(()) }
    })
    .await;
}

/// Lets the runs in progress finish their effects, at most for the drain timeout, then leaves them to the next server.
pub(crate) async fn drain(server: &Server) {
    let works = server.works();
    works.control_all(&Control::Drain);
    if tokio::time::timeout(server.settings().drain_timeout, works.all_over()).await.is_err() {
        works.control_all(&Control::Leave);
        // What does not end is ended with the process; its run is adopted.
        let _ = tokio::time::timeout(LEAVE, works.all_over()).await;
    }
}

fn begin_queued(server: &Arc<Server>) -> Result<(), Problem> {
    for limits in server.limits_of_queues() {
        while !server.is_draining() && server.has_place() {
            let next = server.engine().next(&limits, server.clock().now_ms());
            let Some(session) = next.map_err(|e| engine_failed(&e))? else { break };
            drive(server, session, Resume::default())?;
        }
    }
    Ok(())
}

fn expire(server: &Arc<Server>) -> Result<(), Problem> {
    let definition = |run: &NewRun| server.definition_for(run).ok().map(|(_, definition)| definition);
    let expired = etude::queue::expire(&**server.engine(), definition, server.clock().now_ms());
    let runtime = tokio::runtime::Handle::current();
    runtime.block_on(expired).map(drop).map_err(|e| engine_failed(&e))
}

/// Continues interrupted runs of servers, and runs whose question has an answer or whose deadline has passed.
fn adopt(server: &Arc<Server>) -> Result<(), Problem> {
    let engine = server.engine();
    let (apps, worker) = (server.dirs(), &server.settings().worker);
    if apps.is_empty() && worker.is_none() {
        return Ok(());
    }
    let is_own = |row: &RunRow| match worker {
        Some(worker) => row.placement.bundle.is_some() && worker.queues.iter().any(|of| of == row.placement.queue()),
        None => row.placement.bundle.is_none() && (server.settings().adopts_all || row.placement.cause != Cause::Cli),
    };
    let running =
        Query { apps: apps.clone(), states: vec![RunState::Running], is_interrupted: Some(true), ..Query::default() };
    for row in engine.list(&running).map_err(|e| engine_failed(&e))?.into_iter().filter(is_own) {
        // A run that takes its servers down is left alone, and shown as interrupted.
        if engine.deaths(&row.id).map_err(|e| engine_failed(&e))? < MAX_ATTEMPTS {
            continue_run(server, &row.id)?;
        }
    }
    let waiting = Query { apps, states: vec![RunState::Waiting], ..Query::default() };
    for row in engine.list(&waiting).map_err(|e| engine_failed(&e))?.into_iter().filter(is_own) {
        if is_answered(server, &row)? {
            continue_run(server, &row.id)?;
        }
    }
    Ok(())
}

/// True if a waiting run has a reason to continue.
fn is_answered(server: &Server, row: &RunRow) -> Result<bool, Problem> {
    let Some(document) = result_of(&**server.engine(), row)? else { return Ok(false) };
    let view = server.engine().view(&row.id).map_err(|e| engine_failed(&e))?;
    let is_decided = |waiting| runs::decision(&view.signals, waiting).is_some();
    let taken: BTreeSet<&str> = view.records.iter().map(|record| record.key.as_str()).collect();
    let now = etude::clock::now_ms();
    let mut deadlines = view.records.iter().filter_map(record::to_deadline);
    Ok(document.waiting.iter().any(is_decided)
        || deadlines.any(|(id, at_ms)| at_ms <= now && !taken.contains(id.as_str()))
        || view.signals.iter().any(|signal| signal.key.starts_with(record::CANCEL) && !taken.contains(&*signal.key)))
}

/// Continues a run that no process executes, within the limits of the queue. Nothing happens if somebody else was faster.
pub(crate) fn continue_run(server: &Arc<Server>, run_id: &str) -> Result<(), Problem> {
    if server.is_draining() || !server.has_place() || server.works().active().contains_key(run_id) {
        return Ok(());
    }
    let stopped = server.works().stopped.lock().unwrap_or_else(PoisonError::into_inner).get(run_id).copied();
    if let Some((count, records)) = stopped
        && count >= MAX_ATTEMPTS
        && server.engine().view(run_id).map_err(|e| engine_failed(&e))?.records.len() == records
    {
        return Ok(());
    }
    let Some(limits) = server.limits_of_queues().into_iter().next() else { return Ok(()) };
    match server.engine().take(run_id, &limits, server.clock().now_ms()) {
        Ok(Some(session)) => drive(server, session, Resume::default()),
        Ok(None) | Err(etude_runtime::engine::Error::Busy { .. }) => Ok(()),
        Err(error) => Err(engine_failed(&error)),
    }
}

/// Drives a run that this server has taken.
pub(crate) fn drive(server: &Arc<Server>, session: Box<dyn Session>, resume: Resume) -> Result<(), Problem> {
    let run = session.run().clone();
    server.works().observer.say(&Event::Claimed { run_id: run.id.clone() });
    let loaded = server.definition_for(&run).map_err(|error| match error {
        NotLoaded::Unknown { .. } => {
            (FailureKind::DefinitionInvalid, format!("the app has no `{}` any more", run.target))
        }
        NotLoaded::Invalid(found) => {
            let first = found.iter().find(|diagnostic| diagnostic.is_error()).map(|found| found.message.clone());
            (FailureKind::DefinitionInvalid, first.unwrap_or_else(|| "the definition has errors".to_owned()))
        }
        NotLoaded::Unreadable(why) => (FailureKind::Environment, why),
    });
    let parts = loaded.and_then(|(disk, definition)| {
        let runner = server.apps().runner(&disk, &definition).map_err(|why| (FailureKind::Environment, why))?;
        Ok(Parts { runner: runner::Runner { is_exclusive: false, ..runner }, definition, disk })
    });
    let runtime = tokio::runtime::Handle::current();
    let parts = match parts {
        Ok(parts) => Arc::new(parts),
        Err((kind, why)) => {
            let has_begun = session.records().map_err(|e| engine_failed(&e))?.iter().any(|r| !r.key.starts_with('!'));
            if has_begun {
                note_stop(server, &run.id);
                server.works().observer.say(&Event::Lost { run_id: run.id.clone(), reason: "gap" });
                return Ok(());
            }
            let failure = Failure::new(kind, why);
            let target = Target::parse(&run.target);
            let mut document = Document::not_started(Some(&target), &[failure], &Default::default());
            document.run_id = Some(run.id.clone());
            let text = document.to_journal();
            let ended = session.set_state(RunState::Failed, Some(&text));
            server.works().observer.say(&Event::Released { run_id: run.id.clone(), reason: "finished" });
            return runtime.block_on(ended).map_err(|e| engine_failed(&e));
        }
    };
    let (control, controls) = mpsc::unbounded_channel();
    server.works().active().insert(run.id.clone(), control);
    let server = Arc::clone(server);
    runtime.spawn(async move {
        let handle = service::drive(parts, session, resume, false, Box::new(|_| ()));
        attend(&server, handle, controls).await;
    });
    Ok(())
}

async fn attend(server: &Server, mut handle: RunHandle, mut controls: mpsc::UnboundedReceiver<Control>) {
    let run_id = handle.run_id().to_owned();
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
        }
    };
    let is_stopped = !matches!(&ended, Ok(Ok(_)));
    let event = match &ended {
        Ok(Ok(ended)) if ended.document.status() == "waiting" => {
            Event::Released { run_id: run_id.clone(), reason: "waiting" }
        }
        Ok(Ok(_)) => {
            server.apps().leave(&run_id);
            Event::Released { run_id: run_id.clone(), reason: "finished" }
        }
        Ok(ended) if service::is_left(ended) => Event::Released { run_id: run_id.clone(), reason: "drained" },
        _ => Event::Lost { run_id: run_id.clone(), reason: "overtaken" },
    };
    server.works().active().remove(&run_id);
    server.works().observer.say(&event);
    if is_stopped && !server.is_draining() {
        note_stop(server, &run_id);
    }
    server.works().over.notify_waiters();
    server.works().wake.notify_one();
}

/// Notes that a run came to a stop here, so that it is not continued for ever.
fn note_stop(server: &Server, run_id: &str) {
    let records = server.engine().view(run_id).map_or(0, |view| view.records.len());
    let mut stopped = server.works().stopped.lock().unwrap_or_else(PoisonError::into_inner);
    let (count, at) = stopped.entry(run_id.to_owned()).or_insert((0, records));
    if *at != records {
        (*count, *at) = (0, records);
    }
    *count += 1;
}

/// What a resume of a run does, or why it does nothing.
pub(crate) fn next_of(
    server: &Server,
    view: &etude_runtime::engine::RunView,
    definition: &etude::definition::Definition,
    limits: RunLimits,
    from: Option<&str>,
) -> Result<attempts::Next, attempts::Refused> {
    let engine: &Arc<dyn Engine> = server.engine();
    let ended = attempts::Ended { view, definition, blobs: &engine.blobs(), limits };
    match from {
        None => ended.resume(),
        Some(step) => ended.retry(step).map(attempts::Next::Attempt),
    }
}
