//! Claims of workers, suspended runs, and the census.

use std::io::Write as _;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_postgres::{Postgres, Settings};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    Census, Engine as _, Enqueued, Error, Fleet as _, Limits, Placement, Profile, Query, RunState, Session, Signal,
    Submission, Takes, WorkerState,
};

use crate::server::Server;
use crate::{open, settings};

/// A worker of the queue `default`.
pub(crate) fn join(engine: &Postgres) {
    let queues = vec!["default".to_owned()];
    engine
        .join(&Profile { version: "1".to_owned(), abi: 1, queues, places: 2, has_sandbox: true })
        .expect("a worker joins");
}

pub(crate) fn limits() -> Limits {
    Limits { queue: "default".to_owned(), max_runs: u32::MAX, takes: Takes::Bundles }
}

pub(crate) fn submit(engine: &Postgres, id: &str, at: i64, placement: Placement) {
    let mut run = new_run(id, at);
    run.placement = Placement { bundle: Some(Digest::of(b"app")), ..placement };
    run.abi = 1;
    let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
    assert_eq!(block_on(engine.enqueue(&submission)).expect("enqueue"), Enqueued::Accepted);
}

/// The statement of a claim from the queue `default` by a worker, with its values.
pub(crate) fn statement(worker: &str) -> String {
    statement_of(worker, "array[7]")
}

/// The same statement for several sessions.
pub(crate) fn statement_of(worker: &str, sessions: &str) -> String {
    let (worker, sessions) = (format!("'{worker}'::text"), format!("{sessions}::bigint[]"));
    let values = ["'default'", &sessions, &worker, "1::bigint", "''::bytea", "true"];
    let claim = etude_postgres::claim_statement();
    (1..).zip(values).fold(claim, |sql, (at, value)| sql.replace(&format!("${at}"), value))
}

/// Result of `other`, which runs while the claim `statement` of another worker is uncommitted: it waits for the commit.
pub(crate) fn during_claim<T: Send>(server: &Server, statement: &str, other: impl FnOnce() -> T + Send) -> T {
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    // The name shows that the claim is made: workers have transactions of their own.
    let claim = statement.replace('\n', " ");
    writeln!(stdin, "set search_path = etude; begin; {claim}; set application_name = 'claimed';").expect("it listens");
    let since = Instant::now();
    let wait_for = |sql: &str| {
        while server.sql(sql) != "t" {
            assert!(since.elapsed() < Duration::from_secs(60), "{sql}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("select exists (select 1 from pg_stat_activity where application_name = 'claimed')");
    let claimed = std::thread::scope(|scope| {
        let claimed = scope.spawn(other);
        wait_for("select exists (select 1 from pg_locks where locktype = 'advisory' and not granted)");
        writeln!(stdin, "commit;").expect("it listens");
        claimed.join().expect("no panic")
    });
    drop(stdin);
    psql.wait().expect("it ends");
    claimed
}

fn next(engine: &Postgres) -> Option<String> {
    engine.next(&limits(), 0).expect("next").map(|session| session.run_id().to_owned())
}

/// K-30: the lower rank comes first, regardless of age; a run whose time has not come does not block others. K-62:
/// neither does a run of another version of the interpreter.
#[test]
fn claims_follow_the_rank() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    submit(&engine, "old", 1_000, Placement::default());
    submit(&engine, "young", 2_000, Placement::default());
    submit(&engine, "urgent", 3_000, Placement { priority: 1, ..Placement::default() });
    submit(&engine, "later", 1, Placement { not_before_ms: Some(i64::MAX / 2), ..Placement::default() });
    submit(&engine, "other", 1, Placement::default());
    server.sql("update etude.queue set abi = 2 from etude.runs where runs.run = queue.run and id = 'other'");
    let claimed: Vec<_> = std::iter::from_fn(|| next(&engine)).collect();
    assert_eq!(claimed, ["urgent", "old", "young"]);
    let Census { queues, .. } = engine.census().expect("census");
    let [queue] = &queues[..] else { panic!("{queues:?}") };
    assert_eq!((queue.depth, queue.sleeping, queue.unclaimable), (1, 1, 1));
}

/// K-30: one claim takes several runs, in their order, and at most the requested number; each has a session of its own.
#[test]
fn a_claim_takes_the_first_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    for at in 0..14 {
        submit(&engine, &format!("r-{at}"), 100 - at, Placement::default());
    }
    let few = |count| engine.next_few(&limits(), count, 0).expect("next");
    let ids = |few: &[Box<dyn Session>]| few.iter().map(|one| one.run_id().to_owned()).collect::<Vec<_>>();
    let first = few(3);
    assert_eq!(ids(&first), ["r-13", "r-12", "r-11"]);
    assert!(few(0).is_empty());
    // A statement takes at most ten.
    assert_eq!(ids(&few(99)), (1..=10).rev().map(|at| format!("r-{at}")).collect::<Vec<_>>());
    assert_eq!(ids(&few(99)), ["r-0"]);
    assert!(few(99).is_empty());
    for session in &first {
        block_on(session.append(record("main/a", "1"))).expect("append");
    }
    assert_eq!(server.sql("select count(distinct session) from etude.runs"), "14");
    assert_eq!(engine.health().figures.claims["default"], 14);
}

/// K-30, K-32, K-60: a run that a draining worker hands over keeps its place in the queue, and counts for its depth. A
/// run that stopped on a worker that keeps running does not return to it at once.
#[test]
fn a_run_that_is_handed_over_keeps_its_place() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    join(&one);
    join(&other);
    for (at, id) in [(1_000, "old"), (2_000, "stopped"), (3_000, "young")] {
        submit(&one, id, at, Placement::default());
    }
    let mut taken = one.next_few(&limits(), 2, 0).expect("next").into_iter();
    let (old, stopped) = (taken.next().expect("a run"), taken.next().expect("a run"));
    drop(stopped);
    assert_eq!(server.sql("select count(*) from etude.queue"), "1");
    one.retire();
    drop(old);
    let Census { queues, .. } = other.census().expect("census");
    assert_eq!(queues.iter().map(|queue| queue.depth).collect::<Vec<_>>(), [2]);
    assert_eq!(std::iter::from_fn(|| next(&other)).collect::<Vec<_>>(), ["old", "young"]);
    assert!(other.dead_workers("old").expect("known").is_empty());
}

/// K-13: no worker takes a run whose large values cannot be reached before the end of a delay, which doubles with each
/// claim since its last record, by any worker. A signal ends the delay (K-40).
#[test]
fn a_run_whose_values_are_away_is_taken_later() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    join(&one);
    join(&other);
    submit(&one, "r-1", 1, Placement::default());
    let number = |sql: &str| server.sql(sql).trim().parse::<i64>().expect("a number");
    let due = || number("select not_before_ms from etude.queue");
    // Releases the run. The delay begins during the release, however long that takes.
    let stop = |session: Box<dyn Session>, delay_ms: i64| {
        let before = number("select etude.now_ms()");
        session.postpone();
        drop(session);
        let after = number("select etude.now_ms()");
        assert!((before + delay_ms..=after + delay_ms).contains(&due()), "{before} {} {after}", due());
        for engine in [&one, &other] {
            assert!(engine.next(&limits(), 0).expect("next").is_none());
            assert!(engine.take("r-1", &limits(), 0).expect("take").is_none());
        }
    };
    let end_delay = || server.sql("update etude.queue set not_before_ms = 0, is_asleep = false");
    let take = |engine: &Postgres| engine.next(&limits(), 0).expect("next").expect("the run");
    stop(take(&one), 5_000);
    assert_eq!(one.row("r-1").expect("a row").state, RunState::Running);
    end_delay();
    stop(take(&other), 10_000);
    end_delay();
    stop(take(&one), 20_000);
    server.sql("update etude.runs set epoch = epoch + 1");
    server.sql(
        "insert into etude.records (run, seq, session, key, request, body)
         select run, (select max(seq) from etude.records) + n, session, '!claim', '', '' from etude.runs, generate_series(1, 40) n",
    );
    end_delay();
    stop(take(&other), 300_000);
    let signal = Signal { key: "!cancel/1".to_owned(), body: "{}".to_owned() };
    one.signal("r-1", &signal).expect("signal");
    let session = take(&one);
    block_on(session.append(record("main/a", "1"))).expect("append");
    session.signals().expect("signals");
    stop(session, 5_000);
    end_delay();
    // A signal that came while the run stopped is read soon.
    let session = take(&other);
    one.signal("r-1", &Signal { key: "!kill/1".to_owned(), body: "{}".to_owned() }).expect("signal");
    session.postpone();
    drop(session);
    drop(take(&one));
}

/// A-5.6: the owner of a run replaces its app, and the next owner finds the new one. A session that lost the run
/// changes nothing.
#[test]
fn a_run_takes_another_app() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    join(&one);
    join(&other);
    submit(&one, "r-1", 1, Placement::default());
    let session = one.claim("r-1").expect("a claim");
    let repaired = Digest::of(b"repaired");
    block_on(session.set_bundle(repaired)).expect("it has the run");
    assert!(other.next(&limits(), 0).expect("next").is_none(), "it is held");
    drop(session);
    let late = other.next(&limits(), 0).expect("next").expect("the run");
    assert_eq!(late.run().placement.bundle, Some(repaired));
    server.sql("update etude.runs set worker = null, epoch = epoch + 1, session = 1");
    let overtaken = block_on(late.set_bundle(Digest::of(b"app")));
    assert!(matches!(overtaken, Err(Error::Overtaken { .. })), "{overtaken:?}");
    assert_eq!(one.row("r-1").expect("a row").placement.bundle, Some(repaired));
}

/// Many queued runs, in a database whose server has not analysed the tables.
pub(crate) fn crowd(server: &Server) {
    server.sql(
        "set search_path = etude;
         insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms)
            select 'r-' || n, '/a', 'p', 1, 'queued', 0, n, n, n from generate_series(1, 50000) n;
         insert into queue (queue, rank, run, not_before_ms, abi, is_bundled)
            select 'default', 100000 - run, run, 0, 1, true from runs",
    );
}

/// K-31: the plan of a claim is a scan of an index, without a sort, regardless of the server's statistics.
pub(crate) fn check_plan_of_claim(server: &Server, role: &str) {
    let (settings, claim) = (etude_postgres::session_settings(), etude_postgres::claim_statement());
    for looks in ["", "analyze"] {
        server.sql(looks);
        let plan = server.sql_as(
            role,
            &format!(
                "set search_path = etude; {settings}; prepare claim (text, bigint[], text, bigint, bytea, boolean) as {claim};
                 explain execute claim ('default', array[7, 8], 'w', 1, '', true)"
            ),
        );
        let plan = plan.expect("a plan");
        // K-62: the scan begins at the first run of the worker's version.
        let mut lines = plan.lines().skip_while(|line| !line.contains("Scan using queue_ready"));
        let (scan, condition) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        assert!(scan.contains("Index") && condition.contains("Index Cond") && condition.contains("abi"), "{plan}");
        assert!(!["Sort", "Seq Scan", "Bitmap", "own_tenant"].iter().any(|part| plan.contains(part)), "{plan}");
    }
}

/// K-31.
#[test]
fn a_claim_among_many_needs_no_sort() {
    let Some(server) = Server::start_with(&["autovacuum=off"], &[]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    crowd(&server);
    check_plan_of_claim(&server, "etude");
}

/// K-39 to K-41: a signal for a suspended run puts it into the queue in the same transaction. A signal from before the
/// suspension is not lost, and a signal that the run has read does not wake it.
#[test]
fn a_signal_wakes_a_suspended_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    let signal = |key: &str| Signal { key: key.to_owned(), body: "{}".to_owned() };
    submit(&engine, "r-1", 1, Placement::default());
    let session = engine.next(&limits(), 0).expect("next").expect("a run");
    block_on(session.append(record("main/a", "1"))).expect("append");
    block_on(session.suspend(RunState::Waiting, None, "{}")).expect("suspend");
    drop(session);
    assert_eq!((engine.row("r-1").expect("row").state, next(&engine)), (RunState::Waiting, None));
    engine.signal("r-1", &signal("a")).expect("signal");
    let session = engine.next(&limits(), 0).expect("next").expect("it was woken");
    assert_eq!(engine.row("r-1").expect("row").state, RunState::Running);
    // The signal is read, so the run stays suspended.
    assert_eq!(session.signals().expect("signals").len(), 1);
    block_on(session.suspend(RunState::Waiting, None, "{}")).expect("suspend");
    drop(session);
    assert_eq!(next(&engine), None);
    engine.signal("r-1", &signal("b")).expect("signal");
    let session = engine.next(&limits(), 0).expect("next").expect("it was woken");
    // The signal is not read before the suspension.
    engine.signal("r-1", &signal("c")).expect("signal");
    block_on(session.suspend(RunState::Waiting, None, "{}")).expect("suspend");
    drop(session);
    assert_eq!(next(&engine).as_deref(), Some("r-1"));
}

/// K-13, K-32: a run that was woken and then taken outside the queue does not block the runs behind it, leaves the
/// queue once it runs, and is not claimed again when it is over.
#[test]
fn a_run_that_is_driven_is_in_no_queue() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (worker, other) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    join(&worker);
    submit(&worker, "woken", 1, Placement::default());
    let session = worker.next(&limits(), 0).expect("next").expect("a run");
    block_on(session.suspend(RunState::Waiting, None, "{}")).expect("suspend");
    drop(session);
    worker.signal("woken", &Signal { key: "a".to_owned(), body: "{}".to_owned() }).expect("signal");
    let session = other.take("woken", &limits(), 2).expect("take").expect("there is room");
    submit(&worker, "behind", 2, Placement::default());
    let behind = worker.next(&limits(), 0).expect("next").expect("nothing is in its way");
    assert_eq!(behind.run_id(), "behind");
    block_on(session.set_state(RunState::Running, None)).expect("set_state");
    assert_eq!(server.sql("select count(*) from etude.queue"), "0");
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
    drop(session);
    // The row is in the form of an earlier version.
    server.sql(
        "insert into etude.queue (queue, rank, run, not_before_ms, abi, is_bundled)
         select queue, 0, run, 0, abi, true from etude.runs where id = 'woken'",
    );
    assert_eq!(next(&worker), None);
    assert_eq!(worker.row("woken").expect("row").state, RunState::Succeeded);
}

/// K-13: a run that was put back into the queue and taken over meanwhile is not claimed a second time, not even by the
/// same worker.
#[test]
fn a_run_that_was_taken_over_is_not_claimed_again() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let worker = open(&server, "etude", dir.path());
    join(&worker);
    submit(&worker, "r-1", 1, Placement::default());
    drop(worker.next(&limits(), 0).expect("next").expect("a run"));
    let ready = || server.sql("select count(*) from etude.queue");
    block_on(worker.requeue("r-1", 0)).expect("requeue");
    assert_eq!(ready(), "1");
    let session = worker.claim("r-1").expect("it is free");
    assert_eq!((ready().as_str(), next(&worker)), ("0", None));
    // The row appears as if it had been put back at the same moment.
    server.sql(
        "insert into etude.queue (queue, rank, run, not_before_ms, abi, is_bundled)
         select queue, 0, run, 0, abi, true from etude.runs",
    );
    assert_eq!(next(&worker), None);
    block_on(session.append(record("main/a", "1"))).expect("it still has the run");
}

/// K-25: the clock of another machine never decides when a run begins, the order of runs, or the end of a queue timeout.
#[test]
fn only_the_clock_of_the_database_counts() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    let usual = settings(&server, "etude", dir.path());
    let engine = Postgres::open(Settings { has_callers_clock: false, ..usual }).expect("an engine");
    let year = 365 * 86_400_000;
    let now: i64 = server.sql("select etude.now_ms()").parse().expect("a number");
    // Of three submitters, the clock of the first is ahead and the clock of the last is behind.
    for (id, at) in [("a", now + year), ("b", now), ("c", now - year)] {
        submit(&engine, id, at, Placement { queue_timeout_ms: Some(3_600_000), ..Placement::default() });
    }
    for clock in [0, now + 10 * year] {
        assert!(engine.expired(clock).expect("expired").is_empty(), "{clock}");
    }
    assert!(engine.is_waiting(&limits(), 0).expect("is_waiting"));
    let any = Limits { takes: Takes::Any, ..limits() };
    let session = engine.next(&any, 0).expect("next").expect("it is due");
    assert_eq!((session.run_id(), session.began_at_ms() >= now), ("a", true));
    assert_eq!((next(&engine).as_deref(), next(&engine).as_deref()), (Some("b"), Some("c")));
}

/// S-96: a run that is moved away at the moment of its expiry keeps no other run from expiring.
#[test]
fn a_moved_run_keeps_no_other_from_expiring() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    for (id, at) in [("moved", 1), ("over", 2)] {
        submit(&engine, id, at, Placement { queue_timeout_ms: Some(10), ..Placement::default() });
    }
    // Its row of the queue is as it was read before the move.
    server.sql("update etude.runs set state = 'moved' where id = 'moved'");
    let over = engine.expired(1_000).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["over"]);
}

/// S-96: a damaged run keeps no other run from expiring, and is reported when it is the only one left.
#[test]
fn a_damaged_run_keeps_no_other_from_expiring() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    for (id, at) in [("damaged", 1), ("over", 2)] {
        submit(&engine, id, at, Placement { queue_timeout_ms: Some(10), ..Placement::default() });
    }
    server.sql(r"update etude.headers set body = '\xff' where run = (select run from etude.runs where id = 'damaged')");
    let over = engine.expired(1_000).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["over"]);
    assert!(engine.expired(1_000).is_err());
}

/// S-84: damaged runs keep no other run waiting in the queue, neither those of the same claim nor later ones, and are reported
/// when no other is left.
#[test]
fn damaged_runs_keep_no_other_waiting() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    let damage = |of: &str| {
        server.sql(&format!(
            r"update etude.headers set body = '\xff' where run in (select run from etude.runs where id = '{of}-1')"
        ));
        server.sql(&format!("delete from etude.headers where run in (select run from etude.runs where id = '{of}-2')"));
        server.sql(&format!("update etude.runs set labels = '{{' where id = '{of}-3'"));
    };
    let ids = |few: &[Box<dyn Session>]| few.iter().map(|one| one.run_id().to_owned()).collect::<Vec<_>>();
    for at in 1..=5 {
        submit(&engine, &format!("w-{at}"), at, Placement::default());
    }
    damage("w");
    let claimed = engine.next_few(&limits(), 4, 0).expect("next");
    assert_eq!(ids(&claimed), ["w-4"]);
    assert_eq!(next(&engine).as_deref(), Some("w-5"));
    for at in 1..=4 {
        let submission =
            Submission { run: new_run(&format!("s-{at}"), at), keys: Vec::new(), max_queued: None, needs_room: false };
        assert_eq!(block_on(engine.enqueue(&submission)).expect("enqueue"), Enqueued::Accepted);
    }
    damage("s");
    let any = Limits { takes: Takes::Any, ..limits() };
    let claimed = engine.next_few(&any, 4, 1_000).expect("next");
    assert_eq!(ids(&claimed), ["s-4"]);
    let failed = engine.next_few(&any, 4, 1_000).expect_err("only damaged ones are left").to_string();
    assert!(failed.contains("the header of the run `s-1`"), "{failed}");
    // The refused runs are as they were.
    assert_eq!(
        server.sql("select count(*) from etude.runs where id like 's-%' and epoch = 0 and state = 'queued'"),
        "3"
    );
}

/// ADR 0188: a list leaves out runs whose rows cannot be read, has as many others as it may, and reports the damaged ones.
#[test]
fn a_list_leaves_out_damaged_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    for at in 1..=5 {
        submit(&engine, &format!("r-{at}"), at, Placement::default());
    }
    server.sql("update etude.runs set cause = 'x' where id in ('r-4', 'r-3'); update etude.runs set state = 'x' where id = 'r-1'");
    let ids = |limit| {
        let rows = engine.list(&Query { limit, ..Query::default() }).expect("list");
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((ids(None), ids(Some(2)), ids(Some(3))), (vec!["r-5".into(), "r-2".into()], ids(None), ids(None)));
    assert_eq!(engine.counts(&Query::default()).expect("counts").queued, 4);
    let damaged = engine.damaged();
    assert_eq!(damaged.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["r-1", "r-3", "r-4"]);
    assert!(damaged[0].why.contains("`x` is not a run state"), "{damaged:?}");
}

/// K-42: a deadline wakes a suspended run by the clock of the database, with no process that waits for it.
#[test]
fn a_deadline_wakes_a_suspended_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    submit(&engine, "r-1", 1, Placement::default());
    let session = engine.next(&limits(), 0).expect("next").expect("a run");
    let now: i64 = server.sql("select etude.now_ms()").parse().expect("a number");
    block_on(session.suspend(RunState::Waiting, Some(now + 3_600_000), "{}")).expect("suspend");
    drop(session);
    assert_eq!((next(&engine), server.sql("select is_asleep from etude.queue").as_str()), (None, "t"));
    server.sql("update etude.queue set not_before_ms = 1");
    let since = std::time::Instant::now();
    let woken = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(20));
        (since.elapsed() < Duration::from_secs(60)).then(|| next(&engine))
    });
    assert_eq!(woken.flatten().next().as_deref(), Some("r-1"));
}

/// K-60: workers are listed with their profiles, and are lost when their lease is over. K-35: the names of dead workers
/// are kept.
#[test]
fn workers_and_their_deaths_are_seen() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let second = open(&server, "etude", dir.path());
    // A later heartbeat would show that the worker lives.
    let mut quiet = settings(&server, "etude", dir.path());
    (quiet.times.lease, quiet.times.beat) = (Duration::from_secs(10_800), Duration::from_secs(3600));
    let first = Postgres::open(quiet).expect("an engine");
    join(&first);
    submit(&first, "r-1", 1, Placement::default());
    let held = first.next(&limits(), 0).expect("next").expect("a run");
    let workers = second.census().expect("census").workers;
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!((worker.name.as_str(), worker.state, worker.places), (first.worker(), WorkerState::Live, 2));
    // The run was claimed after the last heartbeat.
    assert_eq!(worker.live, 1);
    assert_eq!((worker.pid, worker.queues.join(",")), (std::process::id(), "default".to_owned()));
    let queues = second.census().expect("census").queues;
    assert_eq!(queues.iter().map(|queue| (queue.depth, queue.live)).collect::<Vec<_>>(), [(0, 1)]);
    // The heartbeat of joining is the last one.
    let since = std::time::Instant::now();
    while server.sql("select beat_at > started_at + interval '10 milliseconds' from etude.workers") != "t" {
        assert!(since.elapsed() < Duration::from_secs(60), "no heartbeat came");
    }
    // The worker appears to have died long ago.
    server.sql("update etude.workers set lease_until = clock_timestamp() - interval '1 second', lock = 1");
    let census = second.census().expect("census");
    assert_eq!(census.workers[0].state, WorkerState::Lost);
    // Its run waits for another worker, and counts until that worker has it (K-33).
    let [queue] = &census.queues[..] else { panic!("{:?}", census.queues) };
    assert_eq!((queue.depth, queue.live, queue.oldest_age_ms.is_some()), (1, 1, true));
    assert_eq!(census.workers[0].live, 1);
    // A released run counts too, if no worker is left that could take it.
    server.sql("update etude.runs set worker = null");
    let Census { workers, queues } = second.census().expect("census");
    assert_eq!(workers[0].live, 0);
    assert_eq!(queues.iter().map(|queue| (queue.depth, queue.live)).collect::<Vec<_>>(), [(1, 0)]);
    server.sql(&format!("update etude.runs set worker = '{}'", first.worker()));
    assert_eq!(
        (second.deaths("r-1").expect("deaths"), second.dead_workers("r-1").expect("names")),
        (1, vec![first.worker().to_owned()])
    );
    let taken = second.claim("r-1").expect("it is free");
    assert_eq!((taken.taken_from(), second.health().figures.takeovers), (Some(first.worker()), 1));
    assert_eq!(second.dead_workers("r-1").expect("names"), [first.worker()]);
    // A sign of life is not progress.
    block_on(taken.append(record("!clock", "1"))).expect("append");
    assert_eq!(second.dead_workers("r-1").expect("names"), [first.worker()]);
    block_on(taken.append(record("main/a", "1"))).expect("append");
    assert_eq!((second.deaths("r-1").expect("deaths"), second.dead_workers("r-1").expect("names")), (0, Vec::new()));
    assert!(block_on(held.append(record("main/b", "1"))).is_err());
    assert_eq!(first.health().figures.fenced_writes, 1);
}

/// K-23: a restart of the server ends no lease before the first heartbeat after it, which extends every lease that had
/// not expired before.
#[test]
fn the_time_that_a_database_is_down_counts_against_no_lease() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    // A worker without a connection, whose lease ran out while the server was down.
    server.sql(
        "set search_path = etude;
         insert into workers (worker, lock, started_at, beat_at, lease_until)
            select 'away', 1, now, now, now - interval '30 seconds' from (select clock_timestamp() as now) s;
         insert into workers (worker, lock, started_at, beat_at, lease_until)
            select 'gone', 2, now, now, now - interval '90 seconds' from (select clock_timestamp() as now) s;
         update server set started_at = started_at - interval '1 day', beat_at = clock_timestamp() - interval '60 seconds'",
    );
    let alive = || {
        server.sql("set search_path = etude; select worker from workers where is_alive(lease_until) and worker <> 'x' order by 1")
    };
    assert_eq!(alive().lines().last(), Some("away"));
    join(&engine);
    let names = server
        .sql("select string_agg(worker, ',' order by worker) from etude.workers where lease_until > clock_timestamp()");
    assert!(names.contains("away") && !names.contains("gone"), "{names}");
}

/// K-16, K-18: a worker that reconnects has a new lock although the server keeps the lock of its previous connection,
/// as after a partition.
#[test]
fn each_connection_of_a_worker_has_a_lock_of_its_own() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    let first = server.sql("select lock from etude.workers");
    let holders = |key: &str| {
        let is_key = format!("((classid::bigint << 32) | objid::bigint) = {key}");
        format!("select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and granted and {is_key}")
    };
    // Another process waits for the lock, and has it as soon as the connection is gone.
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    writeln!(stdin, "select pg_advisory_lock({first});").expect("it listens");
    let since = std::time::Instant::now();
    let wait_for = |sql: &str| {
        while server.sql(sql) != "1" {
            assert!(since.elapsed() < Duration::from_secs(60), "{sql}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("select count(*) from pg_locks where locktype = 'advisory' and not granted");
    server.sql(&format!("select pg_terminate_backend(pid) from ({}) as holder", holders(&first)));
    wait_for(&format!("select count(*) from etude.workers where lock <> {first}"));
    let second = server.sql("select lock from etude.workers");
    wait_for(&format!("select count(*) from ({}) as holder", holders(&second)));
    drop(stdin);
    psql.wait().expect("it ends");
}

/// K-36: polling finds runs that no bell announces.
#[test]
fn a_worker_without_a_bell_still_finds_its_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    let deaf = settings(&server, "etude", dir.path());
    let deaf = Postgres::open(Settings { has_no_bell: true, ..deaf }).expect("an engine");
    join(&deaf);
    submit(&deaf, "r-1", 1, Placement::default());
    assert_eq!(next(&deaf).as_deref(), Some("r-1"));
}

/// A caller that blocks a thread of a runtime, inside a task, waits for any number of statements: the poll budget of
/// the task ends none of them.
#[test]
fn a_task_waits_for_any_number_of_statements() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = std::sync::Arc::new(open(&server, "etude", dir.path()));
    let (done, is_done) = std::sync::mpsc::channel();
    // A wait that does not end keeps its thread; the test fails anyway.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..1_000 {
                engine.count(&Query::default()).expect("a count");
            }
        });
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("the statements end");
}
