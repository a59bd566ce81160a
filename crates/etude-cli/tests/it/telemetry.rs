//! Spans of runs, as a collector receives them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::serve::Serving;
use crate::test::Test;

/// A collector that accepts one export: its address, and the received text.
fn collector() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut text, mut piece) = (String::new(), [0; 65_536]);
        while !text.contains("\"traceId\"") || !text.trim_end().ends_with("]}") {
            let got = stream.read(&mut piece).expect("an export");
            text.push_str(&String::from_utf8_lossy(&piece[..got]));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").expect("a response");
        text
    });
    (address, received)
}

/// A program built with `otel` sends spans of a run to the endpoint in the environment, and no secret of the run.
#[test]
fn runs_are_sent_to_a_collector() {
    let (address, received) = collector();
    let test = Test::new().env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).pipeline("p", |p| p.note("one", "\"s3cr3t\""));
    let ran = test.run_json("p");
    let id = ran.id();
    let seen = received.join().expect("an export");
    assert!(seen.contains("\"run p\"") && seen.contains("\"step one\"") && seen.contains(&id), "{seen}");
    assert!(!seen.contains("s3cr3t"));
}

/// The headers for a collector belong to etude: no step inherits them.
#[test]
fn the_headers_for_a_collector_reach_no_step() {
    const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let script = format!("echo \"{{\\\"output\\\": \\\"${{{HEADERS}-none}}\\\"}}\"");
    let test = Test::new().env(HEADERS, "api-key=c0llect0r-key").pipeline("p", |p| p.sh("a", &script));
    test.run_json("p").exit(0).has("/output", "none");
}

/// serve.md, section 10: a run that a server drives has spans, below the `traceparent` of the request that started it.
#[test]
fn a_run_belongs_to_the_span_of_its_request() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";
    for (traceparent, is_parent) in
        [(format!("00-{TRACE}-{SPAN}-01"), true), (format!("00-{TRACE}-{SPAN}"), false), ("no span".to_owned(), false)]
    {
        let (address, received) = collector();
        let test = Test::new().env("OTEL_EXPORTER_OTLP_ENDPOINT", &address).pipeline("p", |p| p.note("one", "1"));
        let serving = Serving::start(&test, &["--port", "0"]);
        let headers = format!("traceparent: {traceparent}\r\n");
        let run = serving.document_with("POST", "/v1/runs", &headers, &json!({"pipeline": "p"}).to_string());
        let id = run["run_id"].as_str().expect("an id").to_owned();
        let seen = received.join().expect("an export");
        let body = seen.split("\r\n\r\n").nth(1).expect("a body");
        let export: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {seen}"));
        let spans = export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
        let root = spans.iter().find(|span| span["name"] == "run p").expect("the span of the run");
        assert!(root["attributes"].to_string().contains(&id), "{root}");
        let found = (root["traceId"] == TRACE, root["parentSpanId"] == SPAN);
        assert_eq!(found, (is_parent, is_parent), "{traceparent}: {root}");
        assert_eq!(serving.end().0, Some(0));
    }
}
