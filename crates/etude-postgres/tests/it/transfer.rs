//! Transfer of runs into and out of the database.

use etude_runtime::blob::put;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{ArchivedRun, Engine as _, Error, NewRun, Query, RunState, Signal, Stamp, Transfer as _};

use crate::open;
use crate::replies::behind_proxy;
use crate::server::Server;

/// K-64: a worker that has unknowingly lost its run to a move cannot write to it.
#[test]
fn a_session_whose_run_was_moved_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (crate::open(&server, "etude", dir.path()), crate::open(&server, "etude", dir.path()));
    for before in 0..3 {
        let id = format!("r-{before}");
        let stale = block_on(one.create(&new_run(&id, 1))).expect("create");
        for number in 0..before {
            block_on(stale.append(record(&format!("old-{number}"), "1"))).expect("append");
        }
        loop {
            let sql = format!("update etude.workers set lease_until = now() where worker = '{}'", one.worker());
            server.sql(&sql);
            let stamp = other.capture(&id).expect("capture").stamp;
            if other.move_away(&[stamp]).expect("move").is_empty() {
                break;
            }
        }
        for write in
            [block_on(stale.append(record("late", "1"))), block_on(stale.set_state(RunState::Failed, Some("{}")))]
        {
            assert!(matches!(&write, Err(Error::Overtaken { run }) if *run == id), "{write:?}");
        }
        drop(stale);
        let view = other.view(&id).expect("view");
        assert_eq!((view.row.state, view.records.len(), view.result), (RunState::Moved, before, None));
    }
}

/// K-8, K-65: a run is added and moved once, whichever reply is lost.
#[test]
fn a_lost_reply_adds_and_moves_a_run_once() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(crate::open(&server, "etude", dir.path()));
    let (proxy, engine) = behind_proxy(&server, dir.path());
    let mut lost = [0; 2];
    for replies in 0..16 {
        let run = ArchivedRun {
            run: new_run(&format!("r-{replies}"), 1),
            state: RunState::Waiting,
            started_at_ms: Some(1),
            changed_at_ms: 2,
            keys: Vec::new(),
            records: vec![record("a", "1"), record("b", "2")],
            signals: vec![Signal { key: "!cancel".to_owned(), body: "{}".to_owned() }],
            result: Some("{}".to_owned()),
            values: Vec::new(),
        };
        proxy.lose_after(replies);
        assert!(engine.admit(&run).expect("admit"), "{replies}");
        lost[0] += usize::from(proxy.has_lost());
        assert!(!engine.admit(&run).expect("admit"), "{replies}");
        let captured = engine.capture(&run.run.id).expect("capture");
        assert_eq!(captured.run, run);
        proxy.lose_after(replies);
        let others = engine.move_away(std::slice::from_ref(&captured.stamp)).expect("move");
        lost[1] += usize::from(proxy.has_lost());
        assert_eq!(others, [""; 0], "{replies}");
        let again = Stamp { state: RunState::Moved, ..captured.stamp };
        assert_eq!(engine.move_away(&[again]).expect("move"), [run.run.id.as_str()]);
    }
    assert!(lost.iter().all(|count| *count > 2), "few replies were lost: {lost:?}");
    assert_eq!(server.sql("select count(*) from etude.records where key <> '!claim'"), "32");
    assert_eq!(server.sql("select count(*) from etude.runs where state = 'moved'"), "16");
}

/// K-64: a run without a process can be moved in every unfinished state.
#[test]
fn runs_of_every_open_state_are_moved() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    for state in RunState::ALL.into_iter().filter(|state| !state.is_final() && *state != RunState::Moved) {
        let id = format!("r-{}", state.word());
        let session = block_on(engine.create(&new_run(&id, 1))).expect("create");
        drop(session);
        server.sql(&format!("update etude.runs set state = '{}', worker = null where id = '{id}'", state.word()));
        let stamp = engine.capture(&id).expect("capture").stamp;
        assert_eq!(engine.move_away(&[stamp]).expect("move"), [""; 0], "all of them are moved");
    }
}

/// K-48: a prune keeps the large input of an unfinished run, which only the run's header names, and removes it with the run.
#[test]
fn a_prune_leaves_the_input_of_a_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let keep = |bytes: &[u8]| put(&*engine.blobs(), bytes).expect("a value can be kept").0;
    let (input, _) = (keep(b"input"), keep(b"other"));
    let header = format!(r#"{{"v":1,"input_at":["{input}",5]}}"#);
    let session = block_on(engine.create(&NewRun { header, ..new_run("r-1", 1) })).expect("create");
    server.sql("update etude.blobs set uploaded_at = uploaded_at - interval '2 days'");
    let values = || server.sql("select encode(hash, 'hex') from etude.blobs").trim().to_owned();
    engine.prune(&Query::default()).expect("prune");
    assert_eq!(values(), input.to_string());
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
    drop(session);
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert_eq!(values(), "");
}
