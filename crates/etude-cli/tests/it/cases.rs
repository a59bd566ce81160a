//! Tests with recorded calls and responses, and faults of learned pipelines (L-37, L-39).

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::{Test, noting};

const PIPELINE: &str = r#"name: back
description: Returns an order.
fallback: skill
input: {id: string}
steps:
  - {name: order, type: tool, tool: get, args: {id: "{{input.id}}"}}
  - {name: which, type: llm, prompt: "{{run.request}} Which?", choose: {from: "{{order.output.lines}}", by: sku, always: true}}
  - {name: card, type: llm, prompt: "Which card?", choose: {from: "{{order.output.cards}}"}}
  - {name: allowed, type: llm, prompt: "May I?", schema: {type: object, required: [allowed], properties: {allowed: {enum: ["yes", "no"]}}}}
  - {name: gone, type: tool, tool: cancel, require: {value: "{{allowed.output.allowed}}", equals: "yes"}, args: {id: "{{order.output.id}}", sku: "{{which.output.sku}}", card: "{{card.output}}"}}
"#;

const CASE: &str = r#"name: back 9c04d2aa31e7b650
digest: 9c04d2aa31e7b650
pipeline: back
request: Return the lamp
input: {id: A-1}
tools:
  - {tool: get, arguments: {id: A-1}, result: {id: A-1, lines: [{sku: lamp}], cards: [c-1, c-2]}, error: null}
  - {tool: cancel, arguments: {id: A-1, sku: lamp, card: c-2}, result: cancelled}
answers: {which: lamp, card: c-2, allowed: {allowed: "yes"}}
expect: {status: succeeded, calls: [{tool: cancel, arguments: {id: A-1, sku: lamp, card: c-2}}], fell_back: null}
"#;

fn app() -> Test {
    let tool = |name: &str, gated: bool| {
        format!("name: {name}\ndescription: Does it.\ncommand: sh tools/started.sh\ngated: {gated}\n")
    };
    Test::new()
        .skill("", "Be brief.\n")
        .file("tools/started.sh", "touch started\n")
        .file("tools/get.yaml", &tool("get", false))
        .file("tools/cancel.yaml", &tool("cancel", true))
        .file("pipelines/back/pipeline.yaml", PIPELINE)
}

/// L-39, 1.4: a case runs without key, network and tools: reads, responses and writes are the recorded ones.
#[test]
fn a_case_starts_no_tool_and_asks_no_model() {
    let test = app().file("tests/back-9c04d2aa31e7b650.yaml", CASE);
    let ran = test.run(&["test", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/passed"), ran.at("/tests/0/pipeline")), (json!(1), json!("back")));
    assert!(!test.path("app/started").exists());
}

/// cli: the fault of a response that is not recorded says how to record it, and an output without an expected part is shown.
#[test]
fn faults_say_what_to_do() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("q", |p| p.llm("ask", "x", ""))
        .file("tests/one.yaml", "pipeline: p\nexpect: {output: {/summary: x}}\n")
        .file("tests/two.yaml", "pipeline: q\n");
    let ran = test.run(&["test", "--format", "json"]).exit(1);
    let ran = ran.has("/tests/0/faults/0", "the output is 1, which has nothing at /summary; expected \"x\"");
    let faults = ran.at("/tests/1/faults").to_string();
    assert!(faults.contains("it has no recordings; record it with `etude test --record two`"), "{faults}");
}

/// cli: a test is also named by its path, and another word lists the tests. A recorded response is kept until its directory is
/// removed, which `--record` says.
#[test]
fn a_rejected_recording_can_be_made_again() {
    let model = Server::new([Reply::says("maybe"), Reply::says("\"yes\"")]);
    let test = Test::new()
        .model(&model)
        .pipeline("p", |p| p.llm("ask", "x", "schema: {enum: [\"yes\"]}\nretry: 0"))
        .file("tests/one.yaml", "pipeline: p\n");
    let hint = "hint: to record its responses again, first remove tests/recordings/one";
    for word in ["one", "tests/one.yaml"] {
        test.run(&["test", "--record", word]).exit(1).stderr_has(hint);
    }
    assert_eq!(model.calls(), 1);
    std::fs::remove_dir_all(test.path("app/tests/recordings/one")).expect("removed");
    test.run(&["test", "--record"]).exit(0);
    test.run(&["test", "two"]).exit(2).stderr_has("no test name contains `two`").stderr_has("tests of this app: one");
}

/// L-39: an edited binding fails: a write with other arguments, a read that is not recorded, a write that is not expected.
#[test]
fn a_case_fails_if_a_binding_is_edited() {
    let faults = |pipeline: &str, case: &str| {
        let test = app().file("pipelines/back/pipeline.yaml", pipeline).file("tests/c.yaml", case);
        test.run(&["test", "--format", "json"]).exit(1).at("/tests/0/faults").to_string()
    };
    let found = faults(&PIPELINE.replace("card: \"{{card.output}}\"", "card: c-1"), CASE);
    assert!(found.contains("unrecorded_call: `cancel`") && found.contains("expected `cancel`"), "{found}");
    let found = faults(&PIPELINE.replace("args: {id: \"{{input.id}}\"}", "args: {id: A-2}"), CASE);
    assert!(
        found.contains("unrecorded_call: `get`") && found.contains("left the pipeline at `order` (tool_error)"),
        "{found}"
    );
    let found = faults(
        PIPELINE,
        &CASE.replace("calls: [{tool: cancel, arguments: {id: A-1, sku: lamp, card: c-2}}]", "calls: []"),
    );
    assert!(found.contains("unexpected call: `cancel`"), "{found}");
    let found = faults(PIPELINE, &CASE.replace("card: c-2, allowed: {allowed: \"yes\"}", "card: c-2"));
    assert!(found.contains("the case has no recorded response for step `allowed`"), "{found}");
}

/// 1.4: a case of a deviation names step and reason; the agent that continues is not called.
#[test]
fn a_case_may_expect_a_deviation() {
    let case = CASE.replace("allowed: {allowed: \"yes\"}", "allowed: {allowed: \"no\"}").replace(
        "calls: [{tool: cancel, arguments: {id: A-1, sku: lamp, card: c-2}}], fell_back: null",
        "calls: [], fell_back: {step: gone, reason: not_allowed}",
    );
    app().file("tests/c.yaml", &case).run(&["test"]).exit(0);
    let other = case.replace("step: gone", "step: which");
    let ran = app().file("tests/c.yaml", &other).run(&["test", "--format", "json"]).exit(1);
    assert!(ran.at("/tests/0/faults/0").to_string().contains("left the pipeline at `gone` (not_allowed), expected"));
}

/// cli: the faults of a run that left its pipeline say where and why it did, and a fault of a definition has its place.
#[test]
fn faults_say_where_a_run_left_its_pipeline() {
    let faults = |test: Test| test.run(&["test", "--format", "json"]).exit(1).at("/tests/0/faults").to_string();
    let case =
        CASE.replace("allowed: {allowed: \"yes\"}", "allowed: {allowed: \"no\"}").replace(", fell_back: null", "");
    let found = faults(app().file("tests/c.yaml", &case));
    assert!(found.starts_with("[\"the run left the pipeline at `gone` (not_allowed): "), "{found}");
    let broken = PIPELINE.replace("type: tool, tool: get", "type: tol, tool: get");
    let found = faults(app().file("pipelines/back/pipeline.yaml", &broken).file("tests/c.yaml", CASE));
    assert!(found.contains("pipelines/back/pipeline.yaml:6: "), "{found}");
}

/// L-37: `check` passes with candidates, and a broken one is a warning; L-36: no list contains it.
#[test]
fn a_broken_candidate_is_a_warning_of_check() {
    let learn = "learn: 1\nstate: shadow\nfamily: cancel\n";
    let test = app()
        .file("learned/cancel/learn.yaml", learn)
        .file("learned/cancel/pipeline.yaml", "name: cancel\ndescription: d\nsteps: [{name: a, type: tol}]\n");
    let ran = test.run(&["check", "--format", "json"]).exit(0);
    assert_eq!(
        (ran.at("/diagnostics/0/severity"), ran.at("/diagnostics/0/file")),
        (json!("warning"), json!("learned/cancel/pipeline.yaml"))
    );
    assert!(!test.run(&["list"]).exit(0).out().contains("cancel"));
    test.run(&["run", "--pipeline", "cancel"]).exit(2);
}

/// 1.7, A-2.2: a mistake under `learn` is an error of the configuration with its place.
#[test]
fn a_mistake_under_learn_is_located() {
    let test = app().file("etude.yaml", "learn: {writes: proposed}\n");
    let ran = test.run(&["check", "--format", "json"]).exit(3);
    assert_eq!((ran.at("/diagnostics/0/file"), ran.at("/diagnostics/0/line")), (json!("etude.yaml"), json!(1)));
}

/// cli: Ctrl-C ends all tests, not only the running one.
#[test]
fn a_signal_ends_all_tests() {
    let test = Test::new()
        .pipeline("slow", |p| p.sh("slow", &format!("{}; exec sleep 300", noting("slow"))))
        .file("tests/first.yaml", "pipeline: slow\nexpect: {status: succeeded}\n")
        .file("tests/second.yaml", "pipeline: slow\nexpect: {status: succeeded}\n");
    let running = test.start(&["test"]);
    test.wait_for("slow");
    running.interrupt();
    running.finish().exit(130).stderr_has("the test `first` was cancelled by Ctrl-C; 0 of 2 tests had run");
    assert_eq!(test.ledger(), ["slow"]);
}
