//! A session that lost its run cannot write.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use etude_postgres::Postgres;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Fleet as _, Limits, Record, RunState, Session, Standing, Submission};

use crate::server::Server;

/// Ends the lease of a worker and takes its run with another engine, before the worker's next beat.
fn take_over(server: &Server, schema: &str, from: &Postgres, by: &Postgres, run: &str) -> Box<dyn Session> {
    loop {
        let sql = format!("update {schema}.workers set lease_until = now() where worker = '{}'", from.worker());
        server.sql(&sql);
        match by.claim(run) {
            Ok(session) => return session,
            Err(Error::Busy { .. }) => {}
            Err(cause) => panic!("{cause}"),
        }
    }
}

fn keys(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.key.as_str()).collect()
}

/// The position fences, not the lease: the first session never learns that its lease is over. This holds for runs with
/// and without records.
#[test]
fn a_session_whose_run_was_taken_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (crate::open(&server, "etude", dir.path()), crate::open(&server, "etude", dir.path()));
    for before in 0..3 {
        let id = format!("r-{before}");
        let stale = block_on(one.create(&new_run(&id, 1))).expect("create");
        for number in 0..before {
            block_on(stale.append(record(&format!("old-{number}"), "1"))).expect("append");
        }
        let session = take_over(&server, "etude", &one, &other, &id);
        let append = block_on(stale.append(record("late", "1")));
        assert!(matches!(&append, Err(Error::Overtaken { run }) if *run == id), "{append:?}");
        block_on(session.append(record("new", "2"))).expect("the new one has it");
        for write in
            [block_on(stale.append(record("later", "1"))), block_on(stale.set_state(RunState::Failed, Some("{}")))]
        {
            assert!(matches!(&write, Err(Error::Overtaken { run }) if *run == id), "{write:?}");
        }
        drop(stale);
        assert!(one.row(&id).expect("row").is_live, "the end of the old session is not that of the new one");
        block_on(session.set_state(RunState::Succeeded, Some("[]"))).expect("set_state");
        let view = one.view(&id).expect("view");
        let mut expected: Vec<String> = (0..before).map(|number| format!("old-{number}")).collect();
        expected.push("new".to_owned());
        assert_eq!(keys(&view.records), expected);
        assert_eq!((view.row.state, view.result.as_deref()), (RunState::Succeeded, Some("[]")));
    }
}

/// K-24: after a failover that lost acknowledged records, here removed with SQL, their session appends neither to the
/// gap nor to the records that another session has put in their place.
#[test]
fn a_session_whose_records_were_lost_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (crate::open(&server, "etude", dir.path()), crate::open(&server, "etude", dir.path()));
    let first = block_on(one.create(&new_run("r-1", 1))).expect("create");
    for key in ["a", "b", "c"] {
        block_on(first.append(record(key, "1"))).expect("append");
    }
    let session = take_over(&server, "etude", &one, &other, "r-1");
    block_on(session.append(record("lost", "1"))).expect("append");
    server.sql("delete from etude.records where seq > 3");
    let append = block_on(session.append(record("after the gap", "1")));
    assert!(matches!(append, Err(Error::Gap { position: 3, .. })), "{append:?}");
    let next = take_over(&server, "etude", &other, &one, "r-1");
    block_on(next.append(record("d", "1"))).expect("append");
    let append = block_on(session.append(record("late", "1")));
    assert!(matches!(append, Err(Error::Overtaken { .. })), "{append:?}");
    assert_eq!(keys(&next.records().expect("records")), ["a", "b", "c", "d"]);
}

/// K-9, K-10: records of one run by two sessions of one worker, written in one group, have ends of their own.
#[test]
fn two_sessions_of_a_run_in_one_group_have_their_own_ends() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = crate::open(&server, "etude", dir.path());
    let stale = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    server.sql("update etude.runs set worker = null where id = 'r-1'");
    let session = engine.claim("r-1").expect("no worker has it");
    let others: Vec<_> =
        (0..8).map(|at| block_on(engine.create(&new_run(&format!("o-{at}"), 1))).expect("create")).collect();
    for round in 0..40 {
        // While the first records are written, the others become one group.
        let first: Vec<_> = others.iter().map(|other| other.append(record("main", "1"))).collect();
        let (late, next) = (stale.append(record("late", "1")), session.append(record(&round.to_string(), "1")));
        let (late, next) = (block_on(late), block_on(next));
        assert!(matches!(late, Err(Error::Overtaken { .. })), "{round}: {late:?}");
        next.expect("it has the run");
        first.into_iter().for_each(|append| block_on(append).expect("append"));
    }
    let expected: Vec<String> = (0..40).map(|round| round.to_string()).collect();
    assert_eq!(keys(&session.records().expect("records")), expected);
}

/// K-9: a record is written even if its caller stops waiting, and the next record of the session comes after it.
#[test]
fn an_append_is_finished_without_its_caller() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = crate::open(&server, "etude", dir.path());
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    for round in 0..10 {
        drop(session.append(record(&format!("{round}-dropped"), "1")));
        let (one, other) = (session.append(record(&format!("{round}-one"), "1")), session.append(record("x", "1")));
        block_on(other).expect("append");
        block_on(one).expect("append");
    }
    let records = session.records().expect("records");
    let mut there = keys(&records);
    assert_eq!(there.len(), 30);
    there.retain(|key| *key != "x");
    let written = |round: usize| there.iter().filter(|key| key.starts_with(&format!("{round}-"))).count();
    assert!((0..10).all(|round| written(round) == 2), "{there:?}");
    let sql = "select count(*) from etude.records where seq > 30";
    assert_eq!(server.sql(sql), "0", "positions have no gaps");
}

/// K-4.
#[test]
fn one_of_many_claimants_gets_a_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..8).map(|_| crate::open(&server, "etude", dir.path())).collect();
    drop(block_on(engines[0].create(&new_run("r-1", 1))).expect("create"));
    for _ in 0..5 {
        let claims: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = engines.iter().map(|engine| scope.spawn(|| engine.claim("r-1"))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let winners: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].is_ok()).collect();
        assert_eq!(winners.len(), 1);
        let name = engines[winners[0]].worker();
        for claim in claims.iter().filter_map(|claim| claim.as_ref().err()) {
            let Error::Busy { holder: Some(holder), .. } = claim else { panic!("{claim}") };
            assert_eq!(holder.name, name);
        }
    }
}

/// K-28: the rows of a submission become visible together.
#[test]
fn a_queued_run_is_there_when_it_is_found() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (crate::open(&server, "etude", dir.path()), crate::open(&server, "etude", dir.path()));
    const RUNS: usize = 40;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..RUNS {
                let run = new_run(&format!("r-{number}"), 1);
                let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
                block_on(one.enqueue(&submission)).expect("enqueue");
            }
        });
        let mut begun = 0;
        while begun < RUNS {
            let next = other.next(&Limits::of_default_queue(1), i64::MAX).expect("the queue can be read");
            let Some(session) = next else { continue };
            assert!(session.run().header.contains(session.run_id()));
            block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
            begun += 1;
        }
    });
}

/// An engine with short leases, which are lost while the database is silent for longer.
fn hasty(server: &Server, cache: &Path) -> Postgres {
    drop(crate::open(server, "etude", cache));
    let mut settings = crate::settings(server, "etude", cache);
    settings.times.beat = Duration::from_millis(100);
    settings.times.lease = Duration::from_millis(700);
    Postgres::open(settings).expect("the engine can be opened")
}

/// Waits until the condition holds.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// K-5: a worker that has lost all of its runs takes others later, in each of the ways.
#[test]
fn a_run_that_is_taken_after_a_lapse_is_held() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = hasty(&server, dir.path());
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    wait_until("the lease is held", || engine.health().standing == Standing::Held);
    server.freeze(true);
    wait_until("the lease lapses", || matches!(session.check_lease(), Err(Error::Lapsed { .. })));
    server.freeze(false);
    wait_until("a heartbeat is answered", || engine.health().standing == Standing::Held);
    assert!(matches!(session.check_lease(), Err(Error::Lapsed { .. })));
    drop(session);
    let lapses = engine.health().lapses;
    let session = engine.take("r-1", &Limits::of_default_queue(9), 1).expect("take").expect("there is room");
    let (lease, append) = (session.check_lease(), block_on(session.append(record("a", "1"))));
    // Another lapse can only come from a slow machine.
    if engine.health().lapses == lapses {
        lease.expect("it is held");
        append.expect("append");
    }
}

/// K-19: a thread that reads from a silent database waits at most while the lease holds.
#[test]
fn a_read_from_a_silent_database_ends_with_the_lease() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = hasty(&server, dir.path());
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    wait_until("the lease is held", || engine.health().standing == Standing::Held);
    server.freeze(true);
    let (signals, records) = (session.signals(), session.records());
    server.freeze(false);
    assert!(matches!(signals, Err(Error::Lapsed { .. })), "{signals:?}");
    assert!(matches!(records, Err(Error::Lapsed { .. })), "{records:?}");
}
