//! The files of a journal: their modes, their formats, and their damages.

use std::fs;
use std::path::{Path, PathBuf};

use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Query, RunState, Signal};
use etude_sqlite::{Settings, Sqlite, Sync};

use crate::open;

fn refusal(dir: &Path) -> Error {
    Sqlite::open(Settings { dir: dir.to_owned(), sync: Sync::Normal }).map(|_| ()).expect_err("it cannot be opened")
}

#[test]
fn only_the_owner_can_read_a_journal() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("state/etude");
    let engine = open(&dir, Sync::Normal);
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    let large = format!("\"{}\"", "x".repeat(300_000));
    block_on(session.set_state(RunState::Waiting, Some(&large))).expect("set_state");
    let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(dir.join("")), 0o700);
    assert_eq!(mode(dir.join("locks")), 0o700);
    assert_eq!(mode(dir.join("blobs")), 0o700);
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        assert_eq!(mode(dir.join(file)), 0o600, "{file}");
    }
}

#[test]
fn one_file_stands_for_all_runs_of_a_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let names =
        || fs::read_dir(dir.path().join("locks")).expect("locks").map(|entry| entry.expect("entry").file_name());
    let locks = || names().filter(|name| name != "=format.lock").count();
    assert_eq!(locks(), 0, "who only looks has none");
    for run in 0..5 {
        let id = format!("scheduled/{run}@2026-01-01");
        let is_live = || engine.view(&id).expect("view").row.is_live;
        let session = block_on(engine.create(&new_run(&id, run))).expect("any id will do");
        assert_eq!((locks(), is_live()), (1, true));
        block_on(session.set_state(RunState::Waiting, None)).expect("set_state");
        assert!(is_live());
        drop(session);
        assert!(!is_live());
        let session = engine.claim(&id).expect("no one has it");
        assert!(is_live());
        block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
        assert!(!is_live(), "what is over needs no one");
    }
    drop(engine);
    assert_eq!(locks(), 0);
}

#[test]
fn a_busy_run_names_the_process_that_has_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let _session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    let refused = open(dir.path(), Sync::Normal).claim("r-1").map(|_| ()).expect_err("it is taken");
    let expected = format!("run `r-1` is being executed by another process (pid {})", std::process::id());
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn a_damaged_journal_is_called_so() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("journal.db"), "this is no database at all\n".repeat(100)).expect("write");
    let text = refusal(dir.path()).to_string();
    assert!(text.contains("journal.db is damaged: it is not a SQLite database; move the file"), "{text}");
}

#[test]
fn a_damaged_page_is_called_so() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_testdata(FORMATS[FORMATS.len() - 1], dir.path());
    let file = dir.path().join("journal.db");
    let mut bytes = fs::read(&file).expect("read");
    bytes[4_096..].fill(0x5a);
    fs::write(&file, bytes).expect("write");
    // The migration to the newest format reads every table.
    let refused = refusal(dir.path());
    assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
}

#[test]
fn the_database_of_another_program_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("journal.db");
    rusqlite::Connection::open(&file).and_then(|other| other.execute_batch("create table notes (text)")).expect("sql");
    let before = fs::read(&file).expect("read");
    let text = refusal(dir.path()).to_string();
    assert!(text.contains("it belongs to another program"), "{text}");
    assert!(fs::read(&file).expect("read") == before, "the file was changed");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), "").expect("write");
    let refused = refusal(&dir.path().join("file/journal"));
    assert!(matches!(&refused, Error::Store { path, .. } if path.contains("file/journal")), "{refused}");
}

/// The existing formats, each with a journal that a program of its time wrote. They must open forever.
const FORMATS: [u32; 3] = [1, 2, 3];

fn testdata(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/journal-v{format}.db"))
}

fn copy_testdata(format: u32, dir: &Path) {
    fs::copy(testdata(format), dir.join("journal.db")).expect("the test data are there");
}

#[test]
fn journals_of_all_formats_open_for_ever() {
    FORMATS.into_iter().for_each(opens);
}

fn opens(format: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    copy_testdata(format, dir.path());
    let engine = open(dir.path(), Sync::Normal);
    let all = engine.list(&Query::default()).expect("list");
    let seen: Vec<_> = all.iter().map(|row| (&*row.id, row.state, row.created_at_ms)).collect();
    let expected = [
        ("r-interrupted", RunState::Running, 3),
        ("r-waiting", RunState::Waiting, 2),
        ("r-done", RunState::Succeeded, 1),
    ];
    assert_eq!(seen, expected);
    let done = engine.view("r-done").expect("view");
    assert_eq!(done.run, new_run("r-done", 1));
    assert_eq!(done.records, [record("main/a#1", r#"{"v":1,"n":1.0}"#), record("main/b#1", "{}")]);
    assert_eq!(done.result.as_deref(), Some(r#"{"ok":true}"#));
    let waiting = engine.view("r-waiting").expect("view");
    assert_eq!(waiting.signals, [Signal { key: "main/gate".to_owned(), body: "true".to_owned() }]);
    assert_eq!(waiting.records[0].blobs, [etude_core::digest::Digest::of(b"blob")]);
    let session = engine.claim("r-interrupted").expect("claim");
    block_on(session.append(record("main/c#1", "3"))).expect("append");
    assert_eq!(session.records().expect("records"), [record("main/a#1", "1"), record("main/c#1", "3")]);
}

/// Writes the test data of the newest format. Run this only when a new format is introduced.
#[test]
#[ignore = "writes test data"]
fn write_testdata() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Strict);
    let session = block_on(engine.create(&new_run("r-done", 1))).expect("create");
    block_on(session.append(record("main/a#1", r#"{"v":1,"n":1.0}"#))).expect("append");
    block_on(session.append(record("main/b#1", "{}"))).expect("append");
    block_on(session.set_state(RunState::Succeeded, Some(r#"{"ok":true}"#))).expect("set_state");
    let session = block_on(engine.create(&new_run("r-waiting", 2))).expect("create");
    let mut with_blob = record("main/a#1", "1");
    with_blob.blobs.push(etude_core::digest::Digest::of(b"blob"));
    block_on(session.append(with_blob.clone())).expect("append");
    block_on(session.set_state(RunState::Waiting, None)).expect("set_state");
    let signal = Signal { key: "main/gate".to_owned(), body: "true".to_owned() };
    engine.signal("r-waiting", &signal).expect("signal");
    let session = block_on(engine.create(&new_run("r-interrupted", 3))).expect("create");
    block_on(session.append(record("main/a#1", "1"))).expect("append");
    drop((session, engine));
    let file = dir.path().join("journal.db");
    let connection = rusqlite::Connection::open(&file).expect("open");
    connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).expect("checkpoint");
    fs::copy(&file, testdata(FORMATS[FORMATS.len() - 1])).expect("copy");
}

/// cli: a backup is one file; unpacked, it is a journal with the same runs and values.
#[test]
fn an_unpacked_backup_is_a_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    let (state, restored, file) = (dir.path().join("state"), dir.path().join("restored"), dir.path().join("b.tar"));
    let engine = open(&state, Sync::Normal);
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    let large = format!("\"{}\"", "x".repeat(700_001));
    block_on(session.set_state(RunState::Succeeded, Some(&large))).expect("set_state");
    let made = engine.backup(&file).expect("backup");
    assert_eq!((made.runs, made.blobs, made.bytes), (1, 1, fs::metadata(&file).expect("metadata").len()));
    assert!(matches!(engine.backup(&file), Err(Error::Store { .. })), "a file that exists is not overwritten");
    fs::create_dir(&restored).expect("a directory");
    let done = std::process::Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&restored).status();
    assert!(done.expect("tar is there").success());
    let (before, after) = (engine.view("r-1").expect("view"), open(&restored, Sync::Normal).view("r-1").expect("view"));
    assert_eq!(before.records, after.records);
    assert!(after.result.as_deref() == Some(&*large), "the large value is lost");
}
