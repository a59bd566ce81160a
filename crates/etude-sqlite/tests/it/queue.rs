//! The queue of one journal in several processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use etude_core::plan::stages::SlotForms;
use etude_runtime::conformance::{block_on, new_run};
use etude_runtime::engine::{
    Engine as _, Enqueued, Fleet as _, LimitGroup, Limits, NewRun, Placement, Query, RunState, Session, Submission,
    UniqueKey,
};
use etude_runtime::record::{of_clock, of_resumed};
use etude_sqlite::{Sqlite, Sync};

use crate::crash::spawn;
use crate::open;

const NOW: i64 = 1_000_000;

fn submission(run: u64) -> Submission {
    let limit_group = Some(LimitGroup { name: "deploy".to_owned(), max_runs: 2 });
    let placement = Placement { limit_group, ..Placement::default() };
    let key = UniqueKey { key: format!("tick:{run}"), digest: None };
    Submission {
        run: NewRun { placement, ..new_run(&format!("r-{run}"), 1) },
        keys: vec![key],
        max_queued: None,
        needs_room: false,
    }
}

/// Submits runs until it is killed.
pub(crate) fn enqueue_for_ever(dir: &Path) {
    let engine = open(dir, Sync::Normal);
    let mut out = std::io::stdout();
    for run in 0_u64.. {
        block_on(engine.enqueue(&submission(run))).expect("enqueue");
        writeln!(out, "ack {run}").expect("the test listens");
    }
}

/// S-37, S-45: an accepted run survives a kill at any moment, with its key, and begins once.
#[test]
fn every_accepted_run_survives_kill_9() {
    for at_least in [1, 40, 300] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut child = spawn("enqueue", dir.path());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let number = |line: &str| line.split_once("ack ").and_then(|(_, number)| number.parse::<u64>().ok());
        let mut accepted = 0;
        while accepted < at_least {
            accepted = number(&lines.next().expect("the child goes on").expect("text")).unwrap_or(accepted);
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("it is dead");
        for line in lines.map_while(Result::ok) {
            accepted = number(&line).unwrap_or(accepted);
        }
        let engine = open(dir.path(), Sync::Normal);
        let queued = Query { states: vec![RunState::Queued], ..Query::default() };
        let count = engine.count(&queued).expect("count");
        // The last acknowledgement may have died with the child.
        assert!((accepted + 1..=accepted + 2).contains(&count), "{accepted} accepted, {count} there");
        for run in 0..=accepted {
            let again = Submission { run: new_run("again", 1), ..submission(run) };
            let found = block_on(engine.enqueue(&again)).expect("enqueue");
            assert!(matches!(found, Enqueued::Repeated { run_id, is_same: true, .. } if run_id == format!("r-{run}")));
        }
        let session = engine.next(&Limits::of_default_queue(1), NOW).expect("next").expect("one begins");
        assert_eq!(session.run_id(), "r-0");
    }
}

fn take_all(engine: &Sqlite, max_runs: u32) -> Vec<Box<dyn Session>> {
    let limits = Limits::of_default_queue(max_runs);
    std::iter::from_fn(|| engine.next(&limits, NOW).expect("next")).collect()
}

/// S-91, S-92: runs that another process has begun count, until that process dies.
#[test]
fn limits_hold_for_all_processes_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (open(dir.path(), Sync::Normal), open(dir.path(), Sync::Normal));
    for run in 0..6 {
        block_on(one.enqueue(&submission(run))).expect("enqueue");
    }
    let free = Submission { run: new_run("free", 2), keys: vec![], max_queued: None, needs_room: false };
    block_on(two.enqueue(&free)).expect("enqueue");
    let names = |sessions: &[Box<dyn Session>]| -> Vec<String> {
        sessions.iter().map(|session| session.run_id().to_owned()).collect()
    };
    let first = take_all(&one, 1);
    assert_eq!(names(&first), ["r-0"]);
    let second = take_all(&two, 9);
    assert_eq!(names(&second), ["r-1", "free"], "two of its group, and one of none");
    assert_eq!(take_all(&one, 9).len(), 0);
    drop(first);
    assert_eq!(names(&take_all(&two, 9)), ["r-2"]);
}

/// S-91: the runs of a killed process do not count any more, although the journal still names it.
#[test]
fn runs_of_a_dead_process_do_not_count() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    for run in 0..2 {
        block_on(engine.enqueue(&submission(run))).expect("enqueue");
    }
    let mut child = spawn("take-next", dir.path());
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    while !lines.next().expect("the child goes on").expect("text").contains("took r-0") {}
    assert_eq!(take_all(&engine, 1).len(), 0);
    child.kill().expect("SIGKILL");
    child.wait().expect("it is dead");
    let taken = take_all(&engine, 1);
    assert_eq!(taken.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["r-1"]);
    let interrupted = Query { states: vec![RunState::Running], is_interrupted: Some(true), ..Query::default() };
    let found: Vec<String> = engine.list(&interrupted).expect("list").into_iter().map(|row| row.id).collect();
    assert_eq!(found, ["r-0"], "somebody adopts it");
}

/// Takes a run and holds it.
pub(crate) fn take_next(dir: &Path) {
    let engine = open(dir, Sync::Normal);
    let session = engine.next(&Limits::of_default_queue(1), NOW).expect("next").expect("one is queued");
    println!("took {}", session.run_id());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// A look at an idle queue only reads.
#[test]
fn who_asks_an_empty_queue_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let other = open(dir.path(), Sync::Normal);
    let later = Placement { not_before_ms: Some(NOW + 1), queue_timeout_ms: Some(1_000), ..Placement::default() };
    let run = NewRun { placement: later, ..new_run("r-1", 1) };
    block_on(engine.enqueue(&Submission { run, keys: vec![], max_queued: None, needs_room: false })).expect("enqueue");
    let log = || std::fs::read(dir.path().join("journal.db-wal")).expect("a log");
    let (before, version) = (log(), other.version().expect("a number"));
    for _ in 0..3 {
        assert!(engine.next(&Limits::of_default_queue(1), NOW).expect("next").is_none());
        assert_eq!(engine.expired(NOW).expect("expired").len(), 0);
        engine.place("r-1", &Limits::of_default_queue(1), NOW).expect("place");
        engine.changes(0, 10).expect("changes");
        engine.tail("r-1", 0, 10).expect("tail");
        std::thread::sleep(std::time::Duration::from_millis(60));
        assert_eq!(other.version().expect("a number"), version);
    }
    assert!(log() == before, "something was written");
}

/// In a journal that only the command line uses, a run needs no more writes than before the queue existed. A followed journal
/// numbers the changes of all processes, including those that had it open already.
#[test]
fn only_a_followed_journal_numbers_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (open(dir.path(), Sync::Normal), open(dir.path(), Sync::Normal));
    let added = || {
        let connection = rusqlite::Connection::open(dir.path().join("journal.db")).expect("it opens");
        let sql = "select count(*) from sqlite_schema where name in
                   ('runs_by_state', 'runs_by_change', 'runs_created', 'runs_changed', 'runs_removed')";
        connection.query_row(sql, [], |row| row.get::<_, u32>(0)).expect("sql")
    };
    let session = block_on(one.create(&new_run("r-1", 1))).expect("create");
    two.list(&Query { states: vec![RunState::Running], ..Query::default() }).expect("list");
    assert_eq!((added(), one.row("r-1").expect("a row").change), (0, 0));
    let begin = two.last_change().expect("a number");
    assert_eq!((added(), begin), (5, 0));
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    let _second = block_on(one.create(&new_run("r-2", 2))).expect("create");
    let seen: Vec<_> = two.changes(begin, 9).expect("changes").into_iter().map(|row| row.id).collect();
    assert_eq!(seen, ["r-1", "r-2"]);
}

/// S-76: the number of the last change is not given again if its run was removed and the clock was set back. A journal with the
/// triggers of an earlier program gets the present ones.
#[test]
fn the_number_of_a_removed_run_is_not_given_again() {
    const HOUR_US: i64 = 3_600_000_000;
    for is_of_earlier_program in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path(), Sync::Normal);
        let connection = rusqlite::Connection::open(dir.path().join("journal.db")).expect("it opens");
        if is_of_earlier_program {
            connection.execute_batch(include_str!("../../migrations/served.sql")).expect("sql");
        }
        let begin = engine.last_change().expect("a number");
        block_on(block_on(engine.create(&new_run("r-1", 1))).expect("create").set_state(RunState::Failed, None))
            .expect("set_state");
        // The change was an hour later by the clock of that time.
        let sql = "update runs set change = change + ?1";
        connection.execute(sql, [HOUR_US]).expect("sql");
        let [row] = &engine.changes(begin, 9).expect("changes")[..] else { panic!("one run") };
        assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
        let last = engine.last_change().expect("a number");
        assert_eq!((last, engine.may_be_past(last).expect("an answer")), (row.change, true));
        for id in ["r-2", "r-3"] {
            let session = block_on(engine.create(&new_run(id, 2))).expect("create");
            block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
        }
        let seen: Vec<_> = engine.changes(last, 9).expect("changes").into_iter().map(|row| row.id).collect();
        assert_eq!(seen, ["r-2", "r-3"], "{is_of_earlier_program}");
    }
}

/// S-161: deaths are counted from the last record on, for any way in which a process took the run; a release does not count.
#[test]
fn deaths_are_counted_since_the_last_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let die = |role: &str| {
        let mut child = spawn(role, dir.path());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        while !lines.next().expect("the child goes on").expect("text").contains("took r-0") {}
        child.kill().expect("SIGKILL");
        child.wait().expect("it is dead");
    };
    let deaths = || engine.deaths("r-0").expect("a number");
    block_on(engine.enqueue(&submission(0))).expect("enqueue");
    assert_eq!(deaths(), 0);
    die("take-next");
    assert_eq!(deaths(), 1);
    die("take-again");
    assert_eq!(deaths(), 2);
    let session = engine.claim("r-0").expect("claim");
    assert_eq!(deaths(), 2, "it is alive");
    drop(session);
    assert_eq!(deaths(), 2);
    die("take-again");
    assert_eq!(deaths(), 3);
    let session = engine.claim("r-0").expect("claim");
    block_on(session.append(etude_runtime::conformance::record("a", "1"))).expect("append");
    assert_eq!(deaths(), 0, "it went on");
    drop(session);
    die("take-again");
    assert_eq!(deaths(), 1);
    // Records that a process writes because it has taken the run are no progress.
    for (record, expected) in [(of_clock(NOW, 1), 2), (of_resumed(&SlotForms::default(), 1), 3)] {
        let session = engine.claim("r-0").expect("claim");
        block_on(session.append(record)).expect("append");
        drop(session);
        die("take-again");
        assert_eq!(deaths(), expected);
    }
}

/// Takes a run that was begun before, and holds it.
pub(crate) fn take_again(dir: &Path) {
    let engine = open(dir, Sync::Normal);
    let taken = engine.take("r-0", &Limits::of_default_queue(1), NOW).expect("take").expect("there is room");
    println!("took {}", taken.run_id());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
