//! Costs of lists of large journals.

use etude_runtime::conformance::{block_on, new_run};
use etude_runtime::engine::Engine as _;
use rusqlite::StatementStatus;

use super::*;
use crate::{Settings, Sqlite, Sync};

/// A journal with this number of runs, one in a thousand of another app.
fn journal(runs: i64) -> (tempfile::TempDir, Connection) {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Sqlite::open(Settings { dir: dir.path().to_owned(), sync: Sync::Normal }).expect("a journal");
    drop(block_on(engine.create(&new_run("template", 1))).expect("a run"));
    let connection = Connection::open(dir.path().join("journal.db")).expect("the journal");
    let own = ["number", "id", "created_at_ms", "app", "state"];
    let columns: Vec<String> = {
        let mut names = connection.prepare("select name from pragma_table_info('runs')").expect("sql");
        names.query_map([], |row| row.get(0)).expect("sql").map(|name| name.expect("a name")).collect()
    };
    let others: Vec<&str> = columns.iter().map(String::as_str).filter(|name| !own.contains(name)).collect();
    let others = others.join(", ");
    let sql = format!(
        "with recursive numbers(n) as (select 2 union all select n + 1 from numbers where n < {runs})
         insert into runs (number, id, created_at_ms, app, state, {others})
         select n, printf('%016x', n * 7919), n * 1000, case when n % 1000 = 0 then '/rare' else '/common' end, 'succeeded', {others}
         from numbers, runs where id = 'template'; analyze"
    );
    connection.execute_batch(&sql).expect("runs");
    (dir, connection)
}

/// The number of instructions of SQLite's machine for a page, and its number of rows.
fn cost(connection: &Connection, query: &Query) -> (i32, usize) {
    let (sql, values) = Selection::new(query, None).statement(query.limit);
    let mut statement = connection.prepare(&sql).expect("sql");
    let rows = statement.query_map(params_from_iter(values), Run::from_row).expect("sql").count();
    (statement.get_status(StatementStatus::VmStep), rows)
}

/// S-54: the first and the last page of 100,000 runs, and pages by app, cost the same as those of 1,000: SQLite finds them by an
/// index and sorts nothing. `docs/performance.md` has the times.
#[test]
fn pages_cost_the_same_in_a_large_journal() {
    let (_small_dir, small) = journal(1_000);
    let (_large_dir, large) = journal(100_000);
    let first = Query { limit: Some(50), ..Query::default() };
    let last = Query { after: Some(Cursor { created_at_ms: 40_000, number: 40 }), ..first.clone() };
    let of_app = |app: &str, query: &Query| Query { apps: vec![app.to_owned()], ..query.clone() };
    for (name, query) in [
        ("first page", first.clone()),
        ("last page", last.clone()),
        ("first page of an app", of_app("/common", &first)),
        ("last page of an app", of_app("/common", &last)),
    ] {
        let ((few, rows), (many, as_many)) = (cost(&small, &query), cost(&large, &query));
        assert_eq!(rows, as_many, "{name}");
        assert!(many < 2 * few + 200, "{name}: {many} instructions with 100,000 runs, {few} with 1,000");
    }
}
