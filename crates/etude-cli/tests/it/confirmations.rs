//! Trust and confirmation of actions of Agent Applications (C-1.11, C-1.14; the cases AA-31, AA-32, AA-54 to AA-69).

use serde_json::{Value, json};

use crate::echo_box::{self, Judged, PROJECT, USER, run, started, with};
use crate::test::Test;

/// A package of a project without approval.
fn with_package() -> Test {
    let test = Test::new();
    echo_box::put(&test, PROJECT, &[]);
    test
}

fn trust_of(test: &Test) -> Value {
    test.run(&["apps", "list", "--format", "json"]).exit(0).at("/applications/0/trust")
}

/// C-1.11, AA-31, AA-32: discovered packages are listed; reading and running need an approval each.
#[test]
fn reading_and_running_need_an_approval_each() {
    let test = with_package();
    assert_eq!(trust_of(&test), "low");
    test.run(&["apps", "show", "echo-box", "--format", "json"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
    run(&test, &[], &["ping"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
    test.run(&["trust", "apps/echo-box", "--activation"]).exit(0);
    test.run(&["apps", "show", "echo-box", "--format", "json"]).exit(0);
    run(&test, &[], &["ping"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
    test.run(&["trust", "apps/echo-box"]).exit(0);
    run(&test, &[], &["ping"]).is("succeeded", 0, &[]);
    test.run(&["untrust", "apps"]).exit(0);
    run(&test, &[], &["ping"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
    test.run(&["trust", "nowhere"]).exit(2);
}

/// C-0.4, AA-69: writes by the package's own commands keep the approval; any other write ends it.
#[test]
fn an_approval_survives_the_packages_own_writing_only() {
    let test = with_package();
    test.run(&["trust", "."]).exit(0);
    for command in [&["put", "k", "v"][..], &["journal"], &["journal"], &["put", "k", "v"]] {
        run(&test, &[], command).is("succeeded", 0, &[]);
    }
    assert_eq!(trust_of(&test), "approved");
    let listed = test.run(&["trust", "--list", "--format", "json"]).exit(0);
    assert!(listed.out().contains("sha256:"));
    test.put(&format!("{PROJECT}/echo-box/app/other.py"), "x");
    assert_eq!(trust_of(&test), "low");
    run(&test, &[], &["ping"]).is("refused", 4, &["AA_TRUST_REQUIRED"]);
}

/// Id of the request that a command waits for.
fn asked(test: &Test, words: &[&str]) -> String {
    let ran = run(test, &[], words).is("confirmation_required", 5, &["AA_CONFIRM_REQUIRED"]);
    id_of(&ran)
}

/// The unredacted id, not the form that tests compare.
fn id_of(ran: &crate::ran::Ran) -> String {
    let document: Value = serde_json::from_slice(&ran.raw).expect("a document");
    document["confirmation"]["id"].as_str().expect("an id").to_owned()
}

/// C-1.14, AA-56, AA-57: nothing starts before a person has said yes, and one yes is for one run.
#[test]
fn a_confirmation_is_for_one_run() {
    let test = with(&[]);
    let wipe = ["wipe", "--", "--confirm"];
    let id = asked(&test, &wipe);
    assert!(started(&test).is_empty(), "nothing was started");
    assert_eq!(asked(&test, &wipe), id, "the same command waits for the same answer");
    test.run(&["approve", &id, "--format", "json"]).exit(0).has("/decision", "approved");
    run(&test, &[], &wipe).is("succeeded", 0, &[]);
    let ran = run(&test, &[], &wipe).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    assert_ne!(id_of(&ran), id);
    assert_eq!(started(&test), ["wipe --confirm"]);
    test.run(&["approve", &id]).exit(2).stderr_has("already been answered");
    test.run(&["approve", "ask-0000000000000000"]).exit(2);
    let log = test.read("home/.local/state/etude/confirmations.log");
    assert!(log.contains("\"by\":\"tester\"") && log.contains("\"event\":\"confirmed\""), "{log}");
}

/// C-1.14: an answer is bound to the arguments and to the content of the package.
#[test]
fn a_confirmation_is_bound_to_arguments_and_content() {
    let test = with(&[]);
    let wipe = ["wipe", "--", "--confirm"];
    let id = asked(&test, &wipe);
    test.run(&["approve", &id]).exit(0);
    run(&test, &[], &["wipe"]).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    test.put(&format!("{USER}/echo-box/app/other.py"), "x");
    run(&test, &[], &wipe).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    assert!(started(&test).is_empty());
}

/// C-1.14: the approved command is what runs, also with the same values of the variables that `--env` passes on.
#[test]
fn a_confirmation_is_bound_to_the_environment() {
    let test = with(&[]).env("BOX_TARGET", "one").env("BOX_OTHER", "x");
    let wipe = ["wipe", "--", "--confirm"];
    let env = ["--env", "BOX_TARGET"];
    let asked = run(&test, &env, &wipe).is("confirmation_required", 5, &["AA_CONFIRM_REQUIRED"]);
    assert_eq!(asked.at("/confirmation/env"), json!(["BOX_TARGET"]));
    test.run(&["approve", &id_of(&asked), "--format", "json"]).exit(0).has("/env", json!(["BOX_TARGET"]));
    run(&test, &[], &wipe).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    run(&test, &["--env", "BOX_TARGET", "--env", "BOX_OTHER"], &wipe).is(
        "confirmation_required",
        5,
        &["AA_CONFIRM_STALE"],
    );
    let test = test.env("BOX_TARGET", "all");
    run(&test, &env, &wipe).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    assert!(started(&test).is_empty());
    let test = test.env("BOX_TARGET", "one");
    run(&test, &env, &wipe).is("succeeded", 0, &[]);
    let kept = test.read("home/.local/state/etude/confirmations.json")
        + &test.read("home/.local/state/etude/confirmations.log");
    assert!(!kept.contains("\"one\"") && !kept.contains("=one"), "{kept}");
}

/// C-0.4, AA-60: a denial refuses the next identical command, once.
#[test]
fn a_denial_refuses_once() {
    let test = with(&[]);
    let wipe = ["wipe", "--", "--confirm"];
    let id = asked(&test, &wipe);
    test.run(&["deny", &id, "--reason", "not today"]).exit(0);
    run(&test, &[], &wipe).is("refused", 1, &["AA_CONFIRM_DENIED"]).stderr_has("not today");
    run(&test, &[], &wipe).is("confirmation_required", 5, &["AA_CONFIRM_STALE"]);
    assert!(started(&test).is_empty());
}

/// C-1.14, AA-54, AA-59, AA-61: the command's own guard is an additional check; exactly the listed path is guarded.
#[test]
fn the_commands_own_guard_is_another_middleware() {
    let test = with(&[]);
    run(&test, &[], &["put", "k", "v"]).is("succeeded", 0, &[]);
    let id = asked(&test, &["wipe"]);
    test.run(&["approve", &id]).exit(0);
    run(&test, &[], &["wipe"]).is("failed", 1, &[]).has("/exitCode", 2).has("/output/error/code", "E_CONFIRM");
    run(&test, &[], &["box", "list"]).is("succeeded", 0, &[]);
    let id = asked(&test, &["wipe", "--", "--confirm"]);
    test.run(&["approve", &id]).exit(0);
    run(&test, &[], &["wipe", "--", "--confirm"]).is("succeeded", 0, &[]);
    run(&test, &[], &["put", "k", "v"]).is("succeeded", 0, &[]).has("/output/item/id", "bx_0002");
}

/// C-1.14: words given as arguments do not bypass the guard, nor does a guarded path that is not declared.
#[test]
fn a_guarded_path_in_the_arguments_is_guarded() {
    let test = with(&[
        ("\"box list\", \"box wipe\"]", "box, \"box list\"]"),
        ("[wipe, \"box wipe\"]", "[\"box list\", \"box gone\"]"),
    ]);
    for words in [&["box", "list"][..], &["box", "--", "list"], &["box", "gone"], &["box", "--", "gone"]] {
        run(&test, &[], words).is("confirmation_required", 5, &["AA_CONFIRM_REQUIRED"]);
    }
    assert!(started(&test).is_empty(), "nothing was started");
}

/// C-1.15, AA-65: a request shows the current state, also when it is repeated.
#[test]
fn a_request_shows_fresh_state() {
    let test = with(&[("scheduling: notSupported", "metadata: {stateCommand: box list}\nscheduling: notSupported")]);
    let state = |at: &str| run(&test, &[], &["wipe"]).exit(5).at(&format!("/confirmation/state/{at}"));
    run(&test, &[], &["put", "k", "one"]).is("succeeded", 0, &[]);
    assert_eq!(state("0/content/items/k/value"), "one");
    run(&test, &[], &["put", "k", "two"]).is("succeeded", 0, &[]);
    assert_eq!(state("0/content/items/k/value"), "two");
    assert_eq!(state("1/output/command"), "box list");
    let about = run(&test, &[], &["wipe"]).exit(5).at("/confirmation/description");
    assert!(about.as_str().is_some_and(|text| text.contains("empties the box")), "{about}");
}

/// C-1.11: approval of a whole disk or a whole home is refused at once, with a hint.
#[test]
fn a_whole_disk_is_not_trusted() {
    let test = with_package();
    for place in ["/", "../home", ".."] {
        let ran = test.run(&["trust", place]).exit(2);
        assert!(ran.err().contains("which is too large to review and trust"), "{}", ran.err());
        assert!(ran.err().contains("hint: name the folder of one project"), "{}", ran.err());
    }
    test.run(&["trust", "."]).exit(0);
}
