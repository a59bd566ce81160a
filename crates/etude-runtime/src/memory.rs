//! An engine that forgets everything with the process: for tests and for embedders that want no journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etude_core::data::Json;
use etude_core::digest::Digest;

use crate::blob::BlobStore;
use crate::clock::now_ms;
use crate::engine::{
    Boxed, CacheLabel, CacheQuery, CacheRow, Engine, Error, NewRun, Query, Record, RunRow, RunState, RunView, Session,
    Signal, Signalled,
};

/// Keeps runs in memory, and large values wherever the given store keeps them.
#[derive(Debug)]
pub struct MemoryEngine {
    shared: Arc<Mutex<Memory>>,
    blobs: Arc<dyn BlobStore>,
}

#[derive(Debug, Default)]
struct Memory {
    /// In the order in which they were created.
    runs: Vec<Run>,
    /// Runs that a session has, each with the session's number.
    held: BTreeMap<String, u64>,
    /// How many sessions there were so far.
    sessions: u64,
    cache: BTreeMap<Digest, (CacheRow, Json)>,
}

#[derive(Debug)]
struct Run {
    run: NewRun,
    state: RunState,
    changed_at_ms: i64,
    records: Vec<Record>,
    signals: Vec<Signal>,
    result: Option<String>,
}

#[derive(Debug)]
struct MemorySession {
    shared: Arc<Mutex<Memory>>,
    run: NewRun,
    number: u64,
}

impl MemoryEngine {
    /// An engine without runs, whose large values lie in `blobs`.
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
            let number = memory.hold(&run.id);
            memory.runs.push(Run {
                run: run.clone(),
                state: RunState::Running,
                changed_at_ms: run.created_at_ms,
                records: Vec::new(),
                signals: Vec::new(),
                result: None,
            });
            Ok(Box::new(MemorySession { shared: Arc::clone(&self.shared), run: run.clone(), number })
                as Box<dyn Session>)
        })
    }

    fn claim(&self, run_id: &str) -> Result<Box<dyn Session>, Error> {
        let mut memory = lock(&self.shared);
        let run = memory.find(run_id)?.run.clone();
        if memory.held.contains_key(run_id) {
            return Err(Error::Busy { run: run_id.to_owned(), pid: Some(std::process::id()) });
        }
        let number = memory.hold(run_id);
        Ok(Box::new(MemorySession { shared: Arc::clone(&self.shared), run, number }))
    }

    fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        let memory = lock(&self.shared);
        Ok(memory.matching(query).into_iter().map(|run| memory.row(run)).collect())
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
        let run = memory.find_mut(run_id)?;
        if let Some(earlier) = run.signals.iter().find(|earlier| earlier.key == signal.key) {
            return Ok(Signalled::TooLate(earlier.body.clone()));
        }
        run.signals.push(signal.clone());
        Ok(Signalled::Accepted)
    }

    fn prune(&self, query: &Query) -> Result<u64, Error> {
        let mut memory = lock(&self.shared);
        let asked = |state: &RunState| query.states.is_empty() || query.states.contains(state);
        let states: Vec<_> = RunState::ALL.into_iter().filter(|state| state.is_final() && asked(state)).collect();
        // None are left if only unfinished ones were asked for; an empty list would mean: in whatever state.
        let nothing = states.is_empty();
        let matching = memory.matching(&Query { states, ..query.clone() });
        let gone: BTreeSet<String> = matching
            .into_iter()
            .filter(|_| !nothing)
            .map(|run| run.run.id.clone())
            .filter(|id| !memory.held.contains_key(id))
            .collect();
        memory.runs.retain(|run| !gone.contains(&run.run.id));
        if let Query { app: None, target: None, created_before_ms: Some(before), .. } = query {
            memory.cache.retain(|_, (row, _)| row.created_at_ms >= *before);
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

impl Session for MemorySession {
    fn run_id(&self) -> &str {
        &self.run.id
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
            if state.is_final() {
                memory.release(&self.run.id, self.number);
            }
            Ok(())
        })
    }
}

impl MemorySession {
    /// Who let go of a run that somebody else has by now writes no more.
    fn check(&self, memory: &Memory) -> Result<(), Error> {
        match memory.held.get(&self.run.id) {
            Some(number) if *number != self.number => {
                Err(Error::Busy { run: self.run.id.clone(), pid: Some(std::process::id()) })
            }
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
    /// The number of a new session, which has the run from now on.
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

    fn find(&self, id: &str) -> Result<&Run, Error> {
        self.runs.iter().find(|run| run.run.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))
    }

    fn find_mut(&mut self, id: &str) -> Result<&mut Run, Error> {
        self.runs.iter_mut().find(|run| run.run.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))
    }

    /// Newest first; of those created at the same time, the one that came last.
    fn matching(&self, query: &Query) -> Vec<&Run> {
        let fits = |run: &&Run| {
            query.app.as_ref().is_none_or(|app| *app == run.run.app)
                && query.target.as_ref().is_none_or(|target| *target == run.run.target)
                && (query.states.is_empty() || query.states.contains(&run.state))
                && query.created_before_ms.is_none_or(|before| run.run.created_at_ms < before)
                && query.created_since_ms.is_none_or(|since| run.run.created_at_ms >= since)
        };
        let mut runs: Vec<&Run> = self.runs.iter().rev().filter(fits).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.run.created_at_ms));
        runs.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
        runs
    }

    fn row(&self, run: &Run) -> RunRow {
        RunRow {
            id: run.run.id.clone(),
            app: run.run.app.clone(),
            target: run.run.target.clone(),
            state: run.state,
            is_live: self.held.contains_key(&run.run.id),
            created_at_ms: run.run.created_at_ms,
            changed_at_ms: run.changed_at_ms,
        }
    }
}

/// Locks. Nothing here panics half-way through a change.
fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
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
