//! Rules of a fleet: `etude engine apply`, and their effect on submissions and workers.

use serde_json::json;

use crate::database::Server;
use crate::fleet::{apply, count, fleet, list};
use crate::fleet_workers::{WORKER, events};
use crate::ran::Ran;
use crate::test::{Test, noting, printing, wait_until};

fn one_step() -> Test {
    Test::new().pipeline("p", |p| p.note("a", "1"))
}

fn submit(test: &Test, more: &[&str]) -> Ran {
    test.run(&[&["run", "-p", "p", "--detach", "--format", "json"], more].concat())
}

/// cluster §6: `engine apply` writes the queues and tenants of the user's configuration, prints the resulting rules, and does
/// not touch others.
#[test]
fn apply_writes_queues_and_tenants() {
    let test = one_step();
    test.run(&["engine", "apply"]).exit(2).stderr_has("--engine");
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, test);
    let default = json!({
        "priority": 0, "limit": 500, "per_tenant": null, "per_app": null, "per_label": {}, "untrusted": false,
        "allow": {"network": true, "unsandboxed": true, "yolo": false, "folders": []},
    });
    test.run(&["engine", "apply", "--format", "json"]).exit(0).stdout_json(json!({
        "queues": {"default": default}, "tenants": {}, "blobs": null
    }));
    let test = test.user_config(
        "queues:\n  batch: {priority: -1, limit: 50, per_tenant: 5, per_app: 10, per_label: {\"gpu=a100\": 2}, untrusted: true}\n\
         tenants: {acme: {live: 20, queued: 1000, records_per_day: 1000000, bytes: 10GiB, cost_usd_per_day: 50}}\n",
    );
    let applied = test.run(&["engine", "apply", "--format", "json"]).exit(0);
    assert_eq!(applied.at("/queues/default"), default);
    let batch = applied.at("/queues/batch");
    assert_eq!(
        (&batch["priority"], &batch["per_label"], &batch["untrusted"]),
        (&json!(-1), &json!({"gpu=a100": 2}), &json!(true))
    );
    applied.has(
        "/tenants/acme",
        json!({"live": 20, "queued": 1000, "records_per_day": 1_000_000, "bytes": 10_737_418_240_u64, "cost_usd_per_day": 50.0}),
    );
    let text = test.run(&["engine", "apply"]).exit(0).out().to_owned();
    assert!(text.contains("queue batch: ") && text.contains("limit 50"), "{text}");
    let workers = test.run(&["workers", "--format", "json"]).exit(0);
    assert_eq!((workers.at("/queues/0/queue"), workers.at("/queues/0/limit")), (json!("batch"), json!(50)));
    assert_eq!((workers.at("/queues/0/untrusted"), workers.at("/queues/1/untrusted")), (json!(true), json!(false)));
    apply(&test, "tenants: {}\n").has("/tenants", json!({})).has("/queues/batch/limit", 50);
    for (rules, place) in [
        ("queues: {a: {limit: many}}\n", "rules.yaml:1:21"),
        ("queues:\n  a: {allow: {folders: [/data, data]}}\n", "rules.yaml:2:32"),
        ("engine:\n  blobs: https://bucket\n", "rules.yaml:2:10"),
    ] {
        test.put("rules.yaml", rules);
        test.run(&["engine", "apply", "--config", "../rules.yaml"]).exit(3).stderr_has(place);
    }
    // Other commands do not need settings that only this one uses.
    test.run(&["runs", "list", "--config", "../rules.yaml"]).exit(0);
}

/// cluster §6: an app sets neither the engine nor the rules of a fleet, and the error has the place.
#[test]
fn an_app_cannot_set_the_rules_of_a_fleet() {
    let test = one_step().file("etude.yaml", "agent: {}\nqueues: {default: {limit: 1}}\ntenants: {default: {}}\n");
    test.run_json("p").exit(3).stderr_has("etude.yaml:2:1").stderr_has("etude.yaml:3:1");
    test.run(&["check", "--format", "json"]).exit(3).has("/diagnostics/0/line", 2).has("/diagnostics/1/line", 3);
    test.put("app/etude.yaml", "engine: {url: embedded}\n");
    test.run_json("p").exit(3).stderr_has("an app cannot set `engine`");
}

/// cluster §6: no run is accepted for a queue that was not applied, and nothing is uploaded for it.
#[test]
fn a_run_needs_a_queue_that_was_applied() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, one_step());
    submit(&test, &["--queue", "batch"])
        .exit(2)
        .stderr_has("there is no queue `batch`")
        .stderr_has("etude engine apply");
    assert_eq!((count(&test), server.sql("select count(*) from etude.blobs").as_str()), (0, "0"));
    submit(&test, &["--queue", "default"]).exit(0);
    apply(&test, "queues: {batch: {}}\n");
    submit(&test, &["--queue", "batch"]).exit(0);
    assert_eq!(count(&test), 2);
}

/// K-33: workers never exceed the queue's limit of live runs.
#[test]
fn workers_keep_the_limit_of_a_queue() {
    let Some(server) = Server::start() else { return };
    let step = format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting("a"), printing("1"));
    let test = fleet(&server, Test::new().pipeline("p", |p| p.sh("a", &step)));
    apply(&test, "queues: {default: {limit: 1}}\n").has("/queues/default/limit", 1);
    let ids = [submit(&test, &[]).exit(0).id(), submit(&test, &[]).exit(0).id()];
    let (first, second) = (test.start(&WORKER), test.start(&WORKER));
    test.wait_for("a");
    // Both workers have polled again since then.
    let looks = |worker| events(worker).len();
    wait_until("both", || looks(&first) + looks(&second) == 3);
    assert_eq!(test.ledger(), ["a"]);
    test.put("go", "");
    wait_until("the end", || {
        let rows = list(&test).doc()["runs"].clone();
        rows.as_array().is_some_and(|rows| rows.iter().all(|row| row["status"] == "succeeded"))
    });
    assert_eq!((ids.len(), test.ledger()), (2, vec!["a".to_owned(), "a".to_owned()]));
    for worker in [first, second] {
        worker.terminate();
        worker.finish().exit(0);
    }
}

/// K-54: a submission gets nothing that the queue does not allow, and its error names the member. Allowed grants reach the
/// worker.
#[test]
fn a_queue_allows_what_runs_may_have() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("q", |p| p.step("name: n\ntype: code\ncommand: \"echo 1\"\nsandbox: {network: true}\n"))
        .pipeline("s", |p| p.step("name: n\ntype: code\ncommand: \"echo 1\"\nsandbox: {}\n"));
    let test = fleet(&server, test);
    let refused = |pipeline: &str, args: &[&str], member: &str| {
        let ran = test.run(&[&["run", "-p", pipeline, "--detach", "--format", "json"], args].concat());
        ran.exit(2).stderr_has(member);
    };
    refused("p", &["--yolo"], "allow.yolo");
    refused("p", &["--write", "/data"], "allow.folders");
    apply(
        &test,
        "queues:\n  closed: {allow: {unsandboxed: false, network: false}}\n  open: {allow: {yolo: true, folders: [/data]}}\n",
    );
    refused("p", &["--queue", "closed"], "allow.unsandboxed");
    refused("q", &["--queue", "closed"], "allow.network");
    refused("p", &["--queue", "open", "--read", "/database"], "allow.folders");
    assert_eq!(count(&test), 0);
    test.run(&["run", "-p", "s", "--detach", "--queue", "closed"]).exit(0);
    submit(&test, &["--queue", "open", "--yolo", "--read", "/data/in"]).exit(0);
    assert_eq!(count(&test), 2);
    // Rules that have become narrower apply to earlier submissions.
    submit(&test, &["--queue", "open"]).exit(0);
    apply(&test, "queues: {open: {allow: {unsandboxed: false}}, closed: {}}\n");
    // On a slow machine, a worker may seem idle before it takes the run.
    wait_until("the end of the run", || {
        test.run(&[&WORKER[..], &["--idle", "1s", "--queue", "open"]].concat()).exit(0);
        list(&test).at("/runs/0/status") != "queued"
    });
    assert_eq!(test.ledger(), [""; 0]);
    list(&test).has("/runs/0/status", "failed");
}

/// K-55: in an untrusted queue, every step is in a sandbox that stays in the app, or the run is refused.
#[test]
fn an_untrusted_queue_takes_sandboxed_steps_alone() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("open", |p| p.note("a", "1"))
        .pipeline("out", |p| p.step("name: n\ntype: code\ncommand: \"echo 1\"\nsandbox: {read: [/etc]}\n"))
        .pipeline("kept", |p| p.step("name: n\ntype: code\ncommand: \"echo 1\"\nsandbox: {read: [pipelines]}\n"));
    let test = fleet(&server, test);
    apply(&test, "queues: {guests: {untrusted: true}}\n");
    let submit = |pipeline: &str| test.run(&["run", "-p", pipeline, "--detach", "--queue", "guests"]);
    for pipeline in ["open", "out"] {
        submit(pipeline).exit(2).stderr_has("`untrusted` of the queue");
    }
    assert_eq!(count(&test), 0);
    submit("kept").exit(0);
}

/// K-57: a quota refuses a submission with its number and limit, and no run is created. The run of an existing key is still
/// found.
#[test]
fn a_spent_quota_takes_no_run() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, one_step());
    let refused = |quota: &str| {
        let ran = submit(&test, &[]).exit(1).has("/errors/0/kind", "budget_exceeded");
        let message = ran.at("/errors/0/message").as_str().unwrap_or_default().to_owned();
        assert!(message.contains(quota), "{message}");
        message
    };
    apply(&test, "tenants: {default: {queued: 1}}\n");
    let id = submit(&test, &["--key", "k"]).exit(0).id();
    assert!(refused("`queued`").contains("1 queued run of 1"));
    assert_eq!(submit(&test, &["--key", "k"]).exit(0).has("/replayed", true).id(), id);
    assert_eq!(count(&test), 1);
    // On a slow machine, a worker may seem idle before it takes the run.
    wait_until("the end of the run", || {
        test.run(&[&WORKER[..], &["--idle", "1s"]].concat()).exit(0);
        !test.ledger().is_empty()
    });
    assert_eq!(test.ledger(), ["a"]);
    apply(&test, "tenants: {default: {records_per_day: 1}}\n");
    refused("`records_per_day`");
    apply(&test, "tenants: {default: {bytes: 100}}\n");
    refused("`bytes`");
    apply(&test, "tenants: {default: {cost_usd_per_day: 0}}\n");
    assert!(refused("`cost_usd_per_day`").contains("0.00 USD"));
    assert_eq!(submit(&test, &["--key", "k"]).exit(0).has("/replayed", true).id(), id);
    apply(&test, "tenants: {default: {bytes: 1GiB, records_per_day: 1000, queued: 5, cost_usd_per_day: 0.01}}\n");
    submit(&test, &[]).exit(0);
    assert_eq!(count(&test), 2);
}
