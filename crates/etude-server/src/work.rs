//! The runs that this server drives: taken from the queue, adopted, and left to the next server at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude::runner::{self, Resume};
use etude::service::{self, Parts};
use etude_core::failure::{Failure, FailureKind};
use etude_invoke::invoker::CancellationToken;
use etude_runs::document::Document;
use etude_runs::target::Target;
use etude_runtime::driver::Progress;
use etude_runtime::engine::{Engine, NewRun, Rules, RunState, Session};
use etude_spec::Diagnostic;
use tokio::sync::{Notify, mpsc};

mod adopt;
mod attend;
mod cancel;
mod drain;
pub(crate) mod event;
mod place;
mod unread;

use self::adopt::Settled;
pub(crate) use self::adopt::{continue_run, keeps_waiting};
use self::attend::{Following, attend, note_stop};
pub(crate) use self::cancel::cancel_run;
pub(crate) use self::drain::{drain, drain_beside};
use self::event::{Event, Looks, Observer};
use self::unread::Unread;
use crate::app::NotLoaded;
use crate::blocking::blocking;
use crate::context::Context;
use crate::notice::Notices;
use crate::problem::{Problem, engine_failed};
use crate::stopped::{Reason, Stops};
use crate::story::Stories;

/// Maximum time between two looks for queued runs, runs to adopt, and answers.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// A message to a run in progress.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Cancel(String),
    Kill(String),
    Drain,
    Leave,
    /// Leaves the run at once, without writing anything: another process may have it soon.
    Lapse,
}

/// A run that this server drives.
#[derive(Debug)]
struct Active {
    control: mpsc::UnboundedSender<Control>,
    /// The value of [`Session::lapses`](etude_runtime::engine::Session::lapses) when the run was taken.
    lapses: u64,
}

/// The runs that this server drives.
pub(crate) struct Works {
    context: Arc<Context>,
    stories: Arc<Stories>,
    notices: Arc<Notices>,
    active: Mutex<BTreeMap<String, Active>>,
    /// Runs that stopped here without an end.
    stops: Stops,
    /// Unreadable apps, whose runs wait.
    unread: Unread,
    /// Runs that are left alone, and whose leftovers are cleaned up.
    left_alone: Mutex<BTreeSet<String>>,
    /// Damaged runs that were reported.
    damaged: Mutex<BTreeSet<String>>,
    /// The looks of the loop that begins and adopts runs.
    looks: Looks,
    /// The looks of the clock loop.
    pub(crate) looks_of_schedules: Looks,
    settled: Mutex<Option<Settled>>,
    /// Runs of other processes whose cancellation this server has accepted, until they end.
    cancelling: Mutex<BTreeSet<String>>,
    /// Notified when a run was queued or has ended.
    pub(crate) wake: Notify,
    over: Notify,
    /// The number of unfinished tails: ended runs with something left to send, such as spans; and commands of applications.
    sending: AtomicUsize,
    /// Cancels the commands of applications.
    commands: CancellationToken,
    /// The receiver of events.
    pub(crate) observer: Observer,
    /// The rules of the fleet, and the time of their reading.
    rules: Mutex<Option<(Instant, Rules)>>,
}

impl Works {
    /// The works of the process, initially without runs.
    pub(crate) fn new(context: &Arc<Context>, stories: &Arc<Stories>, notices: &Arc<Notices>) -> Self {
        Self {
            context: Arc::clone(context),
            stories: Arc::clone(stories),
            notices: Arc::clone(notices),
            active: Mutex::default(),
            stops: Stops::default(),
            unread: Unread::default(),
            left_alone: Mutex::default(),
            damaged: Mutex::default(),
            looks: Looks::default(),
            looks_of_schedules: Looks::default(),
            settled: Mutex::default(),
            cancelling: Mutex::default(),
            wake: Notify::new(),
            over: Notify::new(),
            sending: AtomicUsize::new(0),
            commands: CancellationToken::new(),
            observer: Observer::default(),
            rules: Mutex::default(),
        }
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<String, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancelling(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.cancelling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queues of a worker, those of the highest priority first (K-30).
    pub(crate) fn in_order(&self, engine: &dyn Engine, queues: &[String]) -> Vec<String> {
        let mut queues = queues.to_vec();
        if queues.len() > 1 {
            let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            let is_fresh = rules.as_ref().is_some_and(|(at, _)| at.elapsed() < LOOK);
            // If the rules cannot be read now, the last ones stay.
            if !is_fresh && let Ok(read) = engine.rules() {
                *rules = Some((Instant::now(), read));
            }
            let known = rules.as_ref().map(|(_, rules)| rules);
            let priority =
                |queue: &String| known.and_then(|rules| rules.queue(queue)).map_or(0, |rules| rules.priority);
            queues.sort_by_key(|queue| std::cmp::Reverse(priority(queue)));
        }
        queues
    }

    fn settled(&self) -> Option<Settled> {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, settled: Option<Settled>) {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = settled;
    }

    /// Number of runs that this process drives.
    pub(crate) fn count(&self) -> usize {
        self.active().len()
    }

    /// True if this server drives the run.
    pub(crate) fn has(&self, run_id: &str) -> bool {
        self.active().contains_key(run_id)
    }

    /// Sends a message to a run. False if this server does not drive it.
    pub(crate) fn control(&self, run_id: &str, control: Control) -> bool {
        self.active().get(run_id).is_some_and(|run| run.control.send(control).is_ok())
    }

    fn control_all(&self, control: &Control) {
        self.active().values().for_each(|run| drop(run.control.send(control.clone())));
    }

    /// Releases the runs that were taken before the lapse with this number. Returns their ids.
    fn lose(&self, lapses: u64) -> Vec<String> {
        let active = self.active();
        let lost = active.iter().filter(|(_, run)| run.lapses < lapses);
        let left = lost.map(|(id, run)| {
            let _ = run.control.send(Control::Lapse);
            id.clone()
        });
        left.collect()
    }

    /// The token that is cancelled when the server stops waiting for commands of applications.
    pub(crate) fn commands(&self) -> CancellationToken {
        self.commands.clone()
    }

    async fn all_over(&self) {
        loop {
            let over = self.over.notified();
            if self.active().is_empty() && self.sending.load(Ordering::SeqCst) == 0 {
                return;
            }
            over.await;
        }
    }
}

/// A guard that delays the end of the server until it is dropped.
pub(crate) struct Sending(Arc<Works>);

impl Sending {
    pub(crate) fn new(works: &Arc<Works>) -> Self {
        works.sending.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(works))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::SeqCst);
        self.0.over.notify_waiters();
    }
}

/// Begins queued runs and adopts others until the server stops.
pub(crate) async fn work(works: Arc<Works>) {
    let mut stopping = works.context.stopping();
    let mut news = works.stories.news_of_journal();
    let pause = works.context.settings().worker.as_ref().map_or(LOOK, |worker| worker.poll);
    let mut adopted: Option<Instant> = None;
    loop {
        if works.context.is_draining() {
            return;
        }
        let adopts = adopted.is_none_or(|at| at.elapsed() >= LOOK);
        if adopts {
            adopted = Some(Instant::now());
        }
        look(&works, adopts).await;
        tokio::select! {
            () = works.wake.notified() => {}
            _ = news.changed() => {}
            () = tokio::time::sleep(pause) => {}
            () = works.context.engine().rung() => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// Begins queued runs, and adopts others if `adopts`.
pub(crate) async fn look(works: &Arc<Works>, adopts: bool) {
    let of = Arc::clone(works);
    // The next look may reach a failed journal again.
    let looked = blocking(move || {
        let mut looked = Looked::new(&of);
        looked.note(begin_queued(&of))?;
        looked.note(expire(&of))?;
        if adopts {
            looked.note(cancel::continue_left(&of))?;
            looked.note(adopt::adopt(&of))?;
        }
        looked.end()
    })
    .await;
    works.looks.note(&works.observer, looked.as_ref().err());
}

/// Leaves all runs: effects in progress are ended, and begin again elsewhere.
pub(crate) fn leave(works: &Works) {
    works.control_all(&Control::Leave);
}

/// Releases the runs that were taken before the lease could not be renewed for the time `lapses`. The new lease covers runs that
/// were taken since. With `at_once`, their processes are not asked to end first.
pub(crate) fn lapse(works: &Arc<Works>, lapses: u64, at_once: bool) {
    let lost = works.lose(lapses);
    if at_once {
        tokio::task::spawn_blocking(move || lost.iter().for_each(|run| service::end_processes(run)));
    }
}

/// The first failure of a look. A run that cannot be read or written keeps no other run waiting.
struct Looked<'w> {
    works: &'w Works,
    failed: Option<Problem>,
}

impl<'w> Looked<'w> {
    fn new(works: &'w Works) -> Self {
        Self { works, failed: None }
    }

    /// Notes the outcome of a part of the look. An unreachable database ends the look: other parts would wait for it, too.
    fn note(&mut self, outcome: Result<(), Problem>) -> Result<(), Problem> {
        let Err(problem) = outcome else { return Ok(()) };
        if self.works.context.engine().health().is_disconnected {
            return Err(problem);
        }
        self.failed.get_or_insert(problem);
        Ok(())
    }

    fn end(self) -> Result<(), Problem> {
        self.failed.map_or(Ok(()), Err)
    }
}

fn begin_queued(works: &Arc<Works>) -> Result<(), Problem> {
    let mut looked = Looked::new(works);
    for limits in works.limits_of_queues() {
        if !works.has_place() {
            // A process without a place must learn, too, if claims are answered (K-22).
            works
                .context
                .engine()
                .is_waiting(&limits, works.context.clock().now_ms())
                .map_err(|e| engine_failed(&e))?;
        }
        while !works.context.is_draining() && works.has_place() {
            let limits = works.readable_of(&limits);
            let next = works.context.engine().next_few(&limits, works.share(), works.context.clock().now_ms());
            let next = match next {
                Ok(next) if next.is_empty() => break,
                Ok(next) => next,
                Err(error) => {
                    looked.note(Err(engine_failed(&error)))?;
                    break;
                }
            };
            for session in next {
                looked.note(drive(works, session, Resume::default()))?;
            }
        }
    }
    looked.end()
}

fn expire(works: &Arc<Works>) -> Result<(), Problem> {
    let definition = |run: &NewRun| works.context.definition_for(run).ok().map(|(_, definition)| definition);
    let expired = etude::queue::expire(works.context.engine(), definition, works.context.clock().now_ms());
    let runtime = tokio::runtime::Handle::current();
    runtime.block_on(expired).map(drop).map_err(|e| engine_failed(&e))
}

/// Drives a run that this server has taken.
pub(crate) fn drive(works: &Arc<Works>, session: Box<dyn Session>, resume: Resume) -> Result<(), Problem> {
    let run = session.run().clone();
    let taken_from = session.taken_from().map(str::to_owned);
    works.observer.say(&Event::Claimed { run_id: run.id.clone(), taken_from });
    let loaded = works.context.definition_for(&run);
    if let Err(NotLoaded::Unreachable(why)) = loaded {
        // No run fails because the database or the object storage is unreachable: this one is taken again later.
        session.postpone();
        let reason = if works.context.engine().health().is_disconnected { "lease" } else { "blobs" };
        works.observer.say(&Event::Lost { run_id: run.id, reason, message: Some(why) });
        return Ok(());
    }
    let parts = loaded.map_err(|error| why_absent(error, &run)).and_then(|(disk, definition)| {
        let runner = works.context.apps().runner(&run, &disk, &definition);
        let runner = runner.map_err(|why| Reason::lasting(FailureKind::Environment, why))?;
        Ok(Parts { runner: runner::Runner { is_exclusive: false, ..runner }, definition, disk })
    });
    let parts = match parts {
        Ok(parts) => Arc::new(parts),
        // A run does not fail either because files are being edited or replaced, or cannot be opened. It waits until they can be
        // read.
        Err(_) if works.is_unread(&run.app) => return Ok(()),
        Err(reason) => return not_driven(works, &*session, reason),
    };
    let (control, controls) = mpsc::unbounded_channel();
    works.active().insert(run.id.clone(), Active { control, lapses: session.lapses() });
    let works = Arc::clone(works);
    tokio::runtime::Handle::current().spawn(async move {
        let following = Following::new(works.context.apps().observer(&run));
        let (of, id, also) = (Arc::clone(&works), run.id.clone(), following.clone());
        let observer = Box::new(move |progress: Progress<'_>| {
            of.stories.asides.say(&id, &progress);
            also.observe(&progress);
        });
        let handle = service::drive(parts, session, resume, following.is_there(), observer);
        attend(&works, run, handle, controls, following).await;
    });
    Ok(())
}

/// The reason why a run without its definition cannot be driven.
fn why_absent(error: NotLoaded, run: &NewRun) -> Reason {
    match error {
        NotLoaded::Unknown { .. } => {
            Reason::lasting(FailureKind::DefinitionInvalid, format!("the app no longer has `{}`", run.target))
        }
        NotLoaded::Invalid(found) => {
            let first = found.into_iter().find(Diagnostic::is_error).map(|found| found.message);
            let message = first.unwrap_or_else(|| "the definition has errors".to_owned());
            Reason::lasting(FailureKind::DefinitionInvalid, message)
        }
        NotLoaded::Unreadable(why) | NotLoaded::Unreachable(why) => Reason::lasting(FailureKind::Environment, why),
    }
}

/// Ends a run that cannot begin here. A run that has begun is released, and tried again.
fn not_driven(works: &Works, session: &dyn Session, reason: Reason) -> Result<(), Problem> {
    let run = session.run();
    let has_begun = session.records().map_err(|e| engine_failed(&e))?.iter().any(|r| !r.key.starts_with('!'));
    if has_begun {
        note_stop(works, &run.id, reason);
        works.observer.say(&Event::Lost { run_id: run.id.clone(), reason: "gap", message: None });
        return Ok(());
    }
    let failure = Failure::new(reason.kind, reason.message);
    let target = Target::parse(&run.target);
    let mut document = Document::not_started(Some(&target), &[failure], &Default::default());
    document.run_id = Some(run.id.clone());
    let text = document.to_journal();
    let ended = session.set_state(RunState::Failed, Some(&text));
    works.observer.say(&Event::Released { run_id: run.id.clone(), reason: "finished" });
    tokio::runtime::Handle::current().block_on(ended).map_err(|e| engine_failed(&e))
}

#[cfg(test)]
pub(crate) mod tests;
