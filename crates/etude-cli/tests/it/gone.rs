//! Runs whose app or pipeline was moved away or deleted.

use serde_json::{Value, json};

use crate::test::Test;

/// A waiting run of `p`: `first`, then an approval, then `last`; destructor `end`. Commands run outside of the app.
fn waiting() -> (Test, String) {
    let test = Test::new()
        .pipeline("p", |p| p.note("first", "1").step("name: gate\ntype: approval\nmessage: x").note("last", "3"))
        .pipeline("_destructor", |p| p.note("end", "1"));
    let id = test.run_json("p").exit(5).id();
    (test.cwd("elsewhere"), id)
}

fn moved(test: &Test, from: &str, to: &str) {
    std::fs::rename(test.path(from), test.path(to)).expect("it can be moved");
}

/// a run whose app is gone can be cancelled: it ends with its steps, and is deleted like any other.
#[test]
fn a_run_without_an_app_is_cancelled_and_deleted() {
    let (test, id) = waiting();
    std::fs::remove_dir_all(test.path("app")).expect("it can be deleted");
    let stuck = test.run(&["runs", "resume", &id]).exit(4);
    assert!(
        stuck.err().contains("hint: if the app was moved, pass its directory: etude -C DIR runs resume "),
        "{}",
        stuck.err()
    );
    assert!(stuck.err().contains("hint: or cancel the run: etude runs cancel "), "{}", stuck.err());
    let ran = test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0);
    ran.stderr_has("its destructor did not run")
        .has("/status", "cancelled")
        .has("/errors/0/kind", "cancelled")
        .has("/waiting", Value::Null)
        .steps(&["first succeeded 1", "gate cancelled 0", "last not_started 0", "end not_started 0"]);
    test.run(&["runs", "cancel", &id]).exit(2).stderr_has("has ended: cancelled");
    test.run(&["runs", "delete", &id, "--format", "json"]).exit(0).stdout_json(json!({"removed": 1}));
}

/// cli: each hint about a run of a moved app is a command that works: it has the words of this command and its `-C`. No hint
/// suggests to cancel a run that has ended.
#[test]
fn hints_after_the_move_of_an_app_are_commands_that_work() {
    let test = Test::new().pipeline("p", |p| p.note("first", "1").sh("second", "exit 3"));
    let id = test.run_json("p").exit(1).id();
    let test = test.cwd("elsewhere");
    moved(&test, "app", "moved");
    let stuck = test.run(&["runs", "retry", &id, "--from", "first", "--accept-changes"]).exit(4);
    let hint =
        "hint: if the app was moved, pass its directory: etude -C DIR runs retry [RUN] --from first --accept-changes\n";
    assert!(stuck.err().contains(hint) && !stuck.err().contains("runs cancel"), "{}", stuck.err());
    let retried = test.run(&["-C", "../moved", "runs", "retry", &id, "--from", "first"]).exit(1);
    let again = "etude -C ../moved runs resume [RUN]";
    retried.stderr_has(&format!(
        "hint: fix the cause, then run: {again}; after an edit of the app: {again} --accept-changes\n"
    ));
    let shown = test.run(&["-C", "../moved", "runs", "show", &id]).exit(0);
    assert!(shown.out().contains(again), "{}", shown.out());
}

/// the same for a pipeline that was renamed; one that is merely invalid can be repaired, and its destructor runs then.
#[test]
fn a_run_of_a_pipeline_that_is_gone_is_cancelled() {
    let (test, id) = waiting();
    test.put("app/pipelines/p/pipeline.yaml", "name: p\nsteps: 3\n");
    test.run(&["runs", "cancel", &id]).exit(3);
    moved(&test, "app/pipelines/p", "app/pipelines/q");
    test.run(&["runs", "resume", &id]).exit(2).stderr_has("hint: or cancel the run: etude runs cancel ");
    test.run(&["runs", "cancel", &id]).exit(0).stderr_has("its destructor did not run");
    assert_eq!(test.ledger(), ["first"]);
}

/// a run continues in the new directory of its app, if the command line names it.
#[test]
fn a_run_continues_where_its_app_was_moved_to() {
    let (test, id) = waiting();
    moved(&test, "app", "moved");
    test.run(&["approve", &id]).exit(0);
    let place = test.path("moved").display().to_string();
    let ran = test.run(&["-C", &place, "runs", "resume", &id, "--format", "json"]).exit(0);
    ran.output(3);
    assert_eq!(test.ledger(), ["first", "last", "end"]);
    test.run(&["-C", &place, "run", "--again", &id, "--format", "json"]).exit(5);
}
