//! Replay: feeds a machine from the journal, in the order of the records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use etude_core::effect::{Effect, EffectId};
use etude_core::machine::{Command, Machine};
use etude_core::outcome::{Completed, Outcome};
use etude_core::plan::Plan;
use etude_core::report::{Event, is_below};

use super::{Error, OnMismatch, Progress};
use crate::blob::{BlobStore, Watched};
use crate::engine::{self, Record};
use crate::record;

/// The attempt that an outcome is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The attempt that is being driven.
    Current,
    /// An earlier attempt whose outcome is kept.
    Earlier,
}

/// True if the record is from the run's past. Records that begin a run are not: nothing has been reported yet.
fn is_past(record: &Record) -> bool {
    [record::CANCEL, record::RESUMED].contains(&record.key.as_str()) || !record.key.starts_with('!')
}

/// Ends a wait or a gate at once, which nothing has to stop. Any other effect is given up.
fn abandon(machine: &mut Machine, id: EffectId, wanted: &mut Vec<(EffectId, Effect)>, given_up: &mut Vec<EffectId>) {
    let is_wait =
        |(own, effect): &(EffectId, Effect)| *own == id && matches!(effect, Effect::Sleep { .. } | Effect::Gate(_));
    if !wanted.iter().any(is_wait) {
        given_up.push(id);
        return;
    }
    wanted.retain(|(own, _)| *own != id);
    machine.complete(&id, Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 });
}

/// Ends the effects that were being abandoned when the process died: they died with it, or the host has ended them.
fn end_given_up(machine: &mut Machine, wanted: &mut Vec<(EffectId, Effect)>, given_up: Vec<EffectId>) {
    for id in given_up {
        if wanted.iter().any(|(i, _)| *i == id) {
            wanted.retain(|(i, _)| *i != id);
            machine.complete(&id, Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 });
        }
    }
}

/// Records of a run that have not been fed yet.
pub(super) struct Replay {
    records: VecDeque<Record>,
    /// Records of earlier attempts that still count, for the time after the constructor of this attempt.
    earlier: VecDeque<Record>,
    /// Outcomes that answered no request in their turn: they may still answer a later one, after a change of the definition.
    leftovers: BTreeMap<EffectId, (Record, Origin)>,
    deadlines: BTreeMap<EffectId, i64>,
    on_mismatch: OnMismatch,
    blobs: Watched,
    /// Name of the destructor.
    destructor: Option<String>,
    /// True if no earlier process has had this attempt: its events are news.
    is_new_attempt: bool,
    pub(super) is_cancelled: bool,
}

impl Replay {
    pub(super) fn of_records(
        plan: &Plan,
        records: Vec<Record>,
        blobs: Arc<dyn BlobStore>,
        on_mismatch: OnMismatch,
    ) -> Self {
        let (earlier, records) = record::by_scope(records);
        let deadlines = earlier.iter().chain(&records).filter_map(record::to_deadline).collect();
        let leftovers = BTreeMap::new();
        let is_new_attempt = !records.iter().any(is_past);
        let (blobs, is_cancelled) = (Watched::new(blobs), false);
        let destructor = plan.after.as_ref().map(|after| after.name.clone());
        Self { records, earlier, leftovers, deadlines, on_mismatch, blobs, destructor, is_new_attempt, is_cancelled }
    }

    /// True if outcomes of earlier attempts answer the machine's current requests.
    pub(super) fn has_earlier(&self, machine: &Machine) -> bool {
        !self.earlier.is_empty() && machine.is_past_constructor()
    }

    /// Feeds all records and returns the machine's remaining commands.
    pub(super) fn run(
        &mut self,
        machine: &mut Machine,
        emit: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Vec<Command>, Error> {
        let has_past = self.records.iter().chain(&self.earlier).any(is_past);
        let live = self.feed_all(machine, Vec::new(), has_past, emit);
        // No process has come further in this attempt.
        self.is_new_attempt = true;
        live
    }

    /// Feeds the remaining records, up to the machine's state, after it issued `commands`. Returns the machine's
    /// remaining commands.
    pub(super) fn feed_all(
        &mut self,
        machine: &mut Machine,
        commands: Vec<Command>,
        has_past: bool,
        emit: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Vec<Command>, Error> {
        let mut commands = Some(commands).filter(|commands| !commands.is_empty());
        let mut wanted: Vec<(EffectId, Effect)> = Vec::new();
        let mut given_up: Vec<EffectId> = Vec::new();
        let mut reported = Vec::new();
        // Begun steps of a new attempt: those that do not end with kept outcomes are news.
        let mut begun: Vec<(usize, Event)> = Vec::new();
        // The live run looks at the leftovers of earlier attempts once it has read all of their records.
        let mut has_all_earlier = self.earlier.is_empty();
        loop {
            loop {
                machine.expect_kept(self.earlier.iter().any(|record| !record.key.starts_with('!')));
                let commands = commands.take().unwrap_or_else(|| machine.poll());
                if commands.is_empty() {
                    break;
                }
                for command in commands {
                    match command {
                        Command::Start(id, effect) if has_all_earlier && self.answer_kept(machine, &id, &effect)? => {}
                        Command::Start(id, effect) => wanted.push((id, effect)),
                        Command::Abandon(id) => abandon(machine, id, &mut wanted, &mut given_up),
                        Command::Emit(event) if !has_past => reported.push(event),
                        Command::Emit(event) => {
                            let mut report = |event: &Event, is_replay| {
                                emit(Progress::Machine { event, rows: machine.rows(), is_replay });
                            };
                            self.report(event, &mut begun, &mut report);
                        }
                    }
                }
            }
            if !has_all_earlier && self.earlier.is_empty() {
                has_all_earlier = true;
                if self.answer_all_kept(machine, &mut wanted, &given_up)? {
                    continue;
                }
            }
            let (from, origin) = match self.has_earlier(machine) {
                true => (&mut self.earlier, Origin::Earlier),
                false => (&mut self.records, Origin::Current),
            };
            let Some(record) = from.pop_front() else { break };
            self.feed((record, origin), machine, &mut wanted, &mut given_up)?;
        }
        end_given_up(machine, &mut wanted, given_up);
        reported.extend(begun.into_iter().map(|(_, event)| event));
        let mut live: Vec<Command> = reported.into_iter().map(Command::Emit).collect();
        live.extend(wanted.into_iter().map(|(id, effect)| Command::Start(id, effect)));
        live.extend(machine.poll());
        Ok(live)
    }

    /// Reports an event of the past. In a new attempt, `begun` keeps the steps that have begun and not ended.
    fn report(&self, event: Event, begun: &mut Vec<(usize, Event)>, report: &mut dyn FnMut(&Event, bool)) {
        match &event {
            Event::PhaseStarted(_) if self.is_new_attempt => report(&event, false),
            Event::StepStarted { row, .. } if self.is_new_attempt => begun.push((*row, event)),
            Event::StepEnded { row, .. } => {
                for (_, event) in begun.extract_if(.., |(begun, _)| begun == row) {
                    report(&event, true);
                }
                report(&event, true);
            }
            _ => report(&event, true),
        }
    }

    fn feed(
        &mut self,
        (record, origin): (Record, Origin),
        machine: &mut Machine,
        wanted: &mut Vec<(EffectId, Effect)>,
        given_up: &mut Vec<EffectId>,
    ) -> Result<(), Error> {
        if record.key == record::CANCEL {
            self.is_cancelled = true;
            machine.cancel(&record::cancel_reason(&record.body));
            return Ok(());
        }
        if record.key == record::RESUMED {
            machine.resume(record::resumed_slots(&record.body));
            return Ok(());
        }
        // The usage of earlier attempts is in [`Start::spent`](etude_core::machine::Start::spent).
        if let Some(aside) = record::to_aside(&record).filter(|_| origin == Origin::Current) {
            machine.spend(aside);
            return Ok(());
        }
        // Other records concern the run and not an effect.
        if record.key.starts_with('!') {
            return Ok(());
        }
        let id = EffectId::new(record.key.as_str());
        let Some(at) = wanted.iter().position(|(i, _)| *i == id) else {
            self.leftovers.insert(id, (record, origin));
            return Ok(());
        };
        // The machine has hashed the request already.
        let asked = machine.request(&id).unwrap_or_else(|| wanted[at].1.digest());
        if asked != record.request {
            let is_superseded = self.earlier.iter().chain(&self.records).any(|later| later.key == record.key);
            if self.on_mismatch == OnMismatch::Refuse && !is_superseded {
                return Err(Error::Mismatch { effect: id });
            }
            return Ok(());
        }
        let completed = self.outcome(&record)?;
        // A second signal, which is not in the journal, has ended an effect that the machine waits for: it is run again.
        let is_ended = matches!(completed.outcome, Outcome::Abandoned | Outcome::Stopped(_));
        if is_ended && !given_up.contains(&id) {
            return Ok(());
        }
        wanted.remove(at);
        given_up.retain(|i| *i != id);
        match origin {
            Origin::Current => machine.complete(&id, completed),
            Origin::Earlier => machine.complete_kept(&id, completed),
        }
        Ok(())
    }

    /// Answers all requests that outcomes of earlier attempts can answer. False if none was answered.
    fn answer_all_kept(
        &mut self,
        machine: &mut Machine,
        wanted: &mut Vec<(EffectId, Effect)>,
        given_up: &[EffectId],
    ) -> Result<bool, Error> {
        let asked = wanted.len();
        for (id, effect) in std::mem::take(wanted) {
            if given_up.contains(&id) || !self.answer_kept(machine, &id, &effect)? {
                wanted.push((id, effect));
            }
        }
        Ok(wanted.len() < asked)
    }

    /// Answers a request with the outcome of an earlier attempt, as the first process of this attempt did without a
    /// record of it. If this attempt has a record, the effect was executed again, and that record counts.
    fn answer_kept(&mut self, machine: &mut Machine, id: &EffectId, effect: &Effect) -> Result<bool, Error> {
        let is_kept = self.leftovers.get(id).is_some_and(|(_, origin)| *origin == Origin::Earlier);
        if !is_kept || self.is_cleaning_up(id) || self.records.iter().any(|record| record.key == id.as_str()) {
            return Ok(false);
        }
        let Some((completed, _)) = self.leftover(id, effect)? else { return Ok(false) };
        machine.complete_kept(id, completed);
        Ok(true)
    }

    /// True if the effect belongs to the destructor, which runs again after repeated work: an earlier run of it never
    /// counts.
    pub(super) fn is_cleaning_up(&self, id: &EffectId) -> bool {
        self.destructor.as_ref().is_some_and(|destructor| is_below(id.as_str(), destructor))
    }

    /// The outcome of a record. A store of large values that does not answer says nothing about its contents.
    fn outcome(&self, record: &Record) -> Result<Completed, Error> {
        record::to_checked_outcome(record, &self.blobs).map_err(|error| match self.blobs.outage() {
            Some(why) => engine::Error::ValuesAway(why.to_owned()).into(),
            None => error.into(),
        })
    }

    /// An earlier outcome of exactly this request.
    pub(super) fn leftover(&mut self, id: &EffectId, effect: &Effect) -> Result<Option<(Completed, Origin)>, Error> {
        match self.leftovers.remove(id) {
            Some((record, origin)) if record.request == effect.digest() => {
                let completed = self.outcome(&record)?;
                // An abandoned effect is not an outcome of a repeated request.
                let is_given_up = matches!(completed.outcome, Outcome::Abandoned | Outcome::Stopped(_));
                Ok((!is_given_up).then_some((completed, origin)))
            }
            _ => Ok(None),
        }
    }

    /// Adds the end of a timer that has just been recorded.
    pub(super) fn note_deadline(&mut self, id: EffectId, ends_ms: i64) {
        self.deadlines.insert(id, ends_ms);
    }

    /// End of a timer from its record, in milliseconds since 1970.
    pub(super) fn deadline(&self, id: &EffectId) -> Option<i64> {
        self.deadlines.get(id).copied()
    }
}
