//! Costs of a run: usage per call, step and run, prices, and budgets that end a run (A-4.9).

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::{Test, noting, with_some_limit};

const PRICES: &str = "prices: {m-std: {input: 2.0, output: 10.0}, m-lite: {input: 1.0, output: 1.0}}\n";

fn two_steps(server: &Server) -> Test {
    Test::new().model(server).file("etude.yaml", PRICES).pipeline("p", |p| {
        p.llm("a", "x", "schema: s.json").llm("b", "x", "model: lite").file("s.json", r#"{"type":"object"}"#)
    })
}

/// A-4.9: every response counts, rejected ones included; steps sum to the run; costs are reported if prices are known.
#[test]
fn usage_is_summed_over_attempts_and_steps() {
    let server = Server::new([
        Reply::says("not json").tokens(1_000, 100),
        Reply::says("{}").tokens(2_000, 200),
        Reply::says("ok").tokens(500, 50),
    ]);
    let usage = |calls: u64, input: u64, output: u64, cost: f64| {
        json!({
            "calls": calls, "input_tokens": input, "output_tokens": output, "cached_tokens": 0, "reasoning_tokens": 0,
            "cost_usd": cost,
        })
    };
    let with_shadow = |mut usage: serde_json::Value| {
        usage["shadow"] = json!({"calls": 0, "input_tokens": 0, "output_tokens": 0});
        usage
    };
    two_steps(&server)
        .run_json("p")
        .output("ok")
        .has("/steps/0/usage", usage(2, 3_000, 300, 0.009))
        .has("/steps/1/usage", usage(1, 500, 50, 0.00055))
        .has("/usage", with_shadow(usage(3, 3_500, 350, 0.00955)));
}

/// A-4.9: tokens that the provider reports as cached, or as reasoning, are recorded.
#[test]
fn cached_and_reasoning_tokens_are_recorded() {
    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 40},
        },
    });
    let server = Server::new([Reply::Body(body.to_string())]);
    Test::new().model(&server).pipeline("p", |p| p.llm("a", "x", "")).run_json("p").has(
        "/usage",
        json!({
            "calls": 1, "input_tokens": 100, "output_tokens": 50, "cached_tokens": 80, "reasoning_tokens": 40, "cost_usd": null,
            "shadow": {"calls": 0, "input_tokens": 0, "output_tokens": 0},
        }),
    );
}

/// A-4.9: a token budget ends the run with its own kind, in the middle of a step's retries too; the destructor runs.
#[test]
fn a_token_budget_ends_the_run_and_not_its_destructor() {
    let server = Server::new([Reply::says("not json").tokens(60, 0)]);
    let test = two_steps(&server).pipeline("_destructor", |p| p.note("end", "1"));
    test.run(&["run", "-p", "p", "--max-tokens", "100", "--format", "json"])
        .exit(1)
        .failed_with(&["business a: budget_exceeded"])
        .steps(&["a failed 2", "b not_started 0", "end succeeded 1"])
        .has("/errors/0/code", "R0401")
        .has("/usage/input_tokens", 120)
        .has("/errors/0/attempts/0/rejected_by", "schema");
    assert_eq!((server.calls(), test.ledger()), (2, vec!["end".to_owned()]));
}

/// A-4.9: a budget of money ends the run when it is exceeded, and not before.
#[test]
fn a_cost_budget_ends_the_run() {
    let replies = || [Reply::says("{}").tokens(1_000, 0), Reply::says("ok").tokens(1_000, 0)];
    let server = Server::new(replies());
    two_steps(&server)
        .run(&["run", "-p", "p", "--max-cost", "0.0025", "--format", "json"])
        .exit(1)
        .failed_with(&["business b: budget_exceeded"])
        .has("/usage/cost_usd", 0.003);
    let server = Server::new(replies());
    two_steps(&server).run(&["run", "-p", "p", "--max-cost", "0.003", "--format", "json"]).output("ok");
}

/// A-4.9: a limit of money that cannot be enforced is an error before anything runs, with a hint. A stated price of 0 counts as
/// a price.
#[test]
fn a_limit_of_money_needs_prices() {
    let server = Server::new([Reply::says("ok")]);
    let test = Test::new().model_with(&server, "states_cost: false");
    let test = test.pipeline("p", |p| p.note("first", "1").llm("a", "x", ""));
    let limited = ["run", "-p", "p", "--max-cost", "1", "--format", "json"];
    test.run(&limited)
        .exit(4)
        .failed_with(&["- -: environment"])
        .stderr_has("prices: {\"mock/m-std\": {input: 1.0, output: 5.0}}")
        .stderr_has("--max-tokens");
    assert_eq!((server.calls(), test.ledger()), (0, Vec::new()));
    test.run(&["run", "-p", "p"]).exit(0);
    let test = test.file("etude.yaml", "prices: {m-std: {input: 0, output: 0}}\n");
    test.run(&limited).output("ok").has("/usage/cost_usd", 0.0);
    let code = Test::new().pipeline("p", |p| p.note("first", "1"));
    code.run(&limited).exit(0);
}

/// A-4.9, A-5.3: `--timeout` ends the run as an exceeded budget; active steps are stopped, the destructor runs.
#[test]
fn a_time_budget_ends_the_run_and_not_its_destructor() {
    with_some_limit(|limit| {
        let test = Test::new()
            .pipeline("p", |p| p.sh("slow", &format!("{}; exec sleep 300", noting("slow"))).note("never", "1"))
            .pipeline("_destructor", |p| p.note("end", "1"));
        let ran =
            test.run(&["run", "-p", "p", "--timeout", limit, "--format", "json"]).exit(1).has("/status", "failed");
        let has_begun = test.ledger().first().is_some_and(|first| first == "slow");
        if has_begun {
            ran.failed_with(&["business slow: budget_exceeded"]);
            assert_eq!(test.ledger(), ["slow", "end"]);
        }
        has_begun
    });
}

/// A-4.9: a resumed run keeps its budget and its usage so far.
#[test]
fn a_resumed_run_keeps_its_budget() {
    let server = Server::new([Reply::says("ok").tokens(60, 0)]);
    let test = Test::new()
        .model(&server)
        .pipeline("p", |p| p.llm("a", "x", "").step("name: gate\ntype: approval\nmessage: go on?").llm("b", "x", ""));
    let id = test.run(&["run", "-p", "p", "--max-tokens", "100", "--format", "json"]).exit(5).id();
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"])
        .exit(1)
        .failed_with(&["business b: budget_exceeded"])
        .has("/usage/input_tokens", 120);
}

/// A-4.9, A-5.2: a budget that ends in the constructor ends the run there: nothing else runs.
#[test]
fn a_budget_that_ends_in_the_constructor_ends_the_run_there() {
    let server = Server::new([Reply::says("ok").tokens(200, 0)]);
    let test = Test::new()
        .model(&server)
        .pipeline("_constructor", |p| p.llm("ready", "are you?", ""))
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("_destructor", |p| p.note("end", "1"));
    test.run(&["run", "-p", "p", "--max-tokens", "100", "--format", "json"])
        .exit(1)
        .failed_with(&["constructor ready: budget_exceeded"])
        .steps(&["ready failed 1", "a not_started 0", "end not_started 0"]);
    assert_eq!(test.ledger(), [""; 0]);
}

/// A-4.9: elements that run at once share the budget of the run; no call begins after it is exceeded.
#[test]
fn elements_share_the_budget_of_the_run() {
    let server = Server::new([Reply::says("ok").tokens(60, 0)]);
    let test = Test::new().model(&server).pipeline("p", |p| {
        p.note("list", "[1,2,3,4,5,6]").llm("each", "{{item}}", "for_each: \"{{list.output}}\"\nmax_parallel: 2")
    });
    test.run(&["run", "-p", "p", "--max-tokens", "100", "--format", "json"])
        .exit(1)
        .failed_with(&["business each: budget_exceeded"]);
    assert!((2..=3).contains(&server.calls()), "{} calls", server.calls());
}
