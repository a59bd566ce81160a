//! Tests of a power loss, which loses data that was written but not synced.
//!
//! `kill -9` cannot show that, because written data stays with the system. Here the process is killed as well, and then each
//! file of the journal is reset to its content at the last sync; a file that was never synced is empty. Names are assumed to be
//! on the disk at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::construct::{Construct, LARGE_VALUES, SEQUENCE, answers};
use super::life::{KILLED, keys, run_id, wait_until_idle};
use super::settled::is_of;
use super::shim::{self, Fault};
use crate::test::Test;

const JOURNAL: &str = "home/.local/state/etude";
const DISK: &str = "disk";

/// Number of writes between two losses of power.
const STRIDE: usize = 7;

/// with `--strict` an effect that was followed by another one never begins again, not even after a power loss.
#[test]
fn with_strict_nothing_that_had_consequences_is_lost_with_the_power() {
    for construct in [SEQUENCE, LARGE_VALUES] {
        everywhere(&construct, true);
    }
}

/// without it the last outcomes may be lost, but the rest is consistent: the run ends as it should.
#[test]
fn without_strict_a_loss_of_power_leaves_an_earlier_state_that_is_whole() {
    for construct in [SEQUENCE, LARGE_VALUES] {
        everywhere(&construct, false);
    }
}

fn everywhere(construct: &Construct, is_strict: bool) {
    if shim::is_missing("losses of power") {
        return;
    }
    let whole = Powered::new(construct, is_strict);
    let ran = whole.run(Fault::None).exit(0);
    let (writes, output) = (shim::events(&whole.test).len(), ran.at("/output").clone());
    let mut lost = 0;
    for at in (2..=writes).step_by(STRIDE) {
        let powered = Powered::new(construct, is_strict);
        if powered.run(Fault::Before(at)).code() != KILLED {
            continue;
        }
        wait_until_idle(&powered.test);
        lost += powered.lose();
        let what = format!("{}, strict: {is_strict}, power lost before write {at} of {writes}", construct.name);
        powered.goes_on(&what, &output);
    }
    assert!(lost > 0, "{}: nothing was ever lost", construct.name);
}

/// An app whose journal is on a disk that can lose power.
struct Powered {
    test: Test,
    words: Vec<&'static str>,
    is_strict: bool,
}

impl Powered {
    fn new(construct: &Construct, is_strict: bool) -> Self {
        let test = (construct.build)(Test::new().model_claiming(&answers(), "hard"));
        super::template::put(&test);
        let mut words = construct.run.to_vec();
        words.extend(is_strict.then_some("--strict"));
        let powered = Self { test, words, is_strict };
        fs::create_dir(powered.test.path(DISK)).expect("a directory can be made");
        // Files from before the run are on the disk.
        for file in files(&powered.test.path(JOURNAL)) {
            fs::copy(&file, powered.on_disk(&file)).expect("a file can be copied");
        }
        powered
    }

    fn run(&self, fault: Fault) -> crate::ran::Ran {
        let mut command = shim::with_fault(&self.test, self.test.command(&self.words), fault);
        command.env("ETUDE_SHIM_DISK", self.test.path(DISK));
        self.test.start_with(command, &self.words).finish()
    }

    fn on_disk(&self, file: &Path) -> PathBuf {
        let name = file.strip_prefix(self.test.path(JOURNAL)).expect("a file of the journal");
        self.test.path(DISK).join(name.to_str().expect("a plain name").replace('/', "%"))
    }

    /// Resets every file to its content on the disk. Returns how many lose data.
    fn lose(&self) -> usize {
        let mut lost = 0;
        for file in files(&self.test.path(JOURNAL)) {
            let before = fs::read(&file).expect("a file can be read");
            let after = fs::read(self.on_disk(&file)).unwrap_or_default();
            fs::remove_file(&file).expect("a file can be removed");
            // The shared memory of the journal's processes is created again.
            if file.to_string_lossy().ends_with("-shm") {
                continue;
            }
            lost += usize::from(before != after);
            fs::write(&file, after).expect("a file can be written");
        }
        lost
    }

    /// Checks that the remaining state is a run that can continue, or none yet.
    fn goes_on(&self, what: &str, output: &serde_json::Value) {
        let (begun, kept) = (begun(&self.test), keys(&self.test));
        let journal = self.test.path(JOURNAL);
        let is_value =
            |file: &PathBuf| file.starts_with(journal.join("blobs")) && !file.starts_with(journal.join("blobs/tmp"));
        let is_lost = |file: &PathBuf| is_value(file) && fs::metadata(file).is_ok_and(|found| found.len() == 0);
        let lost_a_value = files(&journal).iter().any(is_lost);
        let followed = &begun[..begun.len().saturating_sub(1)];
        let gone: Vec<&String> = followed.iter().filter(|effect| !kept.iter().any(|key| is_of(effect, key))).collect();
        if self.is_strict {
            assert!(gone.is_empty(), "{what}: {gone:?} had consequences and left no record in {kept:?}");
        }
        let args = match run_id(&self.test) {
            Some(id) => vec!["runs".to_owned(), "resume".to_owned(), id, "--format".to_owned(), "json".to_owned()],
            None => self.words.iter().map(|word| (*word).to_owned()).collect(),
        };
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        // Processes started before may still record themselves.
        let own = self.test.next_ledger();
        let ran = self.test.run(&words);
        assert_eq!(ran.code(), 0, "{what}: {}", ran.err());
        assert_eq!(ran.at("/output"), *output, "{what}");
        let mut times = BTreeMap::new();
        for effect in effects(self.test.ledger_of(own)) {
            *times.entry(effect).or_insert(0) += 1;
        }
        for (effect, times) in times {
            // A record without its large value is lost, and so are all later ones.
            let is_kept = !lost_a_value && kept.iter().any(|key| is_of(&effect, key));
            assert!(times <= usize::from(!is_kept), "{what}: `{effect}` was begun {times} times; kept were {kept:?}");
        }
    }
}

/// All effects that began, in order, as `PATH@TRY`.
fn begun(test: &Test) -> Vec<String> {
    effects(test.ledger())
}

fn effects(ledger: Vec<String>) -> Vec<String> {
    let effects = ledger.into_iter().filter_map(|line| line.strip_prefix('+').map(str::to_owned));
    effects.map(|effect| effect.split_once('/').expect("an effect id is a path").1.to_owned()).collect()
}

/// Files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
