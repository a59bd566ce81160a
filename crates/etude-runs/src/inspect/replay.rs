//! Replay of a recorded run, without running an effect: events, rows and prompts follow from the journal.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use etude_core::effect::{Effect, EffectId, Gate};
use etude_core::machine::{Command, Machine};
use etude_core::plan::Plan;
use etude_core::report::{Event, RunResult};
use etude_process::blob::BlobStore;
use etude_runtime::engine::{NewRun, Record, RunView};
use etude_runtime::record;

use crate::header::Header;

/// The interpreter of a recorded run, with the records that are fed to it.
#[derive(Debug)]
pub struct Replay {
    machine: Machine,
    /// Records of earlier attempts that still count, for the time after the constructor of this attempt.
    earlier: VecDeque<Record>,
    /// Records of the current attempt.
    current: VecDeque<Record>,
    blobs: Arc<dyn BlobStore>,
    skipped: usize,
}

impl Replay {
    /// A replay of `view`, a run of `plan` in the app `app`, before its first record, and the commands with which the
    /// run began.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn new(
        view: &RunView,
        plan: &Plan,
        app: &Path,
        blobs: Arc<dyn BlobStore>,
    ) -> Result<(Self, Vec<Command>), String> {
        Self::of(&view.run, view.records.clone(), plan, app, blobs, |machine| machine)
    }

    /// A replay of a run with these records so far, for its events: no command starts an effect.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn for_events(
        run: &NewRun,
        records: Vec<Record>,
        plan: &Plan,
        app: &Path,
        blobs: Arc<dyn BlobStore>,
    ) -> Result<(Self, Vec<Command>), String> {
        Self::of(run, records, plan, app, blobs, Machine::observed)
    }

    fn of(
        run: &NewRun,
        records: Vec<Record>,
        plan: &Plan,
        app: &Path,
        blobs: Arc<dyn BlobStore>,
        as_used: fn(Machine) -> Machine,
    ) -> Result<(Self, Vec<Command>), String> {
        let header = Header::parse(&run.header, &*blobs)?;
        let start = header.start(run, app, &records, &*blobs);
        let (earlier, current) = record::by_scope(records);
        let machine = as_used(Machine::new(plan, start));
        let mut replay = Self { machine, earlier, current, blobs, skipped: 0 };
        let commands = replay.poll();
        Ok((replay, commands))
    }

    /// Adds a new record of the current attempt.
    pub fn push(&mut self, record: Record) {
        self.current.push_back(record);
    }

    /// Takes the next record and returns it with the commands that follow from it; `None` if no record is left. A
    /// record that does not fit the definition is skipped.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn advance(&mut self) -> Result<Option<(Record, Vec<Command>)>, String> {
        let kept = if self.machine.is_past_constructor() { self.earlier.pop_front() } else { None };
        let is_kept = kept.is_some();
        let Some(record) = kept.or_else(|| self.current.pop_front()) else { return Ok(None) };
        if record.key == record::CANCEL {
            self.machine.cancel(&record::cancel_reason(&record.body));
        } else if record.key == record::RESUMED {
            self.machine.resume(record::resumed_slots(&record.body));
        } else if let Some(aside) = record::to_aside(&record).filter(|_| !is_kept) {
            self.machine.spend(aside);
        } else if !record.key.starts_with('!') {
            let id = EffectId::new(record.key.as_str());
            if self.machine.request(&id) != Some(record.request) {
                self.skipped += 1;
                return Ok(Some((record, Vec::new())));
            }
            let completed = record::to_outcome(&record, &*self.blobs).map_err(|e| e.to_string())?;
            self.machine.complete(&id, completed);
        }
        let commands = self.poll();
        Ok(Some((record, commands)))
    }

    /// True if every record fitted: the definition is the same as during the run.
    pub const fn is_faithful(&self) -> bool {
        self.skipped == 0
    }

    /// Number of remaining records, of earlier attempts and of the current one.
    pub fn left(&self) -> (usize, usize) {
        (self.earlier.len(), self.current.len())
    }

    /// The interpreter in its state after the taken records.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    fn poll(&mut self) -> Vec<Command> {
        self.machine.expect_kept(self.earlier.iter().any(|record| !record.key.starts_with('!')));
        self.machine.poll_all()
    }
}

/// The questions that a run waits for according to its records, also while it does other work, with the state of the run.
/// Answers that have arrived and are not recorded yet leave a question open.
///
/// # Errors
/// The journal is damaged.
pub fn open_gates(
    view: &RunView,
    plan: &Plan,
    app: &Path,
    blobs: &Arc<dyn BlobStore>,
) -> Result<(RunResult, Vec<(EffectId, Gate)>), String> {
    let (mut replay, mut commands) = Replay::new(view, plan, app, Arc::clone(blobs))?;
    let mut gates = BTreeMap::new();
    loop {
        for command in commands {
            match command {
                Command::Start(id, Effect::Gate(gate)) => drop(gates.insert(id, gate)),
                Command::Abandon(id) => drop(gates.remove(&id)),
                Command::Start(..) | Command::Emit(_) => {}
            }
        }
        let Some((_, next)) = replay.advance()? else { break };
        commands = next;
    }
    gates.retain(|id, _| replay.machine.request(id).is_some());
    Ok((replay.machine.snapshot(), gates.into_iter().collect()))
}

/// Result of a whole replay, with facts that the records do not state.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The result in the current state of the run.
    pub result: RunResult,
    /// Reasons for rejected attempts, by the effect that gave the rejected value.
    pub rejected: BTreeMap<String, Vec<String>>,
}

/// Replays all records of a run; `None` if the definition has changed and they do not fit it.
///
/// # Errors
/// The journal is damaged.
pub fn replay(view: &RunView, plan: &Plan, app: &Path, blobs: &Arc<dyn BlobStore>) -> Result<Option<Replayed>, String> {
    let (mut replay, _) = Replay::new(view, plan, app, Arc::clone(blobs))?;
    let mut rejected = BTreeMap::new();
    while let Some((record, commands)) = replay.advance()? {
        for command in commands {
            if let Command::Emit(Event::AttemptRejected { reasons, .. }) = command {
                let effect = record.key.strip_suffix("/validate").unwrap_or(&record.key);
                rejected.insert(effect.to_owned(), reasons);
            }
        }
    }
    Ok(replay.is_faithful().then(|| Replayed { result: replay.machine.snapshot(), rejected }))
}
