//! A recorded run, interpreted again without performing anything: events, rows and prompts that follow from the journal.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use etude_core::effect::EffectId;
use etude_core::machine::{Command, Machine};
use etude_core::plan::Plan;
use etude_core::report::{Event, RunResult};
use etude_process::blob::BlobStore;
use etude_runtime::engine::{NewRun, Record, RunView};
use etude_runtime::record;

use crate::header::Header;

/// The interpreter of a recorded run, with the records that were fed to it.
#[derive(Debug)]
pub struct Replay {
    machine: Machine,
    /// Records of earlier attempts that still count, for when the constructor of this attempt is over.
    earlier: VecDeque<Record>,
    /// Records of the current attempt.
    current: VecDeque<Record>,
    blobs: Arc<dyn BlobStore>,
    skipped: usize,
}

impl Replay {
    /// A replay of `view`, a run of `plan` in the app `app`, that has taken no record yet, and the commands with which the run began.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn new(
        view: &RunView,
        plan: &Plan,
        app: &Path,
        blobs: Arc<dyn BlobStore>,
    ) -> Result<(Self, Vec<Command>), String> {
        Self::of_records(&view.run, view.records.clone(), plan, app, blobs)
    }

    /// The same of a run whose records so far are these.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn of_records(
        run: &NewRun,
        records: Vec<Record>,
        plan: &Plan,
        app: &Path,
        blobs: Arc<dyn BlobStore>,
    ) -> Result<(Self, Vec<Command>), String> {
        let header = Header::parse(&run.header, &*blobs)?;
        let start = header.start(run, app, &records, &*blobs);
        let (earlier, current) = record::by_scope(records);
        let machine = Machine::new(plan, start);
        let mut replay = Self { machine, earlier, current, blobs, skipped: 0 };
        let commands = replay.poll();
        Ok((replay, commands))
    }

    /// Adds a record that was written to the current attempt meanwhile.
    pub fn push(&mut self, record: Record) {
        self.current.push_back(record);
    }

    /// Takes the next record and returns it with the commands that follow from it; `None` if there is none left. A record
    /// that does not fit the definition is skipped.
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

    /// True if every record fitted: the definition is the one that the run was made with.
    pub const fn is_faithful(&self) -> bool {
        self.skipped == 0
    }

    /// How many records of earlier attempts, and of the current one, it has not taken.
    pub fn left(&self) -> (usize, usize) {
        (self.earlier.len(), self.current.len())
    }

    /// The interpreter in the state after the records that were taken.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    fn poll(&mut self) -> Vec<Command> {
        self.machine.expect_kept(self.earlier.iter().any(|record| !record.key.starts_with('!')));
        std::iter::from_fn(|| Some(self.machine.poll()).filter(|commands| !commands.is_empty())).flatten().collect()
    }
}

/// What a whole replay shows beyond the records.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The run in the current state.
    pub result: RunResult,
    /// Reasons for which attempts were rejected, by the effect that gave the rejected value.
    pub rejected: BTreeMap<String, Vec<String>>,
}

/// Replays all records of a run; `None` if they do not fit the definition, which has changed since.
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
