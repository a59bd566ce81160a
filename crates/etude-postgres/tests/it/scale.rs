//! Cost of many runs: the plans of lists, and the size of the queue.

use std::collections::BTreeSet;

use etude_runtime::conformance::{block_on, record};
use etude_runtime::engine::{Engine as _, Fleet as _, Placement, Query, RunState};

use crate::claims::{limits, submit};
use crate::open;
use crate::server::Server;

/// K-59: the first page of a list by age, tenant, state, target or label is a scan of an index in the order of the list, and so are the
/// pages after it.
#[test]
fn the_first_page_of_many_runs_is_a_scan_of_an_index() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    server.sql(
        "set search_path = etude;
         insert into runs (id, app, target, tenant, abi, state, epoch, session, created_at_ms, changed_at_ms)
            select 'r-' || n, '/a', 'p-' || n % 50, 't-' || n % 40, 1,
                case n % 300 when 0 then 'failed' else 'succeeded' end, 0, n, n, n
            from generate_series(1, 60000) n;
         insert into labels (key, value, created_at_ms, run)
            select 'env', ('v-' || run % 30)::bytea, created_at_ms, run from runs; analyze",
    );
    let page = || Query { limit: Some(50), ..Query::default() };
    let lists = [
        ("runs_by_age", page()),
        ("runs_by_age", Query { created_since_ms: Some(59_000), ..page() }),
        ("runs_of_tenant", Query { tenant: Some("t-7".to_owned()), ..page() }),
        ("runs_by_state", Query { states: vec![RunState::Failed], ..page() }),
        ("runs_of_target", Query { target: Some("p-7".to_owned()), ..page() }),
        ("labels_pkey", Query { labels: vec![("env".to_owned(), "v-7".to_owned())], ..page() }),
    ];
    for (index, first) in lists {
        let rows = engine.list(&first).expect("a list");
        assert_eq!(rows.len(), 50, "{index}");
        let next = Query { after: rows.last().map(|row| row.cursor()), ..first.clone() };
        for query in [&first, &next] {
            let plan = engine.plan_of_list(query).expect("a plan");
            assert!(plan.contains(index), "{index}: {plan}");
            let is_whole = ["Sort", "Seq Scan on runs", "Seq Scan on labels"].iter().any(|part| plan.contains(part));
            assert!(!is_whole, "{index}: {plan}");
        }
        let more = engine.list(&next).expect("a list");
        let (last, first) = (&rows[49], &more[0]);
        assert!((first.created_at_ms, first.number) < (last.created_at_ms, last.number), "{index}");
    }
}

/// K-59: pages have no gaps while runs are added.
#[test]
fn pages_have_no_gaps_while_runs_are_added() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    let label = || ("env".to_owned(), "test".to_owned());
    let of = || Placement { labels: [label()].into(), ..Placement::default() };
    let before: BTreeSet<String> = (0..30).map(|number| format!("r-{number}")).collect();
    // Many runs have the same time.
    before.iter().zip(0..).for_each(|(id, number)| submit(&engine, id, 1_000 + number / 7, of()));
    let mut added = 0;
    for labels in [Vec::new(), vec![label()]] {
        let mut query = Query { labels, limit: Some(4), ..Query::default() };
        let mut found = Vec::new();
        loop {
            let rows = engine.list(&query).expect("a page");
            let Some(last) = rows.last() else { break };
            query.after = Some(last.cursor());
            found.extend(rows.into_iter().map(|row| row.id).filter(|id| before.contains(id)));
            added += 1;
            submit(&engine, &format!("new-{added}"), 5_000, of());
        }
        assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (30, before.clone()));
    }
}

/// K-37: the queue does not grow with the number of claims, and a claim reads a bounded number of pages. The figure for
/// ten million claims follows: the space that 20,000 claims leave behind between two runs of autovacuum is reused.
#[test]
fn the_queue_does_not_grow_with_its_claims() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    // A claim removes the first of 500 rows, and a submission adds one, each in a transaction of its own.
    let claims = |from: u32, to: u32| {
        server.sql(&format!(
            "do $$ begin for n in {from}..{to} loop
                insert into etude.queue (queue, rank, run, not_before_ms, abi, is_bundled) values ('default', n, n, 0, 1, true);
                delete from etude.queue where run = (select run from etude.queue
                    where queue = 'default' and is_bundled and not is_asleep and n > 500 order by rank, run limit 1
                    for update skip locked);
                commit;
             end loop; end $$"
        ));
        server.sql("vacuum etude.queue");
        server.sql("select pg_total_relation_size('etude.queue')").parse::<u64>().expect("bytes")
    };
    // Index pages that a vacuum has emptied are reused after the next one.
    claims(1, 20_000);
    let first = claims(20_001, 40_000);
    let later = (2..4).map(|round| claims(round * 20_000 + 1, (round + 1) * 20_000)).max().expect("rounds");
    assert_eq!(server.sql("select count(*) from etude.queue"), "500");
    assert!(later <= first * 11 / 10, "{first} bytes, then {later}");
    // Even with as much garbage again as autovacuum leaves in a minute, the size is far below the limit.
    assert!(first < 20_000 * 1_000, "{first} bytes");
    let plan = server.sql(
        "explain (analyze, buffers, timing off, summary off) select run from etude.queue
         where queue = 'default' and abi = 1 and is_bundled and not is_asleep order by rank, run limit 1",
    );
    assert!(plan.contains("queue_ready") && !plan.contains("Sort"), "{plan}");
    let pages = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared hit=")).expect("buffers");
    let pages: u64 = pages.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(pages < 100, "{plan}");
    let options = server.sql("select reloptions::text from pg_class where oid = 'etude.queue'::regclass");
    assert!(options.contains("autovacuum_vacuum_scale_factor=0"), "{options}");
    drop(engine);
}

/// K-31, K-59: the server compiles no statement before it runs it: that takes longer than a claim among a million runs.
#[test]
fn no_statement_is_compiled() {
    let Some(server) = Server::start_with(&["jit_above_cost=0"], &[]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    if !server.sql("explain select count(*) from etude.runs").contains("JIT") {
        assert!(std::env::var_os("ETUDE_REQUIRE_POSTGRES").is_none(), "the server compiles no statements");
        eprintln!("skipped: this PostgreSQL compiles no statements");
        return;
    }
    let plan = engine.plan_of_list(&Query::default()).expect("a plan");
    assert!(!plan.contains("JIT"), "{plan}");
}

/// K-31, K-11: no statement in the life of a run reads a whole table, even while the server takes the tables for empty
/// because it has analysed none of them. With its own choice, an append read all records, and a claim sorted all
/// waiting runs.
#[test]
fn no_table_is_read_as_a_whole() {
    let Some(server) = Server::start_with(&["autovacuum=off"], &[]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    // The server's counts are visible once the session has ended.
    let read = || {
        let ended = "select count(*) from pg_stat_activity where usename = 'etude' and backend_type = 'client backend'";
        while server.sql(ended) != "1" {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server.sql(
            "select string_agg(relname || ' ' || seq_scan, ', ' order by relname) from pg_stat_user_tables
             where schemaname = 'etude' and relname in ('runs', 'records', 'queue', 'headers', 'results', 'signals', 'labels', 'keys')",
        )
    };
    let before = read();
    let engine = open(&server, "etude", dir.path());
    for at in 0..40 {
        submit(&engine, &format!("r-{at}"), at, Placement::default());
    }
    loop {
        let few = engine.next_few(&limits(), 10, 0).expect("next");
        if few.is_empty() {
            break;
        }
        for session in few {
            block_on(session.append(record("main/a#1", "1"))).expect("append");
            block_on(session.append(record("main/b#1", "1"))).expect("append");
            assert_eq!(session.records().expect("records").len(), 2);
            block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
        }
    }
    assert_eq!(engine.list(&Query { limit: Some(50), ..Query::default() }).expect("a list").len(), 40);
    drop(engine);
    assert_eq!(read(), before);
    // A prune reads the headers that refer to large inputs, and no others.
    let scans = "select seq_scan from pg_stat_user_tables where schemaname = 'etude' and relname = 'headers'";
    let (engine, before) = (open(&server, "etude", dir.path()), server.sql(scans));
    let one = Query { id: Some("r-1".to_owned()), ..Query::default() };
    assert_eq!(engine.prune(&one).expect("pruned"), 1);
    drop(engine);
    read();
    assert_eq!(server.sql(scans), before);
}
