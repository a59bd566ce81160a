//! Limits of pipelines and of a day: `serve` of the configuration.

use serde_json::{Value, json};

use crate::support::Running;

/// A server with these limits for a pipeline that waits for a file.
fn deploying(limits: &str) -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(dir.path().join("demo")).expect("an app");
    let text = format!("serve:\n  pipelines:\n    deploy: {limits}\n");
    std::fs::write(dir.path().join("demo/etude.yaml"), text).expect("written");
    let server = Running::at(dir, |_| ());
    let file = server.dir().join("go").display().to_string();
    let wait = format!("while [ ! -e {file} ]; do sleep 0.02; done; echo '{{\"output\": 1}}'");
    server.pipeline("deploy", "input: {environment: {type: string}}\n", &[&wait]);
    server
}

fn post(server: &Running, environment: &str) -> crate::support::Reply {
    let body = json!({"pipeline": "deploy", "input": {"environment": environment}});
    server.send("POST", "/v1/runs", Some(&body))
}

/// Polls a run until its status is `wanted`.
fn until(server: &Running, id: &str, wanted: &str) {
    server.poll(&format!("/v1/runs/{id}"), |run| run["status"] == wanted);
}

fn id(run: &Value) -> String {
    run["run_id"].as_str().expect("an id").to_owned()
}

/// S-94: with `skip`, a run without room is refused with the id of the run that has it; other keys have their own room.
#[test]
fn a_run_without_room_is_skipped() {
    let server = deploying("{max_runs: 1, key: \"{{input.environment}}\", when_full: skip}");
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "k")];
    let body = json!({"pipeline": "deploy", "input": {"environment": "prod"}}).to_string();
    let first = server.raw("POST", "/v1/runs", &headers, Some(body.clone()));
    assert_eq!(first.status, 201, "{}", first.text());
    let first = id(&first.json());
    let refused = post(&server, "prod");
    assert_eq!(refused.problem(), (409, "run_is_busy".to_owned()));
    assert_eq!(refused.json()["run_id"], *first);
    assert_eq!(post(&server, "test").status, 201);
    // A repeated request still finds its run.
    let repeated = server.raw("POST", "/v1/runs", &headers, Some(body));
    assert_eq!((repeated.status, repeated.header("idempotency-replayed")), (201, Some("true")));
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &first, "succeeded");
    assert_eq!(post(&server, "prod").status, 201);
}

/// S-94: of many concurrent requests to two servers, one is accepted with `skip`.
#[test]
fn of_many_runs_one_is_not_skipped() {
    let server = deploying("{max_runs: 1, when_full: skip}");
    let other = server.another();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let at = |nth: usize| if nth.is_multiple_of(2) { &server } else { &other };
        let posts: Vec<_> = (0..12).map(|nth| scope.spawn(move || post(at(nth), "prod").status)).collect();
        posts.into_iter().map(|post| post.join().expect("no panic")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    std::fs::write(server.dir().join("go"), "").expect("written");
}

/// S-94: with `cancel`, the earlier run of the key is cancelled and its destructor runs; a queued one never begins.
#[test]
fn a_run_takes_the_place_of_earlier_ones() {
    let server = deploying("{max_runs: 1, when_full: cancel}");
    let dir = server.dir().join("demo/pipelines");
    let command = format!("echo x >> {}; echo '{{\"output\": 1}}'", server.dir().join("ended").display());
    let destructor = format!(
        "name: _destructor\ndescription: d\nsteps:\n  - {{name: s, type: code, command: {}}}\n",
        json!(command)
    );
    std::fs::create_dir_all(dir.join("_destructor")).expect("a directory");
    std::fs::write(dir.join("_destructor/pipeline.yaml"), destructor).expect("written");
    let first = id(&post(&server, "a").json());
    until(&server, &first, "running");
    let second = id(&post(&server, "a").json());
    until(&server, &first, "cancelled");
    let ended = std::fs::read_to_string(server.dir().join("ended")).expect("the destructor has run");
    assert_eq!(ended.lines().count(), 1);
    until(&server, &second, "running");
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &second, "succeeded");
}

/// A server with these limits, a cancelled run of a pipeline, and a run of it that is in progress.
fn with_a_cancelled_run(limits: &str) -> (Running, String, String) {
    let server = deploying(limits);
    let first = id(&post(&server, "prod").json());
    until(&server, &first, "running");
    server.send("POST", &format!("/v1/runs/{first}/cancel"), Some(&json!({})));
    until(&server, &first, "cancelled");
    let second = id(&post(&server, "prod").json());
    until(&server, &second, "running");
    (server, first, second)
}

/// S-91, S-92: a resumed run counts like any other: it is queued while another one with its key is in progress.
#[test]
fn a_resumed_run_has_a_place_as_well() {
    let (server, first, second) = with_a_cancelled_run("{max_runs: 1, key: \"{{input.environment}}\"}");
    let started_at = server.send("GET", &format!("/v1/runs/{first}"), None).json()["started_at"].clone();
    let resume = |body: &Value| server.send("POST", &format!("/v1/runs/{first}/resume"), Some(body));
    let queued = resume(&json!({"limits": {"timeout": "1h"}}));
    assert_eq!((queued.status, &queued.json()["status"]), (202, &json!("queued")), "{}", queued.text());
    let waiting = server.send("GET", &format!("/v1/runs/{first}"), None).json();
    assert_eq!(waiting["queue"], json!({"position": 1, "reason": "pipeline"}));
    assert_eq!(resume(&json!({})).status, 202, "it is queued already");
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &second, "succeeded");
    until(&server, &first, "succeeded");
    let ended = server.send("GET", &format!("/v1/runs/{first}"), None).json();
    assert_eq!((&ended["started_at"], &ended["attempt"]), (&started_at, &json!(2)));
    assert_eq!(ended["limits"]["timeout_ms"], 3_600_000);
}

/// S-91: the changes that a resume accepts hold when the run begins.
#[test]
fn a_resumed_run_waits_with_its_accepted_changes() {
    let (server, first, second) = with_a_cancelled_run("{max_runs: 1}");
    server.pipeline("deploy", "input: {environment: {type: string}}\n", &["echo '{\"output\": 2}'"]);
    let resume = |body: &Value| server.send("POST", &format!("/v1/runs/{first}/resume"), Some(body));
    assert_eq!(resume(&json!({})).problem(), (409, "definition_changed".to_owned()));
    assert_eq!(resume(&json!({"accept_changes": true})).status, 202);
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &second, "succeeded");
    until(&server, &first, "succeeded");
    assert_eq!(server.send("GET", &format!("/v1/runs/{first}"), None).json()["output"], 2);
}

/// S-94: with `skip`, a resumed run without room is refused, too.
#[test]
fn a_resumed_run_without_room_is_skipped() {
    let (server, first, second) = with_a_cancelled_run("{max_runs: 1, when_full: skip}");
    let refused = server.send("POST", &format!("/v1/runs/{first}/resume"), Some(&json!({})));
    assert_eq!(refused.problem(), (409, "run_is_busy".to_owned()));
    assert_eq!(refused.json()["run_id"], *second);
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &second, "succeeded");
}

/// S-84, S-91: the resume of a run that waits for a person is accepted without room too, and the run keeps waiting. A resume that
/// would change the run is refused.
#[test]
fn a_waiting_run_without_room_keeps_waiting() {
    let server = Running::with(|settings| settings.max_runs = 1);
    server.pipeline("ask", "", &["approval: message: Go on?"]);
    let file = server.dir().join("go").display().to_string();
    server.pipeline("busy", "", &[&format!("while [ ! -e {file} ]; do sleep 0.02; done; echo '{{\"output\": 1}}'")]);
    let asking = id(&server.run(&json!({"pipeline": "ask"})));
    let busy = id(&server.send("POST", "/v1/runs", Some(&json!({"pipeline": "busy"}))).json());
    until(&server, &busy, "running");
    let resume = |body: &Value| server.send("POST", &format!("/v1/runs/{asking}/resume"), Some(body));
    let accepted = resume(&json!({}));
    assert_eq!((accepted.status, &accepted.json()["status"]), (202, &json!("waiting")), "{}", accepted.text());
    assert_eq!(resume(&json!({"limits": {"timeout": "1h"}})).problem(), (409, "run_is_busy".to_owned()));
    server.pipeline("ask", "", &["approval: message: Really?"]);
    assert_eq!(resume(&json!({})).problem(), (409, "definition_changed".to_owned()));
    assert_eq!(resume(&json!({"accept_changes": true})).problem(), (409, "run_is_busy".to_owned()));
    server.pipeline("ask", "", &["approval: message: Go on?"]);
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/v1/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    let answered = server.send("POST", &path, Some(&json!({"approved": true, "question": decision["question"]})));
    assert_eq!((answered.status, resume(&json!({})).status), (200, 202));
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &asking, "succeeded");
}

/// S-94: of many runs that are accepted at once with `cancel`, one stays.
#[test]
fn of_runs_accepted_together_one_is_left() {
    let server = deploying("{max_runs: 1, when_full: cancel}");
    let runs: Vec<String> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..8).map(|_| scope.spawn(|| id(&post(&server, "a").json()))).collect();
        posts.into_iter().map(|post| post.join().expect("no panic")).collect()
    });
    let left = |document: &Value| document["cancelled"] == runs.len() - 1;
    server.poll("/v1/runs/counts", left);
    std::fs::write(server.dir().join("go"), "").expect("written");
    server.poll("/v1/runs/counts", |document| document["succeeded"] == 1);
}

/// S-94: with `queue`, the default, a run waits; a run without a priority has that of the pipeline.
#[test]
fn a_run_without_room_waits() {
    let server = deploying("{max_runs: 1, priority: 7, queue_timeout: 1h}");
    let first = post(&server, "a").json();
    assert_eq!(first["priority"], 7);
    until(&server, &id(&first), "running");
    let second = post(&server, "a").json();
    assert_eq!(second["queue"], json!({"position": 1, "reason": "pipeline"}));
    std::fs::write(server.dir().join("go"), "").expect("written");
    until(&server, &id(&second), "succeeded");
}

/// S-97: the earlier attempts of a run that is queued again count.
#[test]
fn the_cost_of_a_run_that_is_queued_again_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = dir.path().join("demo");
    std::fs::create_dir_all(app.join("pipelines/ask")).expect("a directory");
    std::fs::write(app.join("etude.yaml"), "serve:\n  pipelines:\n    ask: {max_runs: 1}\n").expect("written");
    let limit: crate::support::Change = |settings| settings.max_cost_per_day_usd = Some(0.000_5);
    let server = Running::with_model_at(dir, |_| Some("no".to_owned()), limit);
    // Midday: the day does not end during the test.
    server.clock.set_offset(43_200_000 - jiff::Timestamp::now().as_millisecond().rem_euclid(86_400_000));
    let (waits, go) = (server.dir().join("waits"), server.dir().join("go"));
    let (first, second) = (waits.display(), go.display());
    let text = format!(
        "name: ask\ndescription: d\nsteps:\n  - {{name: ask, type: llm, model: lite, prompt: \"Say something about a thing that is long enough to cost something at all, whatever it may be.\"}}\n  - {{name: fail, type: code, command: \"while [ -e {first} ] && [ ! -e {second} ]; do sleep 0.02; done; exit 3\"}}\n"
    );
    std::fs::write(app.join("pipelines/ask/pipeline.yaml"), text).expect("written");
    let ask = json!({"pipeline": "ask"});
    let (mut spent, mut runs) = (0.0, Vec::new());
    while spent < 0.000_5 {
        let run = server.run(&ask);
        spent += run["usage"]["cost_usd"].as_f64().expect("a cost");
        runs.push(id(&run));
    }
    std::fs::write(waits, "").expect("written");
    for (run, status) in [(&runs[0], "running"), (&runs[1], "queued")] {
        assert_eq!(server.send("POST", &format!("/v1/runs/{run}/resume"), Some(&json!({}))).status, 202);
        until(&server, run, status);
    }
    let refused = server.send("POST", "/v1/runs", Some(&ask));
    assert_eq!(refused.problem(), (429, "budget_spent".to_owned()));
    std::fs::write(go, "").expect("written");
    until(&server, &runs[1], "failed");
}

/// S-97: once the runs of a day, failed ones included, have used up the budget, no run is accepted; neither a restart nor a
/// deletion of the runs resets it, the next day does.
#[test]
fn the_budget_of_a_day_holds() {
    let change: crate::support::Change = |settings| {
        settings.max_cost_per_day_usd = Some(0.000_1);
        settings.drain_timeout = std::time::Duration::ZERO;
    };
    let server = Running::with_model(|_| Some("no".to_owned()), change);
    // Midday: the day does not end during the test.
    let midday = 43_200_000 - jiff::Timestamp::now().as_millisecond().rem_euclid(86_400_000);
    server.clock.set_offset(midday);
    let dir = server.dir().join("demo/pipelines/ask");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: ask\ndescription: d\nsteps:\n  - {name: ask, type: llm, model: lite, prompt: \"Say something about a thing that is long enough to cost something at all, whatever it may be.\"}\n  - {name: fail, type: code, command: \"exit 3\"}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let ask = json!({"pipeline": "ask"});
    let mut spent = 0.0;
    while spent < 0.000_1 {
        let run = server.run(&ask);
        assert_eq!(run["status"], "failed", "{run:#}");
        let cost = run["usage"]["cost_usd"].as_f64().expect("a cost");
        assert!(cost > 0.0);
        spent += cost;
    }
    let refused = server.send("POST", "/v1/runs", Some(&ask));
    assert_eq!(refused.problem(), (429, "budget_spent".to_owned()));
    let seconds: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((1..=86_401).contains(&seconds));
    let server = Running::at(server.stop(), change);
    server.clock.set_offset(midday);
    let refused = server.send("POST", "/v1/runs", Some(&ask));
    assert_eq!(refused.problem(), (429, "budget_spent".to_owned()));
    // Deleted runs count, for this server and for the next one.
    let runs = server.send("GET", "/v1/runs", None).json();
    for run in runs["runs"].as_array().expect("runs") {
        assert_eq!(server.send("DELETE", &format!("/v1/runs/{}", id(run)), None).status, 204);
    }
    assert_eq!(server.send("POST", "/v1/runs", Some(&ask)).problem(), (429, "budget_spent".to_owned()));
    let server = Running::at(server.stop(), change);
    server.clock.set_offset(midday);
    assert_eq!(server.send("GET", "/v1/runs", None).json()["runs"], json!([]));
    assert_eq!(server.send("POST", "/v1/runs", Some(&ask)).problem(), (429, "budget_spent".to_owned()));
    server.clock.set_offset(midday + 86_400_000);
    assert_eq!(server.send("POST", "/v1/runs", Some(&ask)).status, 201);
}
