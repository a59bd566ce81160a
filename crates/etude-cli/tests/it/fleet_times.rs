//! Time in a fleet: runs that sleep without a process, and schedules of several servers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::database::Server;
use crate::fleet::{elsewhere, fleet, list};
use crate::fleet_workers::{WORKER, events};
use crate::serve::Serving;
use crate::test::{Test, noting, printing, wait_until};

const HOUR: i64 = 3_600_000;

/// Status of a run.
fn status(test: &Test, id: &str) -> Value {
    test.run(&["runs", "show", id, "--format", "json"]).doc()["status"].clone()
}

/// K-43: a run whose next attempt is minutes away sleeps without a process and frees its slot. It continues when its time has
/// come, and earlier attempts are not repeated.
#[test]
fn a_run_that_sleeps_for_long_leaves_its_place() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            let script = format!("{}; [ -e \"$ROOT/go\" ] || exit 7; {}", noting("attempt"), printing("1"));
            p.note("before", "0").sh_with(
                "a",
                &script,
                "timeout: 20m\nretry: {max: 2, backoff: 5m, max_backoff: 5m, jitter: false}\n",
            )
        })
        .pipeline("q", |p| p.note("other", "2"));
    let test = fleet(&server, test);
    let submit = |name: &str| test.run(&["run", "-p", name, "--detach", "--format", "json"]).exit(0).id();
    let id = submit("p");
    let worker = test.start(&[&WORKER[..], &["--places", "1"]].concat());
    wait_until("the sleep", || status(&test, &id) == "sleeping");
    test.run(&["runs", "list", "--status", "sleeping", "--format", "json"]).exit(0).has("/runs/0/worker", json!(null));
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "sleeping");
    wait_until("the end of the work", || events(&worker).iter().any(|event| event["reason"] == "sleeping"));
    let other = submit("q");
    wait_until("another run in the only place", || status(&test, &other) == "succeeded");
    assert_eq!(status(&test, &id), "sleeping");
    test.run(&["workers", "--format", "json"]).exit(0).has("/queues/0/sleeping", 1);
    assert_eq!(test.ledger(), ["before", "attempt", "other"]);
    // Its time comes.
    test.put("go", "");
    server.sql(
        "update etude.records set body = convert_to(regexp_replace(convert_from(body, 'UTF8'), '\"at_ms\":[0-9]+', '\"at_ms\":1'), 'UTF8')
         where key like '!deadline/%backoff%'",
    );
    server.sql("update etude.queue set not_before_ms = 0");
    wait_until("the end of the run", || status(&test, &id) == "succeeded");
    assert_eq!(test.ledger(), ["before", "attempt", "other", "attempt"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// K-40, K-43: a sleeping run is cancelled from anywhere: a worker takes it and runs its destructor.
#[test]
fn a_run_that_sleeps_is_cancelled() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            let script = format!("{}; exit 7", noting("attempt"));
            p.sh_with("a", &script, "retry: {max: 2, backoff: 5m, max_backoff: 5m, jitter: false}\n")
        })
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let worker = test.start(&WORKER);
    wait_until("the sleep", || status(&test, &id) == "sleeping");
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/cancelling", true);
    wait_until("the end of the run", || status(&test, &id) == "cancelled");
    assert_eq!(test.ledger(), ["attempt", "end"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// Sets the clock of the servers to half past the hour in which the test began, plus some hours.
fn set_clock(test: &Test, hours: i64) {
    if !test.path("began").exists() {
        test.put("began", &etude_runtime::clock::now_ms().to_string());
    }
    let began: i64 = test.read("began").trim().parse().expect("milliseconds");
    test.put("clock", &(HOUR / 2 - began % HOUR + hours * HOUR).to_string());
}

/// Maximum delay of a tick, in milliseconds.
fn latest(server: &Serving) -> Option<i64> {
    let document = server.document("GET", "/v1/schedules/app/a/ticks", "");
    document["ticks"]
        .as_array()?
        .iter()
        .filter(|tick| tick["outcome"] == "ran")
        .map(|tick| tick["late_ms"].as_i64())
        .max()
        .flatten()
}

/// Ticks that created a run, with their runs.
fn ticks(server: &Serving) -> Vec<(String, String)> {
    let document = server.document("GET", "/v1/schedules/app/a/ticks", "");
    let of = |tick: &Value| Some((tick["at"].as_str()?.to_owned(), tick["run_id"].as_str()?.to_owned()));
    document["ticks"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// K-44: two servers of an app share its schedule: each scheduled time creates one run, also if one of the servers is killed
/// meanwhile. All missed times together create one run, which is reported as late.
#[test]
fn a_schedule_of_several_servers_fires_once() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .file("etude.yaml", "schedules:\n  a: {pipeline: p, every: 1h, catch_up: last, overlap: allow}\n");
    set_clock(&test, 0);
    let clock = test.path("clock").display().to_string();
    let test = fleet(&server, test.env("ETUDE_TEST_CLOCK", &clock));
    let first = Serving::start(&test, &["--port", "0"]);
    first.post("/v1/schedules/app/a/pause", &json!({}));
    first.post("/v1/schedules/app/a/unpause", &json!({}));
    let test = elsewhere(test, "second");
    let second = Serving::start(&test, &["--port", "0"]);
    let succeeded = |count: usize| {
        let ran = test.run(&["runs", "list", "--status", "succeeded", "--format", "json"]).exit(0);
        ran.at("/runs").as_array().map(Vec::len) == Some(count)
    };
    for hour in 1..=2 {
        set_clock(&test, hour);
        wait_until("the run of an hour", || succeeded(hour as usize) && ticks(&second).len() == hour as usize);
    }
    // One of them dies while the next hour begins.
    set_clock(&test, 3);
    first.signal("KILL");
    wait_until("the run of the third hour", || succeeded(3) && ticks(&second).len() == 3);
    second.end();
    // No server runs for some hours.
    set_clock(&test, 7);
    let second = Serving::start(&test, &["--port", "0"]);
    let test = elsewhere(test, "third");
    let third = Serving::start(&test, &["--port", "0"]);
    wait_until("one run for all of them", || ticks(&third).len() == 4);
    let made = ticks(&third);
    // It is for the newest hour, which began half an hour before.
    assert!(latest(&third).is_some_and(|late| late >= HOUR / 2), "{:?}", latest(&third));
    let runs: BTreeSet<&String> = made.iter().map(|(_, run)| run).collect();
    let times: BTreeSet<&String> = made.iter().map(|(tick, _)| tick).collect();
    assert_eq!((runs.len(), times.len()), (4, 4), "{made:?}");
    let rows = list(&test).at("/runs");
    assert_eq!(rows.as_array().map(Vec::len), Some(4), "{rows:#}");
    [second, third].into_iter().for_each(|server| drop(server.end()));
}
