//! Searches for the first row of a tenant with room, which go on where the last one of the same session has ended.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin};

use crate::claims::{statement, submit};
use crate::full_tenants::{apply, of};
use crate::open;
use crate::server::Server;

/// Output of statements of one session, each in a transaction of its own.
fn script(server: &Server, sql: &str) -> String {
    let mut psql = server.psql();
    writeln!(psql.stdin.take().expect("a pipe"), "\\set ON_ERROR_STOP on\n{sql}").expect("it listens");
    let output = psql.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the session ends at an error");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// K-34: the number of rows that a claim reads does not grow with the waiting runs of a full tenant, and not with the
/// number of other tenants that wait, wherever their runs are.
#[test]
fn a_claim_goes_on_where_the_last_one_ended() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    apply(&engine, &[("full", 0)]);
    // The runs of the full tenant come every 10 ms. The rows of the queue and of runs that the third claim reads.
    let read = |waiting: u32, others: u32, first: u32, every: u32| {
        let rows = |tenant: &str, count: u32, at: &str| {
            format!(
                "insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms, tenant)
                    select '{tenant}-' || n, '/a', 'p', 1, 'queued', 0, n, {at}, n,
                        '{tenant}' || case '{tenant}' when 'full' then '' else '-' || n end
                    from generate_series(1, {count}) n;"
            )
        };
        let found = script(
            &server,
            &format!(
                "set search_path = etude; {}; truncate runs, queue; {} {}
                 insert into queue (queue, rank, run, not_before_ms, abi, is_bundled)
                    select 'default', created_at_ms, run, 0, 1, true from runs;
                 \\o /dev/null
                 {claim}; {claim};
                 \\o
                 begin; select {sum} as before \\gset
                 \\o /dev/null
                 {claim};
                 \\o
                 select (select id from runs where session = 7 and worker = 'w' order by run desc limit 1) || ' ' || {sum} - :before;
                 commit;",
                etude_postgres::session_settings(),
                rows("full", waiting, "n * 10"),
                rows("other", others, &format!("{first} + n * {every}")),
                claim = statement("w").replace('\n', " "),
                sum = "(select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables
                    where schemaname = 'etude' and relname in ('queue', 'runs'))".replace('\n', " "),
            ),
        );
        let (claimed, rows) = found.split_once(' ').expect("two values");
        assert_eq!(claimed, "other-3", "{waiting} {others}");
        rows.parse::<u32>().expect("a number")
    };
    for (others, first, every) in [(13, 1_000_000, 1), (100, 1_000_000, 1), (1_000, 1_000_000, 1), (100, 0, 1_000)] {
        let [few, many] = [100, 4_000].map(|waiting| read(waiting, others, first, every));
        assert!(few < 500 && many < 500, "{few} and {many} rows, {others} others, each {every}");
    }
}

/// K-30, K-34: after each change of the queue and of the full tenants, a session finds the first row of a tenant with
/// room. The changes are random, with the same numbers each time; those of every fifth step are rolled back.
#[test]
fn a_search_finds_what_changed_since_the_last_one() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server, "etude", dir.path()));
    let settings = etude_postgres::session_settings();
    let found = script(&server, &format!("set search_path = etude; {settings}; {CHANGES}"));
    let kinds: Vec<u32> = found.split_whitespace().map(|count| count.parse().expect("a number")).collect();
    assert!(kinds.len() == 2 && kinds.iter().all(|count| *count > 20), "{found}");
}

const CHANGES: &str = "
         create or replace function tenant_of(of_run bigint) returns text language sql return 't-' || (of_run % 12);
         create table steps (kind text);
         create procedure change(step integer) language plpgsql as $$
         declare
             found    record;
             expected record;
             last     record;
             full_ones text[] := array(select 't-' || n from generate_series(0, 11) n where random() < 0.85);
         begin
             last := null;
             insert into queue (queue, rank, run, not_before_ms, abi, is_bundled, is_asleep)
                select case when random() < 0.9 then 'default' else 'other' end, (random() * 300)::int, step * 400 + n, 0,
                    1 + (random() < 0.2)::int, random() < 0.9, random() < 0.1
                from generate_series(1, case when step % 25 = 0 then 300 else (random() * 9)::int end) n;
             delete from queue where random() < case when step % 10 = 0 then 0.3 else 0.02 end;
             update queue set is_asleep = not is_asleep where random() < 0.02;
             update queue set rank = (random() * 300)::int where random() < 0.01;
             update queue set abi = 3 - abi, is_bundled = true where random() < 0.01;
             update queue set run = run + 1 where run = (select max(run) from queue);
             for version in 1..2 loop
                 select * into found from first_open('default', version, full_ones);
                 select rank as from_rank, run as from_run into expected from queue
                    where queue = 'default' and is_bundled and not is_asleep and abi = version and tenant <> all (full_ones)
                    order by rank, run limit 1;
                 if expected is null then
                     select 9223372036854775807 as from_rank, 9223372036854775807 as from_run into expected;
                 end if;
                 if found is distinct from expected then
                     raise exception '%: found %, expected %', step, found, expected;
                 end if;
                 insert into steps values (case when expected.from_rank > 300 then 'none' else 'found' end);
             end loop;
         end
         $$;
         select setseed(0.5);
         do $$ begin
             for step in 1..1000 loop
                 call change(step);
                 if step % 5 = 0 then rollback; else commit; end if;
             end loop;
         end $$;
         select count(*) filter (where kind = 'found') || ' ' || count(*) filter (where kind = 'none') from steps;";

/// K-30, K-34: a row of a transaction that had not ended at the last search is found by the next one, before that place.
#[test]
fn a_row_that_is_committed_late_is_found() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server, "etude", dir.path());
    submit(&engine, "full-1", 1, of("full"));
    submit(&engine, "other-1", 50, of("other"));
    submit(&engine, "other-2", 60, of("other"));
    let [(mut writer, mut writes), (mut searcher, mut searches)] = [session(&server), session(&server)];
    let late = "begin; update queue set rank = 9 where rank = 60 returning rank;";
    assert_eq!(ask(&mut writer, &mut writes, late), "9");
    // A transaction that begins later and ends earlier.
    submit(&engine, "full-2", 70, of("full"));
    let search = "select from_rank from first_open('default', 1, array['full']);";
    assert_eq!(ask(&mut searcher, &mut searches, search), "50");
    assert_eq!(ask(&mut writer, &mut writes, "commit; select 'done';"), "done");
    assert_eq!(ask(&mut searcher, &mut searches, search), "9");
    drop((writes, searches));
    assert!(writer.wait().expect("it ends").success() && searcher.wait().expect("it ends").success());
}

/// A session of `psql`.
fn session(server: &Server) -> (Child, ChildStdin) {
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    writeln!(stdin, "set search_path = etude;").expect("it listens");
    (psql, stdin)
}

/// The one line that statements print.
fn ask(psql: &mut Child, stdin: &mut ChildStdin, sql: &str) -> String {
    writeln!(stdin, "{sql}").expect("it listens");
    let mut line = Vec::new();
    let mut byte = [0];
    let stdout = psql.stdout.as_mut().expect("a pipe");
    while stdout.read(&mut byte).expect("it answers") == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}
