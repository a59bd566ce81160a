//! Tests of the cache: outputs of earlier runs are reused if nothing that they depend on has changed.

use crate::server::{Reply, Server};
use crate::test::{Test, noting, printing};

fn cached(fields: &str) -> Test {
    let script = format!("{}; {}", noting("a"), printing("1"));
    Test::new().pipeline("p", |p| p.with("input: {k: string}").sh_with("a", &script, fields))
}

fn run(test: &Test, k: &str) -> crate::ran::Ran {
    test.run(&["run", "-p", "p", "-i", &format!("k={k}"), "--format", "json"]).output(1)
}

/// the same step with the same input does not run again, in another run; it is shown as cached.
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

/// a file that the command of a step writes beside it is not part of the step.
#[test]
fn a_log_of_the_step_is_no_change_of_it() {
    let step = "name: a\ntype: code\ncommand: sh steps/a.sh 2>> a.log\ncache: true";
    let script = format!("{}; echo noise >&2; {}\n", noting("a"), printing("1"));
    let test = Test::new().pipeline("p", |p| p.step(step).file("steps/a.sh", &script));
    test.run_json("p").output(1);
    test.run_json("p").output(1).has("/steps/0/cached", true);
    assert_eq!(test.ledger(), ["a"]);
}

/// an explicit key alone decides; a time to live expires.
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

/// a failed step is not cached.
#[test]
fn failures_are_not_remembered() {
    let script = format!("{}; [ -e \"$ROOT/go\" ] || exit 1; {}", noting("a"), printing("1"));
    let test = Test::new().pipeline("p", |p| p.sh_with("a", &script, "cache: true"));
    test.run_json("p").exit(1);
    test.put("go", "");
    test.run_json("p").output(1);
    assert_eq!(test.ledger(), ["a", "a"]);
}

/// a cached model step calls no model and costs nothing.
#[test]
fn a_cached_model_step_calls_no_model() {
    let server = Server::new([Reply::says("ok")]);
    let test = Test::new().model(&server).pipeline("p", |p| p.llm("ask", "x", "cache: true"));
    test.run_json("p").output("ok").has("/usage/calls", 1);
    test.run_json("p").output("ok").has("/usage/calls", 0);
    assert_eq!(server.calls(), 1);
}

fn fan_out(list: &str, fields: &str) -> Test {
    let script =
        format!("{}; cat >/dev/null; echo \"{{\\\"output\\\":\\\"$N\\\"}}\"", "echo \"each $N\" >> \"$LEDGER\"");
    let fields = format!("for_each: \"{{{{list.output}}}}\"\nenv: {{N: \"{{{{item}}}}\"}}\n{fields}");
    Test::new().pipeline("p", |p| p.note("list", list).sh_with("each", &script, &fields))
}

/// one changed element of a fan-out runs one element; `--refresh` runs all of them again, and stores the results.
#[test]
fn one_changed_element_runs_one_element() {
    let script =
        format!("{}; cat >/dev/null; echo \"{{\\\"output\\\":\\\"$N\\\"}}\"", "echo \"each $N\" >> \"$LEDGER\"");
    let fields = "for_each: \"{{input.list}}\"\nenv: {N: \"{{item}}\"}\ncache: true";
    let test = Test::new().pipeline("p", |p| p.with("input: {list: array}").sh_with("each", &script, fields));
    let run = |list: &str, more: &[&str]| {
        let input = format!("{{\"list\":{list}}}");
        test.run(&[&["run", "-p", "p", "--input", &input, "--format", "json"], more].concat()).exit(0)
    };
    run("[1,2,3]", &[]).has("/steps/0/items/succeeded", 3);
    run("[1,2,3]", &[]).has("/steps/0/cached", true).has("/steps/0/attempts", 0);
    assert_eq!(test.ledger(), ["each 1", "each 2", "each 3"]);
    run("[0,1,5,3]", &[]).has("/steps/0/items/cached", 2).output(serde_json::json!(["0", "1", "5", "3"]));
    assert_eq!(test.ledger()[3..], ["each 0", "each 5"]);
    run("[1]", &["--refresh"]).has("/steps/0/attempts", 1);
    run("[1]", &[]).has("/steps/0/cached", true);
    assert_eq!(test.ledger()[5..], ["each 1"]);
}

/// cached outputs are listed with their step, and removed by pipeline.
#[test]
fn cached_outputs_are_listed_and_cleared() {
    let test = fan_out("[1,2]", "cache: true");
    test.run_json("p").exit(0);
    test.run_json("p").exit(0);
    let listed = test.run(&["cache", "list", "--format", "json"]).exit(0);
    assert_eq!(listed.at("/total"), 2);
    for at in 0..2 {
        let facts = ["pipeline", "hits", "bytes"].map(|name| listed.at(&format!("/entries/{at}/{name}")));
        assert_eq!(facts, [serde_json::json!("p"), 1.into(), 3.into()]);
    }
    test.run(&["cache", "clear"]).exit(2);
    test.run(&["cache", "clear", "--pipeline", "other", "--format", "json"]).exit(0).has("/removed", 0);
    test.run(&["cache", "clear", "--pipeline", "p", "--format", "json"]).exit(0).has("/removed", 2);
    test.run(&["cache", "list"]).exit(0).stderr_has("no cached outputs");
}
