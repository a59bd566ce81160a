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

/// S-52, S-53: the list of open questions has pages, which give each question once, whatever is answered meanwhile.
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
    // Also a page that ends between two questions of one run.
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
