//! Exit statuses and stdout of every way to end (cli, "Exit status").

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::Test;

/// cli: every way to end has its exit status, in every format; stdout is empty for people unless there is an output, and one
/// document for programs.
#[test]
fn every_way_to_end_has_its_status() {
    let server = Server::new([Reply::status(401)]);
    let test = Test::new()
        .model(&server)
        .pipeline("good", |p| p.note("a", "\"text\""))
        .pipeline("bad", |p| p.sh("a", "exit 1"))
        .pipeline("asks", |p| p.llm("a", "x", ""))
        .pipeline("waits", |p| p.step("name: a\ntype: approval\nmessage: x"))
        .yaml("broken", "name: broken\n");
    let ways: &[(&[&str], i32, &str)] = &[
        (&["run", "-p", "good"], 0, "succeeded"),
        (&["run", "-p", "bad"], 1, "failed"),
        (&["run", "-p", "nowhere"], 2, "failed"),
        (&["run", "-p", "good", "-i", "x=1"], 2, "failed"),
        (&["run", "make me a coffee"], 1, "failed"),
        (&["run", "-p", "good", "--no-such-flag"], 2, "failed"),
        (&["nonsense"], 2, "failed"),
        (&["run", "-p", "broken"], 3, "failed"),
        (&["run", "-p", "asks"], 4, "failed"),
        (&["run", "-p", "waits"], 5, "waiting"),
    ];
    for (args, exit, status) in ways {
        let output = if *exit == 0 { "\"text\"" } else { "" };
        test.run(args).exit(*exit).stdout(output);
        let ran = test.run(&[args, &["--format", "json"][..]].concat()).exit(*exit).has("/status", *status);
        let doc = ran.doc();
        for member in ["run_id", "status", "mode", "pipeline", "output", "errors", "steps", "usage", "duration_ms"] {
            assert!(doc.get(member).is_some(), "{args:?} lacks `{member}`");
        }
        assert_eq!(doc["errors"].as_array().is_some_and(|errors| !errors.is_empty()), *status == "failed", "{args:?}");
    }
}

/// cli: the document of a run that was never started says so.
#[test]
fn the_document_of_a_run_that_was_not_started() {
    Test::new().pipeline("p", |p| p.note("a", "1")).run(&["run", "-p", "q", "--format", "json"]).exit(2).stdout_json(json!({
        "run_id": null, "status": "failed", "mode": "pipeline", "pipeline": "q", "output": null,
        "errors": [{"code": "R0301", "kind": "input_invalid", "phase": null, "step": null, "message": "there is no pipeline `q`",
                    "hint": "pipelines of this app: p"}],
        "steps": [],
        "usage": {"calls": 0, "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0, "cost_usd": null,
            "shadow": {"calls": 0, "input_tokens": 0, "output_tokens": 0}},
        "fell_back": null, "duration_ms": 0,
    }));
}

/// cli: the whole document of a small run that succeeded.
#[test]
fn the_document_of_a_run_that_succeeded() {
    let usage = json!({"calls": 0, "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0, "cost_usd": null,
            "shadow": {"calls": 0, "input_tokens": 0, "output_tokens": 0}});
    Test::new().pipeline("p", |p| p.note("a", "{\"k\":[1,null]}")).run_json("p").exit(0).stdout_json(json!({
        "run_id": "[RUN]", "status": "succeeded", "mode": "pipeline", "pipeline": "p", "output": {"k": [1, null]}, "errors": [],
        "steps": [{"phase": "business", "name": "a", "type": "code", "status": "succeeded", "attempts": 1, "duration_ms": 0}],
        "usage": usage, "fell_back": null, "attempt": 1, "duration_ms": 0,
    }));
}

/// cli: on a pipe a string output stays JSON; every other output is JSON anyway.
#[test]
fn outputs_on_a_pipe_are_json() {
    for output in ["\"two\\nlines\"", "null", "{\"k\":1.50}", "[1,2]", "true"] {
        Test::new()
            .pipeline("p", |p| p.sh("a", &format!("printf '%s' '{{\"output\":{output}}}'")))
            .run(&["run", "-p", "p"])
            .exit(0)
            .stdout(output);
    }
}

/// cli: a definition error has code, place and hint in the document as well.
#[test]
fn the_document_of_a_definition_error_has_its_place() {
    Test::new()
        .yaml("p", "name: p\ndescription: x\nsteps:\n  - {name: a, type: code, comand: \"true\"}\n")
        .run_json("p")
        .exit(3)
        .has("/errors/0/kind", "definition_invalid")
        .has("/errors/0/line", 4)
        .has("/errors/0/column", 27)
        .has("/errors/0/details/code", "P0201")
        .has("/errors/0/details/hint", "did you mean `command`?")
        .has("/run_id", Value::Null);
}

/// cli: a home that is not writable is an environment error, reported as a document, and nothing runs.
#[test]
fn a_journal_that_cannot_be_made_is_the_environment() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.put("home/.local/state", "a file where a directory should be");
    test.run_json("p").exit(4).failed_with(&["- -: environment"]);
    assert_eq!(test.ledger(), [""; 0]);
}

/// cli: a run in skill mode that could not be started has the mode `skill`, and a hint.
#[test]
fn the_document_of_skill_mode_that_was_not_started() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.run(&["run", "--skill", "go", "--format", "json"])
        .exit(2)
        .has("/mode", "skill")
        .has("/pipeline", Value::Null)
        .has("/errors/0/hint", "pipelines of this app: p");
    let broken = Test::new().file("SKILL.md", "---\nname: [\n---\nx\n");
    broken.run(&["run", "--skill", "go", "--format", "json"]).exit(3).has("/mode", "skill");
    // The same after routing has found no pipeline.
    broken.run(&["run", "book me a flight", "--format", "json"]).exit(3).has("/mode", "skill");
}

/// cli: arguments that are not text are refused like any other: with 2, and with a document if one is promised.
#[test]
fn arguments_that_are_not_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;

    let test = Test::new().pipeline("good", |p| p.note("a", "\"text\""));
    let odd = std::ffi::OsStr::from_bytes(b"name=\xff");
    for args in [&["run"][..], &["run", "-p", "good", "-i"], &["run", "-p", "good", "--format"]] {
        let mut command = test.command(args);
        command.arg(odd);
        test.start_with(command, args).finish().exit(2);
    }
    let mut command = test.command(&["--format", "json"]);
    command.arg(odd);
    test.start_with(command, &["--format", "json"]).finish().exit(2).has("/status", "failed");
}

/// cli: the document of wrong usage has the message alone, without the word that people read before it.
#[test]
fn the_message_of_wrong_usage_has_no_heading() {
    let ran = Test::new().run(&["run", "--no-such-option", "--format", "json"]).exit(2);
    let message = ran.at("/errors/0/message");
    assert!(message.as_str().is_some_and(|text| text.starts_with("unexpected argument")), "{message}");
}
