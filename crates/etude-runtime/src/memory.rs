//! An engine without persistence, for tests and for embedders that want no journal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use etude_core::data::Json;
use etude_core::digest::Digest;

use crate::blob::BlobStore;
use crate::clock::now_ms;
use crate::engine::{
    Boxed, COSTS, CacheLabel, CacheQuery, CacheRow, Engine, Enqueued, Entry, Error, Fleet, KEY_LIFE_MS, Limits, NewRun,
    OF_RUN, Positioned, Query, QueuePlace, QueueReason, Record, RunOwner, RunRow, RunState, RunView, Session, Signal,
    Signalled, Submission, UniqueKey, cost_entry,
};
use crate::sync::lock;

mod ledger;
mod transfer;

/// Keeps runs in memory, and large values in the given store.
#[derive(Debug)]
pub struct MemoryEngine {
    shared: Arc<Mutex<Memory>>,
    blobs: Arc<dyn BlobStore>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Runs in the order of their creation.
    runs: Vec<Run>,
    /// Runs with a session, each with the session's number.
    held: BTreeMap<String, u64>,
    /// Number of sessions so far.
    sessions: u64,
    /// Number of created runs so far.
    created: i64,
    /// Number of changes of state so far.
    changes: u64,
    /// Number of writes so far.
    writes: u64,
    /// Unique keys, each with its run.
    keys: BTreeMap<String, (UniqueKey, String)>,
    cache: BTreeMap<Digest, (CacheRow, Json)>,
    /// Entries of the ledger by book and key.
    entries: BTreeMap<(String, String), Entry>,
}

#[derive(Debug)]
struct Run {
    run: NewRun,
    number: i64,
    /// True if the run counts against limits: it came from the queue, or was taken like a queued run.
    counts: bool,
    state: RunState,
    started_at_ms: Option<i64>,
    changed_at_ms: i64,
    change: u64,
    records: Vec<Record>,
    signals: Vec<Signal>,
    result: Option<String>,
}

#[derive(Debug)]
struct MemorySession {
    shared: Arc<Mutex<Memory>>,
    run: NewRun,
    began_at_ms: i64,
    number: u64,
}

impl MemoryEngine {
    /// An engine without runs that keeps large values in `blobs`.
    pub fn new(blobs: Arc<dyn BlobStore>) -> Self {
        Self { shared: Arc::default(), blobs }
    }
}

impl Engine for MemoryEngine {
    fn create<'e>(&'e self, run: &'e NewRun) -> Boxed<'e, Result<Box<dyn Session>, Error>> {
        Box::pin(async move {
            let mut memory = lock(&self.shared);
            if memory.find(&run.id).is_ok() {
                return Err(Error::Exists(run.id.clone()));
            }
            memory.add(run, RunState::Running);
            Ok(self.session(&mut memory, run.clone()))
        })
    }

    fn claim(&self, run_id: &str) -> Result<Box<dyn Session>, Error> {
        let mut memory = lock(&self.shared);
        let run = memory.find_here(run_id)?.run.clone();
        memory.check_free(run_id)?;
        memory.note_change(run_id);
        Ok(self.session(&mut memory, run))
    }

    fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        Ok(lock(&self.shared).matching(query))
    }

    fn tail(&self, run_id: &str, after: u64, limit: u32) -> Result<Vec<Positioned>, Error> {
        let memory = lock(&self.shared);
        let placed = (1..).zip(&memory.find(run_id)?.records).filter(|(position, _)| *position > after);
        let one = |(position, record): (u64, &Record)| Positioned { position, record: record.clone() };
        Ok(placed.take(limit as usize).map(one).collect())
    }

    fn changes(&self, after: u64, limit: u32) -> Result<Vec<RunRow>, Error> {
        let memory = lock(&self.shared);
        let mut rows: Vec<RunRow> = memory.runs.iter().map(|run| memory.row(run)).collect();
        rows.retain(|row| row.change > after);
        rows.sort_by_key(|row| row.change);
        rows.truncate(limit as usize);
        Ok(rows)
    }

    fn last_change(&self) -> Result<u64, Error> {
        Ok(lock(&self.shared).changes)
    }

    fn may_be_past(&self, change: u64) -> Result<bool, Error> {
        Ok(change <= lock(&self.shared).changes)
    }

    fn version(&self) -> Result<u64, Error> {
        Ok(lock(&self.shared).writes)
    }

    fn view(&self, run_id: &str) -> Result<RunView, Error> {
        let memory = lock(&self.shared);
        let run = match memory.find(run_id) {
            Ok(run) => run,
            Err(unknown) => {
                let fits = |run: &&Run| !run_id.is_empty() && run.run.id.starts_with(run_id);
                let fitting: Vec<&Run> = memory.runs.iter().filter(fits).collect();
                match fitting[..] {
                    [] => return Err(unknown),
                    [run] => run,
                    _ => {
                        return Err(Error::Ambiguous { prefix: run_id.to_owned(), count: fitting.len() as u64 });
                    }
                }
            }
        };
        Ok(RunView {
            row: memory.row(run),
            run: run.run.clone(),
            records: run.records.clone(),
            signals: run.signals.clone(),
            result: run.result.clone(),
        })
    }

    fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        let mut memory = lock(&self.shared);
        memory.find_here(run_id)?;
        let run = memory.find_mut(run_id)?;
        if let Some(earlier) = run.signals.iter().find(|earlier| earlier.key == signal.key) {
            return Ok(Signalled::TooLate(earlier.body.clone()));
        }
        run.signals.push(signal.clone());
        memory.writes += 1;
        Ok(Signalled::Accepted)
    }

    fn prune(&self, query: &Query) -> Result<u64, Error> {
        let mut memory = lock(&self.shared);
        let asked = |state: &RunState| query.states.is_empty() || query.states.contains(state);
        let states: Vec<_> = RunState::ALL.into_iter().filter(|state| state.is_final() && asked(state)).collect();
        // The list is empty if the query names only unfinished states; to `matching` an empty list would mean any state.
        let nothing = states.is_empty();
        let matching = memory.matching(&Query { states, ..query.clone() });
        let gone: BTreeMap<String, i64> = matching
            .into_iter()
            .filter(|row| !nothing && !row.is_live)
            .map(|row| (row.id, row.created_at_ms))
            .collect();
        let oldest = now_ms().saturating_sub(KEY_LIFE_MS);
        let young = |run: &&Run| gone.contains_key(&run.run.id) && run.run.created_at_ms >= oldest;
        let cost = |Run { run, result, .. }: &Run| cost_entry(&run.id, &run.app, run.created_at_ms, result.as_deref()?);
        let costs: Vec<Entry> = memory.runs.iter().filter(young).filter_map(cost).collect();
        memory.entries.retain(|(book, _), entry| book != COSTS || entry.at_ms >= oldest);
        memory.entries.extend(costs.into_iter().map(|entry| ((entry.book.clone(), entry.key.clone()), entry)));
        memory.runs.retain(|run| !gone.contains_key(&run.run.id));
        memory.keys.retain(|_, (_, run)| gone.get(run).is_none_or(|created_at_ms| *created_at_ms >= oldest));
        let is_gone = |entry: &Entry| entry.run_id.as_ref().is_some_and(|run| gone.contains_key(run));
        memory.entries.retain(|(book, _), entry| !(book.starts_with(OF_RUN) && is_gone(entry)));
        memory.writes += 1;
        if let Some(before) = query.cache_before_ms() {
            memory.cache.retain(|_, (row, _)| row.created_at_ms >= before);
        }
        Ok(gone.len() as u64)
    }

    fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error> {
        let ttl = ttl_ms.and_then(|ttl| i64::try_from(ttl).ok());
        let oldest = ttl.map_or(i64::MIN, |ttl| now_ms().saturating_sub(ttl));
        let mut memory = lock(&self.shared);
        let found = memory.cache.get_mut(&key).filter(|(row, _)| row.created_at_ms >= oldest);
        Ok(found.map(|(row, output)| {
            row.hits += 1;
            output.clone()
        }))
    }

    fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error> {
        let row = CacheRow { label: label.clone(), created_at_ms: now_ms(), bytes: output.len(), hits: 0 };
        lock(&self.shared).cache.insert(key, (row, output.clone()));
        Ok(())
    }

    fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error> {
        let memory = lock(&self.shared);
        let mut rows: Vec<CacheRow> =
            memory.cache.values().map(|(row, _)| row.clone()).filter(|row| query.matches(row)).collect();
        rows.sort_by(|a, b| b.created_at_ms.cmp(&a.created_at_ms).then_with(|| a.label.step.cmp(&b.label.step)));
        Ok(rows)
    }

    fn forget(&self, query: &CacheQuery) -> Result<u64, Error> {
        let mut memory = lock(&self.shared);
        let before = memory.cache.len();
        memory.cache.retain(|_, (row, _)| !query.matches(row));
        Ok((before - memory.cache.len()) as u64)
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::clone(&self.blobs)
    }
}

impl MemoryEngine {
    /// Opens a session for a free run.
    fn session(&self, memory: &mut Memory, run: NewRun) -> Box<dyn Session> {
        let number = memory.hold(&run.id);
        let began_at_ms = memory.find(&run.id).ok().and_then(|run| run.started_at_ms).unwrap_or(run.created_at_ms);
        Box::new(MemorySession { shared: Arc::clone(&self.shared), run, began_at_ms, number })
    }

    /// Opens a session for a run that may begin now.
    fn begin(&self, memory: &mut Memory, id: &str, now_ms: i64) -> Result<Box<dyn Session>, Error> {
        let run = memory.find_mut(id)?;
        run.counts = true;
        if run.state == RunState::Queued {
            run.state = RunState::Running;
            run.started_at_ms.get_or_insert(now_ms);
            run.changed_at_ms = now_ms;
        }
        let run = run.run.clone();
        memory.note_change(id);
        Ok(self.session(memory, run))
    }
}

impl Fleet for MemoryEngine {
    fn enqueue<'f>(&'f self, submission: &'f Submission) -> Boxed<'f, Result<Enqueued, Error>> {
        Box::pin(async move { lock(&self.shared).accept(submission) })
    }

    fn next(&self, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        let mut memory = lock(&self.shared);
        let may_begin = |run: &&Run| {
            let is_time = run.run.placement.not_before_ms.is_none_or(|at| at <= now_ms);
            let is_fit = limits.takes.fits(&run.run.app, run.run.placement.bundle.is_some());
            is_time && is_fit && !memory.held.contains_key(&run.run.id) && memory.has_room(run, limits)
        };
        let next = memory.queued(&limits.queue).into_iter().find(may_begin).map(|run| run.run.id.clone());
        next.map(|id| self.begin(&mut memory, &id, now_ms)).transpose()
    }

    fn take(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error> {
        let mut memory = lock(&self.shared);
        let has_room = memory.has_room(memory.find_here(run_id)?, limits);
        memory.check_free(run_id)?;
        has_room.then(|| self.begin(&mut memory, run_id, now_ms)).transpose()
    }

    fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error> {
        let memory = lock(&self.shared);
        let run = memory.find(run_id)?;
        let queued = memory.queued(run.run.placement.queue());
        let Some(before) = queued.iter().position(|queued| queued.run.id == run_id) else { return Ok(None) };
        let reason = match run.run.placement.not_before_ms {
            Some(at) if at > now_ms => QueueReason::NotBefore,
            _ if memory.is_group_full(run) && memory.active() < limits.max_runs as usize => QueueReason::Pipeline,
            _ => QueueReason::MaxRuns,
        };
        Ok(Some(QueuePlace { position: before as u64 + 1, reason }))
    }

    fn deaths(&self, run_id: &str) -> Result<u32, Error> {
        // Nothing in memory outlives a process that dies.
        lock(&self.shared).find(run_id).map(|_| 0)
    }

    fn requeue<'f>(&'f self, run_id: &'f str, now_ms: i64) -> Boxed<'f, Result<(), Error>> {
        Box::pin(async move { lock(&self.shared).requeue(run_id, now_ms) })
    }

    fn expired(&self, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        let mut memory = lock(&self.shared);
        let is_over = |run: &&Run| {
            // A queued run has not changed since it was queued.
            let expires = run.run.placement.expires_at_ms(run.changed_at_ms);
            run.state == RunState::Queued && expires.is_some_and(|at| at <= now_ms)
        };
        let is_free = |run: &&Run| !memory.held.contains_key(&run.run.id);
        let runs: Vec<NewRun> = memory.runs.iter().filter(is_over).filter(is_free).map(|run| run.run.clone()).collect();
        Ok(runs.into_iter().map(|run| self.session(&mut memory, run)).collect())
    }
}

impl Session for MemorySession {
    fn run_id(&self) -> &str {
        &self.run.id
    }

    fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    fn run(&self) -> &NewRun {
        &self.run
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        Ok(lock(&self.shared).find(&self.run.id)?.records.clone())
    }

    fn append(&self, record: Record) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut memory = lock(&self.shared);
            self.check(&memory)?;
            memory.find_mut(&self.run.id)?.records.push(record);
            memory.writes += 1;
            Ok(())
        })
    }

    fn signals(&self) -> Result<Vec<Signal>, Error> {
        Ok(lock(&self.shared).find(&self.run.id)?.signals.clone())
    }

    fn set_state<'s>(&'s self, state: RunState, result: Option<&'s str>) -> Boxed<'s, Result<(), Error>> {
        Box::pin(async move {
            let mut memory = lock(&self.shared);
            self.check(&memory)?;
            let run = memory.find_mut(&self.run.id)?;
            run.state = state;
            run.changed_at_ms = now_ms();
            run.result = result.map(str::to_owned);
            memory.note_change(&self.run.id);
            if state.is_final() {
                memory.release(&self.run.id, self.number);
            }
            Ok(())
        })
    }
}

impl MemorySession {
    /// Refuses writes of a session whose run another session has by now.
    fn check(&self, memory: &Memory) -> Result<(), Error> {
        match memory.held.get(&self.run.id) {
            Some(number) if *number != self.number => Err(Error::Overtaken { run: self.run.id.clone() }),
            _ => Ok(()),
        }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        lock(&self.shared).release(&self.run.id, self.number);
    }
}

impl Memory {
    /// Number of a new session, which holds the run from now on.
    fn hold(&mut self, id: &str) -> u64 {
        self.sessions += 1;
        self.held.insert(id.to_owned(), self.sessions);
        self.sessions
    }

    fn release(&mut self, id: &str, number: u64) {
        if self.held.get(id) == Some(&number) {
            self.held.remove(id);
        }
    }

    /// Queues a run, or finds the run that has one of its keys.
    fn accept(&mut self, submission: &Submission) -> Result<Enqueued, Error> {
        let Submission { run, keys, max_queued, needs_room } = submission;
        if let Some((found, of)) = keys.iter().find_map(|key| self.keys.get(&key.key)) {
            let is_same = keys.iter().any(|key| key == found);
            return Ok(Enqueued::Repeated { run_id: of.clone(), key: found.key.clone(), is_same });
        }
        if self.find(&run.id).is_ok() {
            return Err(Error::Exists(run.id.clone()));
        }
        if max_queued.is_some_and(|max| self.queued(run.placement.queue()).len() as u64 >= max) {
            return Ok(Enqueued::Full);
        }
        if let Some(group) = run.placement.limit_group.as_ref().filter(|_| *needs_room) {
            let is_holder = |other: &&Run| {
                matches!(other.state, RunState::Queued | RunState::Running)
                    && other.run.placement.group_name() == Some(group.name.as_str())
            };
            let mut holders = self.runs.iter().filter(is_holder);
            if let Some(oldest) = holders.next().filter(|_| holders.count() + 1 >= group.max_runs as usize) {
                return Ok(Enqueued::Held { run_id: oldest.run.id.clone() });
            }
        }
        self.add(run, RunState::Queued);
        self.keys.extend(keys.iter().map(|key| (key.key.clone(), (key.clone(), run.id.clone()))));
        Ok(Enqueued::Accepted)
    }

    /// Queues a run again that has ended or was interrupted.
    fn requeue(&mut self, id: &str, now_ms: i64) -> Result<(), Error> {
        self.find_here(id)?;
        self.check_free(id)?;
        let run = self.find_mut(id)?;
        if run.state.is_final() || run.state == RunState::Running {
            (run.state, run.counts, run.result) = (RunState::Queued, true, None);
            run.changed_at_ms = now_ms;
            self.note_change(id);
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<&Run, Error> {
        self.runs.iter().find(|run| run.run.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))
    }

    /// The run, if it was not moved away.
    fn find_here(&self, id: &str) -> Result<&Run, Error> {
        let run = self.find(id)?;
        if run.state == RunState::Moved { Err(Error::Moved(id.to_owned())) } else { Ok(run) }
    }

    fn find_mut(&mut self, id: &str) -> Result<&mut Run, Error> {
        self.runs.iter_mut().find(|run| run.run.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))
    }

    /// Runs that match a query, newest first; of runs with the same time of creation, the later one first.
    fn matching(&self, query: &Query) -> Vec<RunRow> {
        let mut rows: Vec<RunRow> = self.runs.iter().map(|run| self.row(run)).collect();
        rows.retain(|row| query.matches(row));
        rows.sort_by_key(|row| std::cmp::Reverse(row.cursor()));
        rows.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
        rows
    }

    fn row(&self, run: &Run) -> RunRow {
        RunRow {
            id: run.run.id.clone(),
            number: run.number,
            app: run.run.app.clone(),
            target: run.run.target.clone(),
            state: run.state,
            is_live: self.held.contains_key(&run.run.id),
            worker: None,
            created_at_ms: run.run.created_at_ms,
            started_at_ms: run.started_at_ms,
            changed_at_ms: run.changed_at_ms,
            change: run.change,
            placement: run.run.placement.clone(),
        }
    }

    fn add(&mut self, run: &NewRun, state: RunState) {
        self.created += 1;
        let is_queued = state == RunState::Queued;
        self.runs.push(Run {
            run: run.clone(),
            number: self.created,
            counts: is_queued,
            state,
            started_at_ms: (!is_queued).then_some(run.created_at_ms),
            changed_at_ms: run.created_at_ms,
            change: 0,
            records: Vec::new(),
            signals: Vec::new(),
            result: None,
        });
        self.note_change(&run.id);
    }

    fn note_change(&mut self, id: &str) {
        self.writes += 1;
        self.changes += 1;
        let change = self.changes;
        if let Ok(run) = self.find_mut(id) {
            run.change = change;
        }
    }

    fn check_free(&self, id: &str) -> Result<(), Error> {
        match self.held.contains_key(id) {
            true => Err(Error::Busy { run: id.to_owned(), holder: Some(RunOwner::process(std::process::id())) }),
            false => Ok(()),
        }
    }

    /// The runs of a queue, the next one first.
    fn queued(&self, queue: &str) -> Vec<&Run> {
        let is_queued = |run: &&Run| run.state == RunState::Queued && run.run.placement.queue() == queue;
        let mut queued: Vec<&Run> = self.runs.iter().filter(is_queued).collect();
        queued.sort_by_key(|run| (run.run.placement.rank(run.run.created_at_ms), run.number));
        queued
    }

    /// Runs that count against limits and have a driver.
    fn at_work(&self) -> impl Iterator<Item = &Run> {
        let is_held = |run: &&Run| self.held.contains_key(&run.run.id);
        self.runs.iter().filter(|run| run.counts && run.state != RunState::Queued).filter(is_held)
    }

    fn active(&self) -> usize {
        self.at_work().count()
    }

    fn is_group_full(&self, run: &Run) -> bool {
        let Some(group) = &run.run.placement.limit_group else { return false };
        let is_in_group = |other: &&Run| other.run.placement.group_name() == Some(&group.name);
        self.at_work().filter(is_in_group).count() >= group.max_runs as usize
    }

    fn has_room(&self, run: &Run, limits: &Limits) -> bool {
        self.active() < limits.max_runs as usize && !self.is_group_full(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::FileBlobs;
    use crate::conformance;

    #[test]
    fn the_memory_engine_keeps_the_contract() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        conformance::all(&|| Box::new(MemoryEngine::new(Arc::new(FileBlobs::new(dir.path(), false)))));
    }
}
