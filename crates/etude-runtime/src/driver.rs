//! The driver of one run: it feeds the machine from the journal, then lets the host run the remaining effects. Every
//! outcome is written down before anything that follows from it begins.

mod catch_up;
mod progress;
mod replay;
mod signals;
mod stop;
mod time_budget;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etude_core::effect::{Effect, EffectId, Gate};
use etude_core::failure::Failure;
use etude_core::machine::{Command, Machine, Start};
use etude_core::outcome::{Completed, Exit, Outcome, Stdout};
use etude_core::plan::Plan;
use etude_core::report::{Event, Remains, RunResult, Status, is_below};
use etude_core::tool::ToolReply;
use tokio::sync::{mpsc, watch};

use crate::blob::BlobStore;
use crate::engine::{self, Record, Session};
use crate::host::{EffectSinks, Handle, Host};
use crate::meter::Meter;
use crate::record;
use crate::stream_buffer::{Deltas, StreamBuffer};
use replay::{Origin, Replay};
use time_budget::TimeBudget;

pub use progress::{MiddlewareEvent, MiddlewareEventKind, Progress};
pub use stop::Stop;

/// Interval at which a run looks for signals of other processes: a request to cancel it, the answer to a gate.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(200);

/// Length of a sleep, in milliseconds, beyond which no process waits for its end (K-43).
const LONG_MS: i64 = 60_000;

/// Capacity of the stderr channel, in pieces: when it is full, processes wait for the observer.
const STDERR_PIECES: usize = 4;

/// Treatment of records that do not fit the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMismatch {
    /// The run must not continue.
    Refuse,
    /// The request has changed with the user's consent, so the effect is run again.
    Redo,
}

/// Progress of a run when its driver returns.
#[derive(Debug)]
pub enum Driven {
    /// The run is over.
    Finished(RunResult),
    /// The run waits for decisions or, without gates, sleeps; no process needs to wait with it.
    Waiting {
        /// The result without the open decisions and later steps.
        so_far: RunResult,
        /// Open decisions by the effects that wait for them; empty if the run sleeps.
        gates: Vec<(EffectId, Gate)>,
        /// The earliest deadline, in milliseconds since 1970.
        wakes_at_ms: Option<i64>,
    },
}

/// Reason why a run could not continue. It can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// A record cannot be read.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// The journal has a record of another effect with the same name.
    #[error("the journal has an outcome of another request for `{effect}`: the definition has changed")]
    Mismatch {
        /// The effect whose recorded request is not the one that the machine makes now.
        effect: EffectId,
    },
    /// A step takes a value from a variable of the environment that is not set (X-2 `from_env`).
    #[error("the environment variable `{name}` is not set; a step takes a value from it with `from_env`")]
    UnsetVariable {
        /// The variable of etude's own environment that `from_env` names.
        name: String,
    },
    /// The process was asked to leave the run to another one. The run is unchanged and can be resumed.
    #[error("the run was released to another process")]
    Left,
    /// The machine has no room for another process.
    #[error("resource limit reached while starting a process: {why}; raise the limit (`ulimit -a` lists the limits)")]
    Shortage {
        /// The resource and the error of the system, as a sentence fragment.
        why: String,
    },
}

/// Everything that driving a run needs.
#[derive(Debug)]
pub struct Drive<'a> {
    /// The plan of the current definition.
    pub plan: &'a Plan,
    /// The input, the limits, the attempt and the cost of earlier attempts.
    pub start: Start,
    /// The journal of the run, which this process holds.
    pub session: &'a dyn Session,
    /// All records of the journal.
    pub records: Vec<Record>,
    /// The ports through which the run's effects run.
    pub host: &'a Host,
    /// The user's request to end the run, if there is one, and its kind.
    pub stop: watch::Receiver<Stop>,
    /// Treatment of records that do not fit the plan.
    pub on_mismatch: OnMismatch,
    /// True if models stream their responses ([`Progress::ModelResponse`]).
    pub streams_completions: bool,
    /// True if another process has driven the run before.
    pub is_resumed: bool,
    /// Events of the run's middleware ([`Progress::Middleware`]).
    pub middleware_events: Option<mpsc::UnboundedReceiver<MiddlewareEvent>>,
    /// Counts the model calls of the run's middleware.
    pub meter: Option<Arc<Meter>>,
}

/// A run whose journal has been replayed.
pub struct Replayed<'a> {
    drive: Drive<'a>,
    machine: Machine,
    replay: Replay,
    time: TimeBudget,
    live: Vec<Command>,
}

impl<'a> Drive<'a> {
    /// Continues the run until it is over or waits.
    ///
    /// # Errors
    /// The journal fails. Effects under way have then been ended, and the run can be resumed.
    pub async fn run(self, emit: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Driven, Error> {
        self.replay(emit)?.run(emit).await
    }

    /// Replays the journal. This happens once per drive.
    ///
    /// # Errors
    /// The journal cannot be read, or does not fit the plan.
    pub fn replay(mut self, emit: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Replayed<'a>, Error> {
        let records = std::mem::take(&mut self.records);
        let time = TimeBudget::of(self.plan, &self.start.limits, &records, self.session);
        let mut replay = Replay::of_records(self.plan, records, self.host.engine.blobs(), self.on_mismatch);
        let mut machine = Machine::new(self.plan, self.start.clone());
        let live = replay.run(&mut machine, emit)?;
        Ok(Replayed { drive: self, machine, replay, time, live })
    }
}

impl Replayed<'_> {
    /// The active stage machine that cannot continue with the contents of its slot: its id and the reason (B-ST3).
    pub fn refused_slot(&self) -> Option<(String, Failure)> {
        // A run that is being cancelled continues without slots.
        let refused = if self.replay.is_cancelled { None } else { self.machine.refused_slot() };
        refused.map(|(id, failure)| (id.to_owned(), failure))
    }

    /// Continues the run until it is over or waits.
    ///
    /// # Errors
    /// The journal fails. Effects under way have then been ended, and the run can be resumed.
    pub async fn run(self, emit: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Driven, Error> {
        let Self { mut drive, machine, replay, time, live } = self;
        let (ends, mut ended) = mpsc::unbounded_channel();
        let (stderr, said) = mpsc::channel(STDERR_PIECES);
        let stream_buffer = Arc::<StreamBuffer>::default();
        let streams_completions = drive.streams_completions;
        let (_silent, silence) = mpsc::unbounded_channel();
        let middleware_events = drive.middleware_events.take().unwrap_or(silence);
        let meter = drive.meter.take().unwrap_or_default();
        let mut driver = Driver {
            drive,
            machine,
            replay,
            time,
            meter,
            sinks: EffectSinks { ends, stderr, stream_buffer: Arc::clone(&stream_buffer), streams_completions },
            said,
            middleware_events,
            stream_buffer,
            running: BTreeMap::new(),
            gates: BTreeMap::new(),
            sleeping: BTreeMap::new(),
            asked: BTreeMap::new(),
            is_killed: false,
            is_draining: false,
            held_back: Vec::new(),
            emit,
        };
        let result = driver.event_loop(live, &mut ended).await;
        if matches!(result, Err(Error::Left)) {
            // Without this record only the time since the last record is lost.
            driver.give_sign_of_life().await.ok();
        }
        if result.is_err() {
            driver.end_effects(ended).await;
        }
        result
    }
}

/// Work that another attempt at a finished run has to do, for runs whose result does not state it: versions of the
/// program before the third version of the interpreter did not keep it. The run is read and not changed.
///
/// # Errors
/// The journal cannot be read.
pub fn remains(plan: &Plan, start: Start, records: Vec<Record>, blobs: Arc<dyn BlobStore>) -> Result<Remains, Error> {
    let mut machine = Machine::new(plan, start);
    Replay::of_records(plan, records, blobs, OnMismatch::Redo).run(&mut machine, &mut |_| ())?;
    Ok(machine.snapshot().remains)
}

struct Driver<'a, 'b> {
    drive: Drive<'a>,
    machine: Machine,
    replay: Replay,
    time: TimeBudget,
    meter: Arc<Meter>,
    sinks: EffectSinks,
    /// Output of processes on stderr.
    said: mpsc::Receiver<(EffectId, Vec<u8>)>,
    /// Events of middleware, for the observer.
    middleware_events: mpsc::UnboundedReceiver<MiddlewareEvent>,
    /// Waits of model calls, and their deltas if an observer wants them.
    stream_buffer: Arc<StreamBuffer>,
    running: BTreeMap<EffectId, Handle>,
    gates: BTreeMap<EffectId, Gate>,
    /// Timers under way.
    sleeping: BTreeMap<EffectId, Timer>,
    /// Model calls and step tool calls under way, to be recorded with their outcomes.
    asked: BTreeMap<EffectId, Effect>,
    /// True once the run is killed: nothing runs, not even the destructor.
    is_killed: bool,
    /// True while draining: no effect begins.
    is_draining: bool,
    /// Start commands that arrived while draining.
    held_back: Vec<Command>,
    emit: &'b mut (dyn FnMut(Progress<'_>) + Send),
}

/// A timer under way.
#[derive(Debug, Clone, Copy)]
struct Timer {
    /// End of the timer, in milliseconds since 1970.
    ends_ms: i64,
    /// True if the timer limits something that may end before it.
    is_deadline: bool,
}

/// Channel of effect ends; `None` if the effect's task has panicked.
type Ends = mpsc::UnboundedReceiver<(EffectId, Option<Completed>)>;

impl Driver<'_, '_> {
    /// Ends all effects under way and waits until they are gone: no effect may outlive its drive. The next drive, which
    /// may begin in this process, runs the same effects again under the same ids, and an effect that ends finds its
    /// processes by its id.
    async fn end_effects(self, mut ended: Ends) {
        let Self { mut drive, running, sinks, said, .. } = self;
        running.values().for_each(Handle::cancel);
        // From here on stderr of processes is not read. Each effect holds the other end of `ended` until it is gone.
        drop((sinks, said));
        let killed = async {
            let is_killed = drive.stop.wait_for(|stop| matches!(stop, Stop::Kill(_))).await.is_ok();
            if !is_killed {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = async { while ended.recv().await.is_some() {} } => {}
            () = killed => {}
        }
    }

    async fn event_loop(&mut self, live: Vec<Command>, ended: &mut Ends) -> Result<Driven, Error> {
        self.meter.update(&self.machine);
        let live = self.stop_before_anything_begins(live).await?;
        let live = self.catch_up(live).await?;
        let live = self.resume_before_anything_begins(live).await?;
        self.execute_commands(live).await?;
        let mut ticks = tokio::time::interval(SIGNAL_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.handle_stop().await?;
        loop {
            if let Some(result) = self.machine.result() {
                return Ok(Driven::Finished(result.clone()));
            }
            if self.only_waits() {
                self.handle_signals().await?;
                if self.only_waits() && self.machine.result().is_none() {
                    return self.suspend().await;
                }
                continue;
            }
            if self.is_draining && self.running.keys().all(|id| self.sleeping.contains_key(id)) {
                return Err(Error::Left);
            }
            let is_timed = self.sleeping.contains_key(&self.time.id);
            tokio::select! {
                biased;
                // The order matters: a process that floods stderr must not delay the user, an end or a signal.
                Ok(()) = self.drive.stop.changed() => self.handle_stop().await?,
                Some((id, completed)) = ended.recv() => match completed {
                    Some(completed) => self.receive(id, completed).await?,
                    // The panic message names the place; a run that waits for this end would hang.
                    None => panic!("internal error: the handler of effect `{id}` panicked"),
                },
                _ = ticks.tick() => if self.drive.session.has_news()? {
                    self.handle_signals().await?;
                },
                _ = self.time.signs.tick(), if is_timed => self.give_sign_of_life().await?,
                () = self.meter.news() => {
                    self.book_asides().await?;
                    let commands = self.poll().await?;
                    self.execute_commands(commands).await?;
                }
                () = self.stream_buffer.news() => {
                    for (id, said) in self.stream_buffer.take_all() {
                        self.pass_on(&id, &said);
                    }
                }
                Some(middleware_events) = self.middleware_events.recv() => (self.emit)(Progress::Middleware(&middleware_events)),
                Some((id, bytes)) = self.said.recv() => self.show(&id, &bytes),
            }
        }
    }

    /// Restarts stages that were active in the previous process: their effects under way are not begun again.
    async fn resume_before_anything_begins(&mut self, mut live: Vec<Command>) -> Result<Vec<Command>, Error> {
        if !self.drive.is_resumed || self.replay.is_cancelled || !self.machine.handles_resumption() {
            return Ok(live);
        }
        let slots = self.machine.slots().clone();
        self.drive.session.append(record::of_resumed(&slots, self.at_ms())).await?;
        self.machine.resume(slots);
        for command in self.machine.poll() {
            match &command {
                Command::Abandon(id) if live.iter().any(|c| matches!(c, Command::Start(begun, _) if begun == id)) => {
                    live.retain(|c| !matches!(c, Command::Start(begun, _) if begun == id));
                }
                _ => live.push(command),
            }
        }
        Ok(live)
    }

    /// Commands of the machine. Once the constructor of a further attempt is over, outcomes of earlier attempts answer
    /// first.
    async fn poll(&mut self) -> Result<Vec<Command>, Error> {
        let commands = self.machine.poll();
        self.meter.update(&self.machine);
        if !self.replay.has_earlier(&self.machine) {
            return Ok(commands);
        }
        let mut wanted = Vec::new();
        for command in commands {
            match command {
                // The end of the constructor is news. The outcomes decide if a step begins.
                Command::Emit(event) if !matches!(event, Event::StepStarted { .. }) => {
                    (self.emit)(Progress::Machine { event: &event, rows: self.machine.rows(), is_replay: false });
                }
                command => wanted.push(command),
            }
        }
        let live = self.replay.feed_all(&mut self.machine, wanted, true, self.emit)?;
        self.resume_before_anything_begins(live).await
    }

    /// Executes commands until the machine has no more.
    async fn execute_commands(&mut self, mut commands: Vec<Command>) -> Result<(), Error> {
        while !commands.is_empty() {
            for command in commands {
                match command {
                    // The command is not in the journal: the process that continues the run begins it.
                    Command::Start(..) if self.is_draining => self.held_back.push(command),
                    Command::Start(id, effect) => self.start(id, effect).await?,
                    Command::Abandon(id) if self.is_held_back(&id) => {
                        let abandoned = Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 };
                        self.machine.complete(&id, abandoned);
                    }
                    Command::Abandon(id) => self.abandon(&id),
                    Command::Emit(event) => {
                        (self.emit)(Progress::Machine { event: &event, rows: self.machine.rows(), is_replay: false });
                    }
                }
            }
            commands = self.poll().await?;
        }
        self.note_deadlines().await
    }

    /// Records the deadlines of open questions and of the parts around them, so that each stays the same however the
    /// process ends. The time budget has a record of its own.
    async fn note_deadlines(&mut self) -> Result<(), Error> {
        let is_around = |timer: &EffectId| {
            let part = timer.as_str().rsplit_once('!').map(|(part, _)| part);
            part.is_some_and(|part| self.gates.keys().any(|gate| is_below(gate.as_str(), part)))
        };
        let is_new = |id: &EffectId| *id != self.time.id && self.replay.deadline(id).is_none();
        let timers = self.sleeping.iter().filter(|(id, timer)| timer.is_deadline && is_new(id) && is_around(id));
        let moments: Vec<(EffectId, i64)> = timers.map(|(id, timer)| (id.clone(), timer.ends_ms)).collect();
        for (id, ends_ms) in moments {
            self.drive.session.append(record::of_deadline(&id, ends_ms)).await?;
            self.replay.note_deadline(id, ends_ms);
        }
        Ok(())
    }

    async fn start(&mut self, id: EffectId, effect: Effect) -> Result<(), Error> {
        self.drive.session.check_lease()?;
        if !self.replay.is_cleaning_up(&id)
            && let Some((completed, origin)) = self.replay.leftover(&id, &effect)?
        {
            if origin == Origin::Earlier {
                self.machine.complete_kept(&id, completed);
                return Ok(());
            }
            // An earlier outcome still answers the request; it is recorded again in its new place.
            return self.journal(&id, &effect, completed).await;
        }
        match effect {
            Effect::Gate(gate) => {
                self.gates.insert(id, gate);
                self.handle_decisions().await
            }
            Effect::Sleep { ms, deadline } => {
                let now_ms = self.now_ms();
                let ends = match id == self.time.id {
                    true => self.time.ends_ms(now_ms, ms),
                    false => self.replay.deadline(&id).unwrap_or_else(|| now_ms.saturating_add_unsigned(ms)),
                };
                let ms = u64::try_from(ends.saturating_sub(now_ms)).unwrap_or(0).min(ms);
                self.sleeping.insert(id.clone(), Timer { ends_ms: ends, is_deadline: deadline });
                if id == self.time.id {
                    self.give_sign_of_life().await?;
                }
                let handle = self.drive.host.begin(id.clone(), Effect::Sleep { ms, deadline }, self.sinks.clone());
                self.running.insert(id, handle);
                Ok(())
            }
            effect => {
                if record::keeps_request(&effect) {
                    self.asked.insert(id.clone(), effect.clone());
                }
                let handle = self.drive.host.begin(id.clone(), effect, self.sinks.clone());
                self.running.insert(id, handle);
                Ok(())
            }
        }
    }

    async fn journal(&mut self, id: &EffectId, effect: &Effect, completed: Completed) -> Result<(), Error> {
        let record = record::of_outcome(id, effect.digest(), &completed, Some(effect), self.at_ms());
        self.drive.session.append(record).await?;
        self.machine.complete(id, completed);
        Ok(())
    }

    /// True if a drain kept this effect from beginning; the effect is then forgotten.
    fn is_held_back(&mut self, id: &EffectId) -> bool {
        let before = self.held_back.len();
        self.held_back.retain(|command| !matches!(command, Command::Start(held, _) if held == id));
        self.held_back.len() < before
    }

    fn now_ms(&self) -> i64 {
        self.drive.session.now_ms()
    }

    /// Milliseconds since the run began, for the times in records.
    fn at_ms(&self) -> u64 {
        u64::try_from(self.now_ms().saturating_sub(self.drive.session.began_at_ms())).unwrap_or(0)
    }

    /// Abandons an effect. Timers and gates end at once and leave no record; other effects report their end.
    fn abandon(&mut self, id: &EffectId) {
        if let Some(handle) = self.running.get(id) {
            handle.cancel();
        }
        if self.gates.remove(id).is_some() || self.sleeping.remove(id).is_some() {
            self.running.remove(id);
            self.machine.complete(id, Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 });
        }
    }

    fn show(&mut self, effect: &EffectId, bytes: &[u8]) {
        (self.emit)(Progress::Stderr { effect, bytes });
    }

    fn pass_on(&mut self, effect: &EffectId, said: &Deltas) {
        for wait in &said.waits {
            (self.emit)(Progress::Waiting { effect, wait });
        }
        if said.is_again || !said.text.is_empty() {
            (self.emit)(Progress::ModelResponse { effect, text: &said.text, is_again: said.is_again });
        }
    }

    async fn receive(&mut self, id: EffectId, completed: Completed) -> Result<(), Error> {
        // The last deltas of a response come before anything that follows from it.
        if let Some(said) = self.stream_buffer.take(&id) {
            self.pass_on(&id, &said);
        }
        // Only the events present now: middleware that emits without end must not delay the handling of this end.
        for _ in 0..self.middleware_events.len() {
            let Ok(middleware_events) = self.middleware_events.try_recv() else { break };
            (self.emit)(Progress::Middleware(&middleware_events));
        }
        // Stderr of a process is shown before its end, up to the pieces that had arrived when it ended.
        for _ in 0..STDERR_PIECES {
            let Ok((effect, bytes)) = self.said.try_recv() else { break };
            self.show(&effect, &bytes);
        }
        // An abandoned effect may still report its end.
        if self.running.remove(&id).is_none() {
            return Ok(());
        }
        self.sleeping.remove(&id);
        // The usage of middleware is recorded before the outcome.
        self.book_asides().await?;
        self.handle_shortage(&completed.outcome)?;
        let Some(request) = self.machine.request(&id) else { return Ok(()) };
        let asked = self.asked.remove(&id);
        let record = record::of_outcome(&id, request, &completed, asked.as_ref(), self.at_ms());
        self.drive.session.append(record).await?;
        self.machine.complete(&id, completed);
        let commands = self.poll().await?;
        self.execute_commands(commands).await
    }

    /// Records the cost of model calls beside the effects, for the machine to book.
    async fn book_asides(&mut self) -> Result<(), Error> {
        for aside in self.meter.take() {
            self.drive.session.append(record::of_aside(&aside, self.at_ms())).await?;
            self.machine.spend(aside);
        }
        Ok(())
    }

    /// Stops the run at a lack of resources, which is not a failure of the step: a resume begins the step again. The
    /// same holds for large values that cannot be kept or read because their store does not answer.
    fn handle_shortage(&self, outcome: &Outcome) -> Result<(), Error> {
        let has_not_begun = match outcome {
            Outcome::Process(end) => matches!(end.exit, Exit::NotStarted(_)),
            // The tool may have needed a process that could not start. Its finished work is kept.
            Outcome::Tool(reply) => matches!(&**reply, ToolReply::Done(result) if result.error.is_some()),
            _ => false,
        };
        let has_failed = match outcome {
            Outcome::Process(end) => !end.exit.is_success() || !matches!(end.stdout, Stdout::Value(_)),
            _ => has_not_begun,
        };
        let processes = &self.drive.host.processes;
        if let Some(why) = processes.outage().filter(|_| has_failed) {
            return Err(engine::Error::ValuesAway(why.to_owned()).into());
        }
        if let Some(name) = processes.unset_variable().filter(|_| has_not_begun) {
            return Err(Error::UnsetVariable { name: name.to_owned() });
        }
        match processes.shortage().filter(|_| has_not_begun) {
            Some(why) => Err(Error::Shortage { why: why.to_owned() }),
            None => Ok(()),
        }
    }

    /// True if nothing can happen before a decision or a future deadline, or, if the engine wakes sleeping runs, before
    /// the end of a long sleep (K-43).
    fn only_waits(&self) -> bool {
        let now = self.now_ms();
        let is_woken = self.drive.session.is_woken();
        let waits = !self.gates.is_empty();
        let is_far = |id: &EffectId| match self.sleeping.get(id) {
            Some(timer) if waits && timer.is_deadline => timer.ends_ms > now,
            Some(timer) => is_woken && timer.ends_ms > now.saturating_add(LONG_MS),
            None => false,
        };
        (waits || !self.running.is_empty()) && self.held_back.is_empty() && self.running.keys().all(is_far)
    }

    /// Suspends the run: it waits or sleeps outside any process. The ends of timers are recorded, so that they keep
    /// counting.
    async fn suspend(&mut self) -> Result<Driven, Error> {
        for (id, timer) in &self.sleeping {
            let is_noted = *id != self.time.id && self.replay.deadline(id).is_some();
            if !is_noted {
                self.drive.session.append(record::of_deadline(id, timer.ends_ms)).await?;
            }
        }
        let wakes_at_ms = self.sleeping.values().map(|timer| timer.ends_ms).min();
        self.running.values().for_each(Handle::cancel);
        let gates: Vec<_> = std::mem::take(&mut self.gates).into_iter().collect();
        let status = if gates.is_empty() { Status::Sleeping } else { Status::Waiting };
        let so_far = RunResult { status, ..self.machine.snapshot() };
        Ok(Driven::Waiting { so_far, gates, wakes_at_ms })
    }
}

#[cfg(test)]
mod tests;
