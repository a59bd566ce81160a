//! The exact forms of requests and responses.

use serde_json::{Value, json};

use crate::support::{Reply, Running};

const OK: &str = r#"cat >/dev/null; printf '{"output": {"n": 1}}'"#;

/// A request with the owner's token and these headers.
fn send(server: &Running, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Reply {
    let bearer = format!("Bearer {}", server.owner);
    let all: Vec<(&str, &str)> =
        [("Authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
    server.raw(method, path, &all, body.map(str::to_owned))
}

/// The path of the open question of a run, and what it asks.
fn question(run: &Value) -> (String, String) {
    let waiting = &run["waiting"][0];
    let id = waiting["id"].as_str().expect("an id").replace('/', "%2F");
    (format!("/v1/decisions/{id}"), waiting["payload"]["question"].as_str().expect("a question").to_owned())
}

/// S-33: an answer, and the input of a dry run, have the digits that were given.
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
    assert!(dry.text().ends_with(&format!(r#","input":{input}}}"#)), "{}", dry.text());
}
