//! Runs that failed because of a missing resource, and continue when it exists (A-5.6).

use crate::ran::Ran;
use crate::test::{Pipeline, Test, binary, noting, printing};

/// An app that looks for programs in `bin` first, which is still empty.
fn app(build: impl FnOnce(Pipeline) -> Pipeline) -> Test {
    let test = Test::new().pipeline("p", build);
    let path = format!("{}:{}", test.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    test.env("PATH", &path)
}

/// Puts a program into `bin`.
fn repair(test: Test, name: &str, script: &str) -> Test {
    test.put(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
    test.executable(&format!("../bin/{name}"))
}

fn resume(test: &Test, id: &str) -> Ran {
    test.run(&["runs", "resume", id, "--format", "json"])
}

/// cli: a step whose program is missing fails the run; once the program exists, the run continues at that step, and no finished
/// step runs again.
#[test]
fn a_run_goes_on_when_the_missing_program_is_there() {
    let test = app(|p| {
        p.sh("a", &format!("echo a >> \"$LEDGER\"; {}", printing("1")))
            .step("{name: b, type: code, command: frobnicate --now}")
            .note("c", "3")
    });
    let ran = test.run_json("p").exit(1).failed_with(&["business b: step_failed"]);
    assert!(ran.err().contains("hint: fix the cause, then run: etude runs resume "), "{}", ran.err());
    let id = ran.id();
    resume(&test, &id).exit(1).steps(&["a succeeded 1", "b failed 1", "c not_started 0"]);
    let test = repair(test, "frobnicate", &printing("2"));
    let ran = resume(&test, &id).exit(0).output(3);
    assert!(ran.err().contains("completed steps are kept"), "{}", ran.err());
    ran.steps(&["a succeeded 1", "b succeeded 1", "c succeeded 1"]);
    assert_eq!(test.ledger(), ["a", "c"]);
    let again = resume(&test, &id).exit(0).output(3);
    assert!(again.err().contains("nothing is left to do"), "{}", again.err());
    assert_eq!(test.ledger(), ["a", "c"]);
}

/// cli: the steps of a continued run are shown in their current state: obsolete attempts are marked, and the input of a later
/// step is built again without them.
#[test]
fn what_was_done_again_is_shown_as_such() {
    let test = app(|p| {
        p.sh("a", &printing("1"))
            .step("{name: b, type: code, command: frobnicate --now}")
            .sh("c", "cat > /dev/null; echo '{\"output\":3}'")
    });
    let id = test.run_json("p").exit(1).id();
    let test = repair(test, "frobnicate", &printing("2"));
    resume(&test, &id).exit(0);
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0).doc();
    let effects = shown["effects"].as_array().expect("a list");
    let found: Vec<_> = effects
        .iter()
        .map(|e| (&e["id"], e["done_again"] == true, e["streams"]["stdin"].is_string(), &e["run_attempt"]))
        .collect();
    assert_eq!(
        found,
        [
            (&"p/a".into(), false, true, &1.into()),
            (&"p/b".into(), true, false, &1.into()),
            (&"p/b".into(), false, true, &2.into()),
            (&"p/c".into(), false, true, &2.into())
        ]
    );
    let text = test.run(&["runs", "show", &id, "b"]).exit(0);
    let marked: Vec<_> = text.out().lines().filter(|line| line.contains("  replaced: not started: ")).collect();
    assert!(matches!(marked[..], [line] if line.contains("run attempt 1, attempt 1")), "{}", text.out());
    assert!(text.out().contains("run attempt 2, attempt 1"), "{}", text.out());
    let stdin = |step: &str| test.run(&["runs", "show", &id, "--stream", &format!("p/{step}/stdin")]).exit(0);
    assert_eq!(stdin("b").out(), r#"{"input":{},"steps":{"a":{"output":1}}}"#);
    assert_eq!(stdin("c").out(), r#"{"input":{},"steps":{"a":{"output":1},"b":{"output":2}}}"#);
}

/// cli, A-4.5: the same for a run whose model could not be called: here a provider that is a program.
#[test]
fn a_run_goes_on_when_its_model_can_be_asked() {
    let test = app(|p| p.note("a", "1").llm("ask", "x", ""))
        .user_config("model_mapping: {standard: own/m}\nproviders: {own: {kind: command, command: answering}}\n");
    let id = test.run_json("p").exit(4).failed_with(&["business ask: environment"]).id();
    let test = repair(test, "answering", "cat > /dev/null; echo four");
    resume(&test, &id).exit(0).output("four");
    assert_eq!(test.ledger(), ["a"]);
}

/// cli: a step that was cancelled because of the failure runs again; one that had finished beside it does not.
#[test]
fn what_was_given_up_beside_it_is_done_again() {
    // The missing program must fail only after the outcome of `quick` is in the journal.
    let wait = format!(
        "cat >/dev/null; until {} runs export \"$ETUDE_RUN_ID\" | grep -q '/quick\"'; do sleep 0.02; done; echo '{{\"output\":0}}'",
        binary()
    );
    let test = app(|p| {
        let quick = format!("echo quick >> \"$LEDGER\"; {}", printing("1"));
        let slow = format!("test -e \"$ROOT/go\" || sleep 300; echo slow >> \"$LEDGER\"; {}", printing("2"));
        p.step(&format!(
            "name: all\ntype: parallel\nsteps:\n  - {{name: quick, type: code, command: {quick:?}}}\n  - {{name: slow, type: code, command: {slow:?}}}\n  - {{name: late, type: pipeline, pipeline: late}}"
        ))
    })
    .pipeline("late", |p| p.sh("wait", &wait).step("{name: lost, type: code, command: frobnicate}"));
    let id = test.run_json("p").exit(1).id();
    assert_eq!(test.ledger(), ["quick"]);
    test.put("go", "");
    let test = repair(test, "frobnicate", &printing("3"));
    resume(&test, &id).exit(0);
    assert_eq!(test.ledger(), ["quick", "slow"]);
}

/// A-5.6: after the destructor has run, the scope is opened again, and closed again at the end.
#[test]
fn a_run_whose_destructor_has_run_opens_its_scope_again() {
    let test = app(|p| p.note("a", "1").step("{name: b, type: code, command: frobnicate}"))
        .pipeline("_constructor", |p| p.note("open", "0"))
        .pipeline("_destructor", |p| p.note("clean", "0"));
    let ran = test.run_json("p").exit(1);
    let test = repair(test, "frobnicate", &printing("2"));
    resume(&test, &ran.id()).output(2);
    assert_eq!(test.ledger(), ["open", "a", "clean", "open", "clean"]);
}

/// A-5.6: an unreadable output of the destructor does not keep the run from continuing.
#[test]
fn a_lost_output_of_a_destructor_is_no_obstacle() {
    let test = app(|p| p.step("{name: b, type: code, command: frobnicate}")).pipeline("_destructor", |p| {
        let long = "printf '{\"output\":\"'; head -c 400000 /dev/zero | tr '\\0' x; printf '\"}'";
        p.sh("clean", &format!("{}; {long}", noting("clean")))
    });
    let ran = test.run_json("p").exit(1);
    let blobs: Vec<_> = test.files_below("").into_iter().filter(|file| is_long(file)).collect();
    assert_eq!(blobs.len(), 1, "{blobs:?}");
    std::fs::remove_file(&blobs[0]).expect("removed");
    let test = repair(test, "frobnicate", &printing("2"));
    resume(&test, &ran.id()).output(2);
    assert_eq!(test.ledger(), ["clean", "clean"]);
}

fn is_long(file: &std::path::Path) -> bool {
    let is_blob = file.components().any(|part| part.as_os_str() == "blobs");
    is_blob && file.metadata().is_ok_and(|metadata| metadata.len() >= 400_000)
}
