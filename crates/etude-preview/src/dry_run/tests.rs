use std::sync::Arc;

use etude_core::plan::Sequence;
use etude_spec::App;
use etude_spec::source::MemorySources;
use serde_json::{Value, json};

use super::*;

fn sequence(app: &App<'_>, name: &str) -> Arc<Sequence> {
    let (pipeline, diagnostics) = app.pipeline(name);
    pipeline.unwrap_or_else(|| panic!("{diagnostics:?}")).sequence
}

fn document(run: &DryRun) -> Value {
    serde_json::from_str(&run.document(&Limits::default()).expect("it can be read")).expect("a document")
}

/// Dry run of pipeline `p` with these steps, in an app with a pipeline `sub` and a destructor.
fn dry_run(steps: &str, input: &str, prices: Option<PriceOf<'_>>) -> DryRun {
    let p = format!("name: p\ndescription: d\ninput: {{who: string, files: array}}\nsteps:\n{steps}");
    let sub = r#"
name: sub
description: d
input: {a: string, b: string}
steps: [{name: s, type: llm, retry: 0, max_tokens: 10, prompt: "{{input.a}} {{input.b}}"}]
"#;
    let destructor = r#"{name: _destructor, description: d, steps: [{name: bye, type: llm, retry: 1, max_tokens: 100, prompt: "bye {{input.who}}"}]}"#;
    let sources = MemorySources::new()
        .with("pipelines/p/pipeline.yaml", p)
        .with("pipelines/p/x.py", "")
        .with("pipelines/sub/pipeline.yaml", sub)
        .with("pipelines/_destructor/pipeline.yaml", destructor);
    let app = App::new(&sources);
    let plan = Plan {
        before: None,
        body: sequence(&app, "p"),
        after: Some(sequence(&app, "_destructor")),
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    };
    of(&plan, &Json::parse(input).unwrap(), prices)
}

const INPUT: &str = r#"{"who":"Ada","files":["a","b","c"]}"#;

fn prompt(step: &StepFacts) -> &str {
    match &step.work {
        Work::Llm(ask) => &ask.prompt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn prompts_show_the_input_and_leave_what_is_not_known_as_it_was_written() {
    let run = dry_run(
        r#"
  - {name: fetch, type: code, command: "python3 x.py", env: {WHO: "{{input.who}}"}}
  - {name: ask, type: llm, prompt: "Hello {{ input.who }}: {{fetch.output.text}} {{input.files}}"}
"#,
        INPUT,
        None,
    );
    assert_eq!(prompt(&run.steps[1]), r#"Hello Ada: {{fetch.output.text}} ["a","b","c"]"#);
    assert_eq!(prompt(&run.steps[2]), "bye Ada");
    assert_eq!(run.steps[2].phase, Phase::Destructor);
    let Work::Code { command, dir, env, .. } = &run.steps[0].work else { panic!("{:?}", run.steps[0]) };
    assert_eq!(command, &Command::Direct(vec!["python3".into(), "x.py".into()]));
    assert_eq!((dir.as_str(), env.as_slice()), ("pipelines/p", &[("WHO".to_owned(), "Ada".to_owned())][..]));
}

/// X-2: the paths and the network that a step may reach are reported, with rendered paths.
#[test]
fn sandboxes_are_reported() {
    let steps = "\n  - {name: a, type: code, command: ls, sandbox: {read: [\"{{input.who}}/data\"], write: [out]}}\n";
    let run = dry_run(steps, INPUT, None);
    let Work::Code { sandbox: Some(sandbox), .. } = &run.steps[0].work else { panic!("{:?}", run.steps[0]) };
    assert_eq!(
        (sandbox.network, &sandbox.read[..], &sandbox.write[..]),
        (false, &["Ada/data".to_owned()][..], &["out".to_owned()][..])
    );
    assert_eq!(document(&run)["steps"][0]["sandbox"]["write"][0], "out");
}

/// A-4.4: `retry: 3` is at most four calls. X-1, X-3: repetition and other pipelines multiply them.
#[test]
fn the_worst_case_counts_retries_elements_and_other_pipelines() {
    let run = dry_run(
        r#"
  - {name: list, type: code, command: ls}
  - {name: known, type: llm, retry: 3, max_tokens: 1000, for_each: "{{input.files}}", prompt: "{{item}}"}
  - {name: unknown, type: llm, retry: 0, max_tokens: 1, for_each: "{{list.output}}", max_items: 50, prompt: "{{item}}"}
  - {name: each, type: pipeline, pipeline: sub, for_each: "{{input.files}}", input: {a: "{{item}}", b: "{{input.who}}"}}
"#,
        INPUT,
        None,
    );
    let calls: Vec<(&str, u64)> = run.steps.iter().map(|s| (s.name.as_str(), s.worst_case.model_calls)).collect();
    assert_eq!(calls, [("list", 0), ("known", 12), ("unknown", 50), ("each", 0), ("s", 3), ("bye", 2)]);
    assert_eq!(run.worst_case.model_calls, 67);
    assert_eq!(run.worst_case.max_output_tokens, Some(12_000 + 50 + 30 + 200));
    assert_eq!(run.worst_case.cost_usd, None);
    assert_eq!(run.steps[4].inside, ["each"]);
    assert_eq!(prompt(&run.steps[4]), "{{input.a}} Ada");
}

/// X-1, A-4.9: the bound of each step has a derivation, and states the facts that are unknown before the run.
#[test]
fn every_bound_has_a_derivation() {
    let price = Price { input: 3.0, output: 15.0, cached_input: None, cache_write: None };
    let prices = move |_| Some(price);
    let steps = r#"
  - {name: list, type: code, command: ls}
  - {name: known, type: llm, retry: 3, max_tokens: 2000, for_each: "{{input.files}}", prompt: "{{item}}"}
  - {name: unknown, type: llm, retry: 0, for_each: "{{list.output}}", max_items: 5000, prompt: "{{item}}"}
"#;
    let run = dry_run(steps, INPUT, Some(&prices));
    let bound = |at: usize| run.steps[at].bound.as_ref().unwrap();
    assert_eq!(run.steps[0].bound, None);
    assert_eq!(bound(1).text(), "3 elements × 4 calls × ≤ 2,000 output tokens × $15 per million");
    assert_eq!((run.steps[1].worst_case.cost_usd, bound(1).unknown.len()), (Some(0.36), 0));
    assert_eq!(bound(2).text(), "5,000 elements × 1 call × $15 per million");
    assert_eq!(
        bound(2).unknown,
        [
            "the number of elements of list.output; `max_items` (5,000) is used",
            "the length of an answer: the step has no `max_tokens`"
        ]
    );
    let document = document(&run);
    assert_eq!(document["steps"][1]["bound"]["elements"], 3);
    let limits = |usd| Limits { max_cost_usd: Some(usd), max_tokens: None, timeout_ms: None };
    assert_eq!(run.worst_case.limits_json(&limits(0.1))["may_exceed_max_cost"], serde_json::Value::Null);
    let known = run.steps[1].worst_case;
    assert_eq!(known.limits_json(&limits(0.1))["may_exceed_max_cost"], true);
    assert_eq!(known.limits_json(&limits(1.0))["may_exceed_max_cost"], false);
}

#[test]
fn a_step_without_max_tokens_leaves_the_bound_open() {
    let run = dry_run("  - {name: ask, type: llm, prompt: x}", INPUT, None);
    assert_eq!(run.worst_case, WorstCase { model_calls: 5, max_output_tokens: None, cost_usd: None });
}

#[test]
fn what_the_input_rules_out_costs_nothing() {
    let steps = r#"
  - {name: a, type: code, command: ls}
  - {name: off, type: llm, prompt: x, when: {value: "{{input.who}}", equals: Bob}}
  - {name: on, type: llm, prompt: x, when: "{{input.files}}"}
  - {name: open, type: llm, prompt: x, when: {value: "{{a.output.x}}", exists: false}}
  - {name: too-many, type: llm, prompt: x, for_each: "{{input.files}}", max_items: 2}
"#;
    let run = dry_run(steps, INPUT, None);
    let holds: Vec<Option<bool>> = run.steps.iter().filter_map(|s| s.when.as_ref()).map(|when| when.holds).collect();
    assert_eq!(holds, [Some(false), Some(true), None]);
    let calls: Vec<u64> = run.steps.iter().map(|step| step.worst_case.model_calls).collect();
    assert_eq!(calls, [0, 0, 3, 3, 0, 2]);
}

#[test]
fn written_tokens_have_a_price_where_it_is_known() {
    let price = Price { input: 1.0, output: 10.0, cached_input: None, cache_write: None };
    let prices = move |tier: Tier| (tier == Tier::Standard).then_some(price);
    let steps = "  - {name: ask, type: llm, max_tokens: 1000, retry: 0, prompt: x}";
    let run = dry_run(steps, INPUT, Some(&prices));
    assert_eq!(run.worst_case.cost_usd, Some(0.012));
    let lite = "  - {name: ask, type: llm, model: lite, max_tokens: 1000, retry: 0, prompt: x}";
    assert_eq!(dry_run(lite, INPUT, Some(&prices)).worst_case.cost_usd, None);
}

/// A-4.9: the worst case is compared with the budget.
#[test]
fn limits_that_the_worst_case_exceeds_are_named() {
    let worst = WorstCase { model_calls: 2, max_output_tokens: Some(2_000), cost_usd: None };
    let limits = Limits { max_tokens: Some(1_000), max_cost_usd: Some(1.0), timeout_ms: None };
    let notes = worst.against(&limits);
    assert_eq!(
        notes[0],
        "the run may write 2000 output tokens, more than the 1000 of --max-tokens; it would stop there"
    );
    assert!(notes[1].starts_with("cannot check the limit of $1: "), "{notes:?}");
    assert_eq!(WorstCase::default().against(&limits), Vec::<String>::new());
    assert_eq!(worst.against(&Limits::default()), Vec::<String>::new());
}

/// Numbers of the input have the same digits in the document.
#[test]
fn the_document_keeps_the_digits_of_the_input() {
    let input = r#"{"who":"Ada","files":[9007199254740993,0.10000000000000000000001,1e400]}"#;
    let run = dry_run("  - {name: a, type: code, command: ls}", input, None);
    let limits = Limits { max_tokens: Some(1), ..Limits::default() };
    let text = run.document(&limits).expect("it can be read");
    assert!(text.starts_with(&format!(r#"{{"pipeline":"p","input":{input},"steps":["#)), "{text}");
    assert!(text.contains(r#""limits":{"max_tokens":1,"#), "{text}");
}

#[test]
fn the_document_has_every_step_and_the_worst_case() {
    let run = dry_run(r#"  - {name: a, type: code, command: "ls | wc -l", effects: true, timeout: 5s}"#, INPUT, None);
    let document = document(&run);
    assert_eq!(document["input"], json!({"who": "Ada", "files": ["a", "b", "c"]}));
    assert_eq!(
        document["steps"][0],
        json!({
            "phase": "business", "inside": [], "name": "a", "type": "code", "file": "pipelines/p/pipeline.yaml", "line": 5,
            "effects": true, "cache": false, "timeout_ms": 5000, "when": null, "for_each": null, "model_calls": 0,
            "command": "ls | wc -l", "argv": null, "shell": true, "directory": "pipelines/p", "env": {}, "schema": null,
            "retry": 0, "sandbox": null,
        })
    );
    assert_eq!(document["steps"][1]["prompt"], "bye Ada");
    assert_eq!(document["worst_case"], json!({"model_calls": 2, "max_output_tokens": 200, "cost_usd": null}));
}
