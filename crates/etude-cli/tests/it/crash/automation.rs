//! Crash tests of a server: `kill -9` at each write while ticks are due, a delivery arrives and a run is started. Each leads to
//! one run.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use etude_runtime::engine::{EntryQuery, Ledger as _};
use serde_json::{Value, json};

use super::shim::{self, Fault};
use crate::serve::Serving;
use crate::test::{Test, noting, printing, wait_until};

const HOUR: i64 = 3_600_000;

/// Number of ticks that are due while the server is killed.
const TICKS: usize = 3;

/// Number of moments in an ordinary test run; `ETUDE_CRASH_FULL` covers all of them.
const SOME: usize = 9;

const FAULTS: [fn(usize) -> Fault; 3] = [Fault::Before, Fault::After, Fault::Torn];

/// S-98: killed at a write while ticks are due, the servers create one run for each tick: none is missed, none doubled.
#[test]
fn ticks_of_a_server_killed_anywhere_make_one_run_each() {
    everywhere(ticks);
}

/// S-116: killed at a write while a delivery arrives, the servers create one run for it, however often it is sent.
#[test]
fn deliveries_to_a_server_killed_anywhere_make_one_run() {
    everywhere(delivery);
}

/// S-123: killed at a write while a run ends, the servers report it under one id, at least once.
#[test]
fn notices_of_a_server_killed_anywhere_are_sent() {
    everywhere(notice);
}

/// S-37, S-78, S-165: killed at a write while it starts and drives a run, the server is followed by one that completes it; no
/// finished step runs again, and an interrupted stream continues without a gap.
#[test]
fn starts_of_a_server_killed_anywhere_are_whole_runs() {
    everywhere(start);
}

/// Lives a life without a fault, then some with one each.
fn everywhere(life: fn(Fault) -> Lived) {
    if shim::is_missing("kills of a server") {
        return;
    }
    let writes = life(Fault::None).writes;
    let most = if std::env::var_os("ETUDE_CRASH_FULL").is_some() { usize::MAX } else { SOME };
    let mut kills = 0;
    for (at, fault) in (1..=writes).step_by((writes / most).max(1)).zip(FAULTS.iter().cycle()) {
        kills += usize::from(life(fault(at)).was_killed);
    }
    println!("{writes} writes, {kills} kills");
    assert!(kills > 0, "nothing was killed");
}

/// Outcome of one life.
struct Lived {
    writes: usize,
    was_killed: bool,
}

/// An app whose server uses a test clock.
fn app(config: &str) -> Test {
    let test = Test::new().pipeline("p", |p| p.sh("s", &printing("{\"output\": 1}"))).file("etude.yaml", config);
    set_clock(&test, 0);
    let clock = test.path("clock").display().to_string();
    test.env("ETUDE_TEST_CLOCK", &clock)
}

/// Sets the clock to half past the hour in which the test began, so that no tick is near, plus some hours.
fn set_clock(test: &Test, hours: i64) {
    let began = test.path("began");
    if !began.exists() {
        test.put("began", &etude_runtime::clock::now_ms().to_string());
    }
    let began: i64 = test.read("began").trim().parse().expect("milliseconds");
    test.put("clock", &(HOUR / 2 - began % HOUR + hours * HOUR).to_string());
}

/// Runs a server with a fault. `act` gets its socket if it began to accept connections; the server is killed once `is_over`
/// holds.
fn with_fault(test: &Test, fault: Fault, act: impl FnOnce(&str), is_over: impl Fn() -> bool) -> Lived {
    let mut command = shim::with_fault(test, test.command(&["serve", "--format", "json", "--port", "0"]), fault);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let mut line = String::new();
    let _ = BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line);
    if let Ok(Value::Object(line)) = serde_json::from_str(&line) {
        act(line["socket"].as_str().expect("a socket"));
    }
    let mut was_killed = false;
    wait_until("the end of the server or of its runs", || {
        was_killed = child.try_wait().expect("a child").is_some();
        was_killed || is_over()
    });
    let _ = child.kill();
    let _ = child.wait();
    Lived { writes: shim::events(test).len(), was_killed }
}

/// Number of successful runs, as another process sees it.
fn succeeded(test: &Test) -> usize {
    let ran = test.run(&["runs", "list", "--status", "succeeded", "--format", "json"]);
    ran.exit(0).at("/runs").as_array().map_or(0, Vec::len)
}

fn ticks(fault: Fault) -> Lived {
    let test = app("schedules:\n  a: {pipeline: p, every: 1h, catch_up: all, overlap: allow}\n");
    // The schedule must be seen before its first tick.
    let first = Serving::start(&test, &["--port", "0"]);
    first.post("/v1/schedules/app/a/pause", &json!({}));
    first.post("/v1/schedules/app/a/unpause", &json!({}));
    first.end();
    set_clock(&test, 3);
    let lived = with_fault(&test, fault, |_| (), || succeeded(&test) == TICKS);
    let next = Serving::start(&test, &["--port", "0"]);
    let mut found = Vec::new();
    wait_until(&format!("{TICKS} ticks after {fault:?}"), || {
        found = next.document("GET", "/v1/schedules/app/a/ticks", "")["ticks"].as_array().cloned().unwrap_or_default();
        found.len() >= TICKS && succeeded(&test) >= TICKS
    });
    let mut runs: Vec<&str> = found.iter().filter_map(|tick| tick["run_id"].as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!((found.len(), runs.len()), (TICKS, TICKS), "{fault:?}: {found:#?}");
    let all = next.document("GET", "/v1/runs?cause=schedule", "");
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(TICKS), "{fault:?}: {all:#}");
    next.end();
    lived
}

/// S-103: a server that is stopped for an hour catches up as after an outage.
#[test]
fn a_stopped_server_catches_up_as_after_an_outage() {
    let policies = ["none", "last", "all"];
    let schedule =
        |policy: &&str| format!("  {policy}: {{pipeline: p, every: 20m, catch_up: {policy}, overlap: allow}}\n");
    let test = app(&format!("schedules:\n{}", policies.iter().map(schedule).collect::<String>()));
    let server = Serving::start(&test, &["--port", "0"]);
    for policy in policies {
        server.post(&format!("/v1/schedules/app/{policy}/pause"), &json!({}));
        server.post(&format!("/v1/schedules/app/{policy}/unpause"), &json!({}));
    }
    server.signal("STOP");
    set_clock(&test, 1);
    server.signal("CONT");
    for (policy, wanted) in policies.into_iter().zip([["-", "-", "-"], ["run", "-", "-"], ["run", "run", "run"]]) {
        let mut found = Vec::new();
        wait_until(&format!("the ticks of `{policy}`"), || {
            let document = server.document("GET", &format!("/v1/schedules/app/{policy}/ticks"), "");
            found = document["ticks"].as_array().cloned().unwrap_or_default();
            found.len() >= wanted.len()
        });
        let has_run = |tick: &Value| if tick["reason"] == "missed" { "-" } else { "run" };
        assert_eq!(found.iter().map(has_run).collect::<Vec<_>>(), wanted, "{policy}: {found:#?}");
    }
    server.end();
}

fn delivery(fault: Fault) -> Lived {
    let test = app(
        "webhooks:\n  hook: {pipeline: p, verify: {kind: token, secrets: [s3cret], id_header: X-Delivery}, input: {}}\n",
    );
    let mut first = None;
    let lived = with_fault(&test, fault, |socket| first = deliver(socket, "one"), || succeeded(&test) == 1);
    let next = Serving::start(&test, &["--port", "0"]);
    let again = deliver(next.line["socket"].as_str().expect("a socket"), "one").expect("a response");
    assert!(again["run_id"].is_string(), "{fault:?}: {again:#}");
    assert!(first.as_ref().is_none_or(|first| *first == again), "{fault:?}: {first:?}, then {again}");
    wait_until(&format!("the run after {fault:?}"), || succeeded(&test) >= 1);
    let all = next.document("GET", "/v1/runs?cause=webhook", "");
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(1), "{fault:?}: {all:#}");
    next.end();
    lived
}

fn start(fault: Fault) -> Lived {
    let step = |name: &str| format!("{}\n{}", noting(name), printing(&format!("\"{name}\"")));
    let test = Test::new().pipeline("p", |p| p.sh("a", &step("a")).sh("b", &step("b")));
    let (mut first, mut seen) = (None, Vec::new());
    let is_first_over = std::cell::Cell::new(false);
    let act = |socket: &str| {
        first = post(socket);
        if let Some(run) = &first {
            seen = events(socket, run["run_id"].as_str().expect("an id"), None);
        }
        is_first_over.set(true);
    };
    let lived = with_fault(&test, fault, act, || is_first_over.get() && succeeded(&test) == 1);
    let next = Serving::start(&test, &["--port", "0"]);
    let socket = next.line["socket"].as_str().expect("a socket");
    let again = post(socket).expect("a response");
    let id = again["run_id"].as_str().expect("an id");
    assert!(first.as_ref().is_none_or(|first| first["run_id"] == id), "{fault:?}: {first:?}, then {again}");
    let run = next.until(&format!("/v1/runs/{id}"), "succeeded");
    assert_eq!(run["output"], "b", "{fault:?}: {run:#}");
    let all = next.document("GET", "/v1/runs", "");
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(1), "{fault:?}: {all:#}");
    // Active steps may have begun twice; earlier ones have not.
    let ledger = test.ledger();
    let count = |name: &str| ledger.iter().filter(|noted| *noted == name).count();
    assert!((1..=2).contains(&count("a")) && (1..=2).contains(&count("b")), "{fault:?}: {ledger:?}");
    assert!(count("a") + count("b") <= 3, "{fault:?}: {ledger:?}");
    seen.extend(events(socket, id, seen.last().map(String::as_str)));
    assert_eq!(seen, events(socket, id, None), "{fault:?}");
    next.end();
    lived
}

/// Starts the run, always under the same key. Returns the response, if there is one.
fn post(socket: &str) -> Option<Value> {
    let body = r#"{"pipeline": "p"}"#;
    let head = format!("Content-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: {}", body.len());
    let reply = exchange(
        socket,
        &format!(
            "POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{head}\r\nConnection: close\r\n\r\n{body}",
            owner(socket)?
        ),
    )?;
    serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
}

/// Ids of the events of a run after `last`, until the server dies.
fn events(socket: &str, run: &str, last: Option<&str>) -> Vec<String> {
    let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
    let head = format!("Accept: text/event-stream\r\n{last}Connection: close");
    let text = owner(socket).and_then(|owner| {
        exchange(
            socket,
            &format!(
                "GET /v1/runs/{run}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {owner}\r\n{head}\r\n\r\n"
            ),
        )
    });
    // An event counts once its empty line has arrived.
    let text = text.unwrap_or_default();
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
}

fn owner(socket: &str) -> Option<String> {
    let token = std::path::Path::new(socket).with_file_name("owner.token");
    std::fs::read_to_string(token).ok().map(|text| text.trim().to_owned())
}

/// Bytes received until the connection ends, in whatever way.
fn exchange(socket: &str, request: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    Some(String::from_utf8_lossy(&reply).into_owned())
}

/// Sends the delivery. Returns its response, if there is one.
fn deliver(socket: &str, id: &str) -> Option<Value> {
    let body = json!({ "id": id }).to_string();
    let text = format!(
        "POST /in/app/hook HTTP/1.1\r\nHost: x\r\nX-Webhook-Token: s3cret\r\nX-Delivery: {id}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    serde_json::from_str(exchange(socket, &text)?.split_once("\r\n\r\n")?.1).ok()
}

fn notice(fault: Fault) -> Lived {
    let (port, ids) = receiver();
    let test = app(&format!(
        "webhooks:\n  hook: {{pipeline: p, verify: {{kind: token, secrets: [s3cret], id_header: X-Delivery}}, input: {{}}}}\nnotices:\n  - {{name: chat, url: \"http://127.0.0.1:{port}/x\", on: [run.succeeded], secret: whsec_AAAA, allow_private: true}}\n"
    ));
    // The server reports events only after it has seen the notice.
    let first = Serving::start(&test, &["--port", "0"]);
    let dir = test.path("home/.local/state/etude");
    let engine = etude_sqlite::Sqlite::open(etude_sqlite::Settings { dir, sync: etude_sqlite::Sync::Normal });
    let engine = engine.expect("the journal");
    let book = format!("notices {}", test.path("app").canonicalize().expect("an app").display());
    let seen = EntryQuery { book, ..EntryQuery::default() };
    wait_until("the first look", || !engine.entries(&seen).expect("entries").is_empty());
    drop(engine);
    first.end();
    let path = "/v1/notices/app/chat/deliveries";
    let is_delivered = |server: &Serving| {
        let all = server.document("GET", path, "")["deliveries"].as_array().cloned().unwrap_or_default();
        all.len() == 1 && all[0]["state"] == "delivered"
    };
    let lived = with_fault(&test, fault, |socket| drop(deliver(socket, "one")), || !received(&ids).is_empty());
    // A started attempt is repeated after a minute.
    set_clock(&test, 1);
    let next = Serving::start(&test, &["--port", "0"]);
    deliver(next.line["socket"].as_str().expect("a socket"), "one").expect("a response");
    wait_until(&format!("the notice after {fault:?}"), || is_delivered(&next));
    let all: BTreeSet<String> = received(&ids).into_iter().collect();
    assert_eq!(all.len(), 1, "{fault:?}: {all:?}");
    next.end();
    lived
}

type Ids = Arc<Mutex<Vec<String>>>;

fn received(ids: &Ids) -> Vec<String> {
    ids.lock().expect("no panic").clone()
}

/// A receiver of notices: its port, and the received ids.
fn receiver() -> (u16, Ids) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let ids = Ids::default();
    let got = Arc::clone(&ids);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let head: Vec<String> =
                (&mut reader).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let value = |name: &str| {
                let lines = head.iter().map(|line| line.to_ascii_lowercase());
                lines.filter_map(|line| line.strip_prefix(name).map(str::to_owned)).next()
            };
            let id = value("webhook-id: ");
            let length = value("content-length: ").and_then(|length| length.parse().ok()).unwrap_or(0);
            let _ = reader.read_exact(&mut vec![0; length]);
            // Recorded before the response, so that a test that sees the delivery finds its id here.
            got.lock().expect("no panic").extend(id);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    });
    (port, ids)
}
