//! The rules of a fleet: limits of live runs, and refusals of submissions.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_core::effect::EffectId;
use etude_core::model::{ModelResponse, Stop, Usage};
use etude_core::outcome::{Completed, Outcome};
use etude_postgres::{Postgres, Settings};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    Engine as _, Enqueued, Error, Fleet as _, Limits, Placement, Profile, Query, QueueRules, Refusal, RunState,
    Session, Submission, Takes, TenantRules,
};
use etude_runtime::record::{ATTEMPT, of_outcome};

use crate::claims::{during_claim, limits, statement, submit};
use crate::server::Server;
use crate::{open, settings};

type Held = Option<Box<dyn Session>>;

fn queues(rules: impl IntoIterator<Item = (&'static str, QueueRules)>) -> BTreeMap<String, QueueRules> {
    rules.into_iter().map(|(name, rules)| (name.to_owned(), rules)).collect()
}

/// Applies rules for the default queue.
fn apply(engine: &Postgres, rules: QueueRules) {
    engine.apply(Some(&queues([("default", rules)])), None).expect("the rules can be written");
}

/// A worker of the default queue.
fn join(engine: &Postgres, has_sandbox: bool) {
    let queues = vec!["default".to_owned()];
    let profile = Profile { version: "1".to_owned(), abi: 1, queues, places: 2, has_sandbox };
    engine.join(&profile).expect("a worker joins");
}

fn next(engine: &Postgres) -> Held {
    engine.next(&limits(), 0).expect("next")
}

fn ids(sessions: &[Box<dyn Session>]) -> Vec<&str> {
    sessions.iter().map(|session| session.run_id()).collect()
}

/// Claims until no run can be claimed, ten at a time.
fn all(engine: &Postgres) -> Vec<Box<dyn Session>> {
    let few = || Some(engine.next_few(&limits(), 10, 0).expect("next")).filter(|few| !few.is_empty());
    std::iter::from_fn(few).flatten().collect()
}

fn end(session: &dyn Session) {
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
}

/// K-57: the cost of a day is one sum, over the tenant's runs that have ended or wait, regardless of their outputs.
#[test]
fn the_cost_of_a_tenant_is_a_sum_of_its_documents() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let cost = |usd: &str, output: &str| format!(r#"{{"members":{{"usage":{{"cost_usd":{usd}}}}},"output":{output}}}"#);
    let hostile = r#"["\u0000 \\u0000 \ud800 \\\u0000 {\"members\":{\"usage\":{\"cost_usd\":9}}}"]"#;
    for (id, at, tenant, state, document) in [
        ("r-1", 10, "acme", RunState::Succeeded, cost("0.25", hostile)),
        ("r-2", 11, "acme", RunState::Waiting, cost("1", r#"{"members":{"usage":{"cost_usd":9}}}"#)),
        ("r-3", 12, "acme", RunState::Failed, cost("null", "null")),
        ("r-4", 13, "acme", RunState::Cancelled, "{}".to_owned()),
        ("r-5", 14, "other", RunState::Succeeded, cost("9", "null")),
        ("r-6", 9, "acme", RunState::Succeeded, cost("9", "null")),
    ] {
        let mut run = new_run(id, at);
        run.placement.tenant = Some(tenant.to_owned());
        let session = block_on(engine.create(&run)).expect("create");
        block_on(session.set_state(state, Some(&document))).expect("set_state");
    }
    assert_eq!(engine.cost_since("acme", 10).expect("a sum"), Some(1.25));
    assert_eq!(engine.cost_since("none", 0).expect("a sum"), Some(0.0));
    // A removed run counts for its tenant.
    let now_ms = etude_runtime::clock::now_ms();
    for tenant in ["acme", "default"] {
        let mut run = new_run(&format!("gone-{tenant}"), now_ms);
        run.placement.tenant = Some(tenant.to_owned());
        let session = block_on(engine.create(&run)).expect("create");
        block_on(session.set_state(RunState::Failed, Some(&cost("3", hostile)))).expect("set_state");
        drop(session);
        let query = Query { id: Some(run.id), ..Query::default() };
        assert_eq!(engine.prune(&query).expect("prune"), 1);
    }
    assert_eq!(engine.cost_since("acme", now_ms).expect("a sum"), Some(3.0));
    assert_eq!(engine.cost_since("default", now_ms).expect("a sum"), Some(3.0));
    assert_eq!(engine.cost_since("other", now_ms).expect("a sum"), Some(0.0));
}

/// K-57: a run that is continued counts with its earlier attempts until it has a result again.
#[test]
fn the_cost_of_a_continued_run_is_not_forgotten() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let usage = Usage { cost_usd: Some(3.0), ..Usage::default() };
    let response = ModelResponse {
        text: String::new(),
        tool_calls: Vec::new(),
        stop: Stop::End,
        usage,
        model: "p/m".to_owned(),
        reasoning: None,
        transport_failures: Vec::new(),
    };
    let completed = Completed { outcome: Outcome::Response(Box::new(response)), elapsed_ms: 1 };
    let call = of_outcome(&EffectId::new("main/a"), Digest::of(b"r"), &completed, None, 1);
    for id in ["r-1", "r-2"] {
        let mut run = new_run(id, 10);
        run.placement.tenant = Some("acme".to_owned());
        let session = block_on(engine.create(&run)).expect("create");
        block_on(session.append(call.clone())).expect("append");
        block_on(session.set_state(RunState::Failed, Some(r#"{"members":{"usage":{"cost_usd":3}}}"#))).expect("failed");
    }
    let cost = || engine.cost_since("acme", 10).expect("a sum");
    assert_eq!(cost(), Some(6.0));
    for id in ["r-1", "r-2"] {
        let session = engine.claim(id).expect("claim");
        block_on(session.append(record(ATTEMPT, "{}"))).expect("append");
        if id == "r-2" {
            block_on(session.set_state(RunState::Running, None)).expect("set_state");
        }
        drop(session);
        block_on(engine.requeue(id, 20)).expect("requeue");
        assert_eq!((engine.result(id).expect("result"), cost()), (None, Some(6.0)));
    }
    assert_eq!(engine.cost_since("other", 10).expect("a sum"), Some(0.0));
}

/// cluster §6: applied rules are read back, and replace the earlier ones. The default queue always exists.
#[test]
fn rules_are_applied_as_a_whole() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let initial = engine.rules().expect("rules");
    assert_eq!((initial.queues, initial.tenants.len()), (queues([("default", QueueRules::default())]), 0));
    let label = |value: &str| ("gpu".to_owned(), value.to_owned());
    let mut batch = QueueRules {
        priority: -1,
        limit: None,
        per_tenant: Some(5),
        per_app: Some(10),
        per_label: BTreeMap::from([(label("a100"), 2), (label(""), 1)]),
        is_untrusted: true,
        ..QueueRules::default()
    };
    batch.allow.folders = vec!["/data".to_owned()];
    let acme =
        TenantRules { live: Some(3), bytes: Some(1 << 40), cost_usd_per_day: Some(0.5), ..TenantRules::default() };
    let tenants = BTreeMap::from([("acme".to_owned(), acme)]);
    let given = queues([("batch", batch)]);
    engine.apply(Some(&given), Some(&tenants)).expect("apply");
    let rules = engine.rules().expect("rules");
    assert_eq!((rules.queues.get("batch"), &rules.tenants), (given.get("batch"), &tenants));
    assert_eq!(rules.queues.get("default"), Some(&QueueRules::default()));
    // A part that is not given stays; a given part is replaced as a whole.
    engine.apply(None, Some(&BTreeMap::new())).expect("apply");
    let rules = engine.rules().expect("rules");
    assert_eq!((rules.queues.len(), rules.tenants.len()), (2, 0));
    engine.apply(Some(&BTreeMap::new()), None).expect("apply");
    assert_eq!(engine.rules().expect("rules").queues, queues([("default", QueueRules::default())]));
}

/// cluster §6: a queue that was not applied accepts no run, and nothing is written.
#[test]
fn an_unknown_queue_takes_no_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let submission = |id: &str| {
        let placement = Placement { queue: Some("batch".to_owned()), ..Placement::default() };
        let run = etude_runtime::engine::NewRun { placement, ..new_run(id, 1) };
        Submission { run, keys: Vec::new(), max_queued: None, needs_room: false }
    };
    let refused = Enqueued::Refused(Refusal::UnknownQueue("batch".to_owned()));
    assert_eq!(block_on(engine.enqueue(&submission("r-1"))).expect("enqueue"), refused);
    assert_eq!(server.sql("select count(*) from etude.runs"), "0");
    engine.apply(Some(&queues([("batch", QueueRules::default())])), None).expect("apply");
    assert_eq!(block_on(engine.enqueue(&submission("r-1"))).expect("enqueue"), Enqueued::Accepted);
}

/// K-33, K-55: a queue with unfinished runs cannot be removed, and none of the given rules are written.
#[test]
fn a_queue_with_runs_stays() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let guests = || queues([("guests", QueueRules { is_untrusted: true, ..QueueRules::default() })]);
    engine.apply(Some(&guests()), None).expect("apply");
    let guest = || Placement { queue: Some("guests".to_owned()), ..Placement::default() };
    submit(&engine, "r-1", 1, guest());
    submit(&engine, "r-2", 2, guest());
    let limited = || queues([("default", QueueRules { limit: Some(3), ..QueueRules::default() })]);
    let refused = engine.apply(Some(&limited()), Some(&BTreeMap::new())).expect_err("runs need it").to_string();
    assert!(refused.contains("`guests` (2 runs)"), "{refused}");
    let rules = engine.rules().expect("rules");
    assert!(rules.queues["guests"].is_untrusted, "{rules:?}");
    assert_eq!(rules.queues["default"], QueueRules::default());
    let of_guests = Limits { queue: "guests".to_owned(), ..limits() };
    join(&engine, true);
    let take = || engine.next(&of_guests, 0).expect("next");
    end(&*take().expect("a run"));
    end(&*take().expect("a run"));
    engine.apply(Some(&limited()), None).expect("its runs are over");
    assert!(!engine.rules().expect("rules").queues.contains_key("guests"));
}

/// K-33: a queue has at most its limit of live runs. A run that ends, waits or is handed over makes room; a run whose
/// worker is dead does not, and is taken over all the same.
#[test]
fn a_queue_has_at_most_its_limit_of_live_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    apply(&first, QueueRules { limit: Some(2), ..QueueRules::default() });
    for at in 1..=6 {
        submit(&first, &format!("r-{at}"), at, Placement::default());
    }
    let mut held = all(&first);
    assert_eq!((ids(&held), next(&second).is_none()), (vec!["r-1", "r-2"], true));
    assert_eq!(first.census().expect("census").queues[0].limit, Some(2));
    // One run ends.
    end(&*held.remove(0));
    held.push(next(&second).expect("there is room"));
    assert!(next(&second).is_none());
    // One run waits.
    block_on(held[0].suspend(RunState::Waiting, None, "{}")).expect("suspend");
    held.remove(0);
    held.push(next(&second).expect("there is room"));
    assert_eq!((ids(&held), next(&first).is_none()), (vec!["r-3", "r-4"], true));
    // One run is handed over: the next claim of it needs room as well.
    held.remove(0);
    held.push(next(&second).expect("there is room"));
    let any = limits();
    assert!(first.take("r-3", &any, 0).expect("take").is_none());
    end(&*held.remove(0));
    held.push(first.take("r-3", &any, 0).expect("take").expect("there is room"));
    assert_eq!((ids(&held), next(&first).is_none()), (vec!["r-5", "r-3"], true));
}

/// K-33: the runs of a dead worker count until they are taken over, and can be taken over although the queue is full.
#[test]
fn runs_of_the_dead_count_until_they_are_taken_over() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let living = open(&server, "etude", dir.path());
    let mut quiet = settings(&server, "etude", dir.path());
    (quiet.times.lease, quiet.times.beat) = (Duration::from_secs(10_800), Duration::from_secs(3600));
    let dead = Postgres::open(quiet).expect("an engine");
    join(&dead, true);
    apply(&living, QueueRules { limit: Some(1), ..QueueRules::default() });
    submit(&living, "r-1", 1, Placement::default());
    submit(&living, "r-2", 2, Placement::default());
    let lost = next(&dead).expect("a run");
    let since = Instant::now();
    while server.sql("select beat_at > started_at + interval '10 milliseconds' from etude.workers") != "t" {
        assert!(since.elapsed() < Duration::from_secs(60), "no heartbeat came");
    }
    // The worker appears to have died long ago.
    server.sql("update etude.workers set lease_until = clock_timestamp() - interval '1 second', lock = 1");
    assert!(next(&living).is_none(), "the run of the dead counts");
    let taken = living.take("r-1", &limits(), 0).expect("take").expect("it is taken over");
    assert_eq!((taken.taken_from(), living.health().figures.takeovers), (Some(dead.worker()), 1));
    assert!(next(&living).is_none(), "it is live again");
    end(&*taken);
    assert_eq!(next(&living).map(|session| session.run_id().to_owned()).as_deref(), Some("r-2"));
    assert!(block_on(lost.append(record("main/a", "1"))).is_err());
}

/// K-33: limits of tenants, apps and labels do not delay the runs behind one that may not be claimed.
#[test]
fn limits_of_parts_hold_up_no_other_run() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let of = |tenant: &str, labels: &[(&str, &str)]| Placement {
        tenant: Some(tenant.to_owned()),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Placement::default()
    };
    let reset = |rules: QueueRules, tenants: &BTreeMap<String, TenantRules>| {
        server.sql("delete from etude.runs; delete from etude.queue; delete from etude.labels");
        engine.apply(Some(&queues([("default", rules)])), Some(tenants)).expect("apply");
        for (at, (id, tenant)) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b"), ("b-2", "b")].into_iter().enumerate() {
            submit(&engine, id, at as i64 + 1, of(tenant, &[("gpu", "a100"), ("of", id)]));
        }
        submit(&engine, "c-1", 9, of("c", &[("gpu", "none")]));
    };
    let none = BTreeMap::new();
    reset(QueueRules { per_tenant: Some(1), ..QueueRules::default() }, &none);
    assert_eq!(ids(&all(&engine)), ["a-1", "b-1", "c-1"]);
    reset(
        QueueRules { per_label: BTreeMap::from([(("gpu".to_owned(), "a100".to_owned()), 3)]), ..QueueRules::default() },
        &none,
    );
    assert_eq!(ids(&all(&engine)), ["a-1", "a-2", "b-1", "c-1"]);
    let tenants = BTreeMap::from([("b".to_owned(), TenantRules { live: Some(0), ..TenantRules::default() })]);
    reset(QueueRules { limit: None, ..QueueRules::default() }, &tenants);
    assert_eq!(ids(&all(&engine)), ["a-1", "a-2", "c-1"]);
    reset(QueueRules { per_app: Some(2), ..QueueRules::default() }, &none);
    server.sql("update etude.runs set app = '/other' where id = 'c-1'");
    assert_eq!(ids(&all(&engine)), ["a-1", "a-2", "c-1"]);
}

/// K-33: a claim that counts while another one is uncommitted waits for it.
#[test]
fn no_claim_counts_while_another_one_is_under_way() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    apply(&engine, QueueRules { limit: Some(1), ..QueueRules::default() });
    submit(&engine, "r-1", 1, Placement::default());
    submit(&engine, "r-2", 2, Placement::default());
    let claimed =
        during_claim(&server, &statement("other"), || next(&engine).map(|session| session.run_id().to_owned()));
    assert_eq!(claimed, None);
    assert_eq!(server.sql("select id || worker from etude.runs where worker is not null"), "r-1other");
}

/// K-33: many workers that claim at once never exceed a limit, whether or not they share the lock far from the limit.
#[test]
fn concurrent_claims_never_exceed_a_limit() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..6).map(|_| open(&server, "etude", dir.path())).collect();
    // The server has 200 connections: beyond that distance, claims share the lock.
    for (limit, before) in [(3_u32, 0_i64), (209, 200), (203, 0)] {
        server.sql("delete from etude.runs; delete from etude.queue");
        apply(&engines[0], QueueRules { limit: Some(limit), ..QueueRules::default() });
        server.sql(&format!(
            "set search_path = etude; insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms, rank, worker)
             select 'live-' || n, '/a', 'p', 1, 'running', 1, n, n, n, 1, 'elsewhere' from generate_series(1, {before}) n"
        ));
        for at in 0..12 {
            submit(&engines[0], &format!("r-{at}"), at, Placement::default());
        }
        let barrier = Barrier::new(engines.len());
        let held: Vec<Vec<Box<dyn Session>>> = std::thread::scope(|scope| {
            let claim = |engine| {
                barrier.wait();
                all(engine)
            };
            let threads: Vec<_> = engines.iter().map(|engine| scope.spawn(move || claim(engine))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        // A claim that shared the lock when the limit came near tries again later.
        let rest = all(&engines[0]);
        let held = held.iter().map(Vec::len).sum::<usize>() + rest.len();
        let room = usize::try_from(i64::from(limit) - before).expect("a number").min(12);
        assert_eq!(held, room, "limit {limit}");
    }
}

/// K-33: a claim takes no lock if no run waits, and shares it for one run far from the limit, however many runs it requests.
#[test]
fn a_claim_waits_for_no_lock_that_it_does_not_need() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine, true);
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    let mut locked = |word: &str, mode: &str| {
        let lock = "(hashtext('etude') # 1702131050, hashtext('default'))";
        writeln!(stdin, "select pg_advisory_unlock_all(); select {word}{lock};").expect("it listens");
        let sql = format!(
            "select count(*) from pg_locks where locktype = 'advisory' and mode = '{mode}' and objid = hashtext('default')::oid"
        );
        while server.sql(&sql) != "1" {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let few = || engine.next_few(&limits(), 10, 0).expect("next");
    locked("pg_advisory_lock", "ExclusiveLock");
    assert!(few().is_empty());
    locked("pg_advisory_lock_shared", "ShareLock");
    submit(&engine, "r-1", 1, Placement::default());
    assert_eq!(ids(&few()), ["r-1"]);
    drop(stdin);
    psql.wait().expect("it ends");
}

/// serve §3, `max_queued`: submissions to a queue far from its limit do not wait for one another's commits.
#[test]
fn submissions_far_from_the_limit_share_its_lock() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    writeln!(stdin, "select pg_advisory_lock_shared(1702131047, hashtext('default'));").expect("it listens");
    let held =
        "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and classid = 1702131047";
    while server.sql(held) != "1" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let submission =
        |id: &str| Submission { run: new_run(id, 1), keys: Vec::new(), max_queued: Some(10_000), needs_room: false };
    assert_eq!(block_on(engine.enqueue(&submission("r-1"))).expect("enqueue"), Enqueued::Accepted);
    // A run that has waited for a long time makes the numbers useless as an estimate: the runs are counted.
    server.sql("update etude.queue set run = run - 1000000");
    assert_eq!(block_on(engine.enqueue(&submission("r-2"))).expect("enqueue"), Enqueued::Accepted);
    drop(stdin);
    psql.wait().expect("it ends");
}

/// K-62, K-63: a database of the previous format keeps its runs, and its default queue has the default rules.
#[test]
fn the_previous_format_becomes_this_one() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let step = |name: &str| {
        std::fs::read_to_string(format!("{}/migrations/{name}.sql", env!("CARGO_MANIFEST_DIR"))).expect("a step")
    };
    let steps = [step("0001"), step("0002"), step("0003")].concat();
    server.sql(&format!("create schema etude; set search_path = etude; {steps}"));
    server.sql(
        "set search_path = etude;
         insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms, bundle, rank)
            values ('r-1', '/a', 'pipeline:p', 1, 'queued', 0, 1, 1, 1, decode(repeat('00', 32), 'hex'), 1);
         update runs set tenant = 'acme';
         insert into keys (key, run) select 'k', run from runs;
         insert into headers select run, '{}' from runs;
         insert into queue (queue, rank, run, not_before_ms, abi, is_bundled) select 'default', 1, run, 0, 1, true from runs",
    );
    let of = settings(&server, "etude", dir.path());
    let refused = Postgres::open(of.clone()).expect_err("it is older");
    assert!(refused.to_string().contains("its format is 3, this version needs 10"), "{refused}");
    assert!(matches!(&refused, Error::Refused { hint, .. } if hint == "run `etude engine migrate`"), "{refused:?}");
    let done = Postgres::migrate(of.address.clone(), of.connect_timeout).expect("it is migrated");
    assert_eq!((done.from, done.to), (3, 10));
    let engine = Postgres::open(Settings { ..of }).expect("an engine");
    assert_eq!(engine.rules().expect("rules").queues, queues([("default", QueueRules::default())]));
    assert_eq!(ids(&all(&engine)), ["r-1"]);
    // A key belongs to the tenant of its run.
    assert_eq!(server.sql("select tenant from etude.keys"), "acme");
}

/// K-33: a server takes no run from a full queue either.
#[test]
fn servers_keep_the_limits_of_a_fleet() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    apply(&engine, QueueRules { limit: Some(1), ..QueueRules::default() });
    for id in ["r-1", "r-2"] {
        submit(&engine, id, 1, Placement { bundle: Some(Digest::of(b"x")), ..Placement::default() });
    }
    let any = Limits { takes: Takes::Any, max_runs: 9, ..limits() };
    let held = engine.next(&any, 2).expect("next").expect("there is room");
    assert!(engine.next(&any, 2).expect("next").is_none());
    end(&*held);
    assert!(engine.next(&any, 2).expect("next").is_some());
}

/// K-55: a worker without a sandbox claims nothing from an untrusted queue, and takes over nothing there.
#[test]
fn an_untrusted_queue_needs_a_sandbox() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (without, with) = (open(&server, "etude", dir.path()), open(&server, "etude", dir.path()));
    join(&without, false);
    join(&with, true);
    apply(&with, QueueRules { is_untrusted: true, ..QueueRules::default() });
    submit(&with, "r-1", 1, Placement::default());
    assert!(next(&without).is_none());
    let any = Limits { takes: Takes::Any, max_runs: 9, ..limits() };
    assert!(with.next(&any, 2).expect("next").is_none(), "a server has no sandbox for it");
    let held = next(&with).expect("a run");
    drop(held);
    assert!(without.take("r-1", &limits(), 2).expect("take").is_none());
    assert!(with.take("r-1", &limits(), 2).expect("take").is_some());
    assert!(with.census().expect("census").queues[0].untrusted);
}
