//! The cost of a server's streams beside the run that they show (serve §11), counted and not timed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::serve::Serving;
use crate::test::Test;

/// Streams of a run, each of which has sent its first event.
fn streams(serving: &Serving, token: &str, path: &str, count: usize) -> Vec<UnixStream> {
    let begin = |_| {
        let mut stream = UnixStream::connect(serving.line["socket"].as_str().expect("a socket")).expect("a socket");
        let text = format!(
            "GET {path}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).expect("written");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it has a limit");
        stream
    };
    let mut streams: Vec<UnixStream> = (0..count).map(begin).collect();
    for stream in &mut streams {
        assert!(read_until(stream, "event: ").starts_with("HTTP/1.1 200"));
    }
    streams
}

/// The output of a stream until it contains this text.
fn read_until(stream: &mut UnixStream, wanted: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(wanted) {
        let length = stream.read(&mut bytes).expect("a response");
        assert_ne!(length, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    text
}

/// Starts a run and returns its path.
fn begun(serving: &Serving, pipeline: &str) -> String {
    let run = serving.post("/v1/runs", &json!({"pipeline": pipeline}));
    format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"))
}

/// Streams that begin together do not take a thread each, whose memory would stay allocated.
#[test]
fn streams_that_begin_together_share_threads() {
    let test = Test::new().pipeline("ask", |p| p.step("name: ask\ntype: approval\nmessage: Go on?"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", serving.child.id())).map(Iterator::count);
    let path = begun(&serving, "ask");
    serving.until(&path, "waiting");
    let Ok(before) = threads() else { return };
    let streams = streams(&serving, &serving.token(), &path, 100);
    let after = threads().expect("it is there");
    // On a busy machine, all readers are at work at once, and other tasks of the server beside them.
    assert!(after < before + 50, "{before} threads before, {after} after");
    drop(streams);
    assert_eq!(serving.end().0, Some(0));
}

/// Streams read nothing on their own: the journal is read once for all streams of a run, and the tokens once for all.
#[test]
fn streams_share_what_is_read() {
    // The run is long enough for checks that occur once a second.
    let step = |p: crate::test::Pipeline, at: usize| p.sh(&format!("s{at}"), "sleep 0.1; echo '{\"output\": 1}'");
    let test = Test::new().pipeline("slow", |p| (0..25).fold(p, step));
    let serving = Serving::start(&test, &["--port", "0"]);
    let made = test.run(&["token", "new", "reader", "--scope", "read", "--format", "json"]).value();
    let token = made["token"].as_str().expect("a token");
    let reads = || {
        let counts = std::fs::read_to_string(format!("/proc/{}/io", serving.child.id())).ok()?;
        counts.lines().find_map(|line| line.strip_prefix("syscr:")?.trim().parse::<u64>().ok())
    };
    if reads().is_none() {
        return;
    }
    let of = |count: usize| {
        let before = reads().expect("it is there");
        let path = begun(&serving, "slow");
        for mut stream in streams(&serving, token, &path, count) {
            read_until(&mut stream, "event: ended");
        }
        reads().expect("it is there") - before
    };
    // On a busy machine one of the two runs may take longer, and has more of these checks.
    let mut counts = Vec::new();
    let is_shared = (0..3).any(|_| {
        let (one, hundred) = (of(1), of(100));
        counts.push((one, hundred));
        hundred < one + 500
    });
    assert!(is_shared, "reads with one stream and with 100: {counts:?}");
    assert_eq!(serving.end().0, Some(0));
}
