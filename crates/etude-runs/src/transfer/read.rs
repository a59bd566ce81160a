//! Import: checks an export and adds its runs to an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use etude_core::digest::Digest;
use etude_files::regular;
use etude_runtime::engine::{self, ArchivedRun, Engine, Rules};
use etude_tools::bundle::{Bundle, MAX_BYTES};

use super::tar::{Entry, Fault, Reader};
use super::wire::{self, Manifest};
use super::{Error, Imported, MANIFEST};

/// Maximum length of a run's id, in characters.
const MAX_ID: usize = 64;

/// Maximum size of a manifest, in bytes.
const MAX_MANIFEST: u64 = 4096;

/// A checked archive.
struct Checked {
    reader: Reader,
    /// The files of runs, by id.
    runs: BTreeMap<String, Entry>,
    /// The values, by hash.
    values: BTreeMap<Digest, Entry>,
}

pub(super) fn import(engine: &dyn Engine, path: &Path) -> Result<Imported, Error> {
    let refused = |fault: Fault| Error::Refused { path: path.to_owned(), entry: fault.entry, why: fault.why };
    let file = regular::open(path).map_err(|e| Error::Read { path: path.to_owned(), why: e.to_string() })?;
    let mut checked = Checked::open(Reader::open(file).map_err(refused)?).map_err(refused)?;
    let (mut imported, mut absent, mut needed) = (Imported::default(), Vec::new(), BTreeSet::new());
    let mut queues = BTreeSet::new();
    for (id, entry) in checked.runs.clone() {
        match engine.row(&id) {
            Ok(_) => imported.present += 1,
            Err(engine::Error::Unknown(_)) => {
                let run = checked.run(&id, &entry).map_err(refused)?;
                needed.extend(values_of(&run));
                queues.extend((!run.state.has_ended()).then(|| run.run.placement.queue().to_owned()));
                absent.push((id, entry));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if engine.is_shared() {
        check_queues(queues, &engine.rules()?)?;
    }
    for digest in &needed {
        checked.keep(engine, *digest).map_err(|why| Error::Value { digest: *digest, why })?;
    }
    imported.values = needed.len() as u64;
    let mut released = BTreeSet::new();
    for (id, entry) in absent {
        let run = checked.run(&id, &entry).map_err(refused)?;
        for digest in values_of(&run).filter(|digest| !released.insert(*digest)) {
            checked.keep_again(engine, digest).map_err(|why| Error::Value { digest, why })?;
        }
        // Another import may have added the run meanwhile.
        match engine.admit(&run)? {
            true => imported.runs += 1,
            false => imported.present += 1,
        }
    }
    Ok(imported)
}

/// Refuses runs whose queue was not applied, as a submission is refused (cluster §6).
fn check_queues(queues: BTreeSet<String>, rules: &Rules) -> Result<(), Error> {
    let missing: Vec<String> = queues.into_iter().filter(|queue| rules.queue(queue).is_none()).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::UnknownQueues { missing, known: rules.queues.keys().cloned().collect() }),
    }
}

/// All values that a run needs.
fn values_of(run: &ArchivedRun) -> impl Iterator<Item = Digest> {
    run.records.iter().flat_map(|record| &record.blobs).chain(&run.values).copied()
}

impl Checked {
    /// Checks the content of all entries. Nothing is written.
    fn open(mut reader: Reader) -> Result<Self, Fault> {
        let mut entries = std::mem::take(&mut reader.entries).into_iter();
        let manifest = entries.next().filter(|entry| entry.name == MANIFEST && entry.len <= MAX_MANIFEST);
        let manifest = manifest.ok_or_else(|| Fault::new(MANIFEST, "is missing or too large"))?;
        let manifest = Manifest::parse(&reader.read(&manifest)?).map_err(|why| Fault::new(MANIFEST, why))?;
        let (mut runs, mut values) = (BTreeMap::new(), BTreeMap::new());
        for entry in entries {
            match name(&entry)? {
                Name::Run(id) => drop(runs.insert(id, entry)),
                Name::Value(digest) => drop(values.insert(digest, entry)),
            }
        }
        let mut checked = Self { reader, runs, values };
        checked.check(&manifest)?;
        Ok(checked)
    }

    /// Checks each run, and that the archive has exactly the values that the runs need (K-45).
    fn check(&mut self, manifest: &Manifest) -> Result<(), Fault> {
        let (mut needed, mut bundles, mut moved) = (BTreeSet::new(), BTreeSet::new(), 0);
        for (id, entry) in self.runs.clone() {
            let run = self.run(&id, &entry)?;
            for digest in values_of(&run) {
                if !self.values.contains_key(&digest) {
                    return Err(Fault::new(
                        entry.name,
                        format!("needs the value {digest}, which is not in the archive"),
                    ));
                }
                needed.insert(digest);
            }
            bundles.extend(run.run.placement.bundle);
            moved += u64::from(!run.state.has_ended());
        }
        if let Some((_, entry)) = self.values.iter().find(|(digest, _)| !needed.contains(digest)) {
            return Err(Fault::new(entry.name.as_str(), "is not used by any run"));
        }
        let counts = (self.runs.len() as u64, moved, self.values.len() as u64);
        if counts != (manifest.runs, manifest.moved, manifest.values) {
            let (runs, moved, values) = counts;
            let why = format!("has counts that differ from the archive: {runs} runs, {moved} moved, {values} values");
            return Err(Fault::new(MANIFEST, why));
        }
        bundles.into_iter().try_for_each(|bundle| self.check_bundle(bundle))
    }

    /// Checks an app in the same way as `etude push` (K-52).
    fn check_bundle(&mut self, digest: Digest) -> Result<(), Fault> {
        let Some(entry) = self.values.get(&digest).cloned() else { return Ok(()) };
        if entry.len > MAX_BYTES {
            return Err(Fault::new(entry.name, format!("is a bundle with more than {MAX_BYTES} bytes")));
        }
        let bytes = self.reader.read(&entry)?;
        Bundle::read(bytes).map(drop).map_err(|error| Fault::new(entry.name, format!("is not an app: {error}")))
    }

    fn run(&mut self, id: &str, entry: &Entry) -> Result<ArchivedRun, Fault> {
        let bytes = self.reader.read(entry)?;
        wire::parse(id, &bytes).map_err(|why| Fault::new(entry.name.as_str(), why))
    }

    /// Copies a value into the store of the engine, even if it exists: a cache of this machine may have it from another
    /// engine.
    fn keep(&mut self, engine: &dyn Engine, digest: Digest) -> Result<(), String> {
        let blobs = engine.blobs();
        let Some(entry) = self.values.get(&digest).cloned() else { return Err("it is missing".to_owned()) };
        let mut scratch = blobs.scratch().map_err(|error| error.to_string())?;
        let copied = self.reader.copy(&entry, |part| scratch.file().write_all(part));
        copied.map_err(|fault| fault.why)?;
        blobs.keep(scratch, digest, entry.len).map(drop).map_err(|error| error.to_string())
    }

    /// Protects a value that an earlier run of the file needs as well: since that run was added, it may have been pruned,
    /// with the value. A fleet keeps values for a day (K-48).
    fn keep_again(&mut self, engine: &dyn Engine, digest: Digest) -> Result<(), String> {
        match engine.is_shared() || engine.blobs().has(digest) {
            true => Ok(()),
            false => self.keep(engine, digest),
        }
    }
}

/// Meaning of an entry's name.
enum Name {
    Run(String),
    Value(Digest),
}

fn name(entry: &Entry) -> Result<Name, Fault> {
    let fault = |why: &str| Fault::new(entry.name.as_str(), why);
    if let Some(hex) = entry.name.strip_prefix("values/") {
        let digest = Digest::from_hex(hex).filter(|digest| digest.to_string() == hex);
        let digest = digest.ok_or_else(|| fault("has a name that is not a hash"))?;
        return match digest == entry.digest {
            true => Ok(Name::Value(digest)),
            false => Err(fault("has content that does not match its hash")),
        };
    }
    let id = entry.name.strip_prefix("runs/").and_then(|name| name.strip_suffix(".jsonl"));
    let is_plain = |id: &&str| {
        (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let id = id.filter(is_plain).ok_or_else(|| fault("has an unknown name"))?;
    Ok(Name::Run(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::QueueRules;

    use super::*;

    /// cluster §6: an unfinished run needs a queue that was applied. The default queue always exists.
    #[test]
    fn unfinished_runs_need_a_queue_that_was_applied() {
        let rules = Rules { queues: [("batch".to_owned(), QueueRules::default())].into(), ..Rules::default() };
        let check = |queues: &[&str]| check_queues(queues.iter().map(|queue| (*queue).to_owned()).collect(), &rules);
        assert!(check(&[]).is_ok() && check(&["batch", "default"]).is_ok());
        let refused = check(&["batch", "gpu", "old"]).expect_err("two are missing").to_string();
        assert!(refused.contains("no queue `gpu`, `old`") && refused.contains("it has `batch`"), "{refused}");
    }
}
