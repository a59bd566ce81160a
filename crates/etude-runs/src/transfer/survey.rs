//! Content of an export: the chosen runs in their current state, and the values that they need.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::digest::Digest;
use etude_runtime::blob;
use etude_runtime::engine::{ArchivedRun, Captured, Engine, Error, Query, RunState, Stamp};

use super::{Export, Pack, Skipped, wire};
use crate::header::{Granted, Header};

/// Number of runs per page of the list.
const PAGE: u32 = 1_000;

/// An export in progress.
pub(super) struct Survey<'e> {
    pub(super) engine: &'e dyn Engine,
    how: Export,
    pack: &'e mut Pack<'e>,
    /// Bundles by the directories of apps, or the reason why there is none.
    packed: BTreeMap<String, Result<Digest, String>>,
    /// Sizes of values in bytes, or the reason why they cannot be read.
    values: BTreeMap<Digest, Result<u64, String>>,
    /// Runs that are left out, by id.
    pub(super) skipped: BTreeMap<String, Skipped>,
    /// Runs that this export has moved, with their earlier state and its time.
    pub(super) gone: BTreeMap<String, (RunState, i64)>,
}

/// A run that goes into the file.
pub(super) struct Chosen {
    pub(super) stamp: Stamp,
    /// State of the run, and the time of its last change.
    pub(super) since: (RunState, i64),
    /// The hash of the run's lines.
    pub(super) digest: Digest,
    pub(super) values: BTreeSet<Digest>,
}

impl<'e> Survey<'e> {
    pub(super) fn new(engine: &'e dyn Engine, how: Export, pack: &'e mut Pack<'e>) -> Self {
        let (packed, values, skipped, gone) = Default::default();
        Self { engine, how, pack, packed, values, skipped, gone }
    }

    /// The runs that go into the file, by id.
    pub(super) fn choose(&mut self) -> Result<BTreeMap<String, Chosen>, Error> {
        let mut chosen = BTreeMap::new();
        for id in self.ids()? {
            if self.skipped.contains_key(&id) {
                continue;
            }
            let Some((run, stamp)) = self.run(&id)? else { continue };
            let lines = wire::to_lines(&run);
            // The same check as in an import.
            let needed = wire::parse(&id, &lines).and_then(|run| self.needed(&run));
            let (since, digest) = ((run.state, run.changed_at_ms), Digest::of(&lines));
            match needed {
                Ok(values) => drop(chosen.insert(id, Chosen { stamp, since, digest, values })),
                Err(why) => self.skip(&id, why),
            }
        }
        // A moved run is in the file of an earlier round, and must be in this one.
        match self.gone.keys().find(|id| !chosen.contains_key(*id)) {
            Some(id) => {
                let why = "the moved run cannot be read".to_owned();
                Err(Error::Damaged { path: format!("of run {id}"), why })
            }
            None => Ok(chosen),
        }
    }

    /// All runs of the engine, by id.
    fn ids(&self) -> Result<BTreeSet<String>, Error> {
        let mut query = Query { limit: Some(PAGE), ..Query::default() };
        let mut ids = BTreeSet::new();
        loop {
            let rows = self.engine.list(&query)?;
            query.after = rows.last().map(|row| row.cursor());
            let is_last = rows.len() < PAGE as usize;
            ids.extend(rows.into_iter().map(|row| row.id));
            if is_last {
                return Ok(ids);
            }
        }
    }

    /// A run in the form of the file; `None` if it is left out.
    pub(super) fn run(&mut self, id: &str) -> Result<Option<(ArchivedRun, Stamp)>, Error> {
        let Captured { mut run, stamp, is_live } = match self.engine.capture(id) {
            Ok(captured) => captured,
            // The run was pruned just now.
            Err(Error::Unknown(_)) => return Ok(None),
            Err(error @ Error::Damaged { .. }) => {
                self.skip(id, error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Some((state, changed_at_ms)) = self.gone.get(id) {
            (run.state, run.changed_at_ms) = (*state, *changed_at_ms);
        }
        if run.state == RunState::Moved {
            return Ok(None);
        }
        if is_live {
            self.skip(id, "is being executed by a process".to_owned());
            return Ok(None);
        }
        if !run.state.has_ended() && !self.can_move(&mut run) {
            return Ok(None);
        }
        Ok(Some((run, stamp)))
    }

    /// True if an unfinished run can be moved. It gets its app as a bundle then.
    fn can_move(&mut self, run: &mut ArchivedRun) -> bool {
        let id = run.run.id.clone();
        if !self.how.moves {
            let (why, can_move) = (format!("has not ended: {}", word(run)), true);
            self.skipped.insert(id.clone(), Skipped { run_id: id, why, can_move });
            return false;
        }
        if run.run.placement.bundle.is_some() {
            return true;
        }
        // Grants on this machine do not apply elsewhere, and the run would not be the same without them (K-54).
        match Header::parse(&run.run.header, &*self.engine.blobs()) {
            Ok(header) if header.request.granted == Granted::default() => {}
            Ok(_) => {
                self.skip(
                    &id,
                    "was started with `--read`, `--write` or `--yolo`, which is granted here only".to_owned(),
                );
                return false;
            }
            Err(why) => {
                self.skip(&id, format!("has a damaged header: {why}"));
                return false;
            }
        }
        let packed = match self.packed.get(&run.run.app) {
            Some(packed) => packed.clone(),
            None => {
                let packed = (self.pack)(&run.run);
                self.packed.insert(run.run.app.clone(), packed.clone());
                packed
            }
        };
        match packed {
            Ok(bundle) => {
                run.run.placement.bundle = Some(bundle);
                true
            }
            Err(why) => {
                self.skip(&id, format!("cannot be moved with its app `{}`: {why}", run.run.app));
                false
            }
        }
    }

    /// Leaves a run out, with the reason.
    pub(super) fn skip(&mut self, id: &str, why: String) {
        self.skipped.insert(id.to_owned(), Skipped { run_id: id.to_owned(), why, can_move: false });
    }

    /// The values that a run needs. Each was read and matches its name.
    fn needed(&mut self, run: &ArchivedRun) -> Result<BTreeSet<Digest>, String> {
        let all: BTreeSet<Digest> =
            run.records.iter().flat_map(|record| &record.blobs).chain(&run.values).copied().collect();
        for value in &all {
            if let Err(why) = self.len(*value) {
                return Err(format!("needs the value {value}, which cannot be read: {why}"));
            }
        }
        Ok(all)
    }

    /// The size of a value in bytes. It is read once.
    pub(super) fn len(&mut self, value: Digest) -> Result<u64, String> {
        if let Some(found) = self.values.get(&value) {
            return found.clone();
        }
        let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
        let mut found = each_part(self.engine, value, |part| {
            hasher.update(part);
            len += part.len() as u64;
            Ok(())
        });
        if found.is_ok() && Digest::from_bytes(*hasher.finalize().as_bytes()) != value {
            found = Err("its content has changed".to_owned());
        }
        let found = found.map(|()| len);
        self.values.insert(value, found.clone());
        found
    }
}

/// The state of a run in a message.
fn word(run: &ArchivedRun) -> &'static str {
    if run.state == RunState::Running { crate::listing::INTERRUPTED } else { run.state.word() }
}

/// Calls `take` with the bytes of a value, part by part.
pub(super) fn each_part(
    engine: &dyn Engine,
    value: Digest,
    take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let blob = engine.blobs().open(value).map_err(|error| error.to_string())?;
    blob::each_piece(&*blob, take)
}
