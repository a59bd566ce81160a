//! Death of a process at any moment.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Query, RunState};
use etude_sqlite::Sync;

use crate::open;

/// The variable that makes the test binary, started again, a child with this role.
const ROLE: &str = "ETUDE_SQLITE_TEST_ROLE";
const DIR: &str = "ETUDE_SQLITE_TEST_DIR";

/// Starts the test binary again, as another process.
pub(crate) fn spawn(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child can be started")
}

/// The entry point of the other processes of these tests.
#[test]
#[ignore = "the child of other tests"]
fn child() {
    let (Ok(role), Some(dir)) = (std::env::var(ROLE), std::env::var_os(DIR)) else {
        return;
    };
    let dir = Path::new(&dir);
    match role.as_str() {
        "append" => append_for_ever(dir, Sync::Normal),
        "append-together" => append_together_for_ever(dir, Sync::Normal),
        "append-together-strict" => append_together_for_ever(dir, Sync::Strict),
        "append-strict" => append_for_ever(dir, Sync::Strict),
        "claim" => claim_when_signalled(dir),
        "enqueue" => crate::queue::enqueue_for_ever(dir),
        "take-next" => crate::queue::take_next(dir),
        "take-again" => crate::queue::take_again(dir),
        other => panic!("no such role: {other}"),
    }
}

fn append_for_ever(dir: &Path, sync: Sync) {
    let engine = open(dir, sync);
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    let mut out = std::io::stdout();
    for number in 0_u64.. {
        block_on(session.append(numbered(number))).expect("append");
        writeln!(out, "ack {number}").expect("the test listens");
    }
}

/// The same, with other sessions that write as well.
fn append_together_for_ever(dir: &Path, sync: Sync) {
    let engine = open(dir, sync);
    let sessions: Vec<_> =
        (1..=12).map(|run| block_on(engine.create(&new_run(&format!("r-{run}"), 1))).expect("create")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    for session in sessions {
        runtime.spawn(async move {
            let mut out = std::io::stdout();
            for number in 0_u64.. {
                session.append(numbered(number)).await.expect("append");
                if session.run_id() == "r-1" {
                    writeln!(out, "ack {number}").expect("the test listens");
                }
            }
        });
    }
    loop {
        std::thread::park();
    }
}

fn numbered(number: u64) -> etude_runtime::engine::Record {
    // Some bodies are larger than a page, some than many pages.
    let len = [10, 5_000, 100, 40_000][(number % 4) as usize];
    record(&format!("main/step#{number}"), &format!("\"{}\"", "x".repeat(len)))
}

fn claim_when_signalled(dir: &Path) {
    let engine = open(dir, Sync::Normal);
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the test talks");
    let session = engine.claim("r-1");
    println!("claimed {}", session.is_ok());
    // Hold the run until all others have tried.
    line.clear();
    std::io::stdin().read_line(&mut line).expect("the test talks");
}

fn kill_while_appending(role: &str, at_least: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = spawn(role, dir.path());
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let number = |line: &str| line.split_once("ack ").and_then(|(_, number)| number.parse::<u64>().ok());
    let mut acknowledged = 0;
    while acknowledged < at_least {
        let line = lines.next().expect("the child goes on").expect("text");
        acknowledged = number(&line).unwrap_or(acknowledged);
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it is dead");
    for line in lines.map_while(Result::ok) {
        acknowledged = number(&line).unwrap_or(acknowledged);
    }
    let engine = open(dir.path(), Sync::Normal);
    let row = engine.view("r-1").expect("view").row;
    assert_eq!((row.state, row.is_live), (RunState::Running, false), "its lock died with it");
    let records = engine.claim("r-1").expect("no one has it").records().expect("records");
    let count = records.len() as u64;
    // The last acknowledgement may have died with the child.
    assert!((acknowledged + 1..=acknowledged + 2).contains(&count), "{acknowledged} acknowledged, {count} there");
    assert!(records.iter().enumerate().all(|(at, record)| *record == numbered(at as u64)), "a record differs");
}

#[test]
fn every_acknowledged_record_survives_kill_9() {
    // Early, and after several checkpoints.
    for at_least in [1, 7, 150, 1_500] {
        kill_while_appending("append", at_least);
    }
}

#[test]
fn every_acknowledged_record_survives_kill_9_in_strict_mode() {
    kill_while_appending("append-strict", 60);
}

#[test]
fn every_acknowledged_record_of_a_group_survives_kill_9() {
    for (role, at_least) in [("append-together", 7), ("append-together", 300), ("append-together-strict", 20)] {
        kill_while_appending(role, at_least);
    }
}

#[test]
fn one_of_several_processes_gets_a_run() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(block_on(open(dir.path(), Sync::Normal).create(&new_run("r-1", 1))).expect("create"));
    for _ in 0..3 {
        let mut children: Vec<_> = (0..4).map(|_| spawn("claim", dir.path())).collect();
        let mut outputs: Vec<_> =
            children.iter_mut().map(|child| BufReader::new(child.stdout.take().expect("a pipe")).lines()).collect();
        let mut wait_for = |child: usize, word: &str| loop {
            let line = outputs[child].next().expect("the child goes on").expect("text");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.to_owned();
            }
        };
        for child in 0..children.len() {
            wait_for(child, "ready");
        }
        for child in &mut children {
            child.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("the child listens");
        }
        let winners = (0..children.len()).filter(|child| wait_for(*child, "claimed ").trim() == "true").count();
        assert_eq!(winners, 1);
        let engine = open(dir.path(), Sync::Normal);
        let pids: Vec<_> = children.iter().map(|child| Some(child.id())).collect();
        assert!(
            matches!(engine.claim("r-1"), Err(Error::Busy { holder, .. }) if pids.contains(&holder.as_ref().and_then(|holder| holder.pid)))
        );
        for mut child in children {
            child.kill().expect("SIGKILL");
            child.wait().expect("it is dead");
        }
        drop(engine.claim("r-1").expect("no one has it any more"));
    }
}

/// Copies a journal as a loss of power would leave it, with a cut log.
fn copy_cut(from: &Path, to: &Path, log: &[u8]) {
    fs::create_dir(to).expect("a new directory");
    fs::copy(from.join("journal.db"), to.join("journal.db")).expect("copy");
    fs::write(to.join("journal.db-wal"), log).expect("write");
}

#[test]
fn a_log_that_is_cut_anywhere_loses_whole_records_from_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let (live, cut) = (dir.path().join("live"), |at: usize| dir.path().join(at.to_string()));
    let engine = open(&live, Sync::Normal);
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    // The size of the log after each record.
    let mut ends = Vec::new();
    for number in 0..6 {
        let body = format!("\"{}\"", "y".repeat([10, 6_000][number % 2]));
        block_on(session.append(record(&number.to_string(), &body))).expect("append");
        ends.push(fs::metadata(live.join("journal.db-wal")).expect("a log").len() as usize);
    }
    let expected = session.records().expect("records");
    let log = fs::read(live.join("journal.db-wal")).expect("read");
    assert_eq!(log.len(), ends[5]);
    // Every byte around the ends of frames, and every 997th one between.
    let frame = 4_096 + 24;
    let is_reporting = |at: &usize| (at - 32) % frame < 25 || (at - 32) % frame > frame - 4 || at.is_multiple_of(997);
    for at in (ends[1]..=log.len()).filter(is_reporting) {
        copy_cut(&live, &cut(at), &log[..at]);
        check_prefix(&cut(at), &expected, ends.iter().filter(|end| **end <= at).count(), at.is_multiple_of(8));
    }
    // A torn log has the right length, but its end never reached the disk.
    for at in (ends[1]..log.len()).step_by(1_021) {
        let mut torn = log.clone();
        torn[at..].fill(0);
        let cut = cut(log.len() + at);
        copy_cut(&live, &cut, &torn);
        check_prefix(&cut, &expected, ends.iter().filter(|end| **end <= at).count(), at.is_multiple_of(8));
    }
}

fn check_prefix(dir: &Path, expected: &[etude_runtime::engine::Record], count: usize, goes_on: bool) {
    let engine = open(dir, Sync::Normal);
    let session = engine.claim("r-1").expect("the run is there");
    assert!(session.records().expect("records") == expected[..count], "not the first {count} records");
    assert_eq!(engine.list(&Query::default()).expect("list").len(), 1);
    if goes_on {
        block_on(session.append(record("next", "1"))).expect("it goes on");
        assert_eq!(session.records().expect("records").len(), count + 1);
    }
}
