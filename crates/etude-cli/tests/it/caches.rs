//! Outputs of earlier runs are used again where nothing that they follow from has changed.

use crate::server::{Reply, Server};
use crate::test::{Test, noting, printing};

fn cached(fields: &str) -> Test {
    let script = format!("{}; {}", noting("a"), printing("1"));
    Test::new().pipeline("p", |p| p.with("input: {k: string}").sh_with("a", &script, fields))
}

fn run(test: &Test, k: &str) -> crate::ran::Ran {
    test.run(&["run", "-p", "p", "-i", &format!("k={k}"), "--format", "json"]).output(1)
}

/// the same step with the same input is not run again, in another run; it is shown as cached.
#[test]
fn the_same_step_with_the_same_input_is_not_run_again() {
    let test = cached("cache: true");
    run(&test, "x").has("/steps/0/cached", serde_json::Value::Null);
    run(&test, "x").has("/steps/0/cached", true).stderr_has("cached");
    assert_eq!(test.ledger(), ["a"]);
    run(&test, "y").has("/steps/0/cached", serde_json::Value::Null);
    assert_eq!(test.ledger(), ["a", "a"]);
}

/// without `cache` every run runs every step.
#[test]
fn without_a_cache_every_run_runs_every_step() {
    let test = cached("timeout: 60s");
    run(&test, "x");
    run(&test, "x");
    assert_eq!(test.ledger(), ["a", "a"]);
}

/// a changed script is another step.
#[test]
fn a_changed_script_is_run_again() {
    let test = cached("cache: true");
    run(&test, "x");
    test.put("app/pipelines/p/steps/a.sh", &format!("{}; {}\n", noting("changed"), printing("1")));
    run(&test, "x");
    assert_eq!(test.ledger(), ["a", "changed"]);
}

/// with a key of its own only that counts; a time to live ends.
#[test]
fn a_key_decides_alone_and_a_time_to_live_ends() {
    let test = cached("cache: {key: \"fixed\"}");
    run(&test, "x");
    run(&test, "y");
    assert_eq!(test.ledger(), ["a"]);
    let test = cached("cache: {ttl: 1ms}");
    run(&test, "x");
    std::thread::sleep(std::time::Duration::from_millis(5));
    run(&test, "x");
    assert_eq!(test.ledger(), ["a", "a"]);
}

/// a failed step is not remembered.
#[test]
fn failures_are_not_remembered() {
    let script = format!("{}; [ -e \"$ROOT/go\" ] || exit 1; {}", noting("a"), printing("1"));
    let test = Test::new().pipeline("p", |p| p.sh_with("a", &script, "cache: true"));
    test.run_json("p").exit(1);
    test.put("go", "");
    test.run_json("p").output(1);
    assert_eq!(test.ledger(), ["a", "a"]);
}

/// a cached model step asks nobody and costs nothing.
#[test]
fn a_cached_model_step_asks_nobody() {
    let server = Server::new([Reply::says("ok")]);
    let test = Test::new().model(&server).pipeline("p", |p| p.llm("ask", "x", "cache: true"));
    test.run_json("p").output("ok").has("/usage/calls", 1);
    test.run_json("p").output("ok").has("/usage/calls", 0);
    assert_eq!(server.calls(), 1);
}
