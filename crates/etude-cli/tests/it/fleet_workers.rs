//! Workers of a fleet: their claims, deaths and drains, and their status for others.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::database::Server;
use crate::fleet::{apply, count, elsewhere, fleet, list};
use crate::server::{Reply, Server as Models};
use crate::test::{Running, Test, noting, printing, wait_until, with_some_limit};

/// Events that a worker has printed so far.
pub(crate) fn events(running: &Running) -> Vec<Value> {
    running.stdout_so_far().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Command line of a worker that prints its events.
pub(crate) const WORKER: [&str; 3] = ["worker", "--format", "jsonl"];

/// K-28, K-29, K-50, K-54: a run is submitted with its app, and a worker that has never seen the app drives it, whatever
/// happens to the submitter's files. The same key names the same run.
#[test]
fn a_worker_drives_what_another_machine_has_submitted() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.with("input: {n: {type: integer}}").sh("a", &format!(
            "cat \"$ETUDE_APP_DIR/helper.txt\" >> \"$LEDGER\"; [ \"$ETUDE_CALLER_DIR\" = \"$ETUDE_APP_DIR\" ] && echo x > \"$ETUDE_APP_DIR/left\"; {}",
            printing("\"done\"")
        ))
    });
    let test = test.file("helper.txt", "packed\n").file(".env", "KEY=canary\n");
    let test = fleet(&server, test);
    let submit = |n: &str, key: &str| {
        test.run(&["run", "-p", "p", "-i", n, "--detach", "--key", key, "--label", "of=test", "--format", "json"])
    };
    test.run(&["run", "-p", "p", "-i", "n=1", "--detach", "--engine", "embedded"]).exit(2).stderr_has("--engine");
    test.run(&["run", "-p", "p", "-i", "n=1", "--detach", "--yolo"]).exit(2).stderr_has("allow.yolo");
    test.run(&["run", "-p", "p", "-i", "n=1", "--read", "."]).exit(2).stderr_has("allow.folders");
    let first = submit("n=1", "k").exit(0).has("/status", "queued").has("/replayed", false);
    let id = first.id();
    assert_eq!(submit("n=1", "k").exit(0).has("/replayed", true).id(), id);
    submit("n=2", "k").exit(2).has("/errors/0/kind", "input_invalid");
    assert_eq!(count(&test), 1);
    list(&test).has("/runs/0/status", "queued");
    let pushed = test.run(&["push", "--format", "json"]).exit(0).has("/uploaded", false).has("/name", "app");
    assert!(pushed.at("/files").as_u64().is_some_and(|files| files >= 3), "{}", pushed.out());
    // Later changes do not affect a submission.
    test.put("app/helper.txt", "edited later\n");
    std::fs::remove_dir_all(test.path("app/pipelines")).expect("it is there");
    let elsewhere = elsewhere(test, "second");
    let worker = elsewhere.start(&WORKER);
    wait_until("the end of the run", || events(&worker).iter().any(|event| event["event"] == "released"));
    worker.terminate();
    let ran = worker.finish().exit(0);
    let said: Vec<serde_json::Value> =
        ran.out().lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let words: Vec<&str> = said.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(words, ["ready", "claimed", "released", "draining", "stopped"], "{}", ran.err());
    assert_eq!((&said[0]["health"], &said[1]["taken_from"]), (&json!(null), &json!(null)));
    assert_eq!(
        (&said[1]["run_id"], &said[2]["reason"], &said[4]["reason"]),
        (&json!("[RUN]"), &json!("finished"), &json!("drained"))
    );
    elsewhere
        .run(&["runs", "show", &id, "--format", "json"])
        .exit(0)
        .has("/status", "succeeded")
        .has("/output", "done");
    assert_eq!(elsewhere.ledger(), ["packed"]);
    assert!(!elsewhere.path("app/left").exists(), "the submitter's files are its own");
    assert!(!elsewhere.path("second/state/etude/fleet/runs").join(&id).exists(), "the copy is gone");
    let kept = server.sql("select string_agg(encode(body, 'escape'), '') from etude.chunks");
    assert!(!kept.contains("canary"), "no key leaves the machine");
}

/// K-12, K-14, K-16, K-60: a run of a killed worker is continued by another one, no recorded step starts again, and the
/// destructor runs there. A decision from any machine continues a waiting run (K-41), and a draining worker hands its run over
/// (K-27).
#[test]
fn workers_take_over_wait_and_drain() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            p.note("first", "1")
                .sh("second", &format!("{}; [ -e \"$ROOT/go\" ] || sleep 600; {}", noting("second"), printing("2")))
                .step("name: gate\ntype: approval\nmessage: Go on?\n")
                .sh(
                    "third",
                    &format!("{}; until [ -e \"$ROOT/on\" ]; do sleep 0.05; done; {}", noting("third"), printing("3")),
                )
                .note("fourth", "4")
        })
        .pipeline("_constructor", |p| p.note("begin", "0"))
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let first = test.start(&WORKER);
    test.wait_for("second");
    let name = events(&first)[0]["worker"].clone();
    first.kill();
    test.put("go", "");
    let test = elsewhere(test, "second");
    let second = test.start(&WORKER);
    wait_until("the takeover", || events(&second).iter().any(|event| event["taken_from"] == name));
    wait_until("the question", || list(&test).doc()["runs"][0]["status"] == "waiting");
    test.run(&["approve", &id]).exit(0);
    test.wait_for("third");
    second.terminate();
    wait_until("the beginning of the end", || events(&second).iter().any(|event| event["event"] == "draining"));
    test.put("on", "");
    let ran = second.finish().exit(0);
    assert!(ran.out().contains("\"drained\""), "{}", ran.out());
    // A run that was handed over keeps its position in the queue, so that a platform that scales workers by queue depth sees
    // it.
    assert_eq!(server.sql("select count(*) from etude.queue"), "1");
    let test = elsewhere(test, "third");
    let third = test.start(&[&WORKER[..], &["--idle", "60s"]].concat());
    wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "succeeded");
    third.terminate();
    third.finish().exit(0);
    assert_eq!(test.ledger(), ["begin", "first", "second", "second", "third", "fourth", "end"]);
}

/// A worker without a database is a usage error, and it takes runs only from its queues.
#[test]
fn workers_need_a_database_and_have_queues() {
    Test::new().run(&["worker", "--format", "json"]).exit(2).stderr_has("--engine");
    Test::new().run(&["worker", "--places", "0"]).exit(2).stderr_has("--places");
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    apply(&test, "queues: {other: {}}\n");
    test.run(&["run", "-p", "p", "--detach", "--queue", "other", "--format", "json"]).exit(0);
    let ran = test.run(&[&WORKER[..], &["--idle", "1s"]].concat()).exit(0);
    assert!(!ran.out().contains("claimed"), "another queue: {}", ran.out());
    with_some_limit(|limit| {
        let ran = test.run(&[&WORKER[..], &["--idle", limit, "--queue", "other"]].concat()).exit(0);
        ran.out().contains("claimed")
    });
}

/// A worker whose configuration has a fault in any part is not ready and claims nothing, because its runs would only fail. It
/// reports that without waiting for the database.
#[test]
fn a_worker_with_a_faulty_configuration_does_not_start() {
    let url = format!("postgres://etude@{}/etude", free_address());
    let test = Test::new().user_config("router: {mode: local}\n").file("named.yaml", "colour: red\n");
    let named = test.path("app/named.yaml").display().to_string();
    let worker = |more: &[&str]| test.run(&[&WORKER[..], &["--engine", &url], more].concat());
    let ran = worker(&[]).exit(3).stderr_has("config.yaml:1:");
    assert!(!ran.out().contains("ready"), "{}", ran.out());
    worker(&["--config", &named]).exit(3).stderr_has("named.yaml:1:");
}

/// Times so short that a test need not wait long for a death.
const SHORT: &str = "engine: {lease: 12s, beat: 1s, grace: 1s, poll: 100ms, max_crashes: 2}\n";

/// Status and body of a health response of a worker.
fn health(worker: &Running, path: &str) -> (u16, String) {
    let ready = events(worker).into_iter().find(|event| event["event"] == "ready").expect("it is ready");
    let address = ready["health"].as_str().expect("an address").to_owned();
    get(&address, path)
}

pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it responds");
    let (head, body) = text.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// An address on which nothing listens. The system gives such a port to no other program: it is below those of clients and of
/// listeners that name none.
pub(crate) fn free_address() -> String {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 200).expect("a small number") * 100;
    let mut ports = std::iter::repeat_with(|| first + TAKEN.fetch_add(1, Ordering::Relaxed) % 100);
    let free = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).and_then(|port| port.local_addr()).ok());
    free.expect("a free port").to_string()
}

pub(crate) fn is_ready(worker: &Running) -> bool {
    events(worker).iter().any(|event| event["event"] == "ready")
}

/// K-22, K-60: health, metrics and `etude workers` report the state of a worker, also during an outage of the database.
#[test]
fn a_worker_has_health_and_figures() {
    let Some(mut server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).user_config(SHORT);
    let test = fleet(&server, test);
    let worker = test.start(&[&WORKER[..], &["--health", "0", "--places", "3"]].concat());
    wait_until("the worker", || is_ready(&worker));
    let mut last = (0, String::new());
    wait_until("a claim", || {
        last = health(&worker, "/readyz");
        last.0 == 200
    });
    assert_eq!(last.1.trim(), r#"{"ready":true,"reason":null}"#);
    assert!(health(&worker, "/metrics").1.contains("etude_worker_claims_total{queue=\"default\"} 0\n"));
    test.run(&["run", "-p", "p", "--format", "json"]).output(1);
    let lines = [
        "etude_worker_places 3",
        "etude_worker_claims_total{queue=\"default\"} 1",
        "etude_queue_depth{queue=\"default\"} 0",
    ];
    // Figures that the database does not return in time are left out.
    wait_until("the figures", || {
        let (status, text) = health(&worker, "/metrics");
        assert_eq!(status, 200);
        lines.iter().all(|line| text.lines().any(|found| found == *line))
    });
    assert_eq!(health(&worker, "/nowhere").0, 404);
    let ran = test.run(&["workers", "--format", "json"]).exit(0);
    let doc: Value = serde_json::from_slice(&ran.raw).expect("a document");
    assert_eq!((&doc["workers"][0]["state"], &doc["workers"][0]["places"]), (&json!("live"), &json!(3)));
    assert_eq!((&doc["workers"][0]["pid"], &doc["queues"][0]["queue"]), (&json!(worker.id()), &json!("default")));
    server.stop();
    wait_until("the loss", || {
        health(&worker, "/readyz") == (503, "{\"ready\":false,\"reason\":\"disconnected\"}\n".to_owned())
    });
    assert_eq!(health(&worker, "/healthz").0, 200);
    server.start_again();
    wait_until("the connection", || events(&worker).iter().any(|event| event["event"] == "connected"));
    wait_until("a claim", || health(&worker, "/readyz").0 == 200);
    worker.terminate();
    let ran = worker.finish().exit(0);
    assert!(ran.out().contains("\"disconnected\""), "{}", ran.out());
}

/// K-26: a worker that starts before its database waits for it, is not ready, and ends on request.
#[test]
fn a_worker_waits_for_its_database() {
    let Some(mut server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")).user_config(SHORT));
    server.stop();
    let address = free_address();
    let ended = test.start(&[&WORKER[..], &["--health", &address]].concat());
    let worker = test.start(&[&WORKER[..], &["--idle", "3s"]].concat());
    wait_until("the health", || TcpStream::connect(&address).is_ok());
    assert_eq!((get(&address, "/healthz").0, get(&address, "/readyz").0), (200, 503));
    ended.terminate();
    let ran = ended.finish().exit(0);
    assert!(ran.out().contains("\"drained\"") && !ran.out().contains("ready"), "{}", ran.out());
    server.start_again();
    wait_until("the worker", || is_ready(&worker));
    worker.finish().exit(0);
}

/// A-7.1, K-15: a request that no pipeline takes is executed by an agent on a worker, with the document of a local run. K-54,
/// K-55: a queue that requires sandboxes takes no agent without one, and an untrusted queue none.
#[test]
fn a_worker_follows_a_skill() {
    let Some(server) = Server::start() else { return };
    let models = Models::agent([Reply::call("Read", json!({"path": "SKILL.md"}))]);
    let test = fleet(&server, Test::new().skill("", "Be brief.\n").model(&models));
    let here = test.follow("go", &["--engine", "embedded"]).exit(0);
    let worker = test.start(&WORKER);
    let there = test.run(&["run", "go", "--format", "json"]).exit(0);
    for member in ["/status", "/mode", "/pipeline", "/output", "/errors", "/steps/0/name", "/steps/0/usage"] {
        assert_eq!(there.at(member), here.at(member), "{member}");
    }
    assert_eq!(there.at("/mode"), "skill");
    list(&test).has("/runs/0/status", "succeeded").has("/runs/0/queue", "default");
    apply(&test, "queues: {closed: {allow: {unsandboxed: false}}, guests: {untrusted: true}}\n");
    for (queue, member) in [("closed", "allow.unsandboxed"), ("guests", "untrusted")] {
        test.follow("go", &["--queue", queue]).exit(2).stderr_has(&format!("`{member}` of the queue"));
    }
    assert_eq!(count(&test), 1);
    worker.terminate();
    worker.finish().exit(0);
}

/// A-6.2: a request without the required parameters of its pipeline goes to an agent. Its model is the worker's, so the
/// submitter needs none.
#[test]
fn a_submitter_without_a_model_leaves_the_skill_to_a_worker() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .skill("", "Be brief.\n")
        .pipeline("greet", |p| p.with("triggers: [greet a person]\ninput: {name: string}").note("a", "1"));
    let test = fleet(&server, test);
    let run = |more: &[&str]| test.run(&[&["run", "greet a person", "--format", "json"], more].concat());
    run(&["--engine", "embedded"]).exit(2).stderr_has("-i name=");
    let queued = run(&["--detach"]).exit(0).stderr_has("following SKILL.md").stderr_has("--pipeline greet -i name=");
    test.run(&["runs", "show", &queued.id(), "--format", "json"]).exit(0).has("/mode", "skill");
    assert_eq!(test.ledger(), [""; 0]);
}

/// K-27: a worker also stops during an outage of its database, at once if it has no run. Otherwise a second signal ends the
/// remaining work.
#[test]
fn a_worker_stops_without_its_database() {
    let Some(mut server) = Server::start() else { return };
    let sleeper = format!("{}; sleep 600", noting("begun"));
    let test = Test::new().pipeline("p", |p| p.sh("a", &sleeper));
    let test = fleet(&server, test.user_config("engine: {beat: 1s, patience: 1h}\n"));
    test.run(&["run", "-p", "p", "--detach"]).exit(0);
    let busy = test.start(&WORKER);
    test.wait_for("begun");
    let idle = test.start(&WORKER);
    wait_until("the worker", || is_ready(&idle));
    server.stop();
    let is_away = |worker: &Running| events(worker).iter().any(|event| event["event"] == "disconnected");
    wait_until("the loss", || is_away(&idle) && is_away(&busy));
    idle.terminate();
    idle.finish().exit(0);
    busy.terminate();
    wait_until("the drain", || events(&busy).iter().any(|event| event["event"] == "draining"));
    busy.terminate();
    let ran = busy.finish().exit(0);
    assert!(ran.out().contains("\"drained\""), "{}", ran.out());
}

/// K-5, K-7: a worker that slept longer than its lease writes nothing to a run that another one has, reports that, and works
/// on. The same applies to one that never checks its own lease.
#[test]
fn a_worker_that_slept_loses_its_runs_and_works_on() {
    let Some(server) = Server::start() else { return };
    for is_blind in [false, true] {
        server.sql("drop schema if exists etude cascade");
        let test = Test::new()
            .user_config(SHORT)
            .pipeline("p", |p| {
                p.sh(
                    "a",
                    &format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting("a"), printing("1")),
                )
                .note("b", "2")
            })
            .pipeline("q", |p| p.note("c", "3"));
        let test = fleet(&server, test);
        test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0);
        let test = if is_blind { test.env("ETUDE_ENGINE_TEST", "blind") } else { test };
        let first = test.start(&WORKER);
        test.wait_for("a");
        first.signal("STOP");
        let test = elsewhere(test.without_env("ETUDE_ENGINE_TEST"), "second");
        let second = test.start(&[&WORKER[..], &["--places", "1"]].concat());
        wait_until("the takeover", || test.ledger().iter().filter(|line| *line == "a").count() >= 2);
        first.signal("CONT");
        if !is_blind {
            wait_until("the loss", || {
                events(&first).iter().any(|event| event["event"] == "lost" && event["reason"] == "lease")
            });
        }
        test.put("go", "");
        wait_until("the loss", || events(&first).iter().any(|event| event["event"] == "lost"));
        wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "succeeded");
        assert_eq!(test.ledger().iter().filter(|line| *line == "b").count(), 1);
        second.terminate();
        second.finish().exit(0);
        test.run(&["run", "-p", "q", "--format", "json"]).output(3);
        first.terminate();
        first.finish().exit(0);
    }
}

/// K-20: when the worker's own process is killed, its steps end without a resume there. K-35: a run that kills its workers ends
/// as failed, with their names, and can be resumed.
#[test]
fn a_run_that_takes_its_workers_down_is_ended() {
    let Some(server) = Server::start() else { return };
    let step = "echo $$ > \"$ROOT/pid\"; echo started >> \"$LEDGER\"; [ -e \"$ROOT/go\" ] || sleep 600; ";
    let test =
        Test::new().user_config(SHORT).pipeline("p", |p| p.note("a", "1").sh("b", &format!("{step}{}", printing("2"))));
    let test = fleet(&server, test);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let mut names = Vec::new();
    for round in 1..=2 {
        let worker = test.start(&WORKER);
        wait_until("the step", || test.ledger().iter().filter(|line| *line == "started").count() == round);
        names.push(events(&worker)[0]["worker"].as_str().expect("a name").to_owned());
        let pid = test.read("pid").trim().to_owned();
        assert!(Path::new("/proc").join(&pid).exists());
        worker.kill();
        wait_until("the end of the step", || !Path::new("/proc").join(&pid).exists());
    }
    let worker = test.start(&WORKER);
    wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "failed");
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/errors/0/kind", "environment");
    let message = shown.value()["errors"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(names.iter().all(|name| message.contains(name.as_str())) && message.contains("p/a"), "{message}");
    test.put("go", "");
    test.run(&["runs", "resume", &id, "--format", "json"]).output(2);
    assert_eq!(test.ledger(), ["a", "started", "started", "started"]);
    worker.terminate();
    worker.finish().exit(0);
}
