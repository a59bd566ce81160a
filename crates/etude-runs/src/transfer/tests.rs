//! Tests of exports and imports between engines of this process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore, FileBlobs, Scratch, put};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    ArchivedRun, Engine, Error as EngineError, Fleet as _, NewRun, Placement, Query, RunState, Signal, Submission,
    Transfer as _, UniqueKey,
};
use etude_runtime::memory::MemoryEngine;
use etude_sqlite::{Settings, Sqlite, Sync};
use etude_tools::bundle::Bundle;

use super::*;

/// The ids of the runs of the tests.
const IDS: [&str; 4] = ["0000000000000001", "0000000000000002", "0000000000000003", "0000000000000004"];

/// A run without values.
pub(super) fn archived(id: &str, state: RunState) -> ArchivedRun {
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let placement = Placement { labels, ..Placement::default() };
    ArchivedRun {
        run: NewRun { header: r#"{"v":1,"input":{}}"#.to_owned(), placement, ..new_run(id, 10) },
        state,
        started_at_ms: Some(20),
        changed_at_ms: 30,
        keys: vec![UniqueKey { key: "run k".to_owned(), digest: None }],
        records: vec![record("a", r#"{"v":1}"#)],
        signals: vec![Signal { key: "!cancel".to_owned(), body: r#"{"v":1}"#.to_owned() }],
        result: Some(r#"{"v":1}"#.to_owned()),
        values: Vec::new(),
    }
}

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn memory(&self, name: &str) -> MemoryEngine {
        MemoryEngine::new(Arc::new(FileBlobs::new(self.path(name), false)))
    }

    fn sqlite(&self, name: &str) -> Sqlite {
        Sqlite::open(Settings { dir: self.path(name), sync: Sync::Normal }).expect("a journal")
    }

    /// An app, and its bundle among the values of `engine`.
    fn bundle(&self, engine: &dyn Engine) -> Digest {
        let app = self.path("app");
        fs::create_dir_all(app.join("pipelines")).expect("a directory");
        fs::write(app.join("pipelines/p.yaml"), "steps: []\n").expect("a file");
        put(&*engine.blobs(), Bundle::pack(&app).expect("a bundle").bytes()).expect("a value").0
    }

    /// Ended runs of every kind: with values of records, a large input, a large output, a bundle.
    fn fill(&self, engine: &dyn Engine) {
        let value = |text: &str| put(&*engine.blobs(), text.as_bytes()).expect("a value").0;
        let (large, input, output) = (value("\"large\""), value("{\"i\":1}"), value("[1]"));
        let mut first = archived(IDS[0], RunState::Succeeded);
        first.records[0].blobs = vec![large, output];
        first.run.header = format!(r#"{{"v":1,"input_at":["{input}",7]}}"#);
        first.result =
            Some(format!(r#"{{"v":1,"output_at":["{output}",0,3,"{output}"],"more":"{}"}}"#, "x".repeat(300_000)));
        first.values = vec![input];
        let mut second = archived(IDS[1], RunState::Failed);
        second.keys = vec![UniqueKey { key: "tick t".to_owned(), digest: Some(large) }];
        second.run.placement.bundle = Some(self.bundle(engine));
        second.values = second.run.placement.bundle.into_iter().collect();
        let mut third = archived(IDS[2], RunState::Cancelled);
        (third.keys, third.records, third.signals, third.result) = Default::default();
        for run in [third, first, second] {
            assert!(engine.admit(&run).expect("it can be added"));
        }
    }

    fn export(&self, engine: &dyn Engine, name: &str) -> Exported {
        self.try_export(engine, name, Export::default()).expect("an export")
    }

    fn try_export(&self, engine: &dyn Engine, name: &str, how: Export) -> Result<Exported, Error> {
        export(engine, how, &mut |_| Ok(self.bundle(engine)), &self.path(name))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("the file")
    }

    /// The names of the files beside the directories.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory").map(|entry| entry.expect("an entry"));
        let files = entries.filter(|entry| entry.path().is_file());
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

fn state(engine: &dyn Engine, id: &str) -> RunState {
    engine.row(id).expect("the run is there").state
}

fn ids(exported: &Exported) -> Vec<&str> {
    exported.skipped.iter().map(|skipped| skipped.run_id.as_str()).collect()
}

/// K-64: equal runs give equal bytes on every engine.
#[test]
fn a_round_trip_gives_equal_bytes() {
    let world = World::new();
    let (first, second, third) = (world.memory("first"), world.sqlite("second"), world.memory("third"));
    world.fill(&first);
    let exported = world.export(&first, "a.tar");
    assert_eq!((exported.runs, exported.moved, exported.values), (3, 0, 4));
    assert_eq!((exported.bytes, exported.skipped), (world.bytes("a.tar").len() as u64, Vec::new()));
    let imported = import(&second, &world.path("a.tar")).expect("an import");
    assert_eq!(imported, Imported { runs: 3, present: 0, values: 4 });
    assert_eq!(second.capture(IDS[0]).expect("capture").run, first.capture(IDS[0]).expect("capture").run);
    world.export(&second, "b.tar");
    import(&third, &world.path("b.tar")).expect("an import");
    world.export(&third, "c.tar");
    assert!(world.bytes("a.tar") == world.bytes("b.tar") && world.bytes("b.tar") == world.bytes("c.tar"));
    // The archive is a tar, and the last entry is the checksum of the bytes before its header.
    let bytes = world.bytes("a.tar");
    let at = bytes.len() - 4 * 512;
    assert!(bytes[at..].starts_with(b"checksum\0"));
    assert_eq!(&bytes[at + 512..at + 577], format!("{}\n", Digest::of(&bytes[..at])).as_bytes());
    assert!(bytes.starts_with(b"manifest.json\0"));
}

/// K-65: existing runs stay as they are, and an import can be repeated.
#[test]
fn a_run_that_is_present_stays() {
    let world = World::new();
    let (first, second) = (world.memory("first"), world.memory("second"));
    world.fill(&first);
    world.export(&first, "a.tar");
    let other = ArchivedRun { records: Vec::new(), ..archived(IDS[1], RunState::Succeeded) };
    assert!(second.admit(&other).expect("admit"));
    let imported = import(&second, &world.path("a.tar")).expect("an import");
    assert_eq!((imported.runs, imported.present), (2, 1));
    assert_eq!(second.capture(IDS[1]).expect("capture").run, other);
    let again = import(&second, &world.path("a.tar")).expect("an import");
    assert_eq!(again, Imported { runs: 0, present: 3, values: 0 });
}

/// K-64: without `--move` unfinished runs are left out. With it they are moved, with their app; a live one is left out.
#[test]
fn unfinished_runs_are_moved_and_live_ones_are_not() {
    let world = World::new();
    let (first, second) = (world.sqlite("first"), world.sqlite("second"));
    let mut done = archived(IDS[0], RunState::Succeeded);
    done.keys.clear();
    assert!(first.admit(&done).expect("admit"));
    let begun = |id: &str| NewRun { header: done.run.header.clone(), ..new_run(id, 5) };
    let interrupted = block_on(first.create(&begun(IDS[1]))).expect("a run");
    block_on(interrupted.append(record("a", r#"{"v":1}"#))).expect("append");
    drop(interrupted);
    let live = block_on(first.create(&begun(IDS[2]))).expect("a run");
    let queued = Submission { run: begun(IDS[3]), keys: Vec::new(), max_queued: None, needs_room: false };
    block_on(first.enqueue(&queued)).expect("a queued run");

    let copied = world.export(&first, "copy.tar");
    assert_eq!((copied.runs, copied.moved, ids(&copied)), (1, 0, IDS[1..].to_vec()));
    assert_eq!(copied.skipped.iter().map(|one| one.can_move).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(state(&first, IDS[1]), RunState::Running);

    let moved = world.try_export(&first, "move.tar", Export { moves: true }).expect("an export");
    assert_eq!((moved.runs, moved.moved, moved.values, ids(&moved)), (3, 2, 1, vec![IDS[2]]));
    assert!(moved.skipped[0].why.contains("is being executed"), "{}", moved.skipped[0].why);
    let states = IDS.map(|id| state(&first, id));
    assert_eq!(states, [RunState::Succeeded, RunState::Moved, RunState::Running, RunState::Moved]);
    assert!(matches!(first.claim(IDS[1]), Err(EngineError::Moved(_))));
    drop(live);
    // A run that was moved earlier is neither in the next file nor reported as left out.
    let later = world.try_export(&first, "later.tar", Export { moves: true }).expect("an export");
    assert_eq!((later.runs, later.moved, later.skipped), (2, 1, Vec::new()));

    import(&second, &world.path("move.tar")).expect("an import");
    assert_eq!([IDS[1], IDS[3]].map(|id| state(&second, id)), [RunState::Running, RunState::Queued]);
    let session = second.claim(IDS[1]).expect("it continues here");
    assert_eq!(session.records().expect("records").len(), 1);
    assert!(session.run().placement.bundle.is_some());
    drop(session);
    let back = world.try_export(&second, "back.tar", Export { moves: true }).expect("an export");
    assert_eq!((back.runs, back.moved), (3, 2));
    assert!(world.bytes("move.tar") == world.bytes("back.tar"), "a look at a run changes nothing of it");
    // A database accepts an id once.
    assert_eq!(import(&first, &world.path("back.tar")).expect("an import").present, 3);
    assert_eq!(state(&first, IDS[1]), RunState::Moved);
}

/// K-54: a run with grants on this machine stays, and so does a run whose app cannot be packed.
#[test]
fn a_run_that_cannot_be_moved_whole_is_left_out() {
    let world = World::new();
    let engine = world.memory("first");
    for (id, header) in [(IDS[0], r#"{"v":1,"input":{},"granted":{"yolo":true}}"#), (IDS[1], r#"{"v":1,"input":{}}"#)] {
        let run = NewRun { header: header.to_owned(), ..new_run(id, 5) };
        drop(block_on(engine.create(&run)).expect("a run"));
    }
    let mut asked = Vec::new();
    let mut pack = |run: &NewRun| {
        asked.push(run.id.clone());
        Err("it holds a key".to_owned())
    };
    let exported = export(&engine, Export { moves: true }, &mut pack, &world.path("a.tar")).expect("an export");
    assert_eq!((exported.runs, ids(&exported), asked), (0, IDS[..2].to_vec(), vec![IDS[1].to_owned()]));
    assert!(exported.skipped[0].why.contains("--yolo") && exported.skipped[1].why.contains("it holds a key"));
    assert_eq!(state(&engine, IDS[1]), RunState::Running);
    assert_eq!(import(&world.memory("second"), &world.path("a.tar")).expect("an import"), Imported::default());
}

/// A store that interferes when a value is opened for the n-th time.
#[derive(Debug)]
struct Meddling {
    files: FileBlobs,
    engine: Mutex<Option<Weak<MemoryEngine>>>,
    opened: AtomicUsize,
    at: usize,
    /// From this opening on, every opening fails.
    fails_at: usize,
}

impl Meddling {
    /// An engine with two interrupted runs and such a store.
    fn engine(world: &World, at: usize, fails_at: usize) -> Arc<MemoryEngine> {
        let files = FileBlobs::new(world.path("blobs"), false);
        let store = Arc::new(Self { files, engine: Mutex::default(), opened: AtomicUsize::new(0), at, fails_at });
        let engine = Arc::new(MemoryEngine::new(Arc::clone(&store) as Arc<dyn BlobStore>));
        *store.engine.lock().expect("no one panicked") = Some(Arc::downgrade(&engine));
        for id in [IDS[0], IDS[1]] {
            let run = NewRun { header: r#"{"v":1,"input":{}}"#.to_owned(), ..new_run(id, 5) };
            drop(block_on(engine.create(&run)).expect("a run"));
        }
        engine
    }
}

impl BlobStore for Meddling {
    fn scratch(&self) -> std::io::Result<Scratch> {
        self.files.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> std::io::Result<Arc<dyn Blob>> {
        self.files.keep(scratch, digest, len)
    }

    fn open(&self, digest: Digest) -> std::io::Result<Arc<dyn Blob>> {
        let time = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        if time >= self.fails_at {
            return Err(std::io::Error::other("the disk fails"));
        }
        if time == self.at {
            let engine = self.engine.lock().expect("no one panicked").as_ref().and_then(Weak::upgrade);
            let signal = Signal { key: "main/gate".to_owned(), body: r#"{"v":1}"#.to_owned() };
            engine.expect("it is there").signal(IDS[0], &signal).expect("a signal can be left");
        }
        self.files.open(digest)
    }
}

/// A store that another process prunes before each look at a value. It counts the looks.
#[derive(Debug)]
struct Pruned {
    files: FileBlobs,
    looks: Mutex<Vec<Digest>>,
}

impl BlobStore for Pruned {
    fn scratch(&self) -> std::io::Result<Scratch> {
        self.files.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> std::io::Result<Arc<dyn Blob>> {
        self.files.keep(scratch, digest, len)
    }

    fn open(&self, digest: Digest) -> std::io::Result<Arc<dyn Blob>> {
        self.files.open(digest)
    }

    fn has(&self, digest: Digest) -> bool {
        self.looks.lock().expect("no one panicked").push(digest);
        self.files.remove(digest).expect("removed");
        self.files.has(digest)
    }
}

/// K-45, K-65: of two runs with one value, the first may be pruned before the second is added. The value stays.
#[test]
fn a_value_of_two_runs_stays_if_the_first_is_pruned() {
    let world = World::new();
    let first = world.memory("first");
    let [shared, own] = [&b"shared"[..], b"own"].map(|text| put(&*first.blobs(), text).expect("a value").0);
    for id in [IDS[0], IDS[1]] {
        let mut run = archived(id, RunState::Succeeded);
        run.keys = Vec::new();
        run.records[0].blobs = if id == IDS[0] { vec![own, shared] } else { vec![shared] };
        first.admit(&run).expect("it can be added");
    }
    world.export(&first, "a.tar");
    let store = Arc::new(Pruned { files: FileBlobs::new(world.path("blobs"), false), looks: Mutex::default() });
    let second = MemoryEngine::new(Arc::clone(&store) as Arc<dyn BlobStore>);
    assert_eq!(import(&second, &world.path("a.tar")).expect("an import").runs, 2);
    assert_eq!(*store.looks.lock().expect("no one panicked"), [shared]);
    assert!([shared, own].iter().all(|digest| store.open(*digest).is_ok()));
}

/// K-64: a run that changes after it was written to the file stays, and is not in the file.
#[test]
fn a_run_that_changes_during_its_export_stays() {
    // The value is read once when the runs are chosen, and once when it is written, after the runs.
    for at in [1, 2] {
        let world = World::new();
        let engine = Meddling::engine(&world, at, usize::MAX);
        let exported = world.try_export(&*engine, "a.tar", Export { moves: true }).expect("an export");
        assert_eq!((exported.runs, exported.moved, ids(&exported)), (1, 1, vec![IDS[0]]), "{at}");
        assert!(exported.skipped[0].why.contains("was continued"), "{}", exported.skipped[0].why);
        assert_eq!([IDS[0], IDS[1]].map(|id| state(&*engine, id)), [RunState::Running, RunState::Moved], "{at}");
        let second = world.memory("second");
        import(&second, &world.path("a.tar")).expect("an import");
        assert!(matches!(second.row(IDS[0]), Err(EngineError::Unknown(_))));
        assert_eq!(state(&second, IDS[1]), RunState::Running, "{at}");
        assert_eq!(world.files(), ["a.tar"], "{at}");
    }
}

/// K-64: if the file has runs that stayed and cannot be written again, the error names these runs.
#[test]
fn a_file_that_cannot_be_written_again_is_reported() {
    let world = World::new();
    let engine = Meddling::engine(&world, 2, 3);
    let failed = world.try_export(&*engine, "a.tar", Export { moves: true });
    let Err(error @ Error::Stale { .. }) = failed else { panic!("{failed:?}") };
    let text = error.to_string();
    assert!(text.contains(IDS[0]) && !text.contains(IDS[1]) && text.contains("the disk fails"), "{text}");
    assert_eq!([IDS[0], IDS[1]].map(|id| state(&*engine, id)), [RunState::Running, RunState::Moved]);
    let second = world.memory("second");
    assert_eq!(import(&second, &world.path("a.tar")).expect("an import").runs, 2, "what was moved is not lost");
}

/// A missing value keeps its run out of the file, and nothing is overwritten.
#[test]
fn a_run_whose_value_is_gone_is_left_out_and_no_file_is_overwritten() {
    let world = World::new();
    let engine = world.memory("first");
    world.fill(&engine);
    let lost = Digest::of(b"\"large\"").to_string();
    fs::write(world.path("first").join(&lost[..2]).join(&lost), "\"other\"").expect("it can be changed");
    let exported = world.export(&engine, "a.tar");
    assert_eq!((exported.runs, ids(&exported)), (2, vec![IDS[0]]));
    assert!(exported.skipped[0].why.contains(&lost), "{}", exported.skipped[0].why);
    // A large result that is missing has the same effect.
    let journal = world.sqlite("journal");
    let result = format!(r#"{{"v":1,"more":"{}"}}"#, "x".repeat(300_000));
    for (id, result) in [(IDS[0], result.clone()), (IDS[1], r#"{"v":1}"#.to_owned())] {
        let run = ArchivedRun { keys: Vec::new(), result: Some(result), ..archived(id, RunState::Failed) };
        assert!(journal.admit(&run).expect("it can be added"));
    }
    let lost = Digest::of(result.as_bytes()).to_string();
    fs::remove_file(world.path("journal/blobs").join(&lost[..2]).join(&lost)).expect("it can be removed");
    assert_eq!(ids(&world.export(&journal, "b.tar")), [IDS[0]]);
    fs::remove_file(world.path("b.tar")).expect("it can be removed");
    let before = world.bytes("a.tar");
    assert!(matches!(world.try_export(&engine, "a.tar", Export::default()), Err(Error::Exists(_))));
    assert!(matches!(world.try_export(&engine, "no/a.tar", Export::default()), Err(Error::Write { .. })));
    assert!(before == world.bytes("a.tar"));
    assert_eq!(world.files(), ["a.tar"]);
}

/// Writes an archive of these entries, with a correct checksum.
fn packed(path: &Path, entries: &[(String, Vec<u8>)]) {
    let file = File::create(path).expect("a file");
    let mut writer = tar::Writer::new(&file);
    for (name, content) in entries {
        writer.add(name, content).expect("an entry");
    }
    writer.finish().expect("an archive");
}

/// The entries of an archive.
fn entries(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut reader = tar::Reader::open(File::open(path).expect("a file")).expect("an archive");
    let all = reader.entries.clone();
    all.iter().map(|entry| (entry.name.clone(), reader.read(entry).expect("its content"))).collect()
}

/// Asserts that the import is refused, for this entry and reason, and that nothing is written.
#[track_caller]
fn is_refused(world: &World, file: &str, at: &str, reason: &str) {
    let target = world.path("target");
    let engine = MemoryEngine::new(Arc::new(FileBlobs::new(&target, false)));
    match import(&engine, &world.path(file)) {
        Err(Error::Refused { entry, why, .. }) => {
            assert!(entry.contains(at) && why.contains(reason), "expected `{at}` {reason}, found `{entry}` {why}");
        }
        other => panic!("expected `{at}` {reason}, found {other:?}"),
    }
    assert_eq!(engine.count(&Query::default()).expect("count"), 0);
    assert!(!target.exists(), "a value was written");
}

/// K-65: the checksum is compared before any other part is trusted.
#[test]
fn a_damaged_archive_is_refused() {
    let world = World::new();
    let engine = world.memory("first");
    world.fill(&engine);
    world.export(&engine, "whole.tar");
    let whole = world.bytes("whole.tar");
    let put = |bytes: &[u8]| fs::write(world.path("a.tar"), bytes).expect("a file");
    for len in [0, 1, 511, 512, 513, 2_000, whole.len() - 1_025, whole.len() - 1, whole.len() / 2] {
        put(&whole[..len]);
        is_refused(&world, "a.tar", "", "");
    }
    put(&[&whole[..], &[0; 512]].concat());
    is_refused(&world, "a.tar", "checksum", "is not the end");
    // The lines of `etude runs export ID` are another document.
    put("{\"run\":{\"run_id\":\"r\"}}\n".repeat(100).as_bytes());
    is_refused(&world, "a.tar", "the file", "is not an archive of `etude runs export --all`");
    // Every byte counts; the last ones are those of the end.
    for at in (0..whole.len()).step_by(whole.len() / 301) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        put(&bytes);
        is_refused(&world, "a.tar", "", "");
    }
    let mut bytes = whole.clone();
    let content = bytes.windows(6).position(|part| part == b"failed").expect("a state");
    bytes[content] = b'F';
    put(&bytes);
    is_refused(&world, "a.tar", "checksum", "does not match");
    // A size larger than the file reserves no memory.
    let mut bytes = whole.clone();
    bytes[124..135].copy_from_slice(b"77777777777");
    put(&bytes);
    is_refused(&world, "a.tar", "the entry after", "does not write");
    let (mut block, sum) =
        (whole[..512].to_vec(), |block: &[u8]| block.iter().map(|byte| u32::from(*byte)).sum::<u32>());
    block[124..135].copy_from_slice(b"77777777777");
    block[148..156].fill(b' ');
    let text = format!("{:06o}\0 ", sum(&block));
    block[148..156].copy_from_slice(text.as_bytes());
    put(&[&block[..], &whole[512..]].concat());
    is_refused(&world, "a.tar", "manifest.json", "has 8589934591 bytes, and the archive ends");
}

/// The entries of a whole archive, as a basis for changes.
struct Hostile {
    world: World,
    engine: MemoryEngine,
    whole: Vec<(String, Vec<u8>)>,
}

impl Hostile {
    fn new() -> Self {
        let world = World::new();
        let engine = world.memory("first");
        world.fill(&engine);
        world.export(&engine, "whole.tar");
        let whole = entries(&world.path("whole.tar"));
        Self { world, engine, whole }
    }

    /// Asserts that an archive with other entries is refused.
    #[track_caller]
    fn refuses(&self, entries: &[(String, Vec<u8>)], at: &str, reason: &str) {
        packed(&self.world.path("a.tar"), entries);
        is_refused(&self.world, "a.tar", at, reason);
    }

    /// Asserts that an archive with another text in an entry is refused.
    #[track_caller]
    fn refuses_text(&self, name: &str, from: &str, to: &str, reason: &str) {
        let mut all = self.whole.clone();
        let (_, content) = all.iter_mut().find(|(of, _)| of == name).expect("the entry");
        let text = String::from_utf8(content.clone()).expect("text");
        assert!(text.contains(from), "{text}");
        *content = text.replacen(from, to, 1).into_bytes();
        self.refuses(&all, name, reason);
    }

    /// Asserts that an archive with one more entry is refused because of it.
    #[track_caller]
    fn refuses_entry(&self, name: &str, content: &str, reason: &str) {
        let mut all = self.whole.clone();
        all.push((name.to_owned(), content.as_bytes().to_vec()));
        all.sort();
        self.refuses(&all, name, reason);
    }

    fn without(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        self.whole.iter().filter(|(of, _)| !of.starts_with(name)).cloned().collect()
    }
}

/// K-65: an archive with a correct checksum is refused for its entries.
#[test]
fn a_hostile_archive_is_refused() {
    let hostile = Hostile::new();
    let (world, whole) = (&hostile.world, &hostile.whole);
    hostile.refuses(&hostile.without("manifest"), "manifest.json", "is missing");
    hostile.refuses_text("manifest.json", "\"format\":1", "\"format\":2", "supports format 1");
    hostile.refuses_text("manifest.json", "\"runs\":3", "\"runs\":2", "counts that differ");
    hostile.refuses_text("manifest.json", "\"runs\":3", "\"runs\":3,\"runs\":3", "is damaged");
    hostile.refuses(&[&whole[..2], &whole[1..]].concat(), "runs/", "occurs twice");
    let unsorted = [&whole[..1], &whole[2..3], &whole[1..2], &whole[3..]].concat();
    hostile.refuses(&unsorted, "runs/", "is not sorted by name");
    hostile.refuses_entry("runs/../../x.jsonl", "{}\n", "has an unknown name");
    hostile.refuses_entry("notes", "x", "has an unknown name");
    hostile.refuses_entry("values/abc", "x", "not a hash");
    let value = format!("values/{}", Digest::of(b"x"));
    hostile.refuses_entry(&value, "y", "has content that does not match its hash");
    hostile.refuses_entry(&value, "x", "is not used by any run");
    let large = format!("values/{}", Digest::of(b"\"large\""));
    hostile.refuses(&hostile.without(&large), "runs/", "which is not in the archive");
    // A bundle must be an app.
    let (bundle, other) = (world.bundle(&hostile.engine).to_string(), Digest::of(b"no app").to_string());
    let mut all = whole.clone();
    for (name, content) in &mut all {
        if *name == format!("values/{bundle}") {
            (*name, *content) = (format!("values/{other}"), b"no app".to_vec());
        } else if name.starts_with("runs/") {
            *content = String::from_utf8(content.clone()).expect("text").replace(&bundle, &other).into_bytes();
        }
    }
    all.sort();
    hostile.refuses(&all, &other, "is not an app");
    packed(&world.path("a.tar"), whole);
    assert_eq!(import(&world.memory("target"), &world.path("a.tar")).expect("an import").runs, 3);
    for path in [world.path("missing"), world.path("first")] {
        assert!(matches!(import(&hostile.engine, &path), Err(Error::Read { .. })));
    }
}

/// K-65: an archive with a correct checksum is refused for the content of its runs, with the line.
#[test]
fn a_hostile_run_is_refused() {
    let hostile = Hostile::new();
    let run = format!("runs/{}.jsonl", IDS[1]);
    let body = "\"body\":\"{\\\"v\\\":1}\"";
    for (from, to, reason) in [
        (IDS[1], IDS[3], "line 1: is the run"),
        ("\"failed\"", "\"moved\"", "line 1: `moved` is not a state"),
        ("\"failed\"", "\"wild\"", "line 1: `wild` is not a state"),
        ("\"priority\":0", "\"priority\":101", "between -100 and 100"),
        ("\"priority\":0", "\"priority\":0,\"extra\":1", "line 1: unknown field"),
        ("\"app\":\"", "\"app\":\"\\u0000", "contains a NUL character"),
        ("{\\\"v\\\":1,\\\"input\\\"", "{\\\"v\\\":7,\\\"input\\\"", "header has version 7"),
        (body, "\"body\":\"{\\\"v\\\":99}\"", "line 2: the record `a` has version 99"),
        (body, "\"body\":\"{\"", "line 2: the record `a` is damaged"),
        ("\"request\":\"", "\"request\":\"x", "is not a hash"),
        ("{\"signal\"", "{\"wonder\"", "line 3: unknown variant"),
        ("{\"record\"", "{\"record", "line 2: "),
        ("{\"result\":\"{\\\"v\\\":1}\"}\n", "{\"result\":\"{\\\"v\\\":1}\"}", "middle of a line"),
        ("{\"result\"", "{\"result\":\"{}\"}\n{\"result\"", "line 5: comes after"),
        ("\n", "\n{\"signal\":{\"key\":\"k\",\"body\":\"{\\\"v\\\":1}\"}}\n", "line 3: is a `record` after"),
    ] {
        hostile.refuses_text(&run, from, to, reason);
    }
    let third = format!("runs/{}.jsonl", IDS[2]);
    hostile.refuses_text(&third, "\"cancelled\"", "\"running\"", "has no app bundle");
}
