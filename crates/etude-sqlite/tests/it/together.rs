//! Writes of many runs together.

use std::path::Path;
use std::sync::Arc;

use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Record, RunState, Session};
use etude_sqlite::{Sqlite, Sync};

use crate::open;

const RUNS: usize = 16;
const RECORDS: usize = 10;

fn sessions(engine: &Sqlite) -> Vec<Arc<dyn Session>> {
    let runtime = runtime();
    let create = |run| {
        let run = new_run(&format!("r-{run}"), 1);
        runtime.block_on(async { engine.create(&run).await.expect("create") })
    };
    (0..RUNS).map(|run| Arc::from(create(run))).collect()
}

fn of(run: usize, at: usize) -> Record {
    let mut record = record(&format!("s{at}"), &format!("{run}"));
    if at == 3 {
        record.blobs.push(etude_core::digest::Digest::of(b"shared"));
    }
    record
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

/// The results of concurrent appends, for each session.
fn append(sessions: &[Arc<dyn Session>], count: usize) -> Vec<Result<(), Error>> {
    runtime().block_on(async {
        let one = |(run, session): (usize, &Arc<dyn Session>)| {
            let session = Arc::clone(session);
            tokio::spawn(async move {
                for at in 0..count {
                    session.append(of(run, at)).await?;
                }
                Ok(())
            })
        };
        let tasks: Vec<_> = sessions.iter().enumerate().map(one).collect();
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(task.await.expect("no panic"));
        }
        ends
    })
}

/// The number of transactions in the write-ahead log: frames that contain the size of the database after them.
fn transactions(dir: &Path) -> usize {
    let log = std::fs::read(dir.join("journal.db-wal")).expect("a log");
    log[32..].chunks(24 + 4_096).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[test]
fn many_runs_write_together_and_each_keeps_its_own() {
    for sync in [Sync::Normal, Sync::Strict] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = open(dir.path(), sync);
        let sessions = sessions(&engine);
        let before = transactions(dir.path());
        for end in append(&sessions, RECORDS) {
            end.expect("it is written");
        }
        let wrote = transactions(dir.path()) - before;
        assert!(wrote < RUNS * RECORDS, "{wrote} transactions for {} records", RUNS * RECORDS);
        for (run, session) in sessions.iter().enumerate() {
            block_on(session.append(of(run, RECORDS))).expect("alone again");
            let expected: Vec<Record> = (0..=RECORDS).map(|at| of(run, at)).collect();
            assert_eq!(session.records().expect("records"), expected);
        }
    }
}

/// Makes another process take a run, as if file locks did not work.
fn overtake(dir: &Path, id: &str) {
    let connection = rusqlite::Connection::open(dir.join("journal.db")).expect("it opens");
    connection.execute("update runs set epoch = epoch + 1 where id = ?1", [id]).expect("sql");
}

/// Runs that begin and end together have the same content as single runs.
#[test]
fn many_runs_are_created_and_end_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let sessions = sessions(&engine);
    let runtime = runtime();
    let again = |id: &str| runtime.block_on(async { engine.create(&new_run(id, 1)).await.map(|_| ()) });
    assert!(matches!(again("r-15"), Err(Error::Exists(id)) if id == "r-15"));
    let large = format!("\"{}\"", "x".repeat(300_000));
    let results = [(0, RunState::Succeeded, "{}"), (1, RunState::Waiting, "[1]"), (2, RunState::Failed, &*large)];
    let rows = [(false, RunState::Succeeded), (true, RunState::Waiting), (false, RunState::Failed)];
    for ((run, state, result), row) in results.into_iter().zip(rows) {
        runtime.block_on(sessions[run].set_state(state, Some(result))).expect("it is written");
        let view = engine.view(&format!("r-{run}")).expect("view");
        assert_eq!((view.row.is_live, view.row.state), row);
        assert_eq!(view.result.as_deref(), Some(result));
    }
    overtake(dir.path(), "r-3");
    let refused = runtime.block_on(sessions[3].set_state(RunState::Failed, None));
    assert!(matches!(refused, Err(Error::Overtaken { .. })), "{refused:?}");
}

/// An overtaken session gets an error; sessions that wrote with it are not affected.
#[test]
fn who_lost_a_run_writes_nothing_and_hinders_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let sessions = sessions(&engine);
    overtake(dir.path(), "r-3");
    for (run, end) in append(&sessions, RECORDS).into_iter().enumerate() {
        assert_eq!(matches!(end, Err(Error::Overtaken { .. })), run == 3, "{run}: {end:?}");
        assert_eq!(sessions[run].records().expect("records").len(), if run == 3 { 0 } else { RECORDS });
    }
}

/// If a group cannot be written, every member gets the error, and none waits forever.
#[test]
fn a_group_that_fails_fails_for_all_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let sessions = sessions(&engine);
    let connection = rusqlite::Connection::open(dir.path().join("journal.db")).expect("it opens");
    connection.execute_batch("alter table records rename to elsewhere").expect("sql");
    for end in append(&sessions, RECORDS) {
        let Err(Error::Store { why, .. }) = end else { panic!("{end:?}") };
        assert!(why.contains("no such table"), "{why}");
    }
    connection.execute_batch("alter table elsewhere rename to records").expect("sql");
    for end in append(&sessions, RECORDS) {
        end.expect("it is written, in its place");
    }
    assert_eq!(sessions[5].records().expect("records").len(), RECORDS);
}
