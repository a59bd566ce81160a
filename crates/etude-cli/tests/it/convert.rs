//! `etude convert`: turns a skill into an app.

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Seen, Server};
use crate::test::Test;

const SKILL: &str = "---
name: audit
description: Audits expenses.
---
# Audit

1. Run `python3 scripts/total.py <file>` to add up the amounts.
2. Decide whether to `approve` or `reject` the expenses.

A total above 500 must be rejected. Never pay twice.
";

/// Script of the skill.
const SCRIPT: &str = r#"import sys
with open(sys.argv[1]) as lines:
    print(sum(float(line) for line in lines))
"#;

/// Labels of the statements of [`SKILL`].
fn labels() -> Value {
    let words = ["background", "main_path", "judgement", "rule", "rule"];
    let labels: Vec<Value> = words.iter().zip(1..).map(|(label, id)| json!({"id": id, "label": label})).collect();
    json!({ "labels": labels })
}

fn drafts(steps: &[(&str, u32)]) -> Value {
    let steps: Vec<Value> = steps.iter().map(|(name, id)| json!({"name": name, "statement": id})).collect();
    json!({"pipelines": [{"name": "total", "description": "Add up a file", "triggers": ["add up a.txt"], "steps": steps}]})
}

/// True if a request asks for labels: both questions are recognized by their schema and their statements (1.6).
fn asks_for_labels(seen: &Seen) -> bool {
    let schema = &seen.body["response_format"]["json_schema"]["schema"]["properties"];
    assert!(seen.request().contains("\n{\"id\":1,\"line\":5,\"text\":\"Audit\"}\n"), "{}", seen.request());
    assert!(schema["labels"].is_object() != schema["pipelines"].is_object(), "{schema}");
    schema["labels"].is_object()
}

fn server(drafted: Value) -> Server {
    Server::by(move |seen, _| Reply::json(&if asks_for_labels(seen) { labels() } else { drafted.clone() }))
}

fn test(server: &Server) -> Test {
    let test = Test::new().model(server).cwd("work");
    test.put("work/skill/SKILL.md", SKILL);
    test.put("work/skill/scripts/total.py", SCRIPT);
    test.put("work/skill/data/july.txt", "1.5\n2\n");
    let case = json!({"name": "july", "request": "add up july", "input": {"file": "data/july.txt"}, "output": 3.5});
    test.put("work/cases.jsonl", &format!("{case}\n"));
    test
}

const CONVERT: [&str; 6] = ["convert", "skill", "--cases", "cases.jsonl", "--format", "json"];

fn converted(test: &Test, more: &[&str]) -> Ran {
    test.run(&[&CONVERT, more].concat())
}

/// Outcome and step of each statement.
fn outcomes(document: &Value) -> Vec<(String, Value)> {
    let rows = document["statements"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| (row["outcome"].as_str().unwrap_or_default().to_owned(), row["step"].clone())).collect()
}

/// L-84, L-85, L-86, L-87, L-89, L-92: a skill becomes an app with its files unchanged, whose tests succeed without a model;
/// the script is called and its output is that of the case.
#[test]
fn a_skill_becomes_an_app_with_tests() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    let ran = converted(&test, &["--yolo"]).exit(0);
    let document = ran.value();
    assert_eq!(document["out"], json!(format!("[ROOT]/{}", "work/skill-app")));
    assert_eq!(document["pipelines"], json!([{"name": "total", "statements": [2]}]));
    assert_eq!(document["cases"], json!({"passed": 1, "failed": 0, "skipped": 0}));
    let word = |word: &str, step: Value| (word.to_owned(), step);
    assert_eq!(
        outcomes(&document),
        [
            word("background", Value::Null),
            word("enforced", json!("sum")),
            word("left", Value::Null),
            word("left", Value::Null),
            word("left", Value::Null),
        ]
    );
    assert_eq!(server.calls(), 2);
    for path in ["SKILL.md", "scripts/total.py", "data/july.txt"] {
        assert_eq!(test.read(&format!("work/skill-app/{path}")), test.read(&format!("work/skill/{path}")), "{path}");
    }
    test.run(&["check", "-C", "skill-app"]).exit(0);
    let tests = test.run(&["test", "-C", "skill-app", "--format", "json"]).exit(0);
    assert_eq!((tests.at("/passed"), tests.at("/failed")), (json!(1), json!(0)));
    let report = test.read("work/skill-app/CONVERSION.md");
    assert!(report.contains("| 2 | 7 | Run `python3 scripts/total.py &lt;file>` to add up the amounts. | main_path | enforced by `total`, step `sum` |"), "{report}");
    // The caller's directory is that of the user, wherever the app is.
    test.put("work/here.txt", "4\n");
    let run = ["run", "-C", "skill-app", "--pipeline", "total", "-i", "file=here.txt", "--format", "json"];
    test.run(&run).exit(0).output(json!(4.0));
}

/// L-92: without a terminal and without `--yolo` nothing is run or written; an approval continues the same run (L-91).
#[test]
fn a_conversion_waits_for_a_confirmation() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    let ran = converted(&test, &[]).exit(5);
    assert_eq!((ran.at("/out"), ran.at("/status")), (Value::Null, json!("waiting")));
    assert!(!test.path("work/skill-app").exists());
    let id = ran.id();
    test.run(&["approve", &id]).exit(0);
    let resumed = test.run(&["runs", "resume", &id, "--format", "json"]).exit(0);
    assert_eq!(resumed.at("/output/cases/passed"), json!(1));
    assert!(test.path("work/skill-app/pipelines/total/pipeline.yaml").exists());
    assert_eq!(server.calls(), 2, "completed model calls are not repeated");
}

/// L-85, L-86: a judgement is an llm step with schema and validator; the output of a case is its recorded completion.
#[test]
fn judgements_have_recorded_completions() {
    let server = server(drafts(&[("decide", 3)]));
    let test = test(&server);
    let case = json!({"name": "july", "request": "r", "output": {"decision": "approve", "reason": "the total is low"}});
    test.put("work/cases.jsonl", &format!("{case}\n"));
    let document = converted(&test, &["--yolo"]).exit(0).value();
    assert_eq!(document["cases"], json!({"passed": 1, "failed": 0, "skipped": 0}), "{document}");
    assert_eq!(document["pipelines"], json!([{"name": "total", "statements": [3, 4, 5]}]));
    let definition = test.read("work/skill-app/pipelines/total/pipeline.yaml");
    assert!(
        definition.contains("schema: schemas/decide.json\n    validate: steps/validate_decide.py\n"),
        "{definition}"
    );
    let tests = test.run(&["test", "-C", "skill-app", "--format", "json"]).exit(0);
    assert_eq!(tests.at("/passed"), json!(1));
    assert_eq!(server.calls(), 2, "tests ask no model");
}

/// 1.6: failed drafts are repaired with their errors, at most twice; those that still fail are left out.
#[test]
fn drafts_that_fail_are_repaired() {
    let server = Server::by(|seen, _| {
        let drafted = match seen.request() {
            request if request.contains("These drafts failed. Errors:\npipeline `total`, step `sum`") => {
                drafts(&[("sum", 2)])
            }
            _ => drafts(&[("sum", 1)]),
        };
        Reply::json(&if asks_for_labels(seen) { labels() } else { drafted })
    });
    let test = test(&server);
    let document = converted(&test, &["--yolo"]).exit(0).value();
    assert_eq!((&document["cases"]["passed"], &document["left_out"]), (&json!(1), &json!([])));
    assert_eq!(server.calls(), 3);
}

/// L-88: without a pipeline there is no folder, the exit status is 0, and the reason is given.
#[test]
fn a_skill_without_a_main_path_becomes_no_app() {
    let server = server(json!({"pipelines": []}));
    let test = test(&server);
    let document = converted(&test, &[]).exit(0).value();
    assert_eq!((&document["out"], &document["pipelines"]), (&Value::Null, &json!([])));
    assert_eq!(document["reason"], json!("the skill has no main path: no pipeline was drafted"));
    assert_eq!(document["statements"].as_array().map(Vec::len), Some(5));
    assert!(!test.path("work/skill-app").exists());
}

/// 1.6: a pipeline that fails its cases is left out, after two repairs; the exit status of a conversion without a pipeline is
/// 0.
#[test]
fn what_fails_its_cases_is_left_out() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    test.put("work/cases.jsonl", "{\"name\": \"july\", \"input\": {\"file\": \"data/july.txt\"}, \"output\": 4}\n");
    let document = converted(&test, &["--yolo"]).exit(0).value();
    assert_eq!((&document["out"], &document["cases"]["failed"]), (&Value::Null, &json!(1)));
    let reason = document["left_out"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("pipeline `total`, case `july`: the output is "), "{reason}");
    assert_eq!(server.calls(), 4);
}

/// L-90: a conversion that ends early leaves no folder, and its run can be resumed (L-91).
#[test]
fn a_conversion_that_ends_early_leaves_nothing() {
    let server = Server::by(|seen, number| match (asks_for_labels(seen), number) {
        (true, _) => Reply::json(&labels()),
        (false, 1) => Reply::status(403),
        (false, _) => Reply::json(&drafts(&[("sum", 2)])),
    });
    let test = test(&server);
    let ran = converted(&test, &["--yolo"]).exit(1);
    assert!(!test.path("work/skill-app").exists());
    assert_eq!(ran.at("/errors/0/kind"), json!("model_error"));
    test.run(&["runs", "resume", &ran.id()]).exit(0);
    assert!(test.path("work/skill-app/CONVERSION.md").exists());
    assert_eq!(server.calls(), 3, "the labels are not asked for again");
}

/// L-93: `--out` is empty or missing and apart from the skill, which is never changed.
#[test]
fn out_must_be_free() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    test.put("work/full/x", "");
    for out in ["full", "skill/app", "missing/app", "skill"] {
        converted(&test, &["--yolo", "--out", out]).exit(2);
    }
    assert_eq!(server.calls(), 0);
    std::fs::create_dir(test.path("work/free")).expect("a directory can be made");
    converted(&test, &["--yolo", "--out", "free"]).exit(0);
    assert!(test.path("work/free/pipelines/total").exists());
    let files = ["SKILL.md", "data/july.txt", "scripts/total.py"].map(|path| test.path(&format!("work/skill/{path}")));
    assert_eq!(test.files_below("work/skill").len(), files.len());
}

/// L-91: a skill that has changed since its conversion began is not converted half old, half new.
#[test]
fn a_changed_skill_is_converted_again() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    let id = converted(&test, &[]).exit(5).id();
    test.put("work/skill/data/july.txt", "7\n");
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id]).exit(1).stderr_has("the skill has changed since the conversion began");
    assert!(!test.path("work/skill-app").exists());
}

/// L-92: commands of the skill run in a sandbox: they write nothing outside.
#[test]
fn cases_run_in_a_sandbox() {
    let server = server(drafts(&[("sum", 2)]));
    let test = test(&server);
    let mark = test.path("work/mark");
    test.put(
        "work/skill/scripts/total.py",
        &format!("open({:?}, 'w').close()\nprint(3.5)\n", mark.display().to_string()),
    );
    let document = converted(&test, &["--yolo"]).exit(0).value();
    assert_eq!(document["cases"]["failed"], json!(1), "{document}");
    assert!(!mark.exists());
}

/// A skill that runs commands, with content that its reader must fill in, choose or leave alone.
const RELEASE: &str = "---
name: release
description: Releases a package.
---
# Release

## Steps

1. Run `python3 ~/.skills/release/scripts/bump.py [--to VERSION]`.
2. If the branch is behind, run `git pull origin <branch>`.
3. Decide whether the change is `major` or `minor`.

```bash
ROOT=$(pwd)
```

```bash
cd \"$ROOT\"
ls
```

Never publish twice.

## Publish

Example:

```bash
curl https://registry.invalid/publish
```

```bash
# BAD
git push --force
```
";

/// L-88: a part of a path without a command is a step for an agent, which receives its statements and the output of the steps
/// before, with exactly the tools of the skill.
#[test]
fn a_part_without_a_command_is_work_for_an_agent() {
    let server = Server::by(|seen, _| {
        if seen.tools() == ["Write"] {
            return match seen.turn() {
                0 => Reply::call("Write", json!({"path": "summary.txt", "content": seen.system()})),
                _ => Reply::says("written"),
            };
        }
        if seen.request().contains("Draft one pipeline") {
            return Reply::json(&drafts(&[("sum", 2), ("tell", 3)]));
        }
        let words = ["background", "main_path", "main_path", "rule"];
        let label = |(label, id): (&&str, u32)| json!({"id": id, "label": label});
        Reply::json(&json!({"labels": words.iter().zip(1_u32..).map(label).collect::<Vec<_>>()}))
    });
    let test = Test::new().model(&server).cwd("work");
    test.put(
        "work/skill/SKILL.md",
        "---\nname: sums\ndescription: Sums.\nallowed-tools: Write\n---\n# Sums\n\n1. Run `python3 scripts/total.py <file>`.\n2. Write a summary.\n\nNever name a person.\n",
    );
    test.put("work/skill/scripts/total.py", SCRIPT);
    test.put("work/july.txt", "1.5\n2\n");
    let document = test.run(&["convert", "skill", "--yolo", "--format", "json"]).exit(0).value();
    assert_eq!(document["pipelines"], json!([{"name": "total", "statements": [2, 3, 4]}]), "{document}");
    let word = |word: &str, step: &str| (word.to_owned(), json!(step));
    assert_eq!(outcomes(&document)[1..], [word("enforced", "sum"), word("asked", "tell"), word("asked", "tell")]);
    test.run(&["check", "-C", "skill-app"]).exit(0);
    let run = ["run", "-C", "skill-app", "--pipeline", "total", "-i", "file=july.txt", "--yolo", "--format", "json"];
    test.run(&run).exit(0).output(json!("written"));
    let given = test.read("work/skill-app/summary.txt");
    assert!(given.contains("- Write a summary.\n") && given.contains("- Never name a person.\n"), "{given}");
    assert!(!given.contains("total.py"), "the agent does the rest of the skill: {given}");
}

/// A skill that is only judgement and advice.
const ADVICE: &str = "---
name: advice
description: Reviews texts.
---
# Advice

Good texts are short. Write as you speak, for example without jargon.

- Do not use the passive.
";

/// 1.6, L-85, L-86, L-87, L-88: with a model that only follows plain rules, a skill becomes a valid app that runs what should
/// run and nothing else; a skill without a path becomes none.
#[test]
fn a_careless_author_gets_a_sound_app() {
    let test = Test::new().cwd("work");
    test.put("work/release/SKILL.md", RELEASE);
    test.put("work/release/scripts/bump.py", "import sys\nprint(' '.join(sys.argv[1:]))\n");
    test.put("work/advice/SKILL.md", ADVICE);
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/learn/reader.py");
    let converted = |skill: &str| {
        let command = format!("python3 '{reader}' '{}'", test.path(&format!("work/{skill}/SKILL.md")).display());
        let providers = json!({"reader": {"kind": "command", "command": command}});
        let config = json!({"model_mapping": {"standard": "reader/rules"}, "providers": providers});
        test.put("work/model.yaml", &config.to_string());
        test.run(&["convert", skill, "--config", "model.yaml", "--yolo", "--format", "json"]).exit(0).value()
    };
    let document = converted("release");
    assert_eq!(document["pipelines"][0]["name"], json!("steps"), "{document}");
    assert_eq!((document["pipelines"].as_array().map(Vec::len), &document["left_out"]), (Some(1), &json!([])));
    test.run(&["check", "-C", "release-app"]).exit(0);
    let definition = test.read("work/release-app/pipelines/steps/pipeline.yaml");
    for part in ["scripts/bump.py\\\" ${INPUT_TO:+--to \\\"$INPUT_TO\\\"}", "_applies.output.holds}}", "default: \"\""]
    {
        assert!(definition.contains(part), "{part}\n{definition}");
    }
    for part in ["registry.invalid", "--force", "ROOT"] {
        assert!(!definition.contains(part), "{part}\n{definition}");
    }
    let advice = converted("advice");
    assert_eq!((&advice["out"], advice["reason"].is_string()), (&Value::Null, true), "{advice}");
}

/// 1.6: a skill without statements is refused before a model is asked; a value that looks like a key is reported with its line,
/// and is in no generated file.
#[test]
fn an_empty_skill_and_a_key_are_reported() {
    let labels = json!({"labels": [{"id": 1, "label": "main_path"}, {"id": 2, "label": "main_path"}]});
    let drafts = drafts(&[("pay", 2)]);
    let server = Server::by(move |seen, _| {
        let schema = &seen.body["response_format"]["json_schema"]["schema"]["properties"];
        Reply::json(if schema["labels"].is_object() { &labels } else { &drafts })
    });
    let test = Test::new().model(&server).cwd("work");
    test.put("work/skill/SKILL.md", "---\nname: pay\ndescription: Pays.\n---\n");
    test.run(&["convert", "skill"]).exit(2).stderr_has("no text below its frontmatter");
    assert_eq!(server.seen().len(), 0, "no model is asked");
    let key = "3f9a0c7be1d24856";
    let text =
        format!("---\nname: pay\ndescription: Pays.\n---\n# Pay\n\n```sh\ncurl -H 'X-Token: {key}' pay.test\n```\n");
    test.put("work/skill/SKILL.md", &text);
    let ran = test.run(&["convert", "skill", "--yolo"]);
    assert!(ran.err().contains("look like keys or passwords (line "), "{}", ran.err());
    assert!(!ran.out().contains(key) && !test.path("work/skill-app/pipelines").exists(), "{}", ran.out());
}

/// cli: an import without a result says so, beside the parts that it could not import.
#[test]
fn an_import_of_nothing_says_so() {
    let test = Test::new().file("w.yaml", "steps:\n  - name: greet\n    action: http.request\n");
    let ran = test.run(&["import", "w.yaml", "--from", "dagu"]).exit(1);
    assert!(ran.out().starts_with("not imported: w.yaml:"), "{}", ran.out());
    assert_eq!(ran.err(), "error: nothing could be imported, so no app was written\n");
}
