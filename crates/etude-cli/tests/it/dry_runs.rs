//! `etude run --dry-run`: reports the plan of a run without running anything.

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::Test;

fn app(server: &Server) -> Test {
    Test::new()
        .model(server)
        .pipeline("_constructor", |p| p.note("begin", "1"))
        .pipeline("inner", |p| p.with("input: {v: integer}").note("deep", "1"))
        .pipeline("p", |p| {
            p.with("input: {who: string, n: integer}")
                .sh_with("one", "exit 1", "effects: true\nenv: {WHO: \"{{input.who}}\"}")
                .llm("ask", "Greet {{input.who}} after {{one.output}}", "when: {value: \"{{input.n}}\", gt: 5}\nretry: 1")
                .step("name: each\ntype: code\ncommand: echo x\nfor_each: \"{{one.output}}\"\nmax_parallel: 3")
                .step("name: sub\ntype: pipeline\npipeline: inner\ninput: {v: \"{{input.n}}\"}")
                .step("name: gate\ntype: approval\nmessage: \"Send to {{input.who}}?\"\napprovers: [ann, bob]\ntimeout: 1h")
        })
}

const RUN: [&str; 8] = ["run", "-p", "p", "-i", "who=Ada", "-i", "n=3", "--dry-run"];

/// cli: the plan shows the known parts of prompts, the conditions, and the maximum cost; nothing runs.
#[test]
fn the_plan_is_shown_and_nothing_runs() {
    let server = Server::new([Reply::says("never")]);
    let test = app(&server);
    test.run(&RUN).exit(0).stderr("nothing was run").stdout(
        r#"
pipeline p with {"who":"Ada","n":3}

constructor
  begin (code)
      runs ["sh","steps/begin.sh"]
      in pipelines/_constructor

business
  one (code)  changes the outside world
      runs ["sh","steps/one.sh"]
      in pipelines/p
      with WHO=Ada
  ask (llm)
      when input.n gt 5  (false: the step is skipped)
      calls a model of tier standard, retries: 1
      prompt:
        | Greet Ada after {{one.output}}
  each (code)
      for each of one.output: at most 1000 elements, 3 at once
      runs ["echo","x"]
      in pipelines/p
  sub (pipeline)
      runs the steps of pipeline inner
      with v = 3
    deep (code)
        runs ["sh","steps/deep.sh"]
        in pipelines/inner
  gate (approval)
      waits until ann or bob decides: Send to Ada?
      at most 1 h [TIME]

at worst: no model calls"#,
    );
    assert_eq!((server.calls(), test.ledger()), (0, vec![]));
    test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs", json!([]));
}

/// cli: `--format json` prints the same as one document.
#[test]
fn the_plan_is_a_document() {
    let server = Server::new([Reply::says("never")]);
    let ran = app(&server).run(&[&RUN[..], &["--format", "json"]].concat()).exit(0);
    let doc = ran.doc();
    assert_eq!(doc["input"], json!({"who": "Ada", "n": 3}), "{doc:#}");
    assert_eq!(doc["worst_case"]["model_calls"], 0, "{doc:#}");
    assert_eq!(doc["steps"][2]["when"], json!({"condition": "input.n gt 5", "holds": false}));
    assert_eq!(doc["steps"][2]["prompt"], "Greet Ada after {{one.output}}");
}

/// A-2.4: input is checked for a dry run as well.
#[test]
fn the_input_of_a_dry_run_is_checked() {
    let server = Server::new([Reply::says("never")]);
    app(&server).run(&["run", "-p", "p", "--dry-run"]).exit(2).stdout("");
}
