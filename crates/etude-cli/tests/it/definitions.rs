//! Content of a pipeline.yaml, as `etude check` and `etude run` report it. The tests of etude-spec cover every single
//! fault.

use serde_json::{Value, json};

use crate::test::Test;

const GOOD: &str = "name: p\ndescription: x\nsteps:\n  - {name: a, type: code, command: \"true\"}\n";

/// Codes and lines that `check` finds in a pipeline `p`.
fn faults(text: &str) -> Vec<String> {
    let ran = Test::new().yaml("p", text).run(&["check", "--format", "json"]);
    let doc = ran.doc();
    let list = doc["diagnostics"].as_array().cloned().unwrap_or_default();
    assert_eq!(ran.code(), if list.is_empty() { 0 } else { 3 });
    list.iter().map(|d| format!("{}:{}", d["code"].as_str().unwrap_or("-"), d["line"])).collect()
}

fn with(step: &str) -> String {
    format!("name: p\ndescription: x\nsteps:\n{step}")
}

/// a misspelt `type` is reported even if nothing else defines the kind of the step; the pipeline is not skipped.
#[test]
fn a_misspelt_type_is_reported_whatever_else_the_step_says() {
    for rest in ["", "    output: x\n", "    prompt: hi\n"] {
        assert_eq!(faults(&with(&format!("  - name: a\n    typ: llm\n{rest}"))), ["P0201:5"], "{rest}");
    }
}

/// the name is the directory's; step names are well formed, unique, and not `input`.
#[test]
fn names_are_checked() {
    assert_eq!(faults(GOOD), [""; 0]);
    let step = |name: &str| format!("  - {{name: {name}, type: code, command: \"true\"}}\n");
    assert_eq!(faults(&GOOD.replace("name: p", "name: q")).len(), 1);
    for bad in ["input", "9x", "\"a b\"", "ä", "item", "index"] {
        assert_eq!(faults(&with(&step(bad))).len(), 1, "{bad}");
    }
    assert_eq!(faults(&with(&(step("a") + &step("a")))).len(), 1);
    assert_eq!(faults(&with(&(step("_a-1") + &step("B")))), [""; 0]);
}

/// every kind of fault in one file is reported at once, in the order of the file.
#[test]
fn all_faults_of_a_file_are_reported_at_once() {
    let text = "name: p
description: x
descripton: y
output: nowhere
input: {k: text}
steps:
  - {name: a, type: code, command: \"sh 'x\"}
  - {name: b, type: llm, prompt: \"{{c.output}} {{input.z}} {{ oops }}\", schema: no.json, retry: -1}
  - {name: c, type: code, command: 3}
  - {name: d, type: magic}
";
    let lines: Vec<String> = faults(text).iter().map(|code| code.rsplit(':').next().unwrap_or("").to_owned()).collect();
    assert_eq!(lines, ["3", "4", "5", "7", "8", "8", "8", "8", "8", "9", "10"]);
}

/// a path that leaves the app is refused, by `..`, absolutely, and through a link.
#[test]
fn paths_that_leave_the_app_are_refused() {
    for path in ["../../../outside.json", "/etc/hostname"] {
        let text = with(&format!("  - {{name: b, type: llm, prompt: x, schema: {path}}}\n"));
        assert_eq!(faults(&text).len(), 1, "{path}");
    }
    let test = Test::new().yaml("p", &with("  - {name: b, type: llm, prompt: x, schema: link.json}\n"));
    test.put("outside.json", "{}");
    let link = test.path("app/pipelines/p/link.json");
    let made = std::process::Command::new("ln").arg("-s").arg(test.path("outside.json")).arg(link).status();
    assert!(made.is_ok_and(|status| status.success()));
    test.run(&["check"]).exit(3);
}

/// anchors and aliases work; a bomb of them and a file over 1 MiB are refused without being expanded.
#[test]
fn aliases_have_a_bound_and_files_a_size() {
    let text = "name: p\ndescription: &d x\ntriggers: [*d, *d]\nsteps:\n  - {name: a, type: code, command: \"true\"}\n";
    assert_eq!(faults(text), [""; 0]);
    let mut bomb = "name: p\ndescription: x\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let one = format!("*a{}", n - 1);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![one; 10].join(", ")));
    }
    assert!(!faults(&bomb).is_empty());
    assert_eq!(faults(&format!("{GOOD}# {}\n", "x".repeat(1 << 20))).len(), 1);
}

/// `steps` is not empty, `output` names a step, the default is the last one.
#[test]
fn the_output_is_the_last_step_or_the_one_that_is_named() {
    assert_eq!(faults("name: p\ndescription: x\nsteps: []\n").len(), 1);
    let test = |output: &str| Test::new().pipeline("p", |p| p.with(output).note("a", "1").note("b", "2"));
    test("triggers: []").run_json("p").output(2);
    test("output: a").run_json("p").output(1);
}

/// a fault in the constructor or the destructor stops every run before anything starts.
#[test]
fn a_faulty_destructor_stops_every_run_before_it_starts() {
    for name in ["_constructor", "_destructor"] {
        let test = Test::new().pipeline("p", |p| p.note("a", "1")).yaml(name, "name: x\n");
        test.run_json("p").exit(3);
        assert_eq!(test.ledger(), [""; 0]);
        test.run(&["runs", "list", "--format", "json"]).has("/runs", serde_json::json!([]));
    }
}

/// pipelines that run each other in a circle are a definition error.
#[test]
fn pipelines_that_run_each_other_are_refused() {
    let run = |other: &str| format!("name: s\ntype: pipeline\npipeline: {other}");
    let test = Test::new().pipeline("p", |p| p.step(&run("q"))).pipeline("q", |p| p.step(&run("p")));
    test.run_json("p").exit(3);
}

/// names are unique across groups, because an effect's id is a path of names.
#[test]
fn names_are_unique_across_groups() {
    let step = |name: &str| format!("{{name: {name}, type: code, command: \"true\"}}");
    let group = format!("  - {}\n  - {{name: g, type: parallel, steps: [{}, {}]}}\n", step("a"), step("b"), step("a"));
    assert_eq!(faults(&with(&group)).len(), 1);
}

/// a field name of other tools is recognized, and the right one suggested.
#[test]
fn words_of_other_tools_are_understood() {
    for (field, meant) in
        [("run: x", "command"), ("script: x", "command"), ("if: x", "when"), ("foreach: x", "for_each")]
    {
        let step = format!("  - {{name: a, type: code, command: \"true\", {field}}}\n");
        let step = if meant == "command" { step.replace("command: \"true\", ", "") } else { step };
        let ran = Test::new().yaml("p", &with(&step)).run(&["check"]).exit(3);
        assert!(ran.err().contains(&format!("did you mean `{meant}`?")), "{field}: {}", ran.err());
    }
}

/// cli: a command in the hint of a diagnostic has the options of the command line, in documents and for people.
#[test]
fn hints_of_diagnostics_repeat_the_options() {
    let outer = "name: p\ndescription: P.\nsteps: [{name: a, type: pipeline, pipeline: q}]\n";
    let test = Test::new().yaml("p", outer).yaml("q", "name: q\n").cwd("elsewhere");
    let hint = "see `etude -C ../app check q`";
    let app = ["-C", "../app"];
    let run = [&app[..], &["run", "-p", "p", "--format", "json"]].concat();
    test.run(&run).exit(3).stderr_has(hint).has("/errors/0/details/hint", hint);
    let checked = test.run(&[&app[..], &["check", "p", "--format", "json"]].concat()).exit(3);
    let hints: Vec<Value> =
        checked.at("/diagnostics").as_array().expect("a list").iter().map(|d| d["hint"].clone()).collect();
    assert!(hints.contains(&json!(hint)), "{hints:?}");
    let listed = test.run(&[&app[..], &["list"]].concat()).exit(0);
    assert!(listed.out().contains("(has errors: etude -C ../app check)"), "{}", listed.out());
}
