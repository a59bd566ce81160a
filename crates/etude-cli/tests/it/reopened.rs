//! Runs that failed for something that was not there, and go on when it is (ADR 0027).

use crate::ran::Ran;
use crate::test::{Pipeline, Test, binary, noting, printing};

/// Programs are looked for in `bin` first, where nothing lies yet.
fn app(build: impl FnOnce(Pipeline) -> Pipeline) -> Test {
    let test = Test::new().pipeline("p", build);
    let path = format!("{}:{}", test.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    test.env("PATH", &path)
}

/// Puts a program there.
fn mend(test: Test, name: &str, script: &str) -> Test {
    test.put(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
    test.executable(&format!("../bin/{name}"))
}

fn resume(test: &Test, id: &str) -> Ran {
    test.run(&["runs", "resume", id, "--format", "json"])
}

/// cli: a step whose program is missing fails the run; once the program is there, the run goes on at that step, and
/// nothing that was done is done again.
#[test]
fn a_run_goes_on_when_the_missing_program_is_there() {
    let test = app(|p| {
        p.sh("a", &format!("echo a >> \"$LEDGER\"; {}", printing("1")))
            .step("{name: b, type: code, command: frobnicate --now}")
            .note("c", "3")
    });
    let ran = test.run_json("p").exit(1).failed_with(&["business b: step_failed"]);
    assert!(ran.err().contains("hint: when the cause is gone: etude runs resume "), "{}", ran.err());
    let id = ran.id();
    resume(&test, &id).exit(1).steps(&["a succeeded 1", "b failed 1", "c not_started 0"]);
    let test = mend(test, "frobnicate", &printing("2"));
    let ran = resume(&test, &id).exit(0).output(3);
    assert!(ran.err().contains("goes on where it failed"), "{}", ran.err());
    ran.steps(&["a succeeded 1", "b succeeded 1", "c succeeded 1"]);
    assert_eq!(test.ledger(), ["a", "c"]);
    let again = resume(&test, &id).exit(0).output(3);
    assert!(again.err().contains("is over"), "{}", again.err());
    assert_eq!(test.ledger(), ["a", "c"]);
}

/// cli: the steps of a run that was gone on with are shown as they are now: what no longer counts is marked, and what a later
/// step was given is made again without it.
#[test]
fn what_was_done_again_is_shown_as_such() {
    let test = app(|p| {
        p.sh("a", &printing("1"))
            .step("{name: b, type: code, command: frobnicate --now}")
            .sh("c", "cat > /dev/null; echo '{\"output\":3}'")
    });
    let id = test.run_json("p").exit(1).id();
    let test = mend(test, "frobnicate", &printing("2"));
    resume(&test, &id).exit(0);
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0).doc();
    let effects = shown["effects"].as_array().expect("a list");
    let found: Vec<_> =
        effects.iter().map(|e| (&e["id"], e["done_again"] == true, e["streams"]["stdin"].is_string())).collect();
    assert_eq!(
        found,
        [
            (&"p/a".into(), false, true),
            (&"p/b".into(), true, false),
            (&"p/b".into(), false, true),
            (&"p/c".into(), false, true)
        ]
    );
    let text = test.run(&["runs", "show", &id]).exit(0);
    let marked: Vec<_> = text.out().lines().filter(|line| line.ends_with(" (done again)")).collect();
    assert!(matches!(marked[..], [line] if line.contains("p/b  not started: ")), "{}", text.out());
    let stdin = |step: &str| test.run(&["runs", "show", &id, "--stream", &format!("p/{step}/stdin")]).exit(0);
    assert_eq!(stdin("b").out(), r#"{"input":{},"steps":{"a":{"output":1}}}"#);
    assert_eq!(stdin("c").out(), r#"{"input":{},"steps":{"a":{"output":1},"b":{"output":2}}}"#);
}

/// cli, A-4.5: so does one whose model could not be asked: here a provider that is a program.
#[test]
fn a_run_goes_on_when_its_model_can_be_asked() {
    let test = app(|p| p.note("a", "1").llm("ask", "x", ""))
        .user_config("model_mapping: {standard: own/m}\nproviders: {own: {kind: command, command: answering}}\n");
    let id = test.run_json("p").exit(4).failed_with(&["business ask: environment"]).id();
    let test = mend(test, "answering", "cat > /dev/null; echo four");
    resume(&test, &id).exit(0).output("four");
    assert_eq!(test.ledger(), ["a"]);
}

/// cli: what was given up because of the failure is done again; what had finished beside it is not.
#[test]
fn what_was_given_up_beside_it_is_done_again() {
    // What is missing is missed only when the outcome of `quick` is in the journal.
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
    let test = mend(test, "frobnicate", &printing("3"));
    resume(&test, &id).exit(0);
    assert_eq!(test.ledger(), ["quick", "slow"]);
}

/// ADR 0027, D-7: a step that ran, and whose result a layer refused, has run: it is not taken for one that never began, and a
/// resume does not do it again.
#[test]
fn what_a_layer_refused_afterwards_has_run() {
    let refuse = format!("cat >/dev/null\n{} host next >/dev/null\necho 'not this result' >&2; exit 1\n", binary());
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], refuse: {}}\n---\n")
        .file("skills/refuse.skill.md", "---\nname: refuse\ncommand: sh refuse.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/refuse.sh", &refuse)
        .pipeline("p", |p| p.sh("a", &format!("echo a >> \"$LEDGER\"; {}", printing("1"))));
    let ran = test.run_json("p").exit(1);
    assert!(ran.out().contains("not this result"), "{}", ran.out());
    resume(&test, &ran.id()).exit(1);
    assert_eq!(test.ledger(), ["a"]);
}

/// A-5.3: once the destructor has cleaned up, there is nothing left to go on with; that is said, and nothing runs.
#[test]
fn a_run_whose_destructor_has_run_is_over() {
    let test = app(|p| p.note("a", "1").step("{name: b, type: code, command: frobnicate}"))
        .pipeline("_destructor", |p| p.note("clean", "0"));
    let ran = test.run_json("p").exit(1);
    assert!(!ran.err().contains("runs resume"), "{}", ran.err());
    let test = mend(test, "frobnicate", &printing("2"));
    let over = resume(&test, &ran.id()).exit(1);
    assert!(over.err().contains("its destructor has cleaned up behind it"), "{}", over.err());
    assert_eq!(test.ledger(), ["a", "clean"]);
}

/// A-5.3: so is one whose destructor has printed what can no longer be read.
#[test]
fn a_destructor_whose_output_is_lost_has_run_all_the_same() {
    let test = app(|p| p.step("{name: b, type: code, command: frobnicate}")).pipeline("_destructor", |p| {
        let long = "printf '{\"output\":\"'; head -c 400000 /dev/zero | tr '\\0' x; printf '\"}'";
        p.sh("clean", &format!("{}; {long}", noting("clean")))
    });
    let ran = test.run_json("p").exit(1);
    let blobs: Vec<_> = test.files_below("").into_iter().filter(|file| is_long(file)).collect();
    assert_eq!(blobs.len(), 1, "{blobs:?}");
    std::fs::remove_file(&blobs[0]).expect("removed");
    let test = mend(test, "frobnicate", &printing("2"));
    let over = resume(&test, &ran.id()).exit(1);
    assert!(over.err().contains("its destructor has cleaned up behind it"), "{}", over.err());
    assert_eq!(test.ledger(), ["clean"]);
}

fn is_long(file: &std::path::Path) -> bool {
    let is_blob = file.components().any(|part| part.as_os_str() == "blobs");
    is_blob && file.metadata().is_ok_and(|metadata| metadata.len() >= 400_000)
}

/// cli: any other failure is an end.
#[test]
fn a_run_that_failed_by_itself_is_over() {
    let test = app(|p| p.note("a", "1").sh("b", "exit 1"));
    let id = test.run_json("p").exit(1).id();
    let over = resume(&test, &id).exit(1);
    assert!(over.err().contains("is over; nothing is done again"), "{}", over.err());
    assert_eq!(test.ledger(), ["a"]);
}
