//! `etude runs resume`: repeated steps, skipped steps, and refusals (A-5.3).

use serde_json::{Value, json};

use crate::test::{Test, noting, printing, wait_until};

/// Pipeline `p`: `one`, then `hold`, which ends when `ROOT/go` is there, then `three`; destructor `end`.
fn holding() -> Test {
    let hold = format!(
        "{}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; {}; echo '{{\"output\":2}}'",
        noting("hold"),
        noting("held")
    );
    Test::new()
        .pipeline("p", |p| p.note("one", "1").sh("hold", &hold).note("three", "3"))
        .pipeline("_destructor", |p| p.note("end", "1"))
}

const RUN: [&str; 5] = ["run", "-p", "p", "--format", "json"];

/// Kills a run in `hold` and returns its id.
fn dead(test: &Test) -> String {
    let running = test.start(&RUN);
    test.wait_for("hold");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    test.put("go", "");
    id
}

fn resume(test: &Test, id: &str, more: &[&str]) -> crate::ran::Ran {
    test.run(&[&["runs", "resume", id, "--format", "json"], more].concat())
}

/// A-5.3: a dead run continues at the first effect without an outcome, and ends in its destructor.
#[test]
fn a_dead_run_goes_on_where_it_died() {
    let test = holding();
    let id = dead(&test);
    resume(&test, &id, &[])
        .output(3)
        .steps(&["one succeeded 1", "hold succeeded 1", "three succeeded 1", "end succeeded 1"]);
    let notes = test.ledger();
    assert_eq!(notes.iter().filter(|note| *note == "one").count(), 1);
    // The orphan of the dead process is ended before its step is repeated, unless it has ended by then.
    assert_eq!(notes.iter().filter(|note| *note == "hold").count(), 2, "{notes:?}");
    assert_eq!(notes[notes.len() - 2..], ["three", "end"]);
}

/// The beginning of an id is enough; a finished run is only printed again; an unknown id is wrong usage.
#[test]
fn a_finished_run_is_printed_again_and_nothing_is_done() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let first = test.run_json("p").output(1);
    let again = resume(&test, &first.id()[..6], &[]).output(1).stderr_has("has succeeded; nothing is left to do");
    assert_eq!((test.ledger().len(), again.doc()), (1, first.doc()));
    resume(&test, "zzzz", &[]).exit(2).failed_with(&["- -: input_invalid"]);
    resume(&test, "", &[]).exit(2);
}

/// A-5.3: after an edit, a resume is refused with the difference and exit status 3, and nothing runs.
#[test]
fn a_resume_after_an_edit_is_refused_with_the_difference() {
    let test = holding();
    let id = dead(&test);
    test.put("app/pipelines/p/steps/three.sh", "echo three-changed >> \"$LEDGER\"\necho '{\"output\":33}'\n");
    resume(&test, &id, &[]).exit(3).failed_with(&["- -: definition_invalid"]);
    test.run(&["runs", "resume", &id]).exit(3).stdout("").stderr(
        r#"
error[P0000]: the definition of run `[RUN]` has changed since it began
   changed pipelines/p/steps/three.sh
     @@ -1,2 +1,2 @@
     -echo 'three' >> "$LEDGER"
     -cat >/dev/null; printf '%s\n' '{"output":3}'
     +echo three-changed >> "$LEDGER"
     +echo '{"output":33}'
hint: restore the files, then resume the run
hint: or accept the changes: etude runs resume [RUN] --accept-changes"#,
    );
    // The orphan of the dead process may still reach its own end; nothing else begins.
    let notes = test.ledger();
    assert!(!notes.iter().any(|note| ["three", "three-changed", "end"].contains(&note.as_str())), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| ["one", "hold"].contains(&note.as_str())).count(), 2, "{notes:?}");
}

/// A-5.3: `--accept-changes` takes the current files and repeats only what the change affects.
#[test]
fn accepted_changes_redo_only_what_they_touch() {
    let test = holding();
    let id = dead(&test);
    test.put("app/pipelines/p/steps/three.sh", "echo three-changed >> \"$LEDGER\"\necho '{\"output\":33}'\n");
    resume(&test, &id, &["--accept-changes"]).output(33);
    let notes = test.ledger();
    assert_eq!(notes.iter().filter(|note| *note == "one").count(), 1, "{notes:?}");
    assert_eq!(notes[notes.len() - 2..], ["three-changed", "end"]);
}

/// A-5.3: a change to the request of a finished step repeats that step and those that depend on it.
#[test]
fn a_changed_step_that_was_finished_is_done_again() {
    let test = holding();
    let id = dead(&test);
    let yaml = test
        .read("app/pipelines/p/pipeline.yaml")
        .replace("command: sh steps/one.sh", "command: sh steps/one.sh again");
    test.put("app/pipelines/p/pipeline.yaml", &yaml);
    resume(&test, &id, &[]).exit(3);
    resume(&test, &id, &["--accept-changes"]).output(3);
    assert_eq!(test.ledger().iter().filter(|note| *note == "one").count(), 2);
}

/// A-5.3: restored files do not count as a change.
#[test]
fn files_that_are_put_back_are_no_change() {
    let test = holding();
    let id = dead(&test);
    let path = "app/pipelines/p/steps/three.sh";
    let before = test.read(path);
    test.put(path, "exit 1\n");
    resume(&test, &id, &[]).exit(3);
    test.put(path, &before);
    resume(&test, &id, &[]).output(3);
}

/// A-5.3: files that a run itself writes, and files that appear beside it, do not change its definition. The key of a finished
/// step with a cache does not prevent a resume either.
#[test]
fn files_that_appear_are_no_change() {
    let ok = "echo b >> calls.txt; test -f ok.flag && cat ok.flag";
    let test = Test::new().pipeline("p", |p| {
        let one = format!("{}; {}", noting("one"), printing("1"));
        p.sh_with("one", &one, "cache: true").step(&format!("name: b\ntype: code\ncommand: \"{ok}\""))
    });
    let id = test.run_json("p").exit(1).id();
    test.put("app/pipelines/p/steps/left.behind", "");
    resume(&test, &id, &[]).exit(1);
    test.put("app/pipelines/p/ok.flag", "{\"output\": 2}");
    resume(&test, &id, &[]).output(2);
    assert_eq!(test.ledger(), ["one"]);
    assert_eq!(test.read("app/pipelines/p/calls.txt"), "b\nb\nb\n");
}

/// A-5.3: of two resumes at once, one owns the run and the other must wait; no step runs twice.
#[test]
fn of_two_resumes_at_once_one_must_wait() {
    let test = holding();
    let running = test.start(&RUN);
    test.wait_for("hold");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    let first = test.start(&["runs", "resume", &id, "--format", "json"]);
    wait_until("the second start of the step", || test.ledger().iter().filter(|note| *note == "hold").count() == 2);
    resume(&test, &id, &[]).exit(4).failed_with(&["- -: environment"]);
    test.put("go", "");
    first.finish().output(3);
    assert_eq!(test.ledger(), ["one", "hold", "hold", "held", "three", "end"]);
}

/// A-5.3: a run can be resumed from any directory, because it knows its app.
#[test]
fn a_run_is_resumed_from_anywhere() {
    let test = holding();
    let id = dead(&test);
    let test = test.cwd("elsewhere");
    resume(&test, &id, &[]).output(3);
}

/// A-5.3: a missing app is an error of the environment, and the run can be resumed when the app is back.
#[test]
fn a_run_whose_app_is_gone_waits_for_it() {
    let test = holding();
    let id = dead(&test);
    let test = test.cwd("elsewhere");
    std::fs::rename(test.path("app"), test.path("moved")).expect("it can be moved");
    let ran = resume(&test, &id, &[]);
    assert!([3, 4].contains(&ran.code()), "{}", ran.err());
    assert_ne!(ran.at("/errors"), json!([]));
    std::fs::rename(test.path("moved"), test.path("app")).expect("it can be moved");
    resume(&test, &id, &[]).output(3);
}

/// A-5.4: a run that dies between a failure and the end of its destructor still fails with that failure.
#[test]
fn a_failure_survives_the_death_of_the_process() {
    let wait = "[ -e \"$ROOT/go\" ] || exec sleep 300";
    let test = Test::new()
        .pipeline("p", |p| p.sh("a", "echo why >&2; exit 5"))
        .pipeline("_destructor", |p| p.sh("d", &format!("{}; {wait}; echo '{{\"output\":1}}'", noting("d"))));
    let running = test.start(&RUN);
    test.wait_for("d");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    test.put("go", "");
    resume(&test, &id, &[])
        .exit(1)
        .failed_with(&["business a: step_failed"])
        .has("/errors/0/stderr_tail", "why\n")
        .has("/output", Value::Null);
    assert_eq!(test.ledger(), ["d", "d"]);
}

/// A-5.3: a prune removes nothing of an unfinished run, not even a large input that no step has read yet.
#[test]
fn a_prune_leaves_the_large_input_of_a_waiting_run() {
    let test = Test::new().pipeline("p", |p| {
        p.with("input: {text: string}")
            .step("name: gate\ntype: approval\nmessage: Go?")
            .sh("len", "wc -c >&2; echo '{\"output\": 1}'")
    });
    test.put("app/input.json", &json!({"text": "x".repeat(300_000)}).to_string());
    let id = test.run(&["run", "-p", "p", "--input", "@input.json", "--format", "json"]).exit(5).id();
    test.run(&["runs", "prune", "--older-than", "0s", "--format", "json"]).exit(0).stdout_json(json!({"removed": 0}));
    test.run(&["approve", &id, "--resume", "--format", "json"]).exit(0).has("/output", 1);
}
