//! Failover of a fleet whose database is lost and replaced by its standby.

use serde_json::json;

use crate::database::Server;
use crate::fleet::fleet_of;
use crate::fleet_workers::{WORKER, events};
use crate::soak::{STEPS, TIMES, app};
use crate::test::{Running, Test, noting, printing, wait_until};

fn stop(worker: Running) {
    worker.terminate();
    worker.finish().exit(0);
}

/// K-2, K-12, K-13, K-21: a synchronous standby has all acknowledged data. Workers continue with it, no run is lost or fails,
/// no recorded effect is repeated.
#[test]
fn a_synchronous_standby_takes_over_without_loss() {
    const RUNS: usize = 6;
    let Some(mut primary) = Server::start() else { return };
    let standby = primary.start_standby(true);
    let test = fleet_of(&Server::url_of_primary([&primary, &standby], "etude"), app(TIMES, 1));
    let checks = test.run(&["engine", "check", "--format", "json"]).doc();
    let checks = checks["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["id"] == "standby").expect("one of them");
    assert_eq!((&check["status"], &check["found"]), (&json!("ok"), &json!("1 standbys, 0 asynchronous")));
    let workers = [0, 1].map(|_| test.start(&[&WORKER[..], &["--places", "2"]].concat()));
    let submit = || test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let mut runs: Vec<String> = (1..RUNS).map(|_| submit()).collect();
    let recorded = |server: &Server| -> usize {
        server.sql("select count(*) from etude.records where left(key, 1) <> '!'").parse().expect("a number")
    };
    let mut before = 0;
    wait_until("recorded steps", || {
        before = recorded(&primary);
        before >= 4
    });
    primary.kill();
    standby.promote();
    assert!(recorded(&standby) >= before, "what was acknowledged is there");
    runs.push(submit());
    wait_until("the end of all runs", || {
        standby.sql("select count(*) from etude.runs where state <> 'succeeded'") == "0"
    });
    assert_eq!(standby.sql("select count(*) from etude.runs"), RUNS.to_string());
    let twice = "select count(*) from (select 1 from etude.records where left(key, 1) <> '!' group by run, key having count(*) > 1) r";
    assert_eq!(standby.sql(twice), "0", "an effect is recorded twice");
    let ledger = test.ledger();
    for run in &runs {
        let steps = |step: usize| ledger.iter().filter(|line| **line == format!("{run} {step}")).count();
        assert!((0..STEPS).all(|step| steps(step) >= 1), "{ledger:?}");
    }
    // Active effects may begin again, once: two runs of each worker.
    assert!(ledger.len() <= RUNS * STEPS + 4, "{ledger:?}");
    workers.into_iter().for_each(stop);
}

/// K-24: a standby that lacks acknowledged records takes over. The worker of their run builds nothing on the gap: the run fails
/// and reports the place. Resumed, it continues from the remaining records.
#[test]
fn a_standby_that_lacks_records_ends_their_run() {
    let Some(mut primary) = Server::start() else { return };
    let standby = primary.start_standby(false);
    let held = |name: &str| {
        let wait = format!("while [ ! -e \"$ROOT/{name}\" ]; do sleep 0.02; done");
        format!("{}; {wait}; {}", noting(name), printing(&format!("\"{name}\"")))
    };
    let test = Test::new()
        .pipeline("p", |p| ["first", "second", "third"].into_iter().fold(p, |p, name| p.sh(name, &held(name))));
    let test = fleet_of(&Server::url_of_primary([&primary, &standby], "etude"), test.user_config(TIMES));
    let worker = test.start(&WORKER);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let begun = |name: &str| wait_until(name, || test.ledger().last().is_some_and(|last| last == name));
    begun("first");
    test.put("first", "");
    begun("second");
    let records = "select string_agg(key, ' ' order by seq) from etude.records where left(key, 1) <> '!'";
    let known = primary.sql(records);
    wait_until("the records on the standby", || standby.sql(records) == known);
    standby.stop_following();
    test.put("second", "");
    begun("third");
    assert_ne!(primary.sql(records), known, "the second step is recorded");
    primary.kill();
    standby.promote();
    test.put("third", "");
    wait_until("the end of the run", || standby.sql("select state from etude.runs") == "failed");
    let message = "the database has lost acknowledged records of the run after position 2";
    let shown = test.run(&["runs", "show", &id, "--format", "json"]);
    shown.has("/status", "failed").has("/errors/0/kind", "environment").has("/errors/0/message", message);
    assert_eq!(standby.sql(records), known, "an effect is recorded after the gap");
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(0).has("/status", "succeeded").has("/output", "third");
    assert_eq!(test.ledger(), ["first", "second", "third", "second", "third"]);
    assert!(events(&worker).iter().any(|event| event["event"] == "claimed"));
    stop(worker);
}
