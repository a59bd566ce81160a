//! Streams of runs that have more than a page of records.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::runs::read_stream;
use crate::support::Running;

/// Number of elements; each makes two events and one record.
const ELEMENTS: usize = 300;

/// All events of a run, read in pages: ids, names and data.
fn read_pages(server: &Running, id: &str, limit: usize) -> Vec<(String, String, Value)> {
    let (mut events, mut after) = (Vec::new(), String::new());
    loop {
        let mut page = server.send("GET", &format!("/v1/runs/{id}/events?limit={limit}{after}"), None).json();
        for event in page["events"].as_array_mut().expect("events") {
            let id = event["id"].take().as_str().expect("an id").to_owned();
            event.as_object_mut().expect("an object").remove("id");
            events.push((id, event["event"].as_str().expect("a name").to_owned(), event.take()));
        }
        let Some(next) = page["next"].as_str() else { return events };
        after = format!("&after={next}");
    }
}

/// S-66, S-74: a new reader gets all events of a followed run from the first one on, although the shared story has dropped them.
#[test]
fn a_new_reader_of_a_followed_run_begins_at_its_first_event() {
    let server = Running::with_model(|_| Some("yes".to_owned()), |settings| settings.kept_events = 0);
    let dir = server.dir().join("demo/pipelines/long");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = format!(
        "name: long\ndescription: Many elements.\nsteps:\n  - {{name: list, type: code, command: 'echo \"{{\\\"output\\\": [$(seq -s, 1 {ELEMENTS})]}}\"'}}\n  - {{name: each, type: llm, model: lite, for_each: '{{{{list.output}}}}', max_items: {ELEMENTS}, max_parallel: 50, prompt: 'x {{{{item}}}}'}}\n  - {{name: ask, type: approval, message: Go on?}}\n"
    );
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "long"}));
    let id = run["run_id"].as_str().expect("an id");
    let waiting = read_pages(&server, id, 500);
    let last = format!("id: {}\n", waiting.last().expect("events").0);
    // Streams that have reached the present stay open.
    let streams: Vec<TcpStream> = (0..3).map(|_| read_until(&server, id, &last)).collect();
    drop(streams);
}

/// A stream of a run from its first event on, read up to the text `last`.
fn read_until(server: &Running, id: &str, last: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let head = format!(
        "GET /v1/runs/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\n\r\n",
        server.address, server.owner
    );
    stream.write_all(head.as_bytes()).expect("written");
    let (mut text, mut piece, begin) = (String::new(), vec![0; 65_536], Instant::now());
    while !text.contains(last) {
        let count = stream.read(&mut piece).expect("more events");
        assert!(count > 0 && begin.elapsed() < Duration::from_secs(60), "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(text.contains("id: 0.1\n"), "{text}");
    stream
}

/// S-65, S-66, S-69, S-71, S-73: a long run has the same events in each stream and page, wherever these begin. This holds while
/// it waits, after its end, in a further attempt, and even if no events are kept for clients that are behind.
#[test]
fn a_long_run_has_the_same_events_wherever_a_reader_begins() {
    for change in
        [|_: &mut etude_server::Settings| (), |settings: &mut etude_server::Settings| settings.kept_events = 0]
    {
        let server = Arc::new(Running::with_model(|_| Some("yes".to_owned()), change));
        let dir = server.dir().join("demo/pipelines/long");
        std::fs::create_dir_all(&dir).expect("a directory");
        let text = format!(
            "name: long\ndescription: Many elements.\nsteps:\n  - {{name: list, type: code, command: 'echo \"{{\\\"output\\\": [$(seq -s, 1 {ELEMENTS})]}}\"'}}\n  - {{name: each, type: llm, model: lite, for_each: '{{{{list.output}}}}', max_items: {ELEMENTS}, max_parallel: 50, prompt: 'x {{{{item}}}}'}}\n  - {{name: ask, type: approval, message: Go on?}}\n  - {{name: last, type: code, command: \"test -e go && echo '{{\\\"output\\\": 1}}'\"}}\n"
        );
        std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
        let run = server.run(&json!({"pipeline": "long"}));
        assert_eq!(run["status"], "waiting", "{run}");
        let id = run["run_id"].as_str().expect("an id").to_owned();
        let waiting = read_pages(&server, &id, 500);
        assert!(waiting.len() > 2 * ELEMENTS, "{}", waiting.len());
        let begin = std::sync::Barrier::new(3);
        let events = std::thread::scope(|scope| {
            let readers = [None, Some(&*waiting[400].0)].map(|last| {
                let (server, id, begin) = (&server, &id, &begin);
                scope.spawn(move || {
                    begin.wait();
                    read_stream(server, id, last)
                })
            });
            begin.wait();
            let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
            let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
            let body = json!({"approved": true, "question": decision["question"]});
            assert_eq!(server.send("POST", &path, Some(&body)).status, 200);
            let [whole, part] = readers.map(|reader| reader.join().expect("events"));
            assert_eq!(part, whole[401..]);
            whole
        });
        assert_eq!(events[..waiting.len()], waiting);
        assert_eq!(events.last().map(|(_, name, data)| (&**name, &data["status"])), Some(("ended", &json!("failed"))));
        assert!(read_pages(&server, &id, 499) == events, "pages and streams differ");
        for at in [0, 499, 500, events.len() - 2] {
            assert_eq!(read_stream(&server, &id, Some(&events[at].0)), events[at + 1..], "after {at}");
        }
        for unknown in
            ["251.99".to_owned(), format!("{}.99", events[events.len() - 2].0.split_once('.').expect("an id").0)]
        {
            let reply = server.send("GET", &format!("/v1/runs/{id}/events?after={unknown}"), None);
            assert_eq!(reply.status, 422, "{unknown}");
        }
        // A further attempt keeps completed work.
        std::fs::write(dir.join("go"), "").expect("written");
        assert_eq!(server.send("POST", &format!("/v1/runs/{id}/resume"), Some(&json!({}))).status, 202);
        server.until(&id, &["succeeded"]);
        let more = read_stream(&server, &id, events.last().map(|(id, ..)| &**id));
        assert_eq!(more.last().map(|(_, name, data)| (&**name, &data["status"])), Some(("ended", &json!("succeeded"))));
        assert!(more.iter().all(|(_, name, _)| name != "item_ended"), "what an earlier attempt has done");
        assert_eq!(read_stream(&server, &id, None), [events, more].concat());
    }
}

/// S-76: the feed continues after the last seen change, even if its run was deleted since.
#[test]
fn the_feed_goes_on_after_a_change_of_a_deleted_run() {
    let server = Running::start();
    server.pipeline("p", "", &["echo '{\"output\": 1}'"]);
    let first = server.run(&json!({"pipeline": "p"}));
    let (seen, row) = first_change(&server, "0");
    assert_eq!((&row["run_id"], &row["status"]), (&first["run_id"], &json!("succeeded")));
    let delete = |run: &Value| {
        let path = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
        assert_eq!(server.send("DELETE", &path, None).status, 204);
    };
    delete(&first);
    let second = server.run(&json!({"pipeline": "p"}));
    assert_eq!(first_change(&server, &seen).1["run_id"], second["run_id"]);
    delete(&second);
    // Now no run has this number or a later one.
    assert_eq!(feed(&server, &seen).1, "HTTP/1.1 200 OK\r\n");
    assert_eq!(feed(&server, &u64::MAX.to_string()).1, "HTTP/1.1 422 Unprocessable Entity\r\n");
}

/// The feed after the event `last`, and the first line of the response.
fn feed(server: &Running, last: &str) -> (BufReader<TcpStream>, String) {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let head = format!(
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\nLast-Event-ID: {last}\r\n\r\n",
        server.address, server.owner
    );
    stream.write_all(head.as_bytes()).expect("written");
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    reader.read_line(&mut line).expect("a response");
    (reader, line)
}

/// The id and the row of the first event of the feed after `last`.
fn first_change(server: &Running, last: &str) -> (String, Value) {
    let mut id = String::new();
    for line in feed(server, last).0.lines() {
        let line = line.expect("more events");
        match line.split_once(": ") {
            Some(("id", of_event)) => of_event.clone_into(&mut id),
            Some(("data", row)) => return (id, serde_json::from_str(row).expect("JSON")),
            _ => {}
        }
    }
    panic!("the feed has ended");
}
