//! Runs that failed for something that was not there, and go on when it is (ADR 0027).

use crate::ran::Ran;
use crate::test::{Pipeline, Test, printing};

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
    let test = app(|p| {
        let quick = format!("echo quick >> \"$LEDGER\"; {}", printing("1"));
        let slow = format!("test -e \"$ROOT/go\" || sleep 30; echo slow >> \"$LEDGER\"; {}", printing("2"));
        let late = format!("sleep 1; {}", printing("0"));
        p.sh("wait", "true && echo '{\"output\": 0}'").step(&format!(
            "name: all\ntype: parallel\nsteps:\n  - {{name: quick, type: code, command: {quick:?}}}\n  - {{name: slow, type: code, command: {slow:?}}}\n  - {{name: late, type: code, command: {late:?}}}\n  - {{name: lost, type: code, command: frobnicate}}"
        ))
    });
    let id = test.run_json("p").exit(1).id();
    test.put("go", "");
    let test = mend(test, "frobnicate", &printing("3"));
    resume(&test, &id).exit(0);
    let mut ledger = test.ledger();
    ledger.sort();
    ledger.dedup();
    assert_eq!(ledger, ["quick", "slow"]);
    assert_eq!(test.ledger().iter().filter(|line| *line == "slow").count(), 1);
}

/// ADR 0027, D-7: a step that ran, and whose result a layer refused, has run: it is not taken for one that never began, and a
/// resume does not do it again.
#[test]
fn what_a_layer_refused_afterwards_has_run() {
    let refuse = format!(
        "cat >/dev/null\n{} host next >/dev/null\necho 'not this result' >&2; exit 1\n",
        env!("CARGO_BIN_EXE_etude")
    );
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

/// once the destructor has cleaned up, there is nothing left to go on with; that is said, and nothing runs.
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

/// cli: any other failure is an end.
#[test]
fn a_run_that_failed_by_itself_is_over() {
    let test = app(|p| p.note("a", "1").sh("b", "exit 1"));
    let id = test.run_json("p").exit(1).id();
    let over = resume(&test, &id).exit(1);
    assert!(over.err().contains("is over; nothing is done again"), "{}", over.err());
    assert_eq!(test.ledger(), ["a"]);
}
