//! Notices as their receivers get them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::Running;

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A received request.
struct Got {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    fn document(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// A receiver that responds to the nth request with `respond(n)`.
fn receiver(respond: fn(usize) -> &'static str) -> (SocketAddr, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a connection");
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let mut line = String::new();
            reader.read_line(&mut line).expect("a request");
            let path = line.split(' ').nth(1).expect("a path").to_owned();
            let mut headers = Vec::new();
            loop {
                line.clear();
                reader.read_line(&mut line).expect("a header");
                let Some((name, value)) = line.trim_end().split_once(": ") else { break };
                headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            let length = headers.iter().find(|(name, _)| name == "content-length").map_or("0", |(_, value)| value);
            let mut body = vec![0; length.parse().expect("a number")];
            reader.read_exact(&mut body).expect("a body");
            let head = respond(nth);
            write!(stream, "HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").expect("a response");
            let body = String::from_utf8(body).expect("UTF-8");
            if sender.send(Got { path, headers, body }).is_err() {
                return;
            }
        }
    });
    (address, got)
}

fn next(got: &Receiver<Got>) -> Got {
    got.recv_timeout(Duration::from_secs(60)).expect("a notice")
}

fn configure(server: &Running, url: &str, more: &str) {
    server.pipeline("good", "", &["printf '{\"output\": {\"answer\": \"the output\"}}'"]);
    server.pipeline("bad", "input: {word: string}\n", &["echo the-stderr >&2; exit 3"]);
    server.pipeline("ask", "", &["approval: message: May I deploy?"]);
    server.configure(&format!(
        "notices:\n  - {{name: chat, url: \"{url}\", secret: whsec_{SECRET}, on: [run.failed, run.waiting, run.cancelled, schedule.skipped]{more}}}\n"
    ));
    // A server uses a changed file within two seconds, and reports events from then on.
    server.poll("/v1/notices/demo/chat/deliveries", |document| document["deliveries"].is_array());
    server.clock.set_offset(0);
    seen(server);
}

/// Waits until the server has stored the start of its reports.
fn seen(server: &Running) {
    use etude_runtime::engine::{EntryQuery, Ledger as _};
    let journal = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = etude_sqlite::Sqlite::open(journal).expect("the journal");
    let app = server.dir().join("demo").canonicalize().expect("an app");
    let query = EntryQuery { book: format!("notices {}", app.display()), ..EntryQuery::default() };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while engine.entries(&query).expect("entries").is_empty() {
        assert!(std::time::Instant::now() < deadline, "the server never saw the notice");
        std::thread::yield_now();
    }
}

fn deliveries(server: &Running, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let path = "/v1/notices/demo/chat/deliveries";
    let wanted = |document: &Value| document["deliveries"].get(0).is_some_and(&is_wanted);
    server.poll(path, wanted)["deliveries"].clone()
}

/// Waits until there are `count` deliveries, and all have ended.
fn delivered(server: &Running, count: usize) -> Value {
    let is_over = |document: &Value| {
        let all = document["deliveries"].as_array().expect("deliveries");
        all.len() == count && all.iter().all(|one| one["state"] == "delivered")
    };
    server.poll("/v1/notices/demo/chat/deliveries", is_over)["deliveries"].clone()
}

/// S-122, S-125: a notice is signed, links to the run, and has nothing of the run's content.
#[test]
fn a_notice_says_where_to_look() {
    let (address, got) = receiver(|_| "200 OK");
    let server = Running::start();
    configure(&server, &format!("http://{address}/x"), ", allow_private: true");
    server.run(&json!({"pipeline": "good"}));
    let failed = server.run(&json!({"pipeline": "bad", "input": {"word": "the-input"}}));
    let notice = next(&got);
    let (id, time) = (notice.header("webhook-id"), notice.header("webhook-timestamp"));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &STANDARD.decode(SECRET).expect("base64"));
    let signed = format!("{id}.{time}.{}", notice.body);
    let signature = notice.header("webhook-signature").strip_prefix("v1,").expect("a version");
    ring::hmac::verify(&key, signed.as_bytes(), &STANDARD.decode(signature).expect("base64")).expect("it verifies");
    let mut document = notice.document();
    assert_eq!(document["timestamp"].take(), failed["ended_at"]);
    let url = format!("http://{}/runs/{}", server.address, failed["run_id"].as_str().expect("an id"));
    assert_eq!(
        document,
        json!({"type": "run.failed", "timestamp": null, "data": {
            "run_id": failed["run_id"], "app": "demo", "pipeline": "bad", "machine": null, "status": "failed",
            "error_code": "step_failed", "url": url,
        }})
    );
    let asked = server.run(&json!({"pipeline": "ask"}));
    let waiting = next(&got).document();
    assert_eq!((&waiting["type"], &waiting["data"]["run_id"]), (&json!("run.waiting"), &asked["run_id"]));
    for word in ["the-stderr", "the-input", "May I deploy", SECRET] {
        assert!(!notice.body.contains(word) && !waiting.to_string().contains(word), "{word}");
    }
    let list = delivered(&server, 2);
    assert_eq!((&list[0]["type"], &list[1]["type"]), (&json!("run.waiting"), &json!("run.failed")));
    assert_eq!((&list[1]["delivery_id"], &list[1]["attempts"][0]["status"]), (&json!(id), &json!(200)));
}

/// Section 7: a notice is written with the state change: a question is reported however soon it is answered.
#[test]
fn a_question_that_is_answered_at_once_is_reported() {
    let (address, got) = receiver(|_| "200 OK");
    let server = Running::start();
    configure(&server, &format!("http://{address}/x"), ", allow_private: true");
    let asked: Vec<Value> = (0..20)
        .map(|_| {
            let asked = server.run(&json!({"pipeline": "ask"}));
            let question = &asked["waiting"][0];
            let path = format!("/v1/decisions/{}", question["id"].as_str().expect("an id").replace('/', "%2F"));
            let answer = json!({"approved": true, "question": question["payload"]["question"]});
            let decided = server.send("POST", &path, Some(&answer));
            assert_eq!(decided.status, 200, "{}", decided.text());
            asked["run_id"].clone()
        })
        .collect();
    let mut reported: Vec<Value> = asked.iter().map(|_| next(&got).document()["data"]["run_id"].clone()).collect();
    reported.sort_by_key(Value::to_string);
    let mut asked = asked;
    asked.sort_by_key(Value::to_string);
    assert_eq!(reported, asked);
}

/// S-123: a failing receiver gets the same notice again, even from the next server.
#[test]
fn a_failed_delivery_is_repeated_across_a_restart() {
    let (address, got) = receiver(|nth| if nth < 2 { "503 Busy" } else { "204 No Content" });
    let first = Running::start();
    configure(&first, &format!("http://{address}/x"), ", allow_private: true");
    first.run(&json!({"pipeline": "bad", "input": {"word": ""}}));
    let one = next(&got);
    deliveries(&first, |first| first["attempts"][0]["status"] == 503);
    first.clock.set_offset(6_000);
    let two = next(&got);
    deliveries(&first, |first| first["attempts"][1]["status"] == 503);
    let second = Running::at(first.stop(), |_| ());
    second.clock.set_offset(400_000);
    let three = next(&got);
    let ids = [&one, &two, &three].map(|got| got.header("webhook-id").to_owned());
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && one.body == three.body, "{ids:?}");
    assert_ne!(one.header("webhook-timestamp"), three.header("webhook-timestamp"));
    let list = deliveries(&second, |first| first["state"] == "delivered");
    assert_eq!(list[0]["attempts"].as_array().map(Vec::len), Some(3));
    assert_eq!((&list[0]["attempts"][0]["error"], &list[0]["attempts"][2]["error"]), (&json!("status"), &Value::Null));
}

/// Three servers on one journal send a notice once: an attempt belongs to one of them.
#[test]
fn three_servers_send_a_notice_once() {
    let (address, got) = receiver(|_| "204 No Content");
    let server = Running::start();
    configure(&server, &format!("http://{address}/x"), ", allow_private: true");
    let others = [server.another(), server.another()];
    let runs: Vec<Value> = (0..6).map(|_| server.run(&json!({"pipeline": "bad", "input": {"word": ""}}))).collect();
    let mut reported: Vec<Value> = runs.iter().map(|_| next(&got).document()["data"]["run_id"].clone()).collect();
    let mut wanted: Vec<Value> = runs.iter().map(|run| run["run_id"].clone()).collect();
    for all in [&mut reported, &mut wanted] {
        all.sort_by_key(Value::to_string);
    }
    assert_eq!(reported, wanted);
    for server in others.iter().chain([&server]) {
        let all = delivered(server, runs.len());
        let attempts = |one: &Value| one["attempts"].as_array().map_or(0, Vec::len);
        assert!(all.as_array().expect("deliveries").iter().all(|one| attempts(one) == 1), "{all:#}");
    }
    assert!(got.try_recv().is_err(), "one was sent twice");
}

/// S-124: a redirect is not followed.
#[test]
fn a_redirect_is_not_followed() {
    let (address, got) = receiver(|_| "307 Temporary Redirect\r\nLocation: /elsewhere");
    let server = Running::start();
    configure(&server, &format!("http://{address}/x"), ", allow_private: true");
    server.run(&json!({"pipeline": "bad", "input": {"word": ""}}));
    let first = next(&got);
    let list = deliveries(&server, |first| first["attempts"][0].is_object());
    let attempt = &list[0]["attempts"][0];
    assert_eq!(
        (&attempt["status"], &attempt["error"], &list[0]["state"]),
        (&json!(307), &json!("redirect"), &json!("pending"))
    );
    assert!(std::iter::once(first).chain(got.try_iter()).all(|got| got.path == "/x"), "it went elsewhere");
}

/// S-124: a private address is refused, even through a name, and the notice is set aside.
#[test]
fn a_private_address_is_refused() {
    for host in ["127.0.0.1", "localhost"] {
        let (address, got) = receiver(|_| "200 OK");
        let server = Running::start();
        configure(&server, &format!("https://{host}:{}/x", address.port()), "");
        server.run(&json!({"pipeline": "bad", "input": {"word": ""}}));
        let list = deliveries(&server, |first| first["state"] == "failed");
        let attempts = list[0]["attempts"].as_array().cloned().expect("attempts");
        assert_eq!((attempts.len(), &attempts[0]["error"]), (1, &json!("private_address")));
        assert!(got.try_recv().is_err(), "there was a request");
    }
}

/// S-105: a skipped tick is reported, with the schedule and the reason.
#[test]
fn a_skipped_tick_is_reported() {
    let (address, got) = receiver(|_| "200 OK");
    let server = Running::start();
    configure(&server, &format!("http://{address}/x"), ", allow_private: true");
    // Half past an hour: the only tick is the one that the test triggers.
    let offset = 5_400_000 - jiff::Timestamp::now().as_millisecond().rem_euclid(3_600_000);
    server.clock.set_offset(offset);
    let text = std::fs::read_to_string(server.dir().join("demo/etude.yaml")).expect("a file");
    server.configure(&format!("{text}schedules:\n  often: {{pipeline: ask, every: 1h, catch_up: all}}\n"));
    server.poll("/v1/schedules", |document| document["schedules"][0]["name"] == "often");
    server.send("POST", "/v1/schedules/demo/often/pause", Some(&json!({})));
    let next_at = server.send("GET", "/v1/schedules/demo/often", None).json()["next_at"].clone();
    server.clock.set_offset(offset + 3_600_000);
    let notice = next(&got).document();
    assert_eq!(notice["type"], "schedule.skipped");
    let data = &notice["data"];
    assert_eq!((&data["schedule"], &data["error_code"], &data["at"]), (&json!("often"), &json!("paused"), &next_at));
}
