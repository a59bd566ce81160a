//! Runs that wait for a person, and their continuation.

use std::time::Duration;

use etude_runtime::engine::{Engine as _, RunState};
use serde_json::{Value, json};

use crate::support::{Reply, Running};

fn questions(server: &Running, id: &str) -> Vec<Value> {
    let open = server.send("GET", "/v1/decisions", None).json();
    let all = open["decisions"].as_array().cloned().expect("decisions");
    all.into_iter().filter(|decision| decision["run_id"] == id).collect()
}

fn answer(server: &Running, decision: &Value) -> Reply {
    let path = decision["id"].as_str().expect("an id").replace('/', "%2F");
    let answer = json!({"approved": true, "question": decision["question"]});
    server.send("POST", &format!("/v1/decisions/{path}"), Some(&answer))
}

fn approve(server: &Running, decision: &Value) {
    let reply = answer(server, decision);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// S-52, S-53: the list of open questions has pages, which show each question once, whatever is answered meanwhile.
#[test]
fn open_questions_have_pages() {
    let server = Running::start();
    server.pipeline("one", "", &["approval: message: A?"]);
    for _ in 0..3 {
        server.run(&json!({"pipeline": "one"}));
    }
    let group = "type: parallel, steps: [{name: x, type: approval, message: \"X?\"}, {name: y, type: approval, message: \"Y?\"}]";
    let dir = server.dir().join("demo/pipelines/both");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = format!("name: both\ndescription: Asks twice.\nsteps:\n  - {{name: g, {group}}}\n");
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    server.run(&json!({"pipeline": "both"}));
    let get = |query: &str| server.send("GET", &format!("/v1/decisions{query}"), None);
    let all = get("").json();
    let ids = |document: &Value| -> Vec<Value> {
        document["decisions"].as_array().expect("a list").iter().map(|decision| decision["id"].clone()).collect()
    };
    assert_eq!((ids(&all).len(), &all["next"]), (5, &Value::Null));
    // Including a page that ends between two questions of one run.
    for limit in [1, 2, 3, 4, 5] {
        let (mut found, mut query) = (Vec::new(), format!("?limit={limit}"));
        loop {
            let page = get(&query).json();
            assert!(ids(&page).len() <= limit, "{page}");
            found.extend(ids(&page));
            let Some(next) = page["next"].as_str() else { break };
            query = format!("?limit={limit}&cursor={next}");
        }
        assert_eq!(found, ids(&all), "{limit} at once");
    }
    let first = get("?limit=1").json();
    approve(&server, &first["decisions"][0]);
    let next = first["next"].as_str().expect("a cursor");
    assert_eq!(ids(&get(&format!("?cursor={next}")).json()), ids(&all)[1..]);
    for query in ["?limit=0", "?limit=201", "?cursor=1.2.61.000000000000", "?cursor=x"] {
        assert_eq!(get(query).problem(), (422, "input_invalid".to_owned()), "{query}");
    }
}

/// S-84: all questions of a run can be answered one after the other, although each answer continues the run.
#[test]
fn questions_of_one_run_are_answered_in_a_row() {
    let server = Running::start();
    let group = |names: &[&str]| {
        let gate = |name: &&str| format!("{{name: {name}, type: approval, message: \"{name}?\"}}");
        format!("type: parallel, steps: [{}]", names.iter().map(gate).collect::<Vec<_>>().join(", "))
    };
    let dir = server.dir().join("demo/pipelines/all");
    std::fs::create_dir_all(&dir).expect("a directory");
    let steps = format!("steps:\n  - {{name: g, {}}}\n", group(&["x", "y", "z"]));
    std::fs::write(dir.join("pipeline.yaml"), format!("name: all\ndescription: Asks thrice.\n{steps}"))
        .expect("written");
    for _ in 0..8 {
        let run = server.run(&json!({"pipeline": "all"}));
        let id = run["run_id"].as_str().expect("an id");
        let open = questions(&server, id);
        assert_eq!(open.len(), 3);
        for decision in &open {
            let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
            assert_eq!(server.send("GET", &path, None).status, 200);
            assert_eq!(answer(&server, decision).status, 200);
            assert_eq!(server.send("GET", &path, None).problem(), (404, "not_found".to_owned()));
        }
        server.until(id, &["succeeded"]);
    }
}

/// S-84: a question stays open while the run works after the answer to another one, however long that takes.
#[test]
fn a_question_is_open_while_the_run_works() {
    let server = Running::start();
    let go = server.dir().join("go");
    server.pipeline(
        "long",
        "",
        &[
            "approval: message: A?",
            &format!("until test -e {}; do sleep 0.02; done; echo '{{\"output\": 1}}'", go.display()),
        ],
    );
    let dir = server.dir().join("demo/pipelines/both");
    std::fs::create_dir_all(&dir).expect("a directory");
    let group = "type: parallel, steps: [{name: x, type: pipeline, pipeline: long}, {name: y, type: approval, message: \"B?\"}]";
    let text = format!("name: both\ndescription: Asks twice.\nsteps:\n  - {{name: g, {group}}}\n");
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "both"}));
    let id = run["run_id"].as_str().expect("an id");
    let open = questions(&server, id);
    let named = |message: &str| open.iter().find(|decision| decision["message"] == message).expect("a question");
    approve(&server, named("A?"));
    server.until(id, &["running"]);
    let path = format!("/v1/decisions/{}", named("B?")["id"].as_str().expect("an id").replace('/', "%2F"));
    let shown = server.send("GET", &path, None);
    assert_eq!((shown.status, &shown.json()["question"]), (200, &named("B?")["question"]));
    let of_run = || server.send("GET", &format!("/v1/decisions?run={id}"), None).json();
    assert_eq!(of_run(), json!({"decisions": [shown.json()], "next": null}));
    assert_eq!(questions(&server, id), Vec::<Value>::new());
    approve(&server, named("B?"));
    assert_eq!(of_run()["decisions"], json!([]));
    assert_eq!(server.send("GET", "/v1/decisions?run=0", None).problem(), (404, "not_found".to_owned()));
    assert_eq!(answer(&server, named("B?")).problem(), (409, "already_decided".to_owned()));
    assert_eq!(server.send("GET", &path, None).problem(), (404, "not_found".to_owned()));
    std::fs::write(go, "").expect("written");
    assert_eq!(server.until(id, &["succeeded", "failed"])["status"], "succeeded");
}

/// The records and the last change of a run that waits, once no driver has it.
fn seen(server: &Running, id: &str) -> (usize, u64) {
    let settings = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = etude_sqlite::Sqlite::open(settings).expect("the journal");
    let since = std::time::Instant::now();
    loop {
        let view = engine.view(id).expect("the run");
        if view.row.state == RunState::Waiting && !view.row.is_live {
            return (view.records.len(), view.row.change);
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it is {}", view.row.state.word());
        std::thread::yield_now();
    }
}

/// The deadline of an answered question continues no run: the run waits without a change until the next answer.
#[test]
fn an_answered_deadline_wakes_no_run() {
    let server = Running::start();
    // A slow machine may answer late.
    let answered = [3, 15, 60].into_iter().find_map(|seconds| {
        server.pipeline("two", "", &[&format!("approval: message: A?, timeout: {seconds}s"), "approval: message: B?"]);
        let run = server.run(&json!({"pipeline": "two"}));
        let id = run["run_id"].as_str().expect("an id").to_owned();
        let question = questions(&server, &id).into_iter().next()?;
        (answer(&server, &question).status == 200).then_some((id, seconds))
    });
    let (id, seconds) = answered.expect("an answer in time");
    server.poll("/v1/decisions", |_| {
        let open = questions(&server, &id);
        open.first().is_some_and(|decision| decision["message"] == "B?")
    });
    let before = seen(&server, &id);
    // The server looks for runs to continue each second.
    std::thread::sleep(Duration::from_millis(seconds * 1_000 + 2_500));
    assert_eq!(seen(&server, &id), before);
    approve(&server, &questions(&server, &id)[0]);
    server.until(&id, &["succeeded"]);
}

/// Section 16.1: the clock of the server moves no timer of a run: its question stays open, and the run waits without a change.
#[test]
fn the_clock_of_the_server_moves_no_deadline() {
    let server = Running::start();
    server.pipeline("one", "", &["approval: message: A?, timeout: 1h"]);
    let run = server.run(&json!({"pipeline": "one"}));
    let id = run["run_id"].as_str().expect("an id");
    let before = seen(&server, id);
    server.clock.set_offset(2 * 3_600_000);
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(seen(&server, id), before);
    approve(&server, &questions(&server, id)[0]);
    server.until(id, &["succeeded"]);
}

/// S-82, S-84, S-159: a run whose definition has changed while it waited ends as failed, with the changes. A person can continue
/// it with the current files.
#[test]
fn a_run_whose_definition_has_changed_ends_with_the_reason() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: A?", "echo '{\"output\": 1}'"]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let id = run["run_id"].as_str().expect("an id");
    server.pipeline("ask", "", &["approval: message: A?", "echo '{\"output\": 2}'"]);
    approve(&server, &questions(&server, id)[0]);
    let run = server.until(id, &["failed"]);
    let (kind, message) = (&run["errors"][0]["kind"], run["errors"][0]["message"].as_str().expect("a message"));
    assert_eq!(kind, "definition_invalid", "{run:#}");
    for part in ["changed `pipelines/ask/pipeline.yaml`", "--accept-changes"] {
        assert!(message.contains(part), "{message}");
    }
    let resume = |body: Value| server.send("POST", &format!("/v1/runs/{id}/resume"), Some(&body));
    assert_eq!(resume(json!({})).problem(), (409, "definition_changed".to_owned()));
    assert_eq!(resume(json!({"accept_changes": true})).status, 202);
    // The answer was given to a question of the earlier definition.
    server.until(id, &["waiting"]);
    approve(&server, &questions(&server, id)[0]);
    assert_eq!(server.until(id, &["succeeded"])["output"], 2);
}

/// S-37: while the app is missing, for example during a deploy, its runs wait, and new ones are refused for a while. None fails.
#[test]
fn runs_wait_while_their_app_is_away() {
    let server = Running::start();
    server.pipeline("p", "", &["echo '{\"output\": 1}'"]);
    let soon = json!({"pipeline": "p", "not_before": "2035-01-01T00:00:00Z"});
    let start = |body: &Value| server.send("POST", "/v1/runs", Some(body));
    let ids: Vec<String> = (0..3).map(|_| start(&soon).json()["run_id"].as_str().expect("an id").to_owned()).collect();
    let (app, away) = (server.dir().join("demo"), server.dir().join("away"));
    std::fs::rename(&app, &away).expect("moved");
    assert_eq!(start(&json!({"pipeline": "p"})).problem(), (503, "journal_unavailable".to_owned()));
    server.clock.set_offset(20 * 366 * 86_400_000);
    // One of them was taken before the server found the app missing.
    server.poll("/v1/runs/counts", |counts| counts["interrupted"] == 1);
    let counts = server.send("GET", "/v1/runs/counts", None).json();
    assert_eq!((&counts["queued"], &counts["failed"]), (&json!(2), &json!(0)), "{counts}");
    std::fs::rename(&away, &app).expect("moved back");
    for id in &ids {
        server.until(id, &["succeeded"]);
    }
}
