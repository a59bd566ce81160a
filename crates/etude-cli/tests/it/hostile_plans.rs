//! Small definitions that expand to very much: pipelines in pipelines, texts in texts.

use crate::ran::Ran;
use crate::test::Test;

/// Address space of these commands, in KiB. At the limits they use a fraction of it; without limits it does not suffice.
const BOUND: u64 = 1 << 20;

const HEAD: &str = "description: A pipeline.\nsteps:\n";

/// An app of `count` pipelines `p0`, `p1`, … Each has the result of `steps` for the name of the next one, the last one a
/// command.
fn chained(count: usize, steps: impl Fn(&str) -> String) -> Test {
    let name = |n: usize| format!("p{n}");
    (0..count).fold(Test::new(), |test, n| {
        let last = "  - {name: s, type: code, output: text, command: echo done}\n".to_owned();
        let steps = if n + 1 < count { steps(&name(n + 1)) } else { last };
        test.yaml(&name(n), &format!("name: {}\n{HEAD}{steps}", name(n)))
    })
}

fn once(next: &str) -> String {
    format!("  - {{name: s, type: pipeline, pipeline: {next}}}\n")
}

fn twice(next: &str) -> String {
    ["a", "b"].map(|name| format!("  - {{name: {name}, type: pipeline, pipeline: {next}}}\n")).concat()
}

/// All commands that load the pipelines called by a pipeline.
const COMMANDS: [&[&str]; 4] =
    [&["check", "p0"], &["run", "--pipeline", "p0"], &["run", "--pipeline", "p0", "--dry-run"], &["graph", "p0"]];

/// Runs all of them, and `check` of the whole app.
#[track_caller]
fn all(test: &Test) -> Vec<Ran> {
    COMMANDS.iter().chain(&[&["check"][..], &["list"]]).map(|command| test.bounded_by(BOUND, command)).collect()
}

/// Checks that every command refuses the app with the diagnostic `code`; `list` shows names only.
#[track_caller]
fn refused(test: &Test, code: &str) {
    let all = all(test);
    for ran in &all[..all.len() - 1] {
        assert_eq!(ran.code(), 3, "{}", ran.err());
    }
    let json = test.bounded_by(BOUND, &["check", "--format", "json"]).exit(3);
    let found = json.value()["diagnostics"].as_array().cloned().unwrap_or_default();
    assert!(found.iter().any(|diagnostic| diagnostic["code"] == code), "{code}: {}", json.err());
}

/// 64 pipelines run inside each other; a longer chain is refused at the place where it is too long, however long it is.
#[test]
fn a_chain_of_pipelines_has_a_limit() {
    for ran in all(&chained(64, once)) {
        ran.exit(0);
    }
    let test = chained(65, once);
    refused(&test, "P0318");
    let ran = test.run(&["check", "p0"]).stderr_has("at most 64 pipelines can run inside each other");
    ran.stderr_has("pipelines/p0/pipeline.yaml:4:41");
    refused(&chained(1_000, once), "P0318");
}

/// the first in the order of names is the innermost here, so that the first dropped value is held by others.
#[test]
fn a_chain_against_the_order_of_names_has_a_limit() {
    let name = |n: usize| format!("p{n:04}");
    let test = (0..1_000).fold(Test::new(), |test, n| {
        let steps =
            if n == 0 { "  - {name: s, type: code, command: \"true\"}\n".to_owned() } else { once(&name(n - 1)) };
        test.yaml(&name(n), &format!("name: {}\n{HEAD}{steps}", name(n)))
    });
    test.bounded_by(BOUND, &["check"]).exit(3);
    test.bounded_by(BOUND, &["check", "p0999"]).exit(3);
}

/// pipelines that each run the next one twice have few files and many steps.
#[test]
fn pipelines_that_double_have_a_limit() {
    for ran in all(&chained(12, twice)) {
        ran.exit(0);
    }
    refused(&chained(24, twice), "P0319");
    refused(&chained(60, twice), "P0319");
    let group = |next: &str| {
        format!("  - name: g\n    type: parallel\n    steps:\n{}", twice(next).replace("  - ", "      - "))
    };
    refused(&chained(24, group), "P0319");
}

/// 10,000 steps are not too many, 10,100 are; a step with `for_each` counts as one.
#[test]
fn the_steps_of_a_pipeline_have_a_limit() {
    let calls = |count: usize, more: &str| -> String {
        let call = |n| format!("  - {{name: s{n}, type: pipeline, pipeline: p1{more}}}\n");
        (0..count).map(call).collect()
    };
    let inner: String = (0..99).map(|n| format!("  - {{name: s{n}, type: code, command: \"true\"}}\n")).collect();
    let app = |steps: &str| {
        let inner = format!("name: p1\n{HEAD}{inner}");
        Test::new().yaml("p0", &format!("name: p0\ninput: {{list: array}}\n{HEAD}{steps}")).yaml("p1", &inner)
    };
    app(&calls(100, "")).bounded_by(BOUND, &["check"]).exit(0);
    let dry = ["run", "--pipeline", "p0", "--dry-run", "-i", "list=[1]"];
    app(&calls(100, "")).bounded_by(BOUND, &dry).exit(0);
    app(&calls(101, "")).bounded_by(BOUND, &["check"]).exit(3).stderr_has("error[P0319]");
    app(&calls(1, ", for_each: \"{{input.list}}\", max_items: 10000")).bounded_by(BOUND, &["check"]).exit(0);
}

/// a large definition that runs often counts by its size.
#[test]
fn the_definitions_of_a_pipeline_have_a_limit() {
    let long = format!("name: p1\n{HEAD}  - {{name: a, type: llm, prompt: \"{}\"}}\n", "x".repeat(1_000_000));
    for (count, code) in [(30, 0), (40, 3), (5_000, 3)] {
        let calls: String = (0..count).map(|n| format!("  - {{name: s{n}, type: pipeline, pipeline: p1}}\n")).collect();
        let test = Test::new().yaml("p0", &format!("name: p0\n{HEAD}{calls}")).yaml("p1", &long);
        test.bounded_by(BOUND, &["check"]).exit(code);
        test.bounded_by(BOUND, &["run", "--pipeline", "p0", "--dry-run"]).exit(code);
    }
}

/// a pipeline that runs itself through many others is an error like any other.
#[test]
fn long_cycles_of_pipelines_are_errors() {
    let name = |n: usize| format!("p{n}");
    let test = (0..300).fold(Test::new(), |test, n| {
        test.yaml(&name(n), &format!("name: {}\n{HEAD}{}", name(n), once(&name((n + 1) % 300))))
    });
    refused(&test, "P0312");
}

/// pipelines that each pass a text on twice double it: a dry run shows a part of it, a run fails.
#[test]
fn texts_that_double_have_a_limit() {
    let input = "input: {x: {type: string, default: ha}}\n";
    let handed = |next: &str| {
        format!("  - {{name: s, type: pipeline, pipeline: {next}, input: {{x: \"{{{{input.x}}}}{{{{input.x}}}}\"}}}}\n")
    };
    let test = chained(60, handed);
    for n in 0..60 {
        let path = format!("app/pipelines/p{n}/pipeline.yaml");
        let text = test.read(&path);
        test.put(&path, &text.replacen("steps:\n", &format!("{input}steps:\n"), 1));
    }
    test.bounded_by(BOUND, &["run", "--pipeline", "p0", "--dry-run"]).exit(0);
    let ran = test.bounded(&["run", "--pipeline", "p0", "--format", "json"]).exit(1);
    assert_eq!(ran.at("/errors/0/kind"), "template_unresolved", "{}", ran.err());
    ran.stderr_has("the text is longer than 16 MiB");
}

/// the same for a prompt that names a long default very often.
#[test]
fn a_prompt_of_many_long_values_has_a_limit() {
    let head =
        format!("name: p\ndescription: P.\ninput: {{x: {{type: string, default: \"{}\"}}}}\n", "y".repeat(300_000));
    let prompt = "{{input.x}}".repeat(50_000);
    let test = Test::new().yaml("p", &format!("{head}steps:\n  - {{name: a, type: llm, prompt: \"{prompt}\"}}\n"));
    test.bounded_by(BOUND, &["run", "--pipeline", "p", "--dry-run"]).exit(0);
}
