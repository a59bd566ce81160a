//! Starting, reading, streaming and acting on runs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::support::Running;

const OK: &str = "echo '{\"output\": {\"n\": 1}}'";

fn server() -> Running {
    let server = Running::start();
    server.pipeline("p", "input: {name: {type: string, required: false}}\n", &[OK, OK]);
    server.pipeline("bad", "", &["exit 3"]);
    server.pipeline("ask", "", &["approval: message: Deploy?"]);
    server
}

/// The events of a stream until it ends: ids, names and data.
pub(crate) fn read_stream(server: &Running, id: &str, last: Option<&str>) -> Vec<(String, String, Value)> {
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
    let head = format!(
        "GET /v1/runs/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\n{last}Connection: close\r\n\r\n",
        server.address, server.owner
    );
    stream.write_all(head.as_bytes()).expect("written");
    let (mut events, mut current) = (Vec::new(), (String::new(), String::new(), Value::Null));
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        match line.split_once(": ") {
            Some(("id", id)) => current.0 = id.to_owned(),
            Some(("event", name)) => current.1 = name.to_owned(),
            Some(("data", data)) => {
                current.2 = serde_json::from_str(data).expect("JSON");
                events.push(std::mem::take(&mut current));
            }
            _ => {}
        }
    }
    events
}

/// S-36, S-41: a start is 201 with a location; with `wait`, the response is the run at its end.
#[test]
fn a_start_is_201_and_wait_responds_at_the_end() {
    let server = server();
    let reply = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "p"})));
    assert_eq!(reply.status, 201);
    let run = reply.json();
    let location = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    assert_eq!(reply.header("location"), Some(location.as_str()));
    assert_eq!((&run["cause"], &run["by"], &run["app"]), (&json!("api"), &json!("owner"), &json!("demo")));
    let run = server.run(&json!({"pipeline": "p", "input": {"name": "Ada"}, "labels": {"env": "test"}}));
    assert_eq!((&run["status"], &run["output"]), (&json!("succeeded"), &json!({"n": 1})));
    assert_eq!((&run["input"], &run["labels"]), (&json!({"name": "Ada"}), &json!({"env": "test"})));
    assert_eq!(run["steps"].as_array().map(Vec::len), Some(2));
    let failed = server.run(&json!({"pipeline": "bad"}));
    assert_eq!((&failed["status"], &failed["errors"][0]["kind"]), (&json!("failed"), &json!("step_failed")));
}

/// S-38, S-39: faults of the request, the input and the definition are 422, each with its location.
#[test]
fn faults_of_a_start_are_422() {
    let server = server();
    server.pipeline("broken", "nonsense: 1\n", &[OK]);
    let post = |body: Value| server.send("POST", "/v1/runs", Some(&body));
    for (body, pointer) in [
        (json!({}), "/pipeline"),
        (json!({"pipeline": "x"}), "/pipeline"),
        (json!({"pipeline": "p", "machine": "m"}), "/machine"),
        (json!({"pipeline": "p", "app": "x"}), "/app"),
        (json!({"pipeline": 1}), "/pipeline"),
        (json!({"pipeline": "p", "input": {"nmae": "x"}}), "/input/nmae"),
        (json!({"pipeline": "p", "input": {"name": 1}}), "/input/name"),
        (json!({"pipeline": "p", "priority": 101}), "/priority"),
        (json!({"pipeline": "p", "labels": {"a b": "x"}}), "/labels/a b"),
        (json!({"pipeline": "p", "not_before": "soon"}), "/not_before"),
        (json!({"pipeline": "p", "limits": {"timeout": "soon"}}), "/limits/timeout"),
        (json!({"pipeline": "p", "limits": {"max_tokens": 1_u64 << 53}}), "/limits/max_tokens"),
    ] {
        let reply = post(body.clone());
        assert_eq!(reply.problem(), (422, "input_invalid".to_owned()), "{body}");
        assert_eq!(reply.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    // A request that is the name of a pipeline with errors means this pipeline.
    for body in [json!({"pipeline": "broken"}), json!({"request": " broken "})] {
        let reply = post(body);
        assert_eq!(reply.problem(), (422, "definition_invalid".to_owned()));
        assert!(reply.json()["diagnostics"][0]["code"].is_string());
    }
    assert_eq!(server.send("GET", "/v1/runs", None).json()["runs"], json!([]), "nothing was started");
}

/// S-42: a dry run starts nothing.
#[test]
fn a_dry_run_starts_nothing() {
    let server = server();
    let reply = server.send("POST", "/v1/runs?dry_run=true", Some(&json!({"pipeline": "p"})));
    assert_eq!((reply.status, &reply.json()["steps"][0]["name"]), (200, &json!("s0")));
    assert_eq!(server.send("GET", "/v1/runs/counts", None).json()["queued"], 0);
    assert_eq!(server.send("GET", "/v1/runs", None).json()["runs"], json!([]));
}

/// S-44, S-46, S-47: one key and body are one run; another body is refused, and another token has other keys.
#[test]
fn an_idempotency_key_is_one_run() {
    let server = Arc::new(server());
    let post = |server: &Running, token: &str, name: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer), ("Idempotency-Key", "k 1")];
        let body = json!({"pipeline": "p", "input": {"name": name}});
        server.raw("POST", "/v1/runs", &headers, Some(body.to_string()))
    };
    let threads: Vec<_> = (0..50)
        .map(|_| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                let reply = post(&server, &server.owner, "a");
                assert_eq!(reply.status, 201);
                reply.json()["run_id"].as_str().expect("an id").to_owned()
            })
        })
        .collect();
    let ids: std::collections::BTreeSet<String> =
        threads.into_iter().map(|thread| thread.join().expect("an id")).collect();
    assert_eq!(ids.len(), 1);
    let again = post(&server, &server.owner, "a");
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!(post(&server, &server.owner, "b").problem(), (422, "key_reused".to_owned()));
    let other = server.token("ci", &[Scope::Run], &[], None);
    let reply = post(&server, &other, "b");
    assert_eq!((reply.status, reply.header("idempotency-replayed")), (201, None));
    let long = "x".repeat(256);
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", &*long)];
    let reply = server.raw("POST", "/v1/runs", &headers, Some(json!({"pipeline": "p"}).to_string()));
    assert_eq!(reply.problem(), (422, "input_invalid".to_owned()));
}

/// S-44: a key lives for a day, even if its run was deleted: no second run begins.
#[test]
fn the_key_of_a_deleted_run_starts_no_other_one() {
    let server = server();
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "k"), ("Prefer", "wait=60")];
    let post = |name: &str| {
        let body = json!({"pipeline": "p", "input": {"name": name}});
        server.raw("POST", "/v1/runs", &headers, Some(body.to_string()))
    };
    let id = post("a").json()["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).status, 204);
    let again = post("a");
    assert_eq!((again.problem(), &again.json()["run_id"]), ((404, "not_found".to_owned()), &json!(id)));
    assert_eq!(post("b").problem(), (422, "key_reused".to_owned()));
    assert_eq!(server.send("GET", "/v1/runs", None).json()["runs"], json!([]));
}

/// S-45, S-37, S-50: an accepted run survives the end of the server, and so does its key.
#[test]
fn a_queued_run_survives_a_restart() {
    let server = server();
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "k")];
    let body = json!({"pipeline": "p", "not_before": "2035-01-01T00:00:00Z"});
    let id = server.raw("POST", "/v1/runs", &headers, Some(body.to_string())).json()["run_id"].clone();
    let run = server.send("GET", &format!("/v1/runs/{}", id.as_str().expect("an id")), None).json();
    assert_eq!((&run["status"], &run["queue"]["reason"]), (&json!("queued"), &json!("not_before")));
    assert_eq!(run["steps"][0]["status"], "not_started");
    let server = Running::at(server.stop(), |_| ());
    let reply = server.raw("POST", "/v1/runs", &headers, Some(body.to_string()));
    assert_eq!((&reply.json()["run_id"], reply.header("idempotency-replayed")), (&id, Some("true")));
    // S-50: the start time of the run has come.
    server.clock.set_offset(20 * 365 * 86_400_000);
    server.until(id.as_str().expect("an id"), &["succeeded"]);
}

/// A question has the deadline of its step; one without a timeout has none.
#[test]
fn a_question_has_its_deadline() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: 'Deploy?', timeout: 1h"]);
    server.pipeline("calm", "", &["approval: message: 'Deploy?'"]);
    let run = server.run(&json!({"pipeline": "ask"}));
    assert_eq!(run["status"], "waiting", "{run}");
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    assert!(decision["deadline_at"].is_string(), "{decision}");
    let time = |text: &Value| etude_runtime::clock::from_rfc3339(text.as_str().expect("a time")).expect("RFC 3339");
    let left = time(&decision["deadline_at"]) - time(&run["started_at"]);
    // The deadline counts from the start of the step, which is between the start of the run and its wait.
    let late = time(&run["changed_at"]) - time(&run["started_at"]);
    assert!((3_600_000..=3_600_000 + late).contains(&left), "{left}");
    let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    assert_eq!(server.send("GET", &path, None).json()["deadline_at"], decision["deadline_at"]);
    let page = server.send("GET", "/decisions", None).text();
    assert!(page.contains("Decide before "), "{page}");
    let calm = server.run(&json!({"pipeline": "calm"}));
    let all = server.send("GET", "/v1/decisions", None).json();
    let of_calm = all["decisions"].as_array().expect("a list").iter().find(|one| one["run_id"] == calm["run_id"]);
    assert_eq!(of_calm.expect("a question")["deadline_at"], Value::Null);
}

/// S-49: `again` copies target and input.
#[test]
fn again_copies_target_and_input() {
    let server = server();
    let first = server.run(&json!({"pipeline": "p", "input": {"name": "Ada"}}));
    let path = format!("/v1/runs/{}/again", first["run_id"].as_str().expect("an id"));
    let reply = server.send("POST", &path, Some(&json!({})));
    assert_eq!(reply.status, 201);
    let run = reply.json();
    assert_eq!(
        (&run["again_of"], &run["input"], &run["pipeline"]),
        (&first["run_id"], &json!({"name": "Ada"}), &json!("p"))
    );
    assert_ne!(run["run_id"], first["run_id"]);
}

/// S-51, S-52, S-53, S-55, S-62: lists are filtered and paged, and counts agree with them.
#[test]
fn lists_are_filtered_and_paged() {
    let server = server();
    for nth in 0..5 {
        server.run(&json!({"pipeline": if nth == 0 { "bad" } else { "p" }, "labels": {"nth": nth.to_string()}}));
    }
    let list = |query: &str| server.send("GET", &format!("/v1/runs{query}"), None).json();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = list(&format!("?limit=2{cursor}"));
        seen.extend(page["runs"].as_array().expect("runs").iter().map(|run| run["labels"]["nth"].clone()));
        // A run that begins meanwhile is newer than all of them.
        server.run(&json!({"pipeline": "p"}));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["4", "3", "2", "1", "0"]);
    assert_eq!(list("?status=failed")["runs"][0]["pipeline"], "bad");
    assert_eq!(list("?label=nth:3")["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(list("?q=nth:2")["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(list("?pipeline=bad")["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(list("?app=other")["runs"], json!([]));
    let counts = server.send("GET", "/v1/runs/counts?label=nth:0", None).json();
    assert_eq!((&counts["failed"], &counts["succeeded"], &counts["interrupted"]), (&json!(1), &json!(0), &json!(0)));
    let next = list("?limit=1")["next"].as_str().expect("more").to_owned();
    for query in [
        "?limit=0",
        "?limit=201",
        "?limit=x",
        "?cursor=x",
        &format!("?status=failed&cursor={next}"),
        "?status=x",
        "?label=x",
    ] {
        assert_eq!(
            server.send("GET", &format!("/v1/runs{query}"), None).problem(),
            (422, "input_invalid".to_owned()),
            "{query}"
        );
    }
    assert_eq!(server.send("GET", "/v1/runs?statu=x", None).problem(), (422, "unknown_member".to_owned()));
}

/// S-16: `--only` hides runs of other pipelines: 404, not 403.
#[test]
fn only_hides_other_runs() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    let bearer = format!("Bearer {}", server.token("ci", &[Scope::Read, Scope::Run], &["bad*"], None));
    let get = |path: &str| server.raw("GET", path, &[("Authorization", &bearer)], None);
    for path in [format!("/v1/runs/{id}"), format!("/v1/runs/{id}/events")] {
        assert_eq!(get(&path).problem(), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(get("/v1/runs").json()["runs"], json!([]));
    assert_eq!(get("/v1/runs/counts").json()["succeeded"], 0);
    assert!(get("/metrics").text().contains("etude_runs{status=\"succeeded\"} 0"));
    let skills = json!([{"name": "other"}, {"name": "bad-one"}]).to_string();
    std::fs::write(server.dir().join("demo/skills.json"), skills).expect("written");
    let names = |app: &Value| app["pipelines"].as_array().into_iter().flatten().map(|p| p["name"].clone()).collect();
    let all: Vec<Value> = names(&server.send("GET", "/v1/apps/demo", None).json());
    assert!(all.contains(&json!("p")) && all.contains(&json!("bad")), "{all:?}");
    let (one, listed) = (get("/v1/apps/demo").json(), get("/v1/apps").json());
    for app in [&one, &listed["apps"][0]] {
        assert_eq!((names(app) as Vec<Value>, &app["diagnostics"]), (vec![json!("bad")], &json!([])));
        assert_eq!(app["skills"], json!([{"name": "bad-one"}]));
    }
    let cancel = server.raw("POST", &format!("/v1/runs/{id}/cancel"), &[("Authorization", &bearer)], None);
    assert_eq!(cancel.status, 404);
}

/// S-31: `ETag` and `If-None-Match` give 304.
#[test]
fn a_known_document_is_304() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/runs/{id}");
    let tag = server.send("GET", &path, None).header("etag").expect("a tag").to_owned();
    let bearer = format!("Bearer {}", server.owner);
    let reply = server.raw("GET", &path, &[("Authorization", &bearer), ("If-None-Match", &tag)], None);
    assert_eq!((reply.status, reply.body.len()), (304, 0));
}

/// S-65, S-66, S-70, S-71, S-77: the ids of a stream stay the same, even across a restart; a stream that was cut anywhere
/// continues; the end is 204.
#[test]
fn streams_have_stable_ids_and_continue_anywhere() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    let whole = read_stream(&server, &id, None);
    let names: Vec<&str> = whole.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["phase_started", "step_started", "step_ended", "step_started", "step_ended", "ended"]);
    let (_, _, last) = whole.last().expect("an end");
    assert_eq!((&last["status"], &last["run_id"]), (&json!("succeeded"), &json!(id)));
    assert!(whole.iter().all(|(_, name, data)| data["event"] == *name && data["at"].is_string()));
    for (at, (event, ..)) in whole.iter().enumerate() {
        assert_eq!(read_stream(&server, &id, Some(event)), whole[at + 1..], "after {event}");
    }
    let path = format!("/v1/runs/{id}/events");
    let page = server.send("GET", &format!("{path}?limit=4"), None).json();
    let next = page["next"].as_str().expect("more");
    assert_eq!((page["events"].as_array().map(Vec::len), next), (Some(4), whole[3].0.as_str()));
    let rest = server.send("GET", &format!("{path}?after={next}"), None).json();
    assert_eq!((rest["events"][0]["id"].as_str(), &rest["next"]), (Some(whole[4].0.as_str()), &Value::Null));
    let bearer = format!("Bearer {}", server.owner);
    let ask = |last: &str, accept: &str| {
        let headers = [("Authorization", &*bearer), ("Accept", accept), ("Last-Event-ID", last)];
        server.raw("GET", &path, &headers, None).status
    };
    assert_eq!(ask(&whole[5].0, "text/event-stream"), 204);
    // S-71: unknown and future ids are refused.
    for unknown in ["0.99", "99.1", "x", "1", "01.1"] {
        assert_eq!(ask(unknown, "text/event-stream"), 422, "{unknown}");
    }
    assert_eq!(ask("", "text/html"), 406);
    // S-77: an edit of the definition changes nothing.
    server.pipeline("p", "input: {name: {type: string, required: false}}\n", &[OK]);
    assert_eq!(read_stream(&server, &id, None), whole);
    let server = Running::at(server.stop(), |_| ());
    assert_eq!(read_stream(&server, &id, None), whole);
}

/// S-69, S-84, S-86, S-89, S-23: a stream stays open while its run waits; a decision continues the run, under the token's name.
#[test]
fn a_decision_continues_the_run_and_its_stream() {
    let server = Arc::new(server());
    let run = server.run(&json!({"pipeline": "ask"}));
    assert_eq!((&run["status"], &run["waiting_count"]), (&json!("waiting"), &json!(1)));
    let id = run["run_id"].as_str().expect("an id").to_owned();
    let row = || {
        let row = server.send("GET", "/v1/runs?pipeline=ask", None).json()["runs"][0].clone();
        assert_eq!(row, server.send("GET", "/v1/runs?pipeline=ask", None).json()["runs"][0], "it is the same twice");
        ["status", "waiting_count", "reason", "ended_at"].map(|name| row[name].clone())
    };
    let [status, waiting, reason, ended] = row();
    assert_eq!((status, waiting, reason, ended), (json!("waiting"), json!(1), json!("Deploy?"), json!(null)));
    let reader = {
        let (server, id) = (Arc::clone(&server), id.clone());
        std::thread::spawn(move || read_stream(&server, &id, None))
    };
    let open = server.send("GET", "/v1/decisions", None).json();
    let decision = &open["decisions"][0];
    assert_eq!((&decision["run_id"], &decision["message"]), (&json!(id), &json!("Deploy?")));
    let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    assert_eq!(server.send("GET", &path, None).json()["question"], decision["question"]);
    // S-86: a missing question is 422, another one 409; S-89: no GET decides.
    assert_eq!(
        server.send("POST", &path, Some(&json!({"approved": true}))).problem(),
        (422, "input_invalid".to_owned())
    );
    let stale = json!({"approved": true, "question": "x"});
    assert_eq!(server.send("POST", &path, Some(&stale)).problem(), (409, "other_question".to_owned()));
    assert_eq!(server.send("GET", &format!("{path}?approved=true"), None).status, 422);
    let body = json!({"approved": true, "question": decision["question"]});
    let bearer = format!("Bearer {}", server.token("boss", &[Scope::Approve], &[], None));
    let reply = server.raw("POST", &path, &[("Authorization", &bearer)], Some(body.to_string()));
    assert_eq!((reply.status, &reply.json()["by"]), (200, &json!("boss")));
    let late = server.send("POST", &path, Some(&json!({"approved": false, "question": decision["question"]})));
    assert_eq!(late.problem(), (409, "already_decided".to_owned()));
    assert_eq!(late.json()["by"], "boss");
    let events = reader.join().expect("events");
    assert_eq!(
        events.last().map(|(_, name, data)| (name.as_str(), data["status"].clone())),
        Some(("ended", json!("succeeded")))
    );
    // The cached row of the waiting run is not shown any more.
    let [status, waiting, reason, ended] = row();
    assert_eq!((status, waiting, reason), (json!("succeeded"), json!(0), json!(null)));
    assert!(ended.is_string());
    assert_eq!(server.send("GET", "/v1/decisions", None).json()["decisions"], json!([]));
}

/// S-69: streams that begin at the same moment all see the run continue and end.
#[test]
fn streams_that_begin_at_once_all_go_on() {
    let server = Arc::new(server());
    for _ in 0..5 {
        let run = server.run(&json!({"pipeline": "ask"}));
        let id = run["run_id"].as_str().expect("an id").to_owned();
        let begin = Arc::new(std::sync::Barrier::new(16));
        let readers: Vec<_> = (0..16)
            .map(|_| {
                let (server, id, begin) = (Arc::clone(&server), id.clone(), Arc::clone(&begin));
                std::thread::spawn(move || {
                    begin.wait();
                    read_stream(&server, &id, None)
                })
            })
            .collect();
        // The streams are open before the run continues.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
        let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
        let body = json!({"approved": true, "question": decision["question"]});
        assert_eq!(server.send("POST", &path, Some(&body)).status, 200);
        let all: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("events")).collect();
        assert!(all.iter().all(|events| *events == all[0]), "all streams have the same events");
        assert_eq!(all[0].last().map(|(_, name, _)| name.as_str()), Some("ended"));
    }
}

/// L-36: another run of a learned pipeline that is out of use is refused, like a first one.
#[test]
fn no_run_is_started_again_of_a_pipeline_that_is_not_in_use() {
    let server = server();
    server.pipeline("p", "", &[OK]);
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    for (state, status) in [("active", 201), ("demoted", 422)] {
        let learn = format!("learn: 1\nstate: {state}\nfamily: read:p\n");
        std::fs::write(server.dir().join("demo/pipelines/p/learn.yaml"), learn).expect("written");
        let again = server.send("POST", &format!("/v1/runs/{id}/again"), Some(&json!({})));
        assert_eq!(again.status, status, "{state}: {}", again.text());
    }
}

/// S-85: of concurrent opposite decisions one counts, and the responses to the others name it.
#[test]
fn one_of_many_decisions_counts() {
    let server = Arc::new(server());
    let id = server.run(&json!({"pipeline": "ask"}))["run_id"].as_str().expect("an id").to_owned();
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    let threads: Vec<_> = (0..20)
        .map(|nth| {
            let (server, path, question) = (Arc::clone(&server), path.clone(), decision["question"].clone());
            std::thread::spawn(move || {
                let body = json!({"approved": nth % 2 == 0, "question": question});
                let reply = server.send("POST", &path, Some(&body));
                (reply.status, reply.json()["approved"].clone())
            })
        })
        .collect();
    let replies: Vec<(u16, Value)> = threads.into_iter().map(|thread| thread.join().expect("a reply")).collect();
    let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|(status, approved)| *status == 409 && *approved == won[0].1), "{lost:?}");
    server.until(&id, &["succeeded", "failed"]);
}

/// S-79, S-81: a cancelled run ends; a second cancel is 202, and one after the end is 409.
#[test]
fn a_cancelled_run_ends() {
    let server = server();
    server.pipeline("slow", "", &["sleep 300"]);
    let id = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json()["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    server.until(&id, &["running"]);
    let cancel = || server.send("POST", &format!("/v1/runs/{id}/cancel"), Some(&json!({"reason": "enough"})));
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).problem(), (409, "run_is_busy".to_owned()));
    assert_eq!(cancel().status, 202);
    let second = cancel().status;
    assert!([202, 409].contains(&second), "it may have ended by then: {second}");
    let run = server.until(&id, &["cancelled"]);
    assert_eq!(run["errors"][0]["message"], "enough");
    assert_eq!(cancel().problem(), (409, "run_is_over".to_owned()));
}

/// S-79: a run that another server drives can be killed without its destructor, and cancelled with it.
#[test]
fn a_run_of_another_server_is_killed() {
    let server = server();
    server.pipeline("slow", "", &["sleep 300"]);
    server.pipeline("_destructor", "", &[OK]);
    for (mode, status) in [("kill", "not_started"), ("cancel", "succeeded")] {
        let reply = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"})));
        let id = reply.json()["run_id"].as_str().expect("an id").to_owned();
        server.until(&id, &["running"]);
        let other = server.another();
        let reply = other.send("POST", &format!("/v1/runs/{id}/cancel"), Some(&json!({"mode": mode})));
        assert_eq!(reply.status, 202, "{}", reply.text());
        let run = server.until(&id, &["cancelled"]);
        let step = run["steps"].as_array().and_then(|steps| steps.iter().find(|step| step["phase"] == "destructor"));
        assert_eq!(step.expect("a step")["status"], status, "{run}");
    }
}

/// S-80: a queued run that is cancelled never starts.
#[test]
fn a_queued_run_that_is_cancelled_never_starts() {
    let server = server();
    let body = json!({"pipeline": "p", "not_before": "2035-01-01T00:00:00Z"});
    let id = server.send("POST", "/v1/runs", Some(&body)).json()["run_id"].as_str().expect("an id").to_owned();
    let reply = server.send("POST", &format!("/v1/runs/{id}/cancel"), Some(&json!({})));
    assert_eq!(
        (reply.status, &reply.json()["status"], &reply.json()["started_at"]),
        (202, &json!("cancelled"), &Value::Null)
    );
}

/// S-82: a resume after an edit is 409 with the diff, and proceeds if the changes are accepted.
#[test]
fn a_resume_after_an_edit_is_refused_with_the_diff() {
    let server = server();
    let id = server.run(&json!({"pipeline": "bad"}))["run_id"].as_str().expect("an id").to_owned();
    server.pipeline("bad", "", &[OK]);
    let path = format!("/v1/runs/{id}/resume");
    let reply = server.send("POST", &path, Some(&json!({})));
    assert_eq!(reply.problem(), (409, "definition_changed".to_owned()));
    let change = reply.json()["changes"][0].clone();
    assert_eq!((&change["path"], &change["what"]), (&json!("pipelines/bad/pipeline.yaml"), &json!("changed")));
    assert!(change["diff"].as_str().is_some_and(|diff| diff.contains("exit 3")));
    assert_eq!(server.send("POST", &path, Some(&json!({"accept_changes": true}))).status, 202);
    server.until(&id, &["succeeded"]);
    assert_eq!(server.send("POST", &path, Some(&json!({}))).problem(), (409, "run_is_over".to_owned()));
    let retry = server.send("POST", &format!("/v1/runs/{id}/retry"), Some(&json!({"from": "nothing"})));
    assert_eq!(retry.problem(), (422, "input_invalid".to_owned()));
}

/// A retry takes limits, as a resume does.
#[test]
fn a_retry_takes_limits() {
    let server = server();
    let run = server.run(&json!({"pipeline": "p", "limits": {"max_tokens": 7}}));
    let (id, step) = (run["run_id"].as_str().expect("an id"), run["steps"][0]["name"].clone());
    let body = json!({"from": step, "limits": {"timeout": "2h"}});
    assert_eq!(server.send("POST", &format!("/v1/runs/{id}/retry"), Some(&body)).status, 202);
    let ended = server.poll(&format!("/v1/runs/{id}"), |run| run["attempt"] == 2 && run["status"] == "succeeded");
    assert_eq!(ended["limits"], json!({"max_cost_usd": null, "max_tokens": 7, "timeout_ms": 7_200_000}));
}

/// S-63: a deleted run is 404 everywhere.
#[test]
fn a_deleted_run_is_gone() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).status, 204);
    for path in [format!("/v1/runs/{id}"), format!("/v1/runs/{id}/events")] {
        assert_eq!(server.send("GET", &path, None).problem(), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).status, 404);
}

/// S-91: there are never more runs in progress than the server allows.
#[test]
fn no_more_runs_than_allowed() {
    let server = Running::with(|settings| settings.max_runs = 2);
    server.pipeline("slow", "", &["sleep 300"]);
    let ids: Vec<String> = (0..4)
        .map(|_| {
            server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json()["run_id"]
                .as_str()
                .expect("an id")
                .to_owned()
        })
        .collect();
    server.until(&ids[1], &["running"]);
    let counts = server.send("GET", "/v1/runs/counts", None).json();
    assert_eq!((&counts["running"], &counts["queued"]), (&json!(2), &json!(2)));
    let third = server.send("GET", &format!("/v1/runs/{}", ids[2]), None).json();
    assert_eq!(third["queue"], json!({"position": 1, "reason": "max_runs"}));
    for id in &ids {
        server.send("POST", &format!("/v1/runs/{id}/cancel"), Some(&json!({"mode": "kill"})));
        server.until(id, &["cancelled"]);
    }
}

/// S-95: a full queue is 429.
#[test]
fn a_full_queue_is_429() {
    let server = Running::with(|settings| settings.max_queued = 1);
    server.pipeline("p", "", &[OK]);
    let body = json!({"pipeline": "p", "not_before": "2035-01-01T00:00:00Z"});
    assert_eq!(server.send("POST", "/v1/runs", Some(&body)).status, 201);
    let reply = server.send("POST", "/v1/runs", Some(&body));
    assert_eq!(reply.problem(), (429, "queue_full".to_owned()));
    assert!(reply.header("retry-after").is_some());
}

/// S-159: a server that stops cancels no run, and the next one completes it.
#[test]
fn the_next_server_completes_the_runs_of_the_last() {
    let server = Running::with(|settings| settings.drain_timeout = std::time::Duration::from_millis(10));
    server.pipeline("gate", "", &["while [ ! -e ../../../go ]; do sleep 0.01; done; echo '{\"output\": 1}'", OK]);
    let id = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "gate"}))).json()["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    server.until(&id, &["running"]);
    assert_eq!(server.send("POST", "/v1/server/drain", Some(&json!({}))).status, 202);
    let dir = server.stop();
    std::fs::write(dir.path().join("go"), "").expect("written");
    std::fs::write(dir.path().join("demo/go"), "").expect("written");
    let server = Running::at(dir, |_| ());
    assert_eq!(server.until(&id, &["succeeded"])["output"], json!({"n": 1}));
}

/// S-163: metrics are Prometheus text and OpenMetrics, and contain no run id.
#[test]
fn metrics_have_no_run_ids() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    server.send("GET", &format!("/v1/runs/{id}"), None);
    let text = server.send("GET", "/metrics", None).text();
    assert!(text.contains("etude_runs{status=\"succeeded\"} 1\n"), "{text}");
    assert!(
        text.contains("etude_http_requests_total{route=\"/v1/runs/{id}\",status=\"200\"} 1\n") && !text.contains(&id),
        "{text}"
    );
    let of_route = "{route=\"/v1/runs/{id}\",status=\"200\"";
    assert!(text.contains(&format!("etude_http_seconds_bucket{of_route},le=\"+Inf\"}} 1\n")), "{text}");
    let sum = text.lines().find_map(|line| line.strip_prefix(&format!("etude_http_seconds_sum{of_route}}} ")));
    assert!(sum.is_some_and(|sum| sum.parse::<f64>().is_ok_and(|sum| sum > 0.0)), "{sum:?}");
    let ended = "etude_runs_ended_total{pipeline=\"p\",status=\"succeeded\",cause=\"api\"} 1\n";
    assert!(text.contains(ended) && text.contains("etude_run_seconds_count 1\n"), "{text}");
    assert!(text.contains("etude_journal_write_seconds_count 1\n"), "{text}");
    assert_metrics(&text, false);
    let bearer = format!("Bearer {}", server.owner);
    let accept = "application/openmetrics-text; version=1.0.0";
    let reply = server.raw("GET", "/metrics", &[("Authorization", &bearer), ("Accept", accept)], None);
    assert!(
        reply.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text; version=1"))
    );
    let text = reply.text();
    assert_metrics(text.strip_suffix("# EOF\n").expect("an end"), true);
}

/// Asserts that every line is a comment about a family, or a sample of the family above it.
fn assert_metrics(text: &str, is_open: bool) {
    let (mut family, mut kind) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", name, ..] => family = name.to_owned(),
            ["#", "TYPE", name, of] => {
                assert_eq!(name, family, "{line}");
                kind = of.to_owned();
                assert!(["gauge", "counter", "summary", "histogram"].contains(&of), "{line}");
            }
            _ => {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                // OpenMetrics names the family of a counter without the suffix of its samples.
                let ending = name.strip_prefix(family.as_str()).unwrap_or("/");
                let endings: &[&str] = match kind.as_str() {
                    "counter" if is_open => &["_total"],
                    "summary" => &["", "_sum", "_count"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(endings.contains(&ending), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let labels = labels.strip_suffix('}').expect("a closing brace");
                for label in labels.split("\",").filter(|label| !label.is_empty()) {
                    let (name, value) = label.split_once("=\"").expect("a label");
                    assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
                    assert!(!value.trim_end_matches('"').contains('"'), "{line}");
                }
            }
        }
    }
}

/// S-158, S-160: a server that stops is not ready and starts nothing, and its open streams end with it.
#[test]
fn a_stopping_server_is_not_ready_and_ends_its_streams() {
    let server = Arc::new(Running::with(|settings| settings.drain_timeout = std::time::Duration::from_secs(60)));
    server.pipeline("gate", "", &["while [ ! -e ../../go ]; do sleep 0.01; done; echo '{\"output\": 1}'", OK]);
    server.pipeline("ask", "", &["approval: message: Deploy?"]);
    let waiting = server.run(&json!({"pipeline": "ask"}))["run_id"].as_str().expect("an id").to_owned();
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "gate"}))).json();
    server.until(run["run_id"].as_str().expect("an id"), &["running"]);
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let (server, id) = (Arc::clone(&server), waiting.clone());
            std::thread::spawn(move || read_stream(&server, &id, None))
        })
        .collect();
    assert_eq!(server.send("GET", "/readyz", None).status, 200);
    while !server.send("GET", "/metrics", None).text().contains("etude_streams 100\n") {
        std::thread::yield_now();
    }
    assert_eq!(server.send("POST", "/v1/server/drain", Some(&json!({}))).status, 202);
    assert_eq!(server.send("GET", "/readyz", None).status, 503);
    assert_eq!(server.send("GET", "/healthz", None).status, 200);
    let refused = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "gate"})));
    assert_eq!(refused.problem(), (503, "draining".to_owned()));
    assert!(refused.header("retry-after").is_some());
    // A form of a page starts nothing either.
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/x-www-form-urlencoded")];
    let form = server.raw("POST", "/apps/demo/pipelines/gate", &headers, Some(String::new()));
    assert_eq!(form.problem(), (503, "draining".to_owned()));
    std::fs::write(server.dir().join("demo/go"), "").expect("written");
    for reader in readers {
        reader.join().expect("the stream ends");
    }
    Arc::into_inner(server).expect("no reader is left").stop();
}

/// Reading leaves the list of runs unchanged.
#[test]
fn reading_changes_nothing() {
    let server = server();
    let id = server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    let before = server.send("GET", "/v1/runs", None).json();
    for path in ["/v1/runs", "/v1/runs/counts", "/v1/decisions", "/v1/apps", "/v1/apps/demo", "/v1/me"] {
        assert_eq!(server.send("GET", path, None).status, 200, "{path}");
        assert_eq!(server.send("HEAD", path, None).status, 200, "{path}");
    }
    server.send("GET", &format!("/v1/runs/{id}/events"), None);
    assert_eq!(server.send("GET", "/v1/runs", None).json(), before);
}

/// S-59: streams of effects are bytes, whole, as a range or from their end.
#[test]
fn streams_of_effects_have_ranges() {
    let server = server();
    server.pipeline("loud", "", &["echo 0123456789 >&2; echo '{\"output\": {\"n\": 1}}'"]);
    let id = server.run(&json!({"pipeline": "loud"}))["run_id"].as_str().expect("an id").to_owned();
    let path = |stream: &str| format!("/v1/runs/{id}/effects/loud%2Fs0/{stream}");
    let bearer = format!("Bearer {}", server.owner);
    let part = |range: &str| server.raw("GET", &path("stderr"), &[("Authorization", &bearer), ("Range", range)], None);
    let whole = server.send("GET", &path("stderr"), None);
    assert_eq!(
        (whole.status, whole.text().as_str(), whole.header("accept-ranges")),
        (200, "0123456789\n", Some("bytes"))
    );
    let some = part("bytes=2-4");
    assert_eq!((some.status, some.text().as_str(), some.header("content-range")), (206, "234", Some("bytes 2-4/11")));
    assert_eq!(part("bytes=99-").problem(), (416, "range_not_satisfiable".to_owned()));
    assert_eq!(server.send("GET", &format!("{}?tail=3", path("stderr")), None).text(), "89\n");
    assert_eq!(server.send("GET", &path("output"), None).json(), json!({"n": 1}));
    assert!(server.send("GET", &path("input"), None).json()["input"].is_object());
    for unknown in [path("nothing"), path("prompt"), format!("/v1/runs/{id}/effects/x/stderr")] {
        assert_eq!(server.send("GET", &unknown, None).problem(), (404, "not_found".to_owned()), "{unknown}");
    }
}

/// S-59: a stream that exceeds the memory buffer arrives whole, and its parts are those of the whole.
#[test]
fn large_streams_come_in_pieces() {
    let server = server();
    let print = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo \"line $i of the log\"; done >&2; printf '{\"output\": \"'; head -c 700000 /dev/zero | tr '\\0' x; echo '\"}'";
    server.pipeline("large", "", &[print]);
    let id = server.run(&json!({"pipeline": "large"}))["run_id"].as_str().expect("an id").to_owned();
    let path = |stream: &str| format!("/v1/runs/{id}/effects/large%2Fs0/{stream}");
    let whole = server.send("GET", &path("stderr"), None);
    let expected: String = (1..=60_000).map(|nth| format!("line {nth} of the log\n")).collect();
    assert!(expected.len() > 1024 * 1024 && whole.text() == expected);
    assert_eq!(whole.header("content-length"), Some(expected.len().to_string().as_str()));
    let head = server.send("HEAD", &path("stderr"), None);
    assert_eq!((head.header("content-length"), head.body.len()), (whole.header("content-length"), 0));
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Range", "bytes=262000-800000")];
    assert_eq!(server.raw("GET", &path("stderr"), &headers, None).text(), expected[262_000..=800_000]);
    let stdout = server.send("GET", &path("stdout"), None).text();
    assert_eq!(stdout.matches('x').count(), 700_000);
    assert_eq!(server.send("GET", &path("output"), None).json().as_str().map(str::len), Some(700_000));
}

/// S-60: the tree has phases and steps in the order of the plan, and the elements of a fan-out in pages.
#[test]
fn the_tree_pages_a_fan_out() {
    let server = server();
    let dir = server.dir().join("demo/pipelines/many");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: many\ndescription: The pipeline many.\ninput: {items: array}\nsteps:\n  - {name: each, type: code, command: \"cat > /dev/null; echo '{\\\"output\\\": 1}'\", for_each: \"{{input.items}}\"}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let items: Vec<u32> = (0..7).collect();
    let id = server.run(&json!({"pipeline": "many", "input": {"items": items}}))["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let tree = |query: &str| server.send("GET", &format!("/v1/runs/{id}/tree{query}"), None).json();
    let nodes = tree("");
    let ids: Vec<&str> =
        nodes["nodes"].as_array().expect("nodes").iter().filter_map(|node| node["id"].as_str()).collect();
    assert_eq!(ids, ["business", "business/each"]);
    assert_eq!((&nodes["nodes"][1]["children"], &nodes["nodes"][1]["counts"]), (&json!(7), &json!({"succeeded": 7})));
    let first = tree("?parent=business/each&limit=5");
    assert_eq!((first["nodes"].as_array().map(Vec::len), &first["next"]), (Some(5), &json!("business/each[4]")));
    let rest = tree("?parent=business/each&limit=5&after=business/each[4]");
    assert_eq!((rest["nodes"].as_array().map(Vec::len), &rest["next"]), (Some(2), &Value::Null));
    assert_eq!(tree("?parent=business/each&limit=5&around=business/each[6]"), rest);
    assert_eq!((&first["before"], &rest["before"]), (&Value::Null, &json!("business/each[4]")));
    assert_eq!(tree("?parent=business/each&status=failed")["nodes"], json!([]));
    for wrong in ["around=x", "status=x", "around=business&after=business"] {
        assert_eq!(server.send("GET", &format!("/v1/runs/{id}/tree?{wrong}"), None).status, 422, "{wrong}");
    }
    assert_eq!(server.send("GET", &format!("/v1/runs/{id}/tree?parent=x"), None).status, 422);
}

/// S-29: definitions have a schema and a graph.
#[test]
fn definitions_have_a_schema_and_a_graph() {
    let server = server();
    let get = |path: &str| server.send("GET", &format!("/v1/apps/demo/pipelines/{path}"), None);
    assert_eq!(get("p").json()["pipeline"], "p");
    assert_eq!(get("p/schema").json()["properties"]["name"]["type"], "string");
    assert_eq!(get("p/graph").header("content-type"), Some("application/json"));
    assert_eq!(get("p/graph?format=svg").header("content-type"), Some("image/svg+xml"));
    assert_eq!(get("p/graph?format=x").status, 422);
    assert_eq!(get("x").problem(), (404, "not_found".to_owned()));
    assert_eq!(server.send("GET", "/v1/apps/x", None).status, 404);
}

/// S-64: a graph has the states of a run of its pipeline in every format, and none of other runs.
#[test]
fn a_graph_has_the_states_of_a_run() {
    let server = server();
    server.pipeline("half", "", &[OK, "exit 3", OK]);
    let run = server.run(&json!({"pipeline": "half"}));
    let id = run["run_id"].as_str().expect("an id");
    let get = |query: &str| server.send("GET", &format!("/v1/apps/demo/pipelines/half/graph?{query}"), None);
    let graph = get(&format!("run={id}")).json();
    let states: Vec<&Value> =
        graph["nodes"].as_array().expect("nodes").iter().map(|node| &node["state"]["status"]).collect();
    assert_eq!(states, ["succeeded", "failed", "not_started"]);
    for format in ["svg", "mermaid", "dot"] {
        let text = get(&format!("format={format}&run={id}")).text();
        for word in ["succeeded", "failed", "not started"] {
            assert!(text.contains(word), "{format}: {text}");
        }
        assert!(!get(&format!("format={format}")).text().contains("succeeded"));
    }
    assert_eq!(get("").json()["nodes"][0].get("state"), None);
    let other = server.run(&json!({"pipeline": "p"}));
    let other = other["run_id"].as_str().expect("an id");
    assert_eq!(get(&format!("run={other}")).problem(), (422, "input_invalid".to_owned()));
    assert_eq!(get("run=none").status, 422);
}

/// S-61: steps of the same name in other phases, or in a pipeline that a step runs, have effects and times of their own.
#[test]
fn steps_of_one_name_have_their_own_effects() {
    let server = Running::start();
    let ok = r#"cat >/dev/null; echo '{"output": 1}'"#;
    server.pipeline("_constructor", "", &[ok]);
    server.pipeline("_destructor", "", &[ok]);
    server.pipeline("inner", "", &[ok]);
    let dir = server.dir().join("demo/pipelines/whole");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: whole\ndescription: It.\nsteps:\n  - {name: s0, type: code, command: 'cat >/dev/null; echo \"{\\\"output\\\": 1}\"'}\n  - {name: sub, type: pipeline, pipeline: inner}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "whole"}));
    assert_eq!(run["status"], "succeeded", "{run}");
    let names: Vec<&Value> = run["steps"].as_array().expect("steps").iter().map(|step| &step["name"]).collect();
    let one = names[0];
    assert_eq!(names, [one, one, &json!("sub"), one], "the test needs equal names");
    let path = format!("/v1/runs/{}/effects", run["run_id"].as_str().expect("an id"));
    let effects = server.send("GET", &path, None).json()["effects"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = effects.as_array().expect("effects").iter().map(|effect| (text(&effect["id"]), text(&effect["node"])));
    let wanted = [
        ("_constructor/s0", "constructor/s0"),
        ("whole/s0", "business/s0"),
        ("whole/sub/s0", "business/sub"),
        ("_destructor/s0", "destructor/s0"),
    ];
    assert_eq!(found.collect::<Vec<_>>(), wanted.map(|(id, node)| (id.to_owned(), node.to_owned())));
}

/// S-61: attempts of a model have times, tokens, cost and model; a rejected one has its reasons.
#[test]
fn the_tree_has_the_attempts_of_models() {
    let say = |prompt: &str| {
        Some(if prompt.contains("7") && !prompt.contains("not one of") { r#""no""# } else { r#""yes""# }.to_owned())
    };
    let server = Running::with_model(say, |_| ());
    let dir = server.dir().join("demo/pipelines/ask");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: ask\ndescription: Asks.\nsteps:\n  - {name: one, type: llm, model: lite, prompt: 'Say yes to 7', schema: {enum: [\"yes\"]}, retry: 2}\n  - {name: list, type: code, command: 'echo \"{\\\"output\\\": [5, 7]}\"'}\n  - {name: each, type: llm, model: lite, for_each: '{{list.output}}', prompt: 'Say yes to {{item}}', schema: {enum: [\"yes\"]}, retry: 2}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "ask"}));
    assert_eq!(run["status"], "succeeded", "{run}");
    let path = format!("/v1/runs/{}/tree", run["run_id"].as_str().expect("an id"));
    let rows = |query: &str| {
        let nodes = server.send("GET", &format!("{path}{query}"), None).json()["nodes"].clone();
        let row = |node: &Value| {
            format!(
                "{} {} {}",
                node["id"].as_str().expect("an id"),
                node["kind"].as_str().expect("a kind"),
                node["status"].as_str().expect("a status")
            )
        };
        (nodes.as_array().expect("nodes").iter().map(row).collect::<Vec<_>>(), nodes)
    };
    let (outline, nodes) = rows("");
    let wanted = [
        "business phase succeeded",
        "business/one step succeeded",
        "business/one#1 attempt rejected",
        "business/one#2 attempt succeeded",
        "business/list step succeeded",
        "business/each step succeeded",
    ];
    assert_eq!(outline, wanted);
    let rejected = &nodes[2];
    assert_eq!(
        (&rejected["parent"], &rejected["model"], &rejected["attempt"]),
        (&json!("business/one"), &json!("demo/small"), &json!(1))
    );
    assert_eq!(rejected["error"]["rejected_by"], "schema");
    assert_eq!(rejected["error"]["errors"].as_array().map(Vec::len), Some(1), "{rejected}");
    assert!(
        rejected["usage"]["input_tokens"].as_u64().is_some_and(|count| count > 0)
            && rejected["usage"]["cost_usd"].is_number()
    );
    assert!(rejected["started_at"].is_string() && rejected["duration_ms"].is_u64());
    let (items, nodes) = rows("?parent=business/each");
    assert_eq!(items, ["business/each[0] item succeeded", "business/each[1] item succeeded"]);
    assert_eq!((&nodes[0]["children"], &nodes[1]["children"], &nodes[1]["label"]), (&json!(1), &json!(2), &json!("7")));
    let (attempts, _) = rows("?parent=business/each%5B1%5D");
    assert_eq!(attempts, ["business/each[1]#1 attempt rejected", "business/each[1]#2 attempt succeeded"]);
    let effects = format!("/v1/runs/{}/effects?node=business/each%5B1%5D%231", run["run_id"].as_str().expect("an id"));
    let effects = server.send("GET", &effects, None).json();
    assert_eq!(effects["effects"][0]["node"], "business/each[1]#1");
    assert_eq!(effects["effects"].as_array().map(Vec::len), Some(1));
}

/// S-43: `limits` end a run as on the command line.
#[test]
fn limits_end_a_run() {
    let server = Running::start();
    server.pipeline("slow", "", &["sleep 300"]);
    let run = server.run(&json!({"pipeline": "slow", "limits": {"timeout": "200ms"}}));
    assert_eq!((&run["status"], &run["errors"][0]["kind"]), (&json!("failed"), &json!("budget_exceeded")), "{run}");
    assert_eq!(run["limits"]["timeout_ms"], 200);
    let faults = [(json!({"max_tokens": -1}), "/limits/max_tokens"), (json!({"timeout": "soon"}), "/limits/timeout")];
    for (limits, pointer) in faults {
        let reply = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow", "limits": limits})));
        assert_eq!((reply.status, &reply.json()["errors"][0]["pointer"]), (422, &json!(pointer)));
    }
}

/// A-4.9: a limit of money that cannot be enforced, because a model has no price, is refused; no run is accepted.
#[test]
fn a_limit_of_money_needs_prices() {
    let server = server();
    std::fs::write(server.dir().join("demo/unpriced"), "mock/m\n").expect("written");
    let reply = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "p", "limits": {"max_cost_usd": 1}})));
    assert_eq!((reply.status, &reply.json()["errors"][0]["pointer"]), (422, &json!("/limits/max_cost_usd")));
    assert_eq!(reply.problem().1, "input_invalid");
    assert!(reply.text().contains("the price of `mock/m` is unknown"), "{}", reply.text());
    assert_eq!(server.run(&json!({"pipeline": "p", "limits": {"max_tokens": 100}}))["status"], "succeeded");
}

/// A-4.9: the model call that routed a request counts for the run, and for its budget.
#[test]
fn routing_counts_for_the_run() {
    let server = server();
    let run = server.run(&json!({"request": "p"}));
    assert_eq!((&run["status"], &run["usage"]["calls"]), (&json!("succeeded"), &json!(1)), "{run}");
    let run = server.run(&json!({"request": "p", "limits": {"max_tokens": 11}}));
    assert_eq!((&run["status"], &run["errors"][0]["kind"]), (&json!("failed"), &json!("budget_exceeded")), "{run}");
}

/// A-6.3: a request that fits no pipeline is refused with the names of the pipelines.
#[test]
fn a_request_that_fits_nothing_names_the_pipelines() {
    let server = server();
    let reply = server.send("POST", "/v1/runs", Some(&json!({"request": "sing"})));
    assert_eq!(reply.problem().1, "no_pipeline_matched");
    assert_eq!(reply.json()["detail"], "no pipeline fits the request; pipelines of this app: ask, bad, p");
}

/// A-5.6: the document of a run that was resumed with other limits has those in force, before and after its end.
#[test]
fn a_document_has_the_limits_in_force() {
    let server = Running::start();
    server.pipeline("once", "", &["mkdir again 2> /dev/null && exit 3; echo '{\"output\": 1}'"]);
    let body = json!({"pipeline": "once", "limits": {"timeout": "1.5h", "max_tokens": 7}});
    let run = server.run(&body);
    assert_eq!(run["limits"], json!({"max_cost_usd": null, "max_tokens": 7, "timeout_ms": 5_400_000}), "{run}");
    let id = run["run_id"].as_str().expect("an id");
    let limits = json!({"limits": {"timeout": "2h"}});
    let resumed = server.send("POST", &format!("/v1/runs/{id}/resume"), Some(&limits));
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    let run = server.until(id, &["succeeded"]);
    assert_eq!(run["limits"], json!({"max_cost_usd": null, "max_tokens": 7, "timeout_ms": 7_200_000}), "{run}");
}

/// Pages of effects have each entry once, also those of a step that was done again under its id.
#[test]
fn effects_that_were_done_again_have_pages() {
    let server = Running::start();
    server.pipeline("once", "", &["mkdir again 2> /dev/null && exit 3; echo '{\"output\": 1}'", OK]);
    let run = server.run(&json!({"pipeline": "once"}));
    let id = run["run_id"].as_str().expect("an id");
    server.send("POST", &format!("/v1/runs/{id}/resume"), Some(&json!({})));
    server.until(id, &["succeeded"]);
    let page = |query: &str| server.send("GET", &format!("/v1/runs/{id}/effects{query}"), None).json();
    let all = page("")["effects"].as_array().expect("effects").clone();
    assert_eq!(all.iter().filter(|effect| effect["id"] == "once/s0").count(), 2, "{all:?}");
    let (mut seen, mut query) = (Vec::new(), "?limit=1".to_owned());
    for _ in 0..all.len() {
        let page = page(&query);
        seen.extend(page["effects"].as_array().expect("effects").iter().cloned());
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=1&after={}", next.replace('/', "%2F").replace(':', "%3A"));
    }
    assert_eq!(seen, all);
}

/// S-68: with 100 steps at once no event appears twice, and each step begins before it ends.
#[test]
fn events_of_parallel_steps_appear_once_and_in_order() {
    let server = Running::start();
    server.pipeline("wide", "", &[OK]);
    let step =
        |nth: usize| format!("      - {{name: w{nth}, type: code, command: \"echo '{{\\\"output\\\": 1}}'\"}}\n");
    let steps: String = (0..100).map(step).collect();
    let text = format!(
        "name: wide\ndescription: Many steps.\nsteps:\n  - name: all\n    type: parallel\n    max_parallel: 100\n    steps:\n{steps}"
    );
    std::fs::write(server.dir().join("demo/pipelines/wide/pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "wide"}));
    assert_eq!(run["status"], "succeeded", "{run}");
    let events = read_stream(&server, run["run_id"].as_str().expect("an id"), None);
    let ids: std::collections::BTreeSet<&String> = events.iter().map(|(id, _, _)| id).collect();
    assert_eq!(ids.len(), events.len(), "an id appears twice");
    for nth in 0..100 {
        let name = json!(format!("w{nth}"));
        let of: Vec<&str> =
            events.iter().filter(|(_, _, data)| data["step"] == name).map(|(_, n, _)| n.as_str()).collect();
        assert_eq!(of, ["step_started", "step_ended"], "{name}");
    }
}

/// S-72: a stream without news has a comment, so that no proxy closes it.
#[test]
fn a_quiet_stream_has_comments() {
    let server = server();
    let run = server.run(&json!({"pipeline": "ask"}));
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    let head = format!(
        "GET /v1/runs/{}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\n\r\n",
        run["run_id"].as_str().expect("an id"),
        server.address,
        server.owner
    );
    stream.write_all(head.as_bytes()).expect("written");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("the stream stays open"));
    assert!(lines.into_iter().any(|line| line.starts_with(':')));
}

/// S-87, S-88: an answer that violates its schema is 422 with its location, also with a denial, and only approvers decide.
#[test]
fn an_answer_fits_its_schema_and_comes_from_an_approver() {
    let server = Running::start();
    server.pipeline(
        "ask",
        "",
        &["approval: message: Size?, approvers: [lin], schema: {type: object, required: [size], properties: {size: {enum: [s, m]}}}"],
    );
    server.run(&json!({"pipeline": "ask"}));
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    let [mallory, lin] = ["mallory", "lin"].map(|name| server.token(name, &[Scope::Approve], &[], None));
    let decide = |token: &str, approved: bool, answer: Value| {
        let body = json!({"approved": approved, "question": decision["question"], "answer": answer});
        let bearer = format!("Bearer {token}");
        server.raw("POST", &path, &[("Authorization", &bearer)], Some(body.to_string()))
    };
    assert_eq!(decide(&mallory, true, json!({"size": "m"})).problem(), (403, "not_an_approver".to_owned()));
    for approved in [true, false] {
        let reply = decide(&lin, approved, json!({"size": "xl"}));
        let pointer = &reply.json()["errors"][0]["pointer"];
        assert_eq!((reply.status, pointer), (422, &json!("/answer/size")), "{}", reply.text());
    }
    assert_eq!(server.send("GET", "/v1/decisions", None).json()["decisions"].as_array().map(Vec::len), Some(1));
    assert_eq!(decide(&lin, false, Value::Null).status, 200);
}

/// S-67: live stderr output of a step arrives without an id, and is not part of the run's events. S-73: a client that reads
/// nothing does not keep others from the whole stream.
#[test]
fn words_on_the_way_have_no_id_and_a_stalled_reader_slows_no_other() {
    let server = server();
    server.pipeline(
        "talks",
        "",
        &["while [ ! -e go ]; do echo tick >&2; sleep 0.02; done; echo '{\"output\": 1}'", OK],
    );
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "talks"}))).json();
    let id = run["run_id"].as_str().expect("an id").to_owned();
    let open = || {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        let head = format!(
            "GET /v1/runs/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
            server.address, server.owner
        );
        stream.write_all(head.as_bytes()).expect("written");
        stream
    };
    let stalled = open();
    let mut blocks: Vec<Vec<String>> = vec![Vec::new()];
    let mut has_gone = false;
    for line in BufReader::new(open()).lines().map_while(Result::ok) {
        match line.as_str() {
            "" => blocks.push(Vec::new()),
            line => blocks.last_mut().expect("a block").push(line.to_owned()),
        }
        let is_said = blocks.iter().any(|block| block.contains(&"event: stderr".to_owned()) && block.len() > 1);
        if is_said && !has_gone {
            has_gone = true;
            std::fs::write(server.dir().join("demo/pipelines/talks/go"), "").expect("written");
        }
    }
    let ids_of = |block: &[String]| {
        block.iter().filter_map(|line| line.strip_prefix("id: ").map(str::to_owned)).collect::<Vec<_>>()
    };
    let said: Vec<&Vec<String>> = blocks.iter().filter(|block| block.contains(&"event: stderr".to_owned())).collect();
    assert!(!said.is_empty() && said.iter().all(|block| ids_of(block).is_empty()), "{said:?}");
    assert!(said[0].iter().any(|line| line.starts_with("data: {") && line.contains("tick")), "{said:?}");
    let ids: Vec<String> = blocks.iter().flat_map(|block| ids_of(block)).collect();
    let page = server.send("GET", &format!("/v1/runs/{id}/events"), None).json();
    let of_page: Vec<&str> =
        page["events"].as_array().expect("events").iter().filter_map(|event| event["id"].as_str()).collect();
    assert_eq!(ids, of_page);
    assert!(page["events"].as_array().expect("events").iter().all(|event| event["event"] != "stderr"));
    drop(stalled);
}

/// Section 10: a server whose journal was deleted is not ready, and the log line of a failed request has the code.
#[test]
fn a_server_without_its_journal_is_not_ready() {
    let server = server();
    assert_eq!(server.send("GET", "/readyz", None).status, 200);
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        // The log and its index exist only while the journal is open.
        let _ = std::fs::remove_file(server.dir().join(name));
    }
    assert_eq!(server.send("GET", "/readyz", None).problem(), (503, "journal_unavailable".to_owned()));
    let line = server.log().pop().expect("a line");
    assert_eq!((&line["status"], &line["code"]), (&json!(503), &json!("journal_unavailable")), "{line}");
    assert!(server.log().iter().all(|line| line["status"] != 200 || line.get("code").is_none()));
}

/// `run` does not imply `read`: a token with `run` alone that runs something again sees its own input, and nothing of the runs of others.
#[test]
fn a_run_again_shows_nothing_of_others() {
    let server = server();
    let post = |token: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        let reply =
            server.raw("POST", path, &[("Authorization", &bearer), ("Prefer", "wait=60")], Some(body.to_string()));
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()
    };
    let again = |run: &Value| format!("/v1/runs/{}/again", run["run_id"].as_str().expect("an id"));
    let of_owner = server.run(&json!({"pipeline": "p", "input": {"name": "secret"}}));
    let runner = server.token("runner", &[Scope::Run], &[], None);
    let first = post(&runner, &again(&of_owner), json!({}));
    assert_eq!(
        (&first["status"], &first["input"], &first["output"]),
        (&json!("succeeded"), &Value::Null, &Value::Null)
    );
    for document in [&first, &post(&runner, &again(&first), json!({}))] {
        assert!(!document.to_string().contains("secret"), "{document}");
    }
    let own = json!({"name": "own"});
    assert_eq!(post(&runner, &again(&of_owner), json!({"input": own}))["input"], own);
    let started = post(&runner, "/v1/runs", json!({"pipeline": "p", "input": own}));
    assert_eq!(post(&runner, &again(&started), json!({}))["input"], own);
    let reader = server.token("reader", &[Scope::Read, Scope::Run], &[], None);
    assert_eq!(post(&reader, &again(&of_owner), json!({}))["input"], json!({"name": "secret"}));
}
