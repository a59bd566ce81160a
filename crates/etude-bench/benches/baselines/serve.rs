//! `etude serve` beside bare servers, queries and processes: the table of `serve.md`, section 11.

mod bare;
mod http;
mod process;
mod streams;
mod tools;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection as Journal;
use rusqlite::types::ValueRef;
use serde_json::json;

use self::process::{Process, Served};
use crate::apps::write;
use crate::measure::{Pair, Report, quantile, run};
use crate::processes::bare as bare_step;

pub(crate) use streams::{catch_up, streams};
pub(crate) use tools::tool;

const CONNECTIONS: usize = 64;
const EACH: usize = 100;
/// Number of starts per round. All rounds together stay under the 10,000 that a queue accepts.
const STARTS: usize = 1_600;
const STARTERS: usize = 8;

/// Entry point of a child of this program: `--child-routes FILE` or `--child-writer FILE COUNT`.
pub(crate) fn child(what: &str, args: &[String]) {
    match (what, args) {
        ("--child-routes", [file]) => bare::routes(file),
        ("--child-writer", [file, count]) => bare::writer(file, count),
        _ => panic!("{what} {args:?}"),
    }
}

/// Writes the app for the server.
pub(crate) fn app(home: &Path) {
    let pipeline = |name: &str, rest: &str| {
        let text = format!("name: {name}\ndescription: what is measured\n{rest}");
        write(&home.join(format!("app/pipelines/{name}/pipeline.yaml")), &text);
    };
    let each = |command: &str, parallel: u32| {
        format!(
            "  - {{name: each, type: code, command: \"{command}\", output: text, for_each: \"{{{{input.items}}}}\", max_parallel: {parallel}, max_items: 1000000}}\n"
        )
    };
    pipeline("one", "steps:\n  - {name: s, type: code, command: \"cat out.json\"}\n");
    write(&home.join("app/pipelines/one/out.json"), r#"{"output": {"n": 1}}"#);
    // Two events for each element, so about a hundred a second.
    let steady = each("sleep 0.018", 1);
    let ask = "  - {name: ask, type: approval, message: \"Go on?\"}\n";
    pipeline("steady", &format!("input: {{items: array}}\nsteps:\n{steady}"));
    pipeline("asked", &format!("input: {{items: array}}\nsteps:\n{ask}{steady}"));
    pipeline("many", &format!("input: {{items: array}}\nsteps:\n{}", each("true", 4)));
}

/// Requests for a run's document, on 64 connections.
pub(crate) fn get(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let path = format!("/v1/runs/{}", served.run("one", &json!({})));
    let body = home.join("body.json");
    fs::write(&body, served.get(&path)).expect("written");
    let bare = Process::bare(&["--child-routes", &body.display().to_string()]);
    let request = served.request(&format!("GET {path}"), "", None);
    let load = |port: u16| served.wait(http::load(port, &request, CONNECTIONS, EACH));
    let pair = Pair {
        key: "serve/get",
        what: "6,400 times `GET /v1/runs/ID` on 64 connections",
        baseline: "an axum route with the same bytes",
    };
    let [_, took, _] = report.compare(&pair, 9, || load(served.process.port), || load(bare.port));
    let rate = (CONNECTIONS * EACH) as f64 / took.as_secs_f64();
    report.figure("serve/get-rate", "`GET /v1/runs/ID`", rate, "requests a second");
}

/// A page of a long list, filtered.
pub(crate) fn list(report: &mut Report, home: &Path) {
    for (count, word) in [(10_000, "10,000"), (100_000, "100,000")] {
        let home = home.join(word);
        app(&home);
        run(&home, &["run", "-C", &home.join("app").display().to_string(), "-p", "one", "-q"]);
        let journal = home.join("state/etude/journal.db");
        multiply(&Journal::open(&journal).expect("the journal"), count);
        let (served, _) = Served::start(&home);
        let database = Journal::open(&journal).expect("the journal");
        let request = served.request("GET /v1/runs?status=failed&pipeline=one&limit=50", "", None);
        let mut times = [Vec::new(), Vec::new()];
        served.wait(async {
            let mut connection = http::Connection::open(served.process.port).await;
            for round in 0..report.rounds(500) {
                let since = Instant::now();
                let response = connection.ask(&request).await;
                times[0].push(since.elapsed());
                if round == 0 {
                    let page: serde_json::Value = serde_json::from_slice(&response.body).expect("a document");
                    assert_eq!(page["runs"].as_array().expect("runs").len(), 50);
                }
                let since = Instant::now();
                let query =
                    "select * from runs where state = 'failed' and target = 'one' order by created_at_ms desc limit 50";
                assert_eq!(read_rows(&database, query, 9).0, 50);
                times[1].push(since.elapsed());
            }
        });
        let [ours, baseline] = times;
        let key = format!("serve/list-{}", count / 1_000);
        let what = format!("`GET /v1/runs`, 50 of {word}, filtered");
        let slow = quantile(ours.clone(), 99);
        report.pair(&Pair { key: &key, what: &what, baseline: "the bare query" }, ours, baseline);
        let figure = format!("{what}: 99 of 100 take at most");
        report.figure(&format!("{key}-p99"), &figure, slow.as_secs_f64() * 1e3, "ms");
    }
}

/// Copies the only run of a journal, with new ids and times; each tenth copy has failed.
fn multiply(journal: &Journal, count: usize) {
    let columns = |table: &str| -> Vec<String> {
        let mut query = journal.prepare(&format!("select name from pragma_table_info('{table}')")).expect("a query");
        let rows = query.query_map([], |row| row.get(0)).expect("columns");
        rows.map(|name| name.expect("a name")).collect()
    };
    let copied = |name: &String| match name.as_str() {
        "number" => "n".to_owned(),
        "run" => "n".to_owned(),
        "id" => "printf('%s%06d', substr(id, 1, length(id) - 6), n)".to_owned(),
        "created_at_ms" => "created_at_ms + n".to_owned(),
        "state" => "case n % 10 when 0 then 'failed' else state end".to_owned(),
        name => name.to_owned(),
    };
    for table in ["runs", "headers", "results"] {
        let columns = columns(table);
        let values: Vec<String> = columns.iter().map(copied).collect();
        let sql = format!(
            "with recursive many(n) as (select 2 union all select n + 1 from many where n < {count})
             insert into {table} ({}) select {} from {table}, many where {} = 1",
            columns.join(", "),
            values.join(", "),
            if table == "runs" { "number" } else { "run" },
        );
        journal.execute(&sql, []).expect("copies");
    }
}

/// Reads all columns of all rows. Returns the number of rows and of bytes.
fn read_rows(database: &Journal, query: &str, columns: usize) -> (usize, usize) {
    let mut query = database.prepare_cached(query).expect("a query");
    let mut rows = query.query([]).expect("rows");
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next().expect("a row") {
        for column in 0..columns {
            bytes += match row.get_ref(column).expect("a column") {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 1,
            };
        }
        count += 1;
    }
    (count, bytes)
}

/// A run whose end the request waits for, beside its step.
pub(crate) fn post(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let request = served.request("POST /v1/runs", "prefer: wait=20\r\n", Some(&json!({"pipeline": "one"})));
    let port = served.process.port;
    let dir = home.join("app/pipelines/one");
    let pair =
        Pair { key: "serve/post", what: "`POST /v1/runs` that waits, one code step", baseline: "the step's process" };
    let ours = || {
        let response = served.wait(http::once(port, &request));
        let run: serde_json::Value = serde_json::from_slice(&response.body).expect("a document");
        assert_eq!(run["status"], "succeeded", "{run}");
    };
    report.compare(&pair, 60, ours, || drop(bare_step(&dir, &["cat", "out.json"], b"{}")));
}

/// Runs that are accepted and begin later, beside as many rows in separate transactions.
pub(crate) fn starts(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let body = json!({"pipeline": "one", "not_before": "2199-01-01T00:00:00Z"});
    let request = served.request("POST /v1/runs", "", Some(&body));
    let rows = Journal::open(home.join("rows.db")).expect("a database");
    let setup = "pragma journal_mode = wal; pragma synchronous = full; create table rows (body text);";
    rows.execute_batch(setup).expect("a table");
    let pair = Pair {
        key: "serve/starts",
        what: "1,600 runs accepted, on 8 connections",
        baseline: "1,600 rows, each in a transaction of its own, on the disk",
    };
    let ours = || served.wait(http::load(served.process.port, &request, STARTERS, STARTS / STARTERS));
    let baseline = || {
        let mut insert = rows.prepare_cached("insert into rows values (?1)").expect("a statement");
        for _ in 0..STARTS {
            insert.execute(["x".repeat(400)]).expect("a row");
        }
    };
    let [_, took, _] = report.compare(&pair, 5, ours, baseline);
    report.figure("serve/starts-rate", "runs accepted", STARTS as f64 / took.as_secs_f64(), "a second");
}

/// Time until the server accepts connections, with 10,000 runs in the journal.
pub(crate) fn listening(report: &mut Report, home: &Path) {
    app(home);
    run(home, &["run", "-C", &home.join("app").display().to_string(), "-p", "one", "-q"]);
    multiply(&Journal::open(home.join("state/etude/journal.db")).expect("the journal"), 10_000);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..report.rounds(15) {
        let (_served, took) = Served::start(home);
        times[0].push(took);
        let since = Instant::now();
        run(home, &["--version"]);
        times[1].push(since.elapsed());
    }
    let [ours, baseline] = times;
    let pair =
        Pair { key: "serve/listening", what: "a server listens, with 10,000 runs", baseline: "`etude --version`" };
    report.pair(&pair, ours, baseline);
}

/// Cost of a server with nothing to do, beside a bare one: ten schedules that are not due, a hundred quiet streams.
pub(crate) fn idle(report: &mut Report, home: &Path) {
    const STREAMS: usize = 100;
    app(home);
    let mut config = "schedules:\n".to_owned();
    for at in 0..10 {
        config.push_str(&format!("  s{at}: {{pipeline: one, cron: \"{at} 4 29 2 *\", timezone: UTC}}\n"));
    }
    write(&home.join("app/etude.yaml"), &config);
    let (served, _) = Served::start(home);
    let waiting = served.begin("asked", &json!({"items": [1]}));
    let stream = format!("GET /v1/runs/{waiting}/events");
    let stream = served.request(&stream, "accept: text/event-stream\r\n", None);
    fs::write(home.join("body.json"), "{}").expect("written");
    let bare = Process::bare(&["--child-routes", &home.join("body.json").display().to_string()]);
    let quiet = http::request(bare.port, "", "GET /quiet", "", None);
    served.wait(async {
        for (port, request) in [(served.process.port, stream), (bare.port, quiet)] {
            for _ in 0..STREAMS {
                let (connection, request) = (http::Connection::open(port).await, request.clone());
                tokio::spawn(async move { connection.follow(&request, |_| {}).await });
            }
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    });
    let before = [&served.process, &bare].map(Process::used);
    let whole = Duration::from_secs(report.rounds(60) as u64);
    std::thread::sleep(whole);
    let share =
        |process: &Process, before: Duration| (process.used() - before).as_secs_f64() / whole.as_secs_f64() * 100.0;
    let what = "an idle server, 10 schedules and 100 quiet streams";
    report.figure("serve/idle-memory", &format!("{what}: memory"), served.process.memory("VmRSS"), "MiB");
    report.figure("serve/idle-bare-memory", "a bare server with 100 connections: memory", bare.memory("VmRSS"), "MiB");
    let ours = share(&served.process, before[0]);
    report.figure("serve/idle-processor", &format!("{what}: share of a core"), ours, "%");
    let baseline = share(&bare, before[1]);
    report.figure("serve/idle-bare-processor", "a bare server with 100 connections: share of a core", baseline, "%");
}
