//! Idempotency keys of requests.

use serde_json::{Value, json};

use crate::support::{Reply, Running};

const OK: &str = r#"cat >/dev/null; printf '{"output": {"n": 1}}'"#;

/// A request with the key `k`.
fn post(server: &Running, path: &str, body: &Value) -> Reply {
    post_as(server, &server.owner, "k", path, body)
}

fn post_as(server: &Running, token: &str, key: &str, path: &str, body: &Value) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", key), ("Prefer", "wait=60")];
    server.raw("POST", path, &headers, Some(body.to_string()))
}

fn is_replayed(reply: &Reply) -> bool {
    reply.header("idempotency-replayed") == Some("true")
}

/// The run of a reply that is its first one, or a repetition of it.
fn run_of(reply: &Reply, is_repetition: bool) -> String {
    assert_eq!((reply.status, is_replayed(reply)), (201, is_repetition), "{}", reply.text());
    let id = reply.json()["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(reply.header("location"), Some(&*format!("/v1/runs/{id}")));
    id
}

/// S-44, S-46: the same key and body are the same run, whatever has become of the definition and of the run that was repeated.
#[test]
fn a_key_is_its_run_after_the_definition_is_gone() {
    let server = Running::start();
    server.pipeline("p", "", &[OK]);
    let body = json!({"pipeline": "p"});
    let id = run_of(&post(&server, "/v1/runs", &body), false);
    let again = format!("/v1/runs/{id}/again");
    let second = run_of(&post(&server, &again, &json!({})), false);
    server.pipeline("p", "input:\n  n: {type: integer, description: A number.}\n", &[OK]);
    assert_eq!(run_of(&post(&server, "/v1/runs", &body), true), id);
    std::fs::remove_dir_all(server.dir().join("demo/pipelines/p")).expect("removed");
    assert_eq!(run_of(&post(&server, "/v1/runs", &body), true), id);
    assert_eq!(post(&server, "/v1/runs", &json!({"pipeline": "q"})).problem(), (422, "key_reused".to_owned()));
    assert_eq!(run_of(&post(&server, &again, &json!({})), true), second);
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).status, 204);
    assert_eq!(run_of(&post(&server, &again, &json!({})), true), second);
    assert_eq!(post(&server, &again, &json!({"input": {}})).problem(), (422, "key_reused".to_owned()));
}
