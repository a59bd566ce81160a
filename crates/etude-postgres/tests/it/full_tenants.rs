//! Claims past the runs of tenants at their limits.

use std::collections::BTreeMap;
use std::sync::Barrier;

use etude_postgres::{Postgres, Settings};
use etude_runtime::engine::{Fleet as _, Limits, Placement, Session, Takes, TenantRules};

use crate::claims::{during_claim, join, limits, statement, submit};
use crate::server::Server;
use crate::{open, settings};

/// Applies limits of live runs in all queues.
pub(crate) fn apply(engine: &Postgres, tenants: &[(&str, u32)]) {
    let of = |live| TenantRules { live: Some(live), ..TenantRules::default() };
    let tenants: BTreeMap<String, TenantRules> =
        tenants.iter().map(|&(name, live)| (name.to_owned(), of(live))).collect();
    engine.apply(None, Some(&tenants)).expect("the rules can be written");
}

pub(crate) fn of(tenant: &str) -> Placement {
    Placement { tenant: Some(tenant.to_owned()), ..Placement::default() }
}

fn all(engine: &Postgres, limits: &Limits) -> Vec<Box<dyn Session>> {
    std::iter::from_fn(|| engine.next(limits, 1_000).expect("next")).collect()
}

fn ids(sessions: &[Box<dyn Session>]) -> Vec<&str> {
    sessions.iter().map(|session| session.run_id()).collect()
}

/// K-34: the number of rows that a claim reads does not grow with the waiting runs of a tenant at its limit, with and
/// without analysed tables, and with few or many other tenants behind them.
#[test]
fn a_claim_passes_over_the_runs_of_a_tenant_at_its_limit() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    apply(&engine, &[("full", 1)]);
    server.sql(
        "alter table etude.queue set (autovacuum_enabled = false); alter table etude.runs set (autovacuum_enabled = false)",
    );
    // The rows of the queue and of runs that one claim visits.
    let visited = |waiting: u32, others: u32, is_analysed: bool| {
        let rows = |id: &str, count: u32, tenant: &str, at: u32| {
            format!(
                "insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms, tenant)
                    select '{id}-' || n, '/a', 'p', 1, 'queued', 0, n, {at} + n, n, {tenant} from generate_series(1, {count}) n;"
            )
        };
        server.sql(&format!(
            "set search_path = etude; truncate runs, queue; {} {}
             insert into queue (queue, rank, run, not_before_ms, abi, is_bundled)
                select 'default', created_at_ms, run, 0, 1, true from runs;
             update runs set state = 'running', rank = 1, worker = 'elsewhere' where id = 'full-1';
             delete from queue using runs where runs.run = queue.run and id = 'full-1'",
            rows("full", waiting + 1, "'full'", 0),
            rows("other", others, "'other-' || n", 1_000_000),
        ));
        server.sql(if is_analysed { "vacuum analyze" } else { "select 1" });
        let visited = server.sql(&format!(
            "begin; set local search_path = etude; do $$ begin execute $claim${}$claim$; end $$;
             select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) || ' ' || (select id from runs where worker = 'w')
                from pg_stat_xact_user_tables where schemaname = 'etude' and relname in ('queue', 'runs');
             rollback",
            statement("w")
        ));
        let (rows, claimed) = visited.split_once(' ').expect("two values");
        assert_eq!(claimed, "other-1", "{waiting} {others}");
        rows.parse::<u32>().expect("a number")
    };
    for is_analysed in [false, true] {
        for (others, most) in [(1, 100), (40, 600)] {
            let [few, many] = [1_000, 10_000].map(|waiting| visited(waiting, others, is_analysed));
            assert!(few < most && many < most, "{few} and {many} rows, {others} others, {is_analysed}");
        }
    }
}

/// K-30, K-34: a claim begins its scan at the first claimable row, for any number of tenants and rows. Each queue here
/// is random, with the same numbers each time.
#[test]
fn the_first_row_of_a_tenant_with_room_is_found() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    // Among 120 queues, the number in which a row was found among the first 32, later, or not at all.
    let found = server.sql(
        "set search_path = etude;
         alter table queue disable trigger queue_tenant;
         create temp table found (ahead bigint);
         do $$
         declare
             found    record;
             expected record;
             closed   text[];
             of_abi   bigint;
         begin
             for seed in 1..120 loop
                 perform setseed(seed / 120.0);
                 truncate queue;
                 -- Of every second queue, the tenants with room come late.
                 insert into queue (queue, rank, run, not_before_ms, abi, is_bundled, is_asleep, tenant)
                    select case when random() < 0.9 then 'default' else 'other' end,
                        (random() * 500)::int + case when seed % 2 = 0 and tenant > seed / 2 then 400 else 0 end, n, 0,
                        1 + (random() < 0.1)::int, random() < 0.95, random() < 0.05, 't-' || tenant
                    from (select n, (random() ^ (1 + seed % 4) * seed)::int as tenant from generate_series(1, seed * 9) n) as runs;
                 closed := array(select 't-' || n from generate_series(0, case when seed % 5 = 0 then seed else seed / 2 end) n);
                 of_abi := case when seed % 3 > 0 then 1 else 2 end;
                 select * into found from first_open('default', of_abi, closed);
                 select rank as from_rank, run as from_run into expected from queue
                    where queue = 'default' and is_bundled and not is_asleep and abi = of_abi and tenant <> all (closed)
                    order by rank, run limit 1;
                 if expected is null then
                     select 9223372036854775807 as from_rank, 9223372036854775807 as from_run into expected;
                 end if;
                 if found is distinct from expected then
                     raise exception '%: found %, expected %', seed, found, expected;
                 end if;
                 insert into found select case when found.from_rank < 9223372036854775807 then count(*) end from queue
                    where queue = 'default' and abi = of_abi and is_bundled and not is_asleep and (rank, run) < (found.from_rank, found.from_run);
             end loop;
         end
         $$;
         select count(*) filter (where ahead < 32) || ' ' || count(*) filter (where ahead >= 32) || ' ' || count(*) filter (where ahead is null) from found",
    );
    let kinds: Vec<u32> = found.split(' ').map(|count| count.parse().expect("a number")).collect();
    assert!(kinds.iter().all(|count| *count > 9), "{kinds:?}");
}

/// K-30, K-33, K-34: runs of tenants with room are claimed in the order of their ranks; runs of a tenant at its limit
/// are claimed as soon as it has room. A server does the same.
#[test]
fn runs_of_other_tenants_keep_their_order() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    let servers = Limits { takes: Takes::Any, ..limits() };
    for limits in [limits(), servers] {
        server.sql("delete from etude.runs; delete from etude.queue");
        apply(&engine, &[("full", 1), ("shut", 0)]);
        for at in 1..=80 {
            submit(&engine, &format!("full-{at}"), at, of("full"));
            submit(&engine, &format!("shut-{at}"), at, of("shut"));
        }
        for (id, at, tenant) in [("c", 90, "c"), ("b", 70, "b"), ("d", 100, "b"), ("a", 60, "c")] {
            submit(&engine, id, at, of(tenant));
        }
        submit(&engine, "urgent", 110, Placement { priority: 1, ..of("d") });
        let mut held = all(&engine, &limits);
        assert_eq!(ids(&held), ["urgent", "full-1", "a", "b", "c", "d"]);
        // A run that is handed over makes room.
        held.remove(1);
        assert_eq!(ids(&all(&engine, &limits)), ["full-2"]);
    }
}

/// K-33, K-34: a claim that waits for another one sees the queue after that claim: it takes the run behind, and no run
/// of the tenant that is full by then.
#[test]
fn a_claim_that_waited_takes_what_is_next_by_then() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    join(&engine);
    apply(&engine, &[("full", 0), ("one", 1)]);
    for at in 1..=50 {
        submit(&engine, &format!("full-{at}"), at, of("full"));
    }
    for (id, at, tenant) in
        [("one-1", 60, "one"), ("one-2", 61, "one"), ("other-1", 62, "other"), ("other-2", 63, "other")]
    {
        submit(&engine, id, at, of(tenant));
    }
    let held = during_claim(&server, &statement("w"), || engine.next(&limits(), 0).expect("next").expect("a run"));
    assert_eq!(held.run_id(), "other-1");
    assert_eq!(server.sql("select id from etude.runs where worker = 'w'"), "one-1");
    assert_eq!(ids(&all(&engine, &limits())), ["other-2"]);
}

/// K-33, K-34: many workers that claim at once behind a tenant at its limit exceed no limit, and leave no claimable run.
#[test]
fn concurrent_claims_behind_a_tenant_at_its_limit_take_the_rest() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..6).map(|_| open(&server, "etude", dir.path())).collect();
    engines.iter().for_each(join);
    apply(&engines[0], &[("full", 2), ("some", 5)]);
    for at in 0..40 {
        submit(&engines[0], &format!("full-{at}"), at, of("full"));
    }
    for at in 0..12 {
        submit(&engines[0], &format!("some-{at}"), 100 + at, of("some"));
        submit(&engines[0], &format!("other-{at}"), 100 + at, of("other"));
    }
    let barrier = Barrier::new(engines.len());
    let mut held: Vec<Vec<Box<dyn Session>>> = std::thread::scope(|scope| {
        let claim = |engine| {
            barrier.wait();
            all(engine, &limits())
        };
        let threads: Vec<_> = engines.iter().map(|engine| scope.spawn(move || claim(engine))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // A row that a claim could not lock is read again later.
    held.push(all(&engines[0], &limits()));
    let live = "select string_agg(tenant || ' ' || count, ', ' order by tenant)
        from (select tenant, count(*) from etude.counted group by tenant) as live";
    assert_eq!(server.sql(live), "full 2, other 12, some 5");
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 19);
}

/// K-62, K-63: runs that waited before this format have their tenants in the queue, and so do runs that a program of
/// format 5 adds.
#[test]
fn runs_that_waited_before_this_format_have_their_tenants() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let step = |number: u32| {
        let path = format!("{}/migrations/{number:04}.sql", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("a step")
    };
    let steps: String = (1..=5).map(step).collect();
    server.sql(&format!("create schema etude; set search_path = etude; {steps}"));
    // The rows are in the form of programs of format 5.
    let add = |id: &str, tenant: &str, at: u32| {
        server.sql(&format!(
            "set search_path = etude;
             with run as (
                insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms, tenant, bundle, rank)
                    values ('{id}', '/a', 'p', 1, 'queued', 0, 1, {at}, 1, '{tenant}', decode(repeat('00', 32), 'hex'), {at}) returning run)
             insert into headers select run, '{{}}' from run;
             insert into queue (queue, rank, run, not_before_ms, abi, is_bundled)
                select 'default', {at}, run, 0, 1, true from runs where id = '{id}'"
        ));
    };
    for (id, tenant, at) in
        [("full-1", "full", 1), ("full-2", "full", 2), ("plain-1", "default", 3), ("other-1", "other", 4)]
    {
        add(id, tenant, at);
    }
    let of_this_test = settings(&server, "etude", dir.path());
    let refused = Postgres::open(of_this_test.clone()).expect_err("it is older").to_string();
    assert!(refused.contains("its format is 5, this version needs 10"), "{refused}");
    let done = Postgres::migrate(of_this_test.address.clone(), of_this_test.connect_timeout).expect("it is migrated");
    assert_eq!((done.from, done.to), (5, 10));
    let engine = Postgres::open(Settings { ..of_this_test }).expect("an engine");
    join(&engine);
    add("full-3", "full", 5);
    add("other-2", "other", 6);
    let tenants = "select string_agg(queue.tenant, ' ' order by rank) from etude.queue";
    assert_eq!(server.sql(tenants), "full full default other full other");
    apply(&engine, &[("full", 0)]);
    assert_eq!(ids(&all(&engine, &limits())), ["plain-1", "other-1", "other-2"]);
}
