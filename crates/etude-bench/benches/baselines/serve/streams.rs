//! Event streams: a thousand of one run, and one that catches up.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection as Journal;
use serde_json::json;

use super::http::{self, Connection};
use super::process::{Process, Served};
use super::{app, read_rows};
use crate::measure::{Pair, Report};

const STREAMS: usize = 1_000;
/// Number of concurrent streams of one token.
const OF_A_TOKEN: usize = 100;
/// Number of streams whose pieces are kept; the others are only read.
const OBSERVED: usize = 8;
/// Number of elements in the run of the catch-up scenario.
const MANY: usize = 50_000;

/// The content of one stream: each piece with its time.
#[derive(Default)]
struct Received {
    bytes: usize,
    pieces: Vec<(SystemTime, Vec<u8>)>,
}

/// Follows one run with all streams, which are open before `begin` is called. Returns their contents.
async fn follow_all(port: u16, requests: &[Vec<u8>], begin: impl FnOnce()) -> Vec<Received> {
    let mut tasks = Vec::new();
    for at in 0..STREAMS {
        let connection = Connection::open(port).await;
        let request = requests[at % requests.len()].clone();
        tasks.push(tokio::spawn(async move {
            let mut received = Received::default();
            let piece = |bytes: &[u8]| {
                received.bytes += bytes.len();
                if at < OBSERVED {
                    received.pieces.push((SystemTime::now(), bytes.to_vec()));
                }
            };
            connection.follow(&request, piece).await;
            received
        }));
    }
    // By now, every server has read every request.
    tokio::time::sleep(Duration::from_secs(1)).await;
    begin();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.expect("no panic"));
    }
    all
}

/// One run at about a hundred events a second with a thousand streams, beside a loop that writes the same bytes at the same
/// times. Also the delay of the streams after the journal.
pub(crate) fn streams(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let items: Vec<usize> = (0..report.rounds(500)).collect();
    let alone = {
        let before = served.process.used();
        served.run("steady", &json!({"items": items}));
        served.process.used() - before
    };
    let idle = served.process.memory("VmRSS");
    let tokens = served.readers(STREAMS / OF_A_TOKEN + 1);
    // The run waits for a decision first, so that all streams are open.
    let run = served.begin("asked", &json!({"items": items}));
    let port = served.process.port;
    let what = format!("GET /v1/runs/{run}/events");
    let stream = |token: &String| http::request(port, token, &what, "accept: text/event-stream\r\n", None);
    let requests: Vec<Vec<u8>> = tokens.iter().map(stream).collect();
    let decision = decision(&served);
    served.process.forget_peak();
    let before = served.process.used();
    let answer = served.request(&decision.0, "", Some(&decision.1));
    let received = served.wait(follow_all(port, &requests, || {
        tokio::spawn(async move { assert_eq!(http::once(port, &answer).await.status, 200) });
    }));
    let used = (served.process.used() - before).saturating_sub(alone);
    let memory = served.process.memory("VmHWM") - idle;
    let least = received.iter().map(|one| one.bytes).min().expect("streams");
    assert!(least * 100 > received[0].bytes * 99, "a stream has missed something");
    let mut lags: Vec<Duration> = received[..OBSERVED].iter().flat_map(|one| lags(&one.pieces)).collect();
    lags.sort();
    let written = home.join("pieces.json");
    fs::write(&written, recorded(&received[0].pieces)).expect("written");
    drop(served);
    let mut bare = Process::bare(&["--child-writer", &written.display().to_string(), &STREAMS.to_string()]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (port, before) = (bare.port, bare.used());
    let request = [http::request(port, "", "GET /", "", None)];
    runtime.block_on(async {
        follow_all(port, &request, || bare.go()).await;
    });
    // The process has ended; its figures remain until it is reaped.
    let baseline = bare.used() - before;
    let pair = Pair {
        key: "serve/streams",
        what: "processor time of 1,000 streams of a run at 100 events/s",
        baseline: "a loop that writes the same bytes to 1,000 sockets",
    };
    report.pair(&pair, vec![used], vec![baseline]);
    let share = |share: usize| lags[(lags.len() * share / 100).min(lags.len() - 1)].as_secs_f64() * 1e3;
    report.figure("serve/streams-median", "streams behind the journal: median", share(50), "ms");
    report.figure("serve/streams-p99", "streams behind the journal: 99 of 100 are at most", share(99), "ms");
    report.figure("serve/streams-memory", "memory of 1,000 streams over idle, at its highest", memory, "MiB");
}

/// The request that decides the open approval, and its body.
fn decision(served: &Served) -> (String, serde_json::Value) {
    loop {
        let open: serde_json::Value = serde_json::from_slice(&served.get("/v1/decisions")).expect("a document");
        if let Some(id) = open["decisions"][0]["id"].as_str() {
            let question = open["decisions"][0]["question"].clone();
            let path = id.replace('/', "%2F");
            return (format!("POST /v1/decisions/{path}"), json!({"approved": true, "question": question}));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The pieces as a JSON document for `--child-writer`, with their times in µs after the first of them.
fn recorded(pieces: &[(SystemTime, Vec<u8>)]) -> String {
    let begin = pieces[0].0;
    let one = |(at, bytes): &(SystemTime, Vec<u8>)| {
        let at = at.duration_since(begin).unwrap_or_default().as_micros();
        json!([u64::try_from(at).expect("a short time"), String::from_utf8_lossy(bytes)])
    };
    serde_json::Value::from_iter(pieces.iter().map(one)).to_string()
}

/// Delay of each event after its time in the journal. The first pieces come from before the run continued.
fn lags(pieces: &[(SystemTime, Vec<u8>)]) -> Vec<Duration> {
    const DAY_MS: u64 = 86_400_000;
    let mut lags = Vec::new();
    for (came, bytes) in pieces.iter().skip(2) {
        let came = came.duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_millis() as u64 % DAY_MS;
        for found in String::from_utf8_lossy(bytes).split(r#""at":""#).skip(1) {
            // `2026-01-02T03:04:05.678Z`
            let part = |from: usize, to: usize| found.get(from..to)?.parse::<u64>().ok();
            let (Some(h), Some(m), Some(s), Some(ms)) = (part(11, 13), part(14, 16), part(17, 19), part(20, 23)) else {
                continue;
            };
            let at = ((h * 60 + m) * 60 + s) * 1_000 + ms;
            lags.push(Duration::from_millis((came + DAY_MS - at) % DAY_MS));
        }
    }
    lags
}

/// Counts events, each of which ends with an empty line.
#[derive(Default)]
struct Ends {
    events: usize,
    last: u8,
}

impl Ends {
    fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.events += usize::from(*byte == b'\n' && self.last == b'\n');
            self.last = *byte;
        }
    }
}

/// A stream that begins at the first of many events, beside reading the records with SQLite.
pub(crate) fn catch_up(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let items: Vec<usize> = (0..report.rounds(MANY)).collect();
    let run = served.run("many", &json!({"items": items}));
    let stream = served.request(&format!("GET /v1/runs/{run}/events"), "accept: text/event-stream\r\n", None);
    let journal = served.journal();
    let port = served.process.port;
    let idle = served.process.memory("VmRSS");
    served.process.forget_peak();
    let mut events = 0;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..report.rounds(5) {
        let since = Instant::now();
        let mut count = Ends::default();
        served.wait(async { Connection::open(port).await.follow(&stream, |bytes| count.see(bytes)).await });
        events = count.events;
        times[0].push(since.elapsed());
        let since = Instant::now();
        let database = Journal::open(&journal).expect("the journal");
        let (rows, _) = read_rows(&database, "select key, request, body from records order by id", 3);
        times[1].push(since.elapsed());
        assert!(rows >= items.len());
    }
    let memory = served.process.memory("VmHWM") - idle;
    let [ours, baseline] = times;
    let pair = Pair {
        key: "serve/catch-up",
        what: "a stream that catches up a run of 50,000 effects",
        baseline: "reading its records with SQLite",
    };
    let [_, took, _] = report.pair(&pair, ours, baseline);
    report.figure("serve/catch-up-events", "events of that", events as f64, "");
    report.figure("serve/catch-up-rate", "the same", events as f64 / took.as_secs_f64(), "events a second");
    report.figure("serve/catch-up-memory", "memory of that over idle, at its highest", memory, "MiB");
}
