//! Other faults around a run: full and failing disks, unwritable, damaged, old, new or missing journals, clock jumps, stopped
//! processes, too few descriptors.
//!
//! Each time there is no panic and no false success. The message names the place and the remedy. Once the cause is gone the run
//! continues without repeating a step that has an outcome.

mod clocks;
mod limits;
mod races;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::crash::shim::{self, EIO, ENOSPC, Fault, with_fault};
use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{Pipeline, Running, Test, noting, wait_until};

const RUN: [&str; 5] = ["run", "-p", "p", "--format", "json"];
const STATE: &str = "home/.local/state/etude";

fn step(pipeline: Pipeline, name: &str) -> Pipeline {
    pipeline.sh(name, &format!("cat >/dev/null; {}; echo '{{\"output\":\"{name}\"}}'", noting(name)))
}

/// Three steps and a destructor, each of which records its name.
fn app() -> Test {
    Test::new()
        .pipeline("p", |p| step(step(step(p, "one"), "two"), "three"))
        .pipeline("_destructor", |p| step(p, "end"))
}

fn with(test: &Test, fault: Fault, args: &[&str]) -> Ran {
    test.start_with(with_fault(test, test.command(args), fault), args).finish()
}

fn run_id(test: &Test) -> Option<String> {
    let ran = test.run(&["runs", "list", "--format", "json"]);
    let listed: serde_json::Value = serde_json::from_slice(&ran.raw).unwrap_or_default();
    listed["runs"][0]["run_id"].as_str().map(str::to_owned)
}

/// Continues when the cause is gone: the output is complete, and each step ran once, except for one whose outcome was lost.
#[track_caller]
fn goes_on(test: &Test, again: usize) {
    let ran = match run_id(test) {
        Some(id) => test.run(&["runs", "resume", &id, "--format", "json"]),
        None => test.run(&RUN),
    };
    ran.output("three").steps(&["one succeeded 1", "two succeeded 1", "three succeeded 1", "end succeeded 1"]);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    test.ledger().into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    assert_eq!(counts.keys().map(String::as_str).collect::<Vec<_>>(), ["end", "one", "three", "two"]);
    assert!(counts.values().sum::<usize>() <= 4 + again, "{counts:?}");
    assert_eq!(test.ledger().last().map(String::as_str), Some("end"));
}

/// Checks that there is neither a panic nor a false success: the status, and the message about the journal.
#[track_caller]
fn is_honest(ran: &Ran, moment: &str, words: &[&str]) {
    assert!(!ran.err().contains("panicked"), "{moment}: {}", ran.err());
    match ran.code() {
        0 => {
            assert_eq!(ran.at("/status"), "succeeded", "{moment}");
        }
        4 => {
            assert_eq!(ran.at("/status"), "failed", "{moment}");
            let said = ran.err();
            assert!(words.iter().any(|word| said.contains(word)), "{moment}: {said}");
            assert!(said.contains("etude/"), "{moment}: it says where: {said}");
        }
        code => panic!("{moment}: exit status {code}: {}", ran.err()),
    }
}

/// Tests a disk that fails at each of the writes, from then on or once.
fn failing_disk(errno: i32, words: &[&str], is_for_good: bool) {
    if shim::is_missing("disks that fail at a write") {
        return;
    }
    let whole = app();
    with(&whole, Fault::None, &RUN).output("three");
    let total = shim::events(&whole).len();
    assert!(total > 50, "{total} events");
    let stride = if is_for_good { 5 } else { 9 };
    for first in (1..=total).step_by(stride) {
        let test = app();
        let last = if is_for_good { usize::MAX >> 1 } else { first };
        let ran = with(&test, Fault::Fail { first, last, errno }, &RUN);
        let moment = format!("error {errno} at {first} of {total}: {:?}", shim::events(&test).get(first - 1));
        let words = [words, &["could not be synced"]].concat();
        is_honest(&ran, &moment, &words);
        if ran.code() == 0 {
            // The reported result is in the journal.
            let id = ran.id();
            test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/output", "three");
        }
        goes_on(&test, 1);
    }
}

const FULL: [&str; 4] = ["the disk is full", "No space left", "the disk is not full", "works and is not full"];

/// a full disk stops the run at the record that could not be written; with free space, it continues there.
#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    failing_disk(ENOSPC, &FULL, true);
}

/// the same for space that was missing for one moment only.
#[test]
fn a_disk_that_was_full_for_a_moment_loses_nothing() {
    failing_disk(ENOSPC, &FULL, false);
}

/// the same for a disk that fails.
#[test]
fn a_failing_disk_stops_the_run_and_loses_nothing() {
    failing_disk(EIO, &["check the disk", "Input/output error", "the disk"], true);
}

/// the same for a limit on the size of files, whatever happens to the program at that write.
#[test]
fn a_limit_on_the_size_of_files_loses_nothing() {
    for blocks in ["0", "20", "60"] {
        let test = app();
        let limit = format!("ulimit -f {blocks}; exec \"$@\"");
        let ran = test.start_through(&["bash", "-c", &limit, "bash"], &RUN).finish();
        assert!([-1, 0, 4].contains(&ran.code()), "{blocks} blocks: exit status {}: {}", ran.code(), ran.err());
        goes_on(&test, 1);
    }
}

/// cli: a command runs with a limit of the stack below the needs of its main thread.
#[test]
fn a_small_stack_ends_no_command() {
    let test = app();
    let small = ["bash", "-c", "ulimit -s 64; exec \"$@\"", "bash"];
    test.start_through(&small, &RUN).finish().output("three");
    assert_eq!(test.start_through(&small, &["run", "--no-such"]).finish().code(), 2);
}

/// with a read-only journal, a run does not begin, and existing runs are still shown.
#[test]
fn a_read_only_journal_is_named_and_can_still_be_read() {
    if shim::is_missing("a_read_only_journal_is_named_and_can_still_be_read") {
        return;
    }
    const EROFS: i32 = 30;
    let test = app();
    let id = test.run(&RUN).output("three").id();
    let read_only = Fault::Fail { first: 1, last: usize::MAX >> 1, errno: EROFS };
    let before = test.ledger();
    let ran = with(&test, read_only, &RUN).exit(4);
    assert!(ran.err().contains("read-only") || ran.err().contains("Read-only"), "{}", ran.err());
    assert_eq!(test.ledger(), before, "nothing was begun");
    with(&test, read_only, &["runs", "show", &id, "--format", "json"]).exit(0).has("/output", "three");
}

/// A run that has died in its second step, with all of its writes in the database file itself.
fn dead_run(checkpointed: bool) -> (Test, String) {
    let test = Test::new()
        .pipeline("p", |p| {
            let two = format!("{}; [ -e \"$ROOT/go\" ] || exec sleep 60; echo '{{\"output\":\"two\"}}'", noting("two"));
            step(step(p, "one").sh("two", &two), "three")
        })
        .pipeline("_destructor", |p| step(p, "end"));
    let running = test.start(&RUN);
    test.wait_for("two");
    running.kill();
    let id = run_id(&test).expect("it was begun");
    test.put("go", "");
    if checkpointed {
        let connection = rusqlite::Connection::open(test.path(STATE).join("journal.db")).expect("it opens");
        connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).expect("it can be done");
    }
    (test, id)
}

/// Checks every command on a journal: never a panic, never a false success.
fn looked_at(test: &Test, id: &str, moment: &str) {
    for args in [
        &["runs", "list", "--format", "json"][..],
        &["runs", "show", id, "--format", "json"],
        &["runs", "export", id],
        &["runs", "cancel", id, "--format", "json"],
        &["runs", "resume", id, "--format", "json"],
        &["runs", "prune", "--format", "json"],
    ] {
        let ran = test.run(args);
        assert!(!ran.err().contains("panicked"), "{moment}: {args:?}: {}", ran.err());
        assert!([0, 1, 2, 3, 4, 130].contains(&ran.code()), "{moment}: {args:?}: {} {}", ran.code(), ran.err());
        if ran.code() == 4 {
            let said = ran.err();
            assert!(said.contains("journal.db"), "{moment}: {args:?}: it says where: {said}");
        }
        if args[1] == "resume" && ran.code() == 0 {
            assert!(test.ledger().contains(&"three".to_owned()), "{moment}: it did what it says");
        }
    }
}

type Damage = fn(&mut Vec<u8>);

/// pages of the journal that were overwritten or cut off are reported as damage, with the file and the remedy. A listing
/// need not find damage in pages that it does not read.
#[test]
fn a_damaged_journal_is_reported_as_such() {
    let damages: [(&str, bool, Damage); 7] = [
        ("no database", true, |bytes| bytes[..100].fill(b'x')),
        ("the second page", true, |bytes| bytes[4096..8192].fill(0xa5)),
        ("every page but the first", true, |bytes| bytes[4096..].fill(0)),
        ("noise in the middle", false, |bytes| {
            let middle = bytes.len() / 2;
            (middle..middle + 2000).for_each(|at| bytes[at] = (at * 7919 % 251) as u8);
        }),
        ("cut in half", true, |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut within a page", false, |bytes| bytes.truncate(bytes.len() - 1000)),
        ("empty", false, |bytes| bytes.clear()),
    ];
    for (what, is_reported, damage) in damages {
        let (test, id) = dead_run(true);
        let path = test.path(STATE).join("journal.db");
        let mut bytes = fs::read(&path).expect("it is there");
        damage(&mut bytes);
        fs::write(&path, bytes).expect("it can be written");
        if is_reported {
            let listed = test.run(&["runs", "list"]).exit(4);
            assert!(listed.err().contains("journal.db is damaged: "), "{what}: {}", listed.err());
            assert!(listed.err().contains("move the file"), "{what}: {}", listed.err());
        }
        looked_at(&test, &id, what);
    }
}

/// a log that ends early or contains other data is read up to the damage.
#[test]
fn a_damaged_log_is_read_as_far_as_it_is_whole() {
    for part in [3, 10, 25, 50, 75, 90, 99] {
        for is_cut in [true, false] {
            let (test, id) = dead_run(false);
            let path = test.path(STATE).join("journal.db-wal");
            let mut bytes = fs::read(&path).expect("it is there");
            let at = bytes.len() * part / 100;
            if is_cut {
                bytes.truncate(at)
            } else {
                bytes[at..].iter_mut().for_each(|byte| *byte ^= 0x5a)
            }
            fs::write(&path, bytes).expect("it can be written");
            looked_at(&test, &id, &format!("log, {part} %, cut: {is_cut}"));
        }
    }
}

/// missing or damaged large values stop a resume, which names the record and the value's file; nothing is made up in
/// their place. A value that was not synced yet may be lost and is computed again, so the damaged one gets the mark of a synced
/// value (ADR 0154).
#[test]
fn a_damaged_value_stops_the_resume() {
    let overwrite = |path: &PathBuf| {
        fs::remove_file(path)?;
        fs::write(path, "x")?;
        let mut permissions = fs::metadata(path)?.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(path, permissions)
    };
    for damage in [|path: &PathBuf| fs::remove_file(path), overwrite] {
        let large = "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' a; echo '\"}'";
        let two =
            format!("cat >/dev/null; {}; [ -e \"$ROOT/go\" ] || exec sleep 60; echo '{{\"output\":2}}'", noting("two"));
        let test = Test::new().pipeline("p", |p| p.sh("one", large).sh("two", &two).with("output: one"));
        let running = test.start(&RUN);
        test.wait_for("two");
        running.kill();
        test.put("go", "");
        let id = run_id(&test).expect("it was begun");
        let is_large = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 250_000);
        let blob = test.files_below(&format!("{STATE}/blobs")).into_iter().find(is_large).expect("it is kept");
        damage(&blob).expect("it can be damaged");
        let ran = test.run(&["runs", "resume", &id, "--format", "json"]).exit(4);
        assert!(!ran.err().contains("panicked"), "{}", ran.err());
        let name = blob.file_name().and_then(std::ffi::OsStr::to_str).expect("values have plain names");
        assert_ne!(ran.at("/run_id"), serde_json::Value::Null);
        ran.stderr_has("record `p/one` refers to the value").stderr_has(name).stderr_has("etude runs resume");
    }
}

/// a failed run whose journal cannot be replayed is refused at each resume, and stays a failed run.
#[test]
fn a_refused_resume_leaves_a_run_as_it_is() {
    let large = "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' a; echo '\"}'";
    let test = Test::new().pipeline("p", |p| p.sh("one", large).sh("two", "cat >/dev/null; exit 3"));
    let id = test.run(&RUN).exit(1).id();
    let is_large = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 250_000);
    let blob = test.files_below(&format!("{STATE}/blobs")).into_iter().find(is_large).expect("it is kept");
    fs::remove_file(blob).expect("it can be removed");
    for _ in 0..2 {
        test.run(&["runs", "resume", &id, "--format", "json"]).exit(4).stderr_has("record `p/one` refers to the value");
        test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "failed").has("/attempt", 1);
    }
}

/// A journal of a later version is refused by every command, and is not touched.
#[test]
fn a_journal_of_a_later_version_is_refused() {
    let (test, id) = dead_run(true);
    let path = test.path(STATE).join("journal.db");
    rusqlite::Connection::open(&path)
        .expect("it opens")
        .pragma_update(None, "user_version", 99)
        .expect("it can be set");
    let before = fs::read(&path).expect("it is there");
    for args in [&["runs", "list", "--format", "json"][..], &["runs", "resume", &id, "--format", "json"], &RUN] {
        test.run(args).exit(4).stderr_has("has format 99; this version of etude knows formats up to");
    }
    assert_eq!(fs::read(&path).expect("it is there"), before);
    assert_eq!(test.ledger(), ["one", "two"]);
}

/// A run whose row in the journal cannot be read is named beside the list of the others.
#[test]
fn a_damaged_run_holds_up_no_list() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let ids = [(); 2].map(|()| test.run_json("p").exit(0).id());
    let connection = rusqlite::Connection::open(test.path(STATE).join("journal.db")).expect("it opens");
    connection.execute("update runs set cause = 'x' where id = ?1", [&ids[0]]).expect("it can be set");
    drop(connection);
    let ran = test.run(&["runs", "list", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/runs").as_array().map(Vec::len), &ran.id_of_first_run()), (Some(1), &ids[1]));
    ran.stderr_has("the list lacks the run `[RUN]`, which cannot be read: `x` is not a cause");
}

/// A run of another version of the interpreter is refused with both numbers; nothing is executed.
#[test]
fn a_run_of_another_interpreter_is_refused() {
    for abi in [0, 999] {
        let (test, id) = dead_run(true);
        let connection = rusqlite::Connection::open(test.path(STATE).join("journal.db")).expect("it opens");
        connection.execute("update runs set abi = ?1", [abi]).expect("it can be set");
        drop(connection);
        let ran = test.run(&["runs", "resume", &id, "--format", "json"]).exit(4);
        assert!(ran.err().contains(&format!("version {abi} of the interpreter")), "{}", ran.err());
        assert_eq!(test.ledger(), ["one", "two"]);
    }
}

/// A run in its second step, which ends when the file `go` exists.
fn held_run() -> (Test, Running) {
    let two = format!(
        "cat >/dev/null; {}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{{\"output\":2}}'",
        noting("two")
    );
    let test = Test::new()
        .pipeline("p", |p| step(step(p, "one").sh("two", &two), "three"))
        .pipeline("_destructor", |p| step(p, "end"));
    let running = test.start(&RUN);
    test.wait_for("two");
    (test, running)
}

/// a stopped process keeps its run: no other takes it, and it continues after SIGCONT.
#[test]
fn a_stopped_process_keeps_its_run() {
    let (test, running) = held_run();
    let id = run_id(&test).expect("it was begun");
    running.signal("STOP");
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(4).stderr_has("is being executed by another process");
    test.put("go", "");
    running.signal("CONT");
    running.finish().output("three");
    assert_eq!(test.ledger(), ["one", "two", "three", "end"]);
}

/// a stopped process handles a cancellation request when it continues.
#[test]
fn a_stopped_process_handles_a_cancellation_afterwards() {
    let (test, running) = held_run();
    let id = run_id(&test).expect("it was begun");
    running.signal("STOP");
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0);
    running.signal("CONT");
    running.finish().exit(130).has("/status", "cancelled");
    assert_eq!(test.ledger(), ["one", "two", "end"]);
}

/// of many concurrent resumes, one has the run; the others report that, or see its end.
#[test]
fn of_many_resumes_at_once_one_has_the_run() {
    let (test, id) = dead_run(false);
    let resumes: Vec<_> = (0..8).map(|_| test.start(&["runs", "resume", &id, "--format", "json"])).collect();
    let mut ends = 0;
    for resume in resumes {
        let ran = resume.finish();
        match ran.code() {
            0 => {
                ran.output("three");
                ends += 1;
            }
            _ => {
                ran.exit(4).stderr_has("is being executed by another process");
            }
        }
    }
    assert!(ends >= 1);
    assert_eq!(test.ledger(), ["one", "two", "two", "three", "end"]);
}

/// a journal that is deleted or moved away under a run is noticed: later records would be in no journal.
#[test]
fn a_journal_that_is_gone_stops_the_run() {
    for is_moved in [false, true] {
        let (test, running) = held_run();
        let state = test.path(STATE);
        match is_moved {
            true => fs::rename(&state, test.path("moved")).expect("it can be moved"),
            false => wait_until("the directory to go", || fs::remove_dir_all(&state).is_ok() || !state.exists()),
        }
        test.put("go", "");
        let ran = running.finish();
        let ran = ran.exit(4).stderr_has("journal.db");
        assert!(ran.err().contains("deleted or moved"), "{}", ran.err());
        assert!(!test.ledger().contains(&"three".to_owned()), "{:?}", test.ledger());
        if is_moved {
            // With its journal back, the run continues where it stopped.
            let _ = fs::remove_dir_all(&state);
            fs::rename(test.path("moved"), &state).expect("it can be moved");
            let id = run_id(&test).expect("it is there again");
            test.run(&["runs", "resume", &id, "--format", "json"]).output("three");
        }
    }
}

/// a journal of the first version is readable, and its run continues where it stopped: no step with an outcome runs
/// again, no model is called, no approval requested.
#[test]
fn a_journal_of_the_first_format_goes_on() {
    const ID: &str = "85fdfx7zde09q1af";
    let fixture = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-1"));
    let server = Server::new([Reply::says("never asked")]);
    let test = Test::new().model(&server);
    let mut dirs = vec![fixture.join("app")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("the fixture is there").flatten() {
            let place = entry.path();
            if place.is_dir() {
                dirs.push(place);
                continue;
            }
            let name = place.strip_prefix(&fixture).expect("it is below").display().to_string();
            test.put(&name, &fs::read_to_string(&place).expect("fixtures are texts"));
        }
    }
    fs::create_dir_all(test.path(STATE)).expect("a directory can be made");
    let sql = fs::read_to_string(fixture.join("journal.sql")).expect("it is there");
    let sql = sql.replace("{APP}", &test.path("app").display().to_string());
    let connection = rusqlite::Connection::open(test.path(STATE).join("journal.db")).expect("it opens");
    connection.execute_batch(&sql).expect("it is SQL");
    drop(connection);
    test.run(&["runs", "show", ID, "--format", "json"]).exit(0).has("/status", "interrupted");
    test.run(&["runs", "export", ID]).exit(0);
    test.put("go", "");
    let ran = test.run(&["runs", "resume", ID, "--format", "json"]).exit(0);
    let outputs = ["list", "each", "flaky", "ask"].map(|name| ran.at(&format!("/output/{name}/output")));
    assert_eq!(outputs, [json!([1, 2, 3]), json!(["e", "e", "e"]), json!("hello"), json!("said")]);
    assert_eq!((test.ledger(), server.calls()), (["p/hold", "last", "_destructor/s"].map(str::to_owned).to_vec(), 0));
}
