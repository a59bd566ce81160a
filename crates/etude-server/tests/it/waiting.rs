//! Runs that wait for a person, and what continues them.

use std::time::Duration;

use etude_runtime::engine::Engine as _;
use serde_json::{Value, json};

use crate::support::Running;

fn questions(server: &Running, id: &str) -> Vec<Value> {
    let open = server.send("GET", "/v1/decisions", None).json();
    let all = open["decisions"].as_array().cloned().expect("decisions");
    all.into_iter().filter(|decision| decision["run_id"] == id).collect()
}

fn approve(server: &Running, decision: &Value) {
    let path = decision["id"].as_str().expect("an id").replace('/', "%2F");
    let answer = json!({"approved": true, "question": decision["question"]});
    let reply = server.send("POST", &format!("/v1/decisions/{path}"), Some(&answer));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The deadline of a question that was answered continues no run: it waits on without a change until the next
/// answer.
#[test]
fn an_answered_deadline_wakes_no_run() {
    let server = Running::start();
    server.pipeline("two", "", &["approval: message: A?, timeout: 1h", "approval: message: B?"]);
    let run = server.run(&json!({"pipeline": "two"}));
    let id = run["run_id"].as_str().expect("an id");
    approve(&server, &questions(&server, id)[0]);
    while questions(&server, id).first().is_none_or(|decision| decision["message"] != "B?") {
        std::thread::yield_now();
    }
    let engine = etude_sqlite::Sqlite::open(etude_sqlite::Settings {
        dir: server.dir().to_owned(),
        sync: etude_sqlite::Sync::Normal,
    })
    .expect("the journal");
    let seen = |view: etude_runtime::engine::RunView| (view.records.len(), view.row.change);
    let before = seen(engine.view(id).expect("the run"));
    server.clock.set_offset(3_600_001);
    // The server looks for runs to continue each second.
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(seen(engine.view(id).expect("the run")), before);
    approve(&server, &questions(&server, id)[0]);
    server.until(id, &["succeeded"]);
}
