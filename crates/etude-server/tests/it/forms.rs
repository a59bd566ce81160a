//! The exact forms of requests and responses.

use serde_json::{Value, json};

use crate::support::{Reply, Running};

const OK: &str = r#"cat >/dev/null; printf '{"output": {"n": 1}}'"#;

/// Sends a request with the owner's token and these headers.
fn send(server: &Running, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Reply {
    let bearer = format!("Bearer {}", server.owner);
    let all: Vec<(&str, &str)> =
        [("Authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
    server.raw(method, path, &all, body.map(str::to_owned))
}

/// The id of an ended run.
fn ended(server: &Running) -> String {
    server.pipeline("p", "", &[OK]);
    server.run(&json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned()
}

/// The path of a run's open question, and its digest.
fn question(run: &Value) -> (String, String) {
    let waiting = &run["waiting"][0];
    let id = waiting["id"].as_str().expect("an id").replace('/', "%2F");
    (format!("/v1/decisions/{id}"), waiting["payload"]["question"].as_str().expect("a question").to_owned())
}

/// S-33: an answer, and the input of a dry run, keep their digits.
#[test]
fn answers_and_dry_runs_keep_all_digits() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: 'Go?'"]);
    let head = "input:\n  v: {type: number, description: A number.}\n";
    server.pipeline("n", head, &[OK]);
    let given = "[123456789012345678901234567890,0.1234567890123456789012345,9007199254740993]";
    let (path, question) = question(&server.run(&json!({"pipeline": "ask"})));
    let body = format!(r#"{{"approved":true,"question":"{question}","answer":{given}}}"#);
    let decided = send(&server, "POST", &path, &[], Some(&body)).text();
    assert!(decided.ends_with(&format!(r#","answer":{given}}}"#)), "{decided}");
    let input = r#"{"v":123456789012345678901234567890}"#;
    let body = format!(r#"{{"pipeline":"n","input":{input}}}"#);
    let dry = send(&server, "POST", "/v1/runs?dry_run=true", &[], Some(&body));
    assert_eq!((dry.status, &dry.json()["pipeline"]), (200, &json!("n")));
    assert!(dry.text().contains(&format!(r#","input":{input},"#)), "{}", dry.text());
}

/// S-31: every document of a run, schedule or app, and every stream of a run, has an `ETag`, with which it is 304.
#[test]
fn documents_and_streams_of_a_run_are_known_by_their_tag() {
    let server = Running::start();
    let id = ended(&server);
    server.configure("schedules:\n  hourly: {pipeline: p, every: 1h}\n");
    // The server may have read the file just before the change.
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let run = format!("/v1/runs/{id}");
    let effect = server.send("GET", &format!("{run}/effects"), None).json()["effects"][0]["id"].clone();
    let effect = format!("{run}/effects/{}", effect.as_str().expect("an id").replace('/', "%2F").replace('#', "%23"));
    let graph = format!("/v1/apps/demo/pipelines/p/graph?run={id}");
    let paths = [
        format!("{run}/tree"),
        format!("{run}/events"),
        format!("{run}/effects"),
        effect.clone(),
        format!("{effect}/output"),
        format!("{effect}/input"),
        format!("{effect}/stdout"),
        format!("{effect}/stdout?tail=3"),
        graph.clone(),
        format!("{graph}&format=svg"),
        "/v1/schedules/demo/hourly/next?from=2026-01-01T00:00:00Z".to_owned(),
        "/v1/schedules/demo/hourly/ticks".to_owned(),
    ];
    for path in &paths {
        let reply = send(&server, "GET", path, &[], None);
        let tag = reply.header("etag").unwrap_or_else(|| panic!("{path}: {}", reply.text())).to_owned();
        let known = send(&server, "GET", path, &[("If-None-Match", &tag), ("Range", "bytes=900-")], None);
        assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(&*tag)), "{path}");
        assert_eq!(send(&server, "GET", path, &[("If-None-Match", "\"x\"")], None).status, 200, "{path}");
    }
}

/// S-59: `If-Range` ties a part to its bytes, and a range outside of them returns their total number.
#[test]
fn a_range_belongs_to_its_bytes() {
    let server = Running::start();
    let id = ended(&server);
    let effects = server.send("GET", &format!("/v1/runs/{id}/effects"), None).json();
    let effect = effects["effects"][0]["id"].as_str().expect("an id").replace('/', "%2F");
    for path in [format!("/v1/runs/{id}/effects/{effect}/stdout"), format!("/v1/runs/{id}/output")] {
        let whole = send(&server, "GET", &path, &[], None);
        let (tag, total) = (whole.header("etag").expect("a tag"), whole.body.len());
        let part = |given: &str| {
            let reply = send(&server, "GET", &path, &[("Range", "bytes=0-2"), ("If-Range", given)], None);
            (reply.status, reply.body)
        };
        assert_eq!(part(tag), (206, whole.body[..3].to_vec()), "{path}");
        for other in ["\"x\"", &format!("W/{tag}"), "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(part(other), (200, whole.body.clone()), "{path} {other}");
        }
        let outside = send(&server, "GET", &path, &[("Range", "bytes=900-")], None);
        assert_eq!(outside.problem(), (416, "range_not_satisfiable".to_owned()));
        assert_eq!(outside.header("content-range"), Some(&*format!("bytes */{total}")), "{path}");
    }
}

/// S-107: `unpause` and `fire` take a reason, as `pause` does.
#[test]
fn a_schedule_goes_on_and_begins_for_a_reason() {
    let server = Running::start();
    server.pipeline("p", "", &[OK]);
    server.configure("schedules:\n  hourly: {pipeline: p, every: 1h}\n");
    // The server may have read the file just before the change.
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let act = |action: &str, reason: Value| {
        let path = format!("/v1/schedules/demo/hourly/{action}");
        server.send("POST", &path, Some(&json!({"reason": reason})))
    };
    let paused = act("pause", "a holiday".into()).json();
    assert_eq!((&paused["paused"], &paused["reason"]), (&json!(true), &json!("a holiday")));
    let active = act("unpause", "it is over".into()).json();
    assert_eq!((&active["paused"], &active["reason"]), (&json!(false), &Value::Null));
    assert_eq!(act("fire", "a customer waits".into()).status, 202);
    for action in ["unpause", "fire"] {
        let refused = act(action, 7.into());
        assert_eq!(refused.problem(), (422, "input_invalid".to_owned()), "{action}");
        assert_eq!(refused.json()["errors"][0]["pointer"], "/reason", "{action}");
    }
}

/// S-86: a stale question is 409, even once the question is decided.
#[test]
fn a_stale_question_is_409_after_the_decision() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: 'Go?'", OK]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let (path, question) = question(&run);
    let decide = |question: &str| server.send("POST", &path, Some(&json!({"approved": true, "question": question})));
    assert_eq!(decide("stale").problem(), (409, "other_question".to_owned()));
    assert_eq!(decide(&question).status, 200);
    for given in ["stale", &question] {
        let refused = decide(given);
        assert_eq!(refused.problem(), (409, "already_decided".to_owned()), "{given}");
        assert_eq!((&refused.json()["by"], &refused.json()["approved"]), (&json!("owner"), &json!(true)));
    }
    let id = run["run_id"].as_str().expect("an id");
    server.until(id, &["succeeded"]);
    assert_eq!(decide("stale").problem(), (409, "already_decided".to_owned()));
    let unknown =
        server.send("POST", &format!("/v1/decisions/{id}:x"), Some(&json!({"approved": true, "question": "q"})));
    assert_eq!(unknown.problem(), (404, "not_found".to_owned()));
}

/// S-50, S-61: a run that has not begun has every step and every node of its tree as `not_started`.
#[test]
fn a_queued_run_has_begun_no_step() {
    let server = Running::start();
    server.pipeline("p", "", &[OK, OK]);
    let body = json!({"pipeline": "p", "not_before": "2035-01-01T00:00:00Z"});
    let run = server.send("POST", "/v1/runs", Some(&body)).json();
    for step in run["steps"].as_array().expect("steps") {
        assert_eq!((&step["status"], &step["waiting"]), (&json!("not_started"), &Value::Null), "{step}");
        assert_ne!(step["attempts"], 1, "{step}");
    }
    let tree = format!("/v1/runs/{}/tree", run["run_id"].as_str().expect("an id"));
    let nodes = server.send("GET", &tree, None).json()["nodes"].clone();
    let status: Vec<&Value> = nodes.as_array().expect("nodes").iter().map(|node| &node["status"]).collect();
    assert_eq!(status, ["not_started"; 3]);
}
