//! Transfer of runs into and out of the memory engine.

use super::{Memory, MemoryEngine, lock};
use crate::engine::{ArchivedRun, Captured, Error, RunState, Stamp, Transfer, UniqueKey};

impl Transfer for MemoryEngine {
    fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        lock(&self.shared).capture(run_id)
    }

    fn move_away(&self, runs: &[Stamp]) -> Result<Vec<String>, Error> {
        Ok(lock(&self.shared).move_away(runs))
    }

    fn admit(&self, run: &ArchivedRun) -> Result<bool, Error> {
        Ok(lock(&self.shared).admit(run))
    }
}

impl Memory {
    fn capture(&self, run_id: &str) -> Result<Captured, Error> {
        let run = self.find(run_id)?;
        let is_own = |(_, of): &&(UniqueKey, String)| of == run_id;
        let archived = ArchivedRun {
            run: run.run.clone(),
            state: run.state,
            started_at_ms: run.started_at_ms,
            changed_at_ms: run.changed_at_ms,
            keys: self.keys.values().filter(is_own).map(|(key, _)| key.clone()).collect(),
            records: run.records.clone(),
            signals: run.signals.clone(),
            result: run.result.clone(),
            values: Vec::new(),
        };
        Ok(Captured { run: archived, stamp: self.stamp(run_id)?, is_live: self.held.contains_key(run_id) })
    }

    fn stamp(&self, run_id: &str) -> Result<Stamp, Error> {
        let run = self.find(run_id)?;
        Ok(Stamp {
            run_id: run_id.to_owned(),
            version: i64::try_from(run.change).unwrap_or(i64::MAX),
            state: run.state,
            records: run.records.len() as u64,
            signals: run.signals.len() as u64,
        })
    }

    fn move_away(&mut self, runs: &[Stamp]) -> Vec<String> {
        let mut others = Vec::new();
        for stamp in runs {
            let is_as_before = self.stamp(&stamp.run_id).is_ok_and(|now| now == *stamp);
            let is_free = !stamp.state.is_final() && !self.held.contains_key(&stamp.run_id);
            match self.find_mut(&stamp.run_id) {
                Ok(run) if is_as_before && is_free => {
                    run.state = RunState::Moved;
                    run.changed_at_ms = crate::clock::now_ms();
                    self.note_change(&stamp.run_id);
                }
                _ => others.push(stamp.run_id.clone()),
            }
        }
        others
    }

    fn admit(&mut self, run: &ArchivedRun) -> bool {
        let id = &run.run.id;
        if self.find(id).is_ok() {
            return false;
        }
        self.add(&run.run, run.state);
        if let Ok(added) = self.find_mut(id) {
            added.started_at_ms = run.started_at_ms;
            added.changed_at_ms = run.changed_at_ms;
            added.records.clone_from(&run.records);
            added.signals.clone_from(&run.signals);
            added.result.clone_from(&run.result);
        }
        for key in &run.keys {
            self.keys.entry(key.key.clone()).or_insert_with(|| (key.clone(), id.clone()));
        }
        true
    }
}
