//! Constructor and destructor: their order, their input, and their failures.

use serde_json::{Value, json};

use crate::test::Test;

/// A script that saves its stdin as `ROOT/NAME.json`.
fn keep(name: &str) -> String {
    format!("cat > \"$ROOT/{name}.json\"; echo '{{\"output\":null}}'")
}

fn document(test: &Test, name: &str) -> Value {
    serde_json::from_str(&test.read(&format!("{name}.json"))).expect("stdin was kept")
}

/// both receive the pipeline's input and the run; the destructor also receives how the run ended.
#[test]
fn both_receive_facts_about_the_run_and_the_destructor_how_it_ended() {
    let test = Test::new()
        .pipeline("p", |p| p.with("input: {k: string}").note("a", "1"))
        .pipeline("_constructor", |p| p.sh("c", &keep("c")))
        .pipeline("_destructor", |p| p.sh("d", &keep("d")));
    let ran = test.run(&["run", "-p", "p", "-i", "k=v", "--format", "json"]).exit(0);
    let run = json!({"id": ran.id(), "pipeline": "p"});
    assert_eq!(document(&test, "c"), json!({"input": {"k": "v"}, "steps": {}, "run": run}));
    assert_eq!(
        document(&test, "d"),
        json!({"input": {"k": "v"}, "steps": {}, "run": run, "status": "succeeded", "error": null})
    );
}

/// cli: the error that the destructor receives is the entry of `errors`.
#[test]
fn the_destructor_receives_the_error_as_it_is_reported() {
    let test = Test::new()
        .pipeline("p", |p| p.sh("a", "echo why >&2; exit 5"))
        .pipeline("_destructor", |p| p.sh("d", &keep("d")));
    let ran = test.run_json("p").exit(1);
    let reported = document(&test, "d");
    assert_eq!(reported["status"], "failed");
    assert_eq!(crate::redact::document(reported["error"].clone()), ran.at("/errors/0"));
    assert_eq!(reported["error"]["stderr_tail"], "why\n");
}

/// constructor and destructor are pipelines: several steps, data between them, none of it for the pipeline.
#[test]
fn steps_of_one_phase_are_not_seen_by_another() {
    let test = Test::new()
        .pipeline("_constructor", |p| p.note("one", "1").sh("two", &keep("two")))
        .pipeline("p", |p| p.sh("one", &keep("one")))
        .pipeline("_destructor", |p| p.sh("one", &keep("end")));
    test.run_json("p")
        .output(Value::Null)
        .steps(&["one succeeded 1", "two succeeded 1", "one succeeded 1", "one succeeded 1"]);
    assert_eq!(document(&test, "two")["steps"], json!({"one": {"output": 1}}));
    assert_eq!(document(&test, "one")["steps"], json!({}));
    assert_eq!(document(&test, "end")["steps"], json!({}));
}

/// for people too, the output of a pipeline whose destructor failed is on stdout.
#[test]
fn the_output_is_printed_although_the_destructor_failed() {
    Test::new()
        .pipeline("p", |p| p.note("a", "{\"kept\":true}"))
        .pipeline("_destructor", |p| p.sh("d", "exit 9"))
        .run(&["run", "-p", "p"])
        .exit(1)
        .stdout("{\"kept\":true}");
}

/// input that does not fit starts nothing, neither constructor nor destructor.
#[test]
fn input_that_does_not_fit_starts_nothing() {
    let test = Test::new()
        .pipeline("_constructor", |p| p.note("c", "1"))
        .pipeline("p", |p| p.with("input: {k: string}").note("a", "1"))
        .pipeline("_destructor", |p| p.note("d", "1"));
    test.run_json("p").exit(2).failed_with(&["- -: input_invalid"]).has("/steps", json!([]));
    assert_eq!(test.ledger(), [""; 0]);
    test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs", json!([]));
}

/// an app without constructor and destructor runs without them, and the rows are those of the pipeline.
#[test]
fn an_app_without_them_runs_without_them() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.run_json("p").output(1).steps(&["a succeeded 1"]).has("/steps/0/phase", "business");
    assert_eq!(test.ledger(), ["a"]);
}

/// an app may have one of them without the other.
#[test]
fn either_can_stand_alone() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).pipeline("_constructor", |p| p.note("c", "1"));
    test.run_json("p").output(1);
    let other = Test::new().pipeline("p", |p| p.note("a", "1")).pipeline("_destructor", |p| p.note("d", "1"));
    other.run_json("p").output(1);
    assert_eq!(
        (test.ledger(), other.ledger()),
        (vec!["c".to_owned(), "a".to_owned()], vec!["a".to_owned(), "d".to_owned()])
    );
}
