use etude_core::plan::Plan;
use etude_spec::App;
use etude_spec::source::MemorySources;

use super::*;

const PIPELINE: &str = r#"
name: p
description: d
input: {who: string}
steps:
  - {name: list, type: code, command: "ls | sort", effects: true, retry: 1, timeout: 5s}
  - name: both
    type: parallel
    steps:
      - {name: ask, type: llm, max_tokens: 100, for_each: "{{list.output}}", max_items: 5, prompt: "Hello {{input.who}},\nread {{item}}"}
      - {name: rest, type: code, command: "echo \"a\u001b[31m\"", when: {value: "{{input.who}}", equals: Bob}}
  - {name: ok, type: approval, message: "Send it to {{input.who}}?", timeout: 1h, on_timeout: deny}
"#;

fn shown(limits: &Limits) -> String {
    let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", PIPELINE);
    let (pipeline, diagnostics) = App::new(&sources).pipeline("p");
    let body = pipeline.unwrap_or_else(|| panic!("{diagnostics:?}")).sequence;
    let input = Json::parse(r#"{"who":"Ada"}"#).unwrap();
    text(
        &dry_run::of(
            &Plan { before: None, body, after: None, phase: etude_core::failure::Phase::Business, fallback: None },
            &input,
            None,
        ),
        limits,
    )
}

#[test]
fn people_see_every_step_in_order_and_the_worst_case() {
    let expected = r#"pipeline p with {"who":"Ada"}

business
  list (code)  changes the outside world
      runs a shell: ls | sort
      in pipelines/p
      a failed attempt is repeated, retries: 1
      at most 5 s
  both (parallel)
      all of these at once:
    ask (llm)
        for each of list.output: at most 5 elements, 1 at once
        calls a model of tier standard, retries: 2, at most 100 tokens per response
        prompt:
          | Hello Ada,
          | read {{item}}
        at worst 15 model calls, 1500 output tokens = 5 elements × 3 calls × ≤ 100 output tokens
        unknown: the number of elements of list.output; `max_items` (5) is used
        unknown: the price of the model for tier standard
    rest (code)
        when input.who equals "Bob"  (false: the step is skipped)
        runs ["echo","a\u001b[31m"]
        in pipelines/p
  ok (approval)
      waits until a person decides: Send it to Ada?
      counts as denied after the timeout
      at most 1 h 0 min

at worst: 15 model calls, 1500 output tokens
"#;
    let got = shown(&Limits::default());
    assert_eq!(got, expected, "{got}");
}

/// A-4.9: the worst case is compared with the budget.
#[test]
fn a_budget_that_may_not_do_is_reported_before_the_run() {
    let limits = Limits { max_tokens: Some(1_000), ..Limits::default() };
    let got = shown(&limits);
    assert!(
        got.ends_with(
            "the run may write 1500 output tokens, more than the 1000 of --max-tokens; it would stop there\n"
        ),
        "{got}"
    );
}
