//! Details of runs, verdicts on them, and figures of groups of runs.

use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::pages::{id_of, server};
use crate::support::Running;

/// S-58: the details are the members of `etude runs show` that the run's document lacks. A verdict is one of them.
#[test]
fn the_details_of_a_run_are_those_of_the_command() {
    let server = server();
    let run = server.run(&json!({"pipeline": "bad"}));
    let path = format!("/v1/runs/{}", id_of(&run));
    let details = || server.send("GET", &format!("{path}/details"), None).json();
    let first = details();
    let effects = first["effects"].as_array().expect("effects");
    let ids: Vec<&str> = effects.iter().filter_map(|effect| effect["id"].as_str()).collect();
    assert_eq!(ids.iter().filter(|id| id.starts_with("bad/")).count(), 2, "{ids:?}");
    let stderr = format!("etude runs show {} --stream bad/s1/stderr", id_of(&run));
    assert!(effects.iter().any(|effect| effect["streams"]["stderr"] == *stderr), "{effects:?}");
    assert_eq!(
        (&first["judged"], &first["decisions"], &first["rejected"]),
        (&json!("unknown"), &json!([]), &json!({}))
    );
    let pins = first["definition"].as_array().expect("files");
    assert!(pins.iter().any(|pin| pin["path"] == "pipelines/bad/pipeline.yaml"), "{pins:?}");
    let judge = |verdict: Value| server.send("POST", &format!("{path}/judge"), Some(&json!({"verdict": verdict})));
    assert_eq!(judge(json!("bad")).json(), json!({"run_id": run["run_id"], "judged": "bad"}));
    assert_eq!(details()["judged"], "bad");
    for wrong in [json!("unknown"), json!(null), json!(1)] {
        assert_eq!(judge(wrong).problem(), (422, "input_invalid".to_owned()));
    }
    // Section 4: the verdict is an action of its token.
    let actions = server.send("GET", &format!("/v1/actions?run={}", id_of(&run)), None).json();
    assert_eq!((&actions["actions"][0]["action"], &actions["actions"][0]["by"]), (&json!("judge"), &json!("owner")));
}

/// S-16: a token with `only` neither sees the details of other runs nor judges them.
#[test]
fn details_and_verdicts_are_of_visible_runs() {
    let server = server();
    let run = server.run(&json!({"pipeline": "p"}));
    let other = format!("Bearer {}", server.token("other", &[Scope::Read, Scope::Run], &["bad"], None));
    let path = format!("/v1/runs/{}", id_of(&run));
    let headers = [("Authorization", &*other), ("Content-Type", "application/json")];
    let reply = server.raw("GET", &format!("{path}/details"), &headers, None);
    assert_eq!(reply.problem(), (404, "not_found".to_owned()));
    let verdict = Some(json!({"verdict": "bad"}).to_string());
    let reply = server.raw("POST", &format!("{path}/judge"), &headers, verdict);
    assert_eq!(reply.problem(), (404, "not_found".to_owned()));
}

/// cli: figures by pipeline and by model, as `etude runs stats` prints them.
#[test]
fn figures_are_grouped() {
    let server = server();
    for pipeline in ["p", "p", "bad"] {
        server.run(&json!({"pipeline": pipeline}));
    }
    let stats = |query: &str| server.send("GET", &format!("/v1/runs/stats{query}"), None);
    assert_eq!(stats("").json()["groups"], Value::Null);
    let found = stats("?by=pipeline").json();
    let groups: Vec<Value> = found["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| json!([group["pipeline"], group["runs"], group["succeeded"]]))
        .collect();
    assert_eq!(groups, [json!(["p", 2, 2]), json!(["bad", 1, 0])]);
    assert_eq!(stats("?by=pipeline,model").json()["groups"].as_array().map(Vec::len), Some(2));
    assert_eq!(stats("?by=app").problem(), (422, "input_invalid".to_owned()));
}

/// S-43, S-49: a repeated run has the limits of the request, otherwise those of the earlier run.
#[test]
fn a_repeated_run_may_have_other_limits() {
    let server = server();
    let first = server.run(&json!({"pipeline": "p", "limits": {"max_tokens": 7}}));
    let again = |body: Value| server.send("POST", &format!("/v1/runs/{}/again", id_of(&first)), Some(&body)).json();
    assert_eq!(again(json!({}))["limits"]["max_tokens"], 7);
    let limits = again(json!({"limits": {"timeout": "90s"}}))["limits"].clone();
    assert_eq!(limits, json!({"max_cost_usd": null, "max_tokens": null, "timeout_ms": 90_000}));
}

/// Section 4: a path without the base path is refused with the way to find the server.
#[test]
fn a_path_without_the_base_path_names_it() {
    let server = Running::with(|settings| settings.base_path = "/etude".to_owned());
    let refused = server.send("GET", "/v1/runs", None).json();
    assert_eq!(refused["hint"], "the paths of this server begin with `/etude`");
    assert_eq!(server.send("GET", "/etude/v1/runs", None).status, 200);
}

/// S-60, S-61: an element that was stopped after the failure of another one is cancelled, in the tree, among the effects and on
/// the page.
#[test]
fn a_stopped_element_is_cancelled() {
    let server = Running::start();
    let dir = server.dir().join("demo/pipelines/many");
    std::fs::create_dir_all(&dir).expect("a directory");
    let script = "if [ $I = 0 ]; then until [ -e begun ]; do sleep 0.01; done; exit 3; fi; touch begun; exec sleep 600";
    let step = format!(
        "{{name: each, type: code, command: \"sh -c '{script}'\", for_each: \"{{{{input.items}}}}\", max_parallel: 2, env: {{I: \"{{{{item}}}}\"}}}}"
    );
    let text = format!("name: many\ndescription: The pipeline many.\ninput: {{items: array}}\nsteps:\n  - {step}\n");
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "many", "input": {"items": [0, 1]}}));
    let id = run["run_id"].as_str().expect("an id");
    assert_eq!(run["status"], "failed", "{run}");
    let get = |rest: &str| server.send("GET", &format!("/v1/runs/{id}/{rest}"), None).json();
    assert_eq!(get("tree")["nodes"][1]["counts"], json!({"cancelled": 1, "failed": 1}));
    let items = get("tree?parent=business/each")["nodes"].clone();
    assert_eq!((&items[0]["status"], &items[1]["status"]), (&json!("failed"), &json!("cancelled")));
    let effects = get("effects")["effects"].clone();
    let stopped = |item: &str| {
        let found = effects
            .as_array()
            .expect("effects")
            .iter()
            .find(|effect| effect["node"] == format!("business/each[{item}]"));
        found.expect("an effect")["stopped"].clone()
    };
    assert_eq!((stopped("0"), stopped("1")), (json!(false), json!(true)));
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Accept", "text/html")];
    let page = server.raw("GET", &format!("/runs/{id}?at=business%2Feach%5B1%5D"), &headers, None).text();
    let effect = page.split("id=\"effect-").nth(1).expect("an effect");
    assert!(effect.contains("#g-cancelled") && !effect.contains("#g-succeeded"), "{effect}");
}

/// Section 16.3: like a step in progress, a phase in progress has a start and no duration; a phase that has not started has
/// neither.
#[test]
fn a_phase_in_progress_has_a_start_and_no_duration() {
    let server = Running::start();
    let gate = "until [ -e ../../go ]; do sleep 0.01; done; echo '{\"output\": 1}'";
    server.pipeline("slow", "", &[gate]);
    server.pipeline("_destructor", "", &["echo '{\"output\": 1}'"]);
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json();
    let id = run["run_id"].as_str().expect("an id");
    let tree = || server.send("GET", &format!("/v1/runs/{id}/tree"), None).json()["nodes"].clone();
    let phase = |nodes: &Value, id: &str| {
        let found = nodes.as_array().expect("nodes").iter().find(|node| node["id"] == id);
        let node = found.expect("a phase");
        (node["status"].clone(), node["started_at"].is_string(), node["duration_ms"].is_u64())
    };
    server.until(id, &["running"]);
    while tree()[0]["started_at"].is_null() {
        std::thread::yield_now();
    }
    assert_eq!(phase(&tree(), "business"), (json!("running"), true, false));
    assert_eq!(phase(&tree(), "destructor"), (json!("not_started"), false, false));
    std::fs::write(server.dir().join("demo/go"), "").expect("written");
    server.until(id, &["succeeded"]);
    assert_eq!(phase(&tree(), "business"), (json!("succeeded"), true, true));
}
