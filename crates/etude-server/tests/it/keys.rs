//! Idempotency keys of requests.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::{EntryQuery, Expected, Ledger as _, Write};
use etude_server::token::Scope;
use etude_sqlite::Sqlite;
use serde_json::{Value, json};

use crate::support::{Reply, Running};

const OK: &str = r#"cat >/dev/null; printf '{"output": {"n": 1}}'"#;

/// Sends a request with the key `k`.
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

/// Section 16.4: a request with two keys is refused, because it is unknown which of them holds.
#[test]
fn a_request_has_one_key() {
    let server = Running::start();
    server.pipeline("one", "", &["echo '{\"output\": 1}'"]);
    let bearer = format!("Bearer {}", server.owner);
    let twice = [("Authorization", &*bearer), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    let reply = server.raw("POST", "/v1/runs", &twice, Some(json!({"pipeline": "one"}).to_string()));
    assert_eq!(reply.problem(), (422, "input_invalid".to_owned()));
    assert_eq!(reply.json()["errors"][0]["parameter"], "Idempotency-Key");
    assert_eq!(server.send("GET", "/v1/runs", None).json()["runs"], json!([]));
}

/// The run of a reply, which is its first one or a repetition of it.
fn run_of(reply: &Reply, is_repetition: bool) -> String {
    assert_eq!((reply.status, is_replayed(reply)), (201, is_repetition), "{}", reply.text());
    let id = reply.json()["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(reply.header("location"), Some(&*format!("/v1/runs/{id}")));
    id
}

/// S-44, S-46: the same key and body are the same run, even after the definition and the repeated run are gone.
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

/// A run that waits, the path of its question, and an answer.
fn asked(server: &Running) -> (String, String, Value) {
    server.pipeline("ask", "", &["approval: message: 'Go?'", OK]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let waiting = &run["waiting"][0];
    let path = format!("/v1/decisions/{}", waiting["id"].as_str().expect("an id").replace('/', "%2F"));
    let answer = json!({"approved": true, "question": waiting["payload"]["question"], "reason": "fine"});
    (run["run_id"].as_str().expect("an id").to_owned(), path, answer)
}

/// S-85: a decision with the key and the body of the first is the first one, even if the response of the first was lost.
#[test]
fn a_decision_with_its_key_again_is_the_first_one() {
    let server = Running::start();
    let (id, path, answer) = asked(&server);
    let first = post(&server, &path, &answer);
    assert_eq!((first.status, is_replayed(&first)), (200, false), "{}", first.text());
    let check_again = || {
        let second = post(&server, &path, &answer);
        assert_eq!((second.status, is_replayed(&second), second.json()), (200, true, first.json()));
    };
    check_again();
    server.until(&id, &["succeeded"]);
    check_again();
    let mut other = answer.clone();
    other["approved"] = json!(false);
    assert_eq!(post(&server, &path, &other).problem(), (422, "key_reused".to_owned()));
    let decided = (409, "already_decided".to_owned());
    assert_eq!(post_as(&server, &server.owner, "k2", &path, &answer).problem(), decided);
    let anna = server.token("anna", &[Scope::Approve], &[], None);
    assert_eq!(post_as(&server, &anna, "k", &path, &answer).problem(), decided);
    // The server died between the decision and its response.
    forget_responses(&server);
    check_again();
}

/// Resets the ledger as if requests about runs had no response yet.
fn forget_responses(server: &Running) {
    let settings = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = Sqlite::open(settings).expect("the journal");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let book = || EntryQuery { book: "run:responses".to_owned(), ..EntryQuery::default() };
    for mut entry in engine.entries(&book()).expect("entries") {
        "begun".clone_into(&mut entry.state);
        let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
        runtime.block_on(engine.write(&write)).expect("written");
    }
}

/// A cancellation with the key of the first gets the response of the first, even after the run has ended.
#[test]
fn a_cancellation_with_its_key_again_is_the_first_one() {
    let server = Running::start();
    let (id, _, _) = asked(&server);
    let path = format!("/v1/runs/{id}/cancel");
    let first = post(&server, &path, &json!({"reason": "late"}));
    assert_eq!((first.status, is_replayed(&first)), (202, false));
    server.until(&id, &["cancelled"]);
    let second = post(&server, &path, &json!({"reason": "late"}));
    assert_eq!((second.status, is_replayed(&second), second.json()), (202, true, first.json()));
    assert_eq!(post(&server, &path, &json!({})).problem(), (422, "key_reused".to_owned()));
    assert_eq!(server.send("POST", &path, None).problem(), (409, "run_is_over".to_owned()));
}

/// A backfill with the key of the first returns the ticks that the first one took.
#[test]
fn a_backfill_with_its_key_again_is_the_first_one() {
    let server = Running::start();
    server.pipeline("p", "", &[OK]);
    server.configure("schedules:\n  daily: {pipeline: p, cron: '0 2 * * *', timezone: UTC}\n");
    // The server may have read the file just before the change.
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let path = "/v1/schedules/demo/daily/backfill";
    let body = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z"});
    let (first, second) = (post(&server, path, &body), post(&server, path, &body));
    assert_eq!(first.json()["ticks"].as_array().map(Vec::len), Some(2), "{}", first.text());
    assert_eq!((second.status, is_replayed(&second), second.json()), (202, true, first.json()));
}

/// S-44: of requests with the same key and body that arrive together, one acts, and the others get its response.
#[test]
fn requests_with_one_key_that_arrive_together_have_one_response() {
    let server = Running::start();
    server.pipeline("p", "", &[OK]);
    server.configure("schedules:\n  daily: {pipeline: p, cron: '0 2 * * *', timezone: UTC, overlap: allow}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let body = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"});
    for (action, body) in [("backfill", body), ("fire", json!({})), ("pause", json!({}))] {
        let path = format!("/v1/schedules/demo/daily/{action}");
        let replies: Vec<Reply> = std::thread::scope(|scope| {
            let posts: Vec<_> = (0..8).map(|_| scope.spawn(|| post(&server, &path, &body))).collect();
            posts.into_iter().map(|post| post.join().expect("a reply")).collect()
        });
        let first = replies.iter().find(|reply| !is_replayed(reply)).expect("a first request");
        assert!(replies.iter().all(|reply| reply.json() == first.json()), "{action}: {}", first.text());
        assert_eq!(replies.iter().filter(|reply| is_replayed(reply)).count(), 7, "{action}");
    }
}

/// S-46: every `POST` takes a key, including those that start nothing.
#[test]
fn a_request_that_was_routed_keeps_its_key() {
    let server = Running::start();
    let path = "/v1/apps/demo/route";
    let first = post(&server, path, &json!({"request": "a"}));
    let second = post(&server, path, &json!({"request": "a"}));
    assert_eq!((first.status, is_replayed(&first), is_replayed(&second)), (200, false, true), "{}", first.text());
    assert_eq!(second.json(), first.json());
    assert_eq!(post(&server, path, &json!({"request": "b"})).problem(), (422, "key_reused".to_owned()));
}

/// A command runs once for each key: a repetition is refused while the command runs, and gets its response later. A refused
/// command frees its key.
#[test]
fn a_command_runs_once_for_its_key() {
    let server = Arc::new(Running::start());
    let (path, body) = ("/v1/apps/demo/commands/tool", json!({"argv": ["go"]}));
    let app = server.dir().join("demo");
    let ran = || std::fs::read_to_string(app.join("ran")).unwrap_or_default().lines().count();
    std::fs::write(app.join("hold"), "").expect("written");
    let (of, content) = (Arc::clone(&server), body.clone());
    let first = std::thread::spawn(move || post(&of, path, &content));
    while ran() == 0 {
        std::thread::yield_now();
    }
    let busy = post(&server, path, &body);
    assert_eq!(busy.problem(), (409, "key_in_use".to_owned()));
    std::fs::remove_file(app.join("hold")).expect("removed");
    let first = first.join().expect("a reply");
    assert_eq!((first.status, is_replayed(&first)), (200, false));
    let second = post(&server, path, &body);
    assert_eq!((second.status, is_replayed(&second), second.json()), (200, true, first.json()));
    assert_eq!((ran(), post_as(&server, &server.owner, "k2", path, &body).status, ran()), (1, 200, 2));
    for _ in 0..2 {
        let refused = post_as(&server, &server.owner, "k3", path, &json!({"argv": ["unknown"]}));
        assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    }
    assert_eq!((post_as(&server, &server.owner, "k3", path, &body).status, ran()), (200, 5));
}

/// S-158: a server that stops waits for a command, and gives it up after the drain timeout.
#[test]
fn a_stopping_server_waits_for_a_command_and_gives_it_up() {
    let server = Arc::new(Running::with(|settings| settings.drain_timeout = Duration::from_millis(200)));
    let app = server.dir().join("demo");
    std::fs::write(app.join("hold"), "").expect("written");
    let of = Arc::clone(&server);
    let ran = std::thread::spawn(move || post(&of, "/v1/apps/demo/commands/tool", &json!({"argv": ["go"]})));
    while !app.join("ran").exists() {
        std::thread::yield_now();
    }
    server.server.drain();
    let reply = ran.join().expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    Arc::into_inner(server).expect("no client is left").stop();
}
