//! Steps that run another pipeline (X-3).

use expect_test::expect;

use super::build::*;
use super::{check, log, play};
use crate::machine::ABI;
use crate::plan::Step;

/// X-3: the output is that of the pipeline; its effect ids are below the step, and they are booked on the step's row
/// (A-4.9).
#[test]
fn a_sub_pipelines_steps_are_booked_on_the_calling_step() {
    let case = pipeline([
        code("a"),
        call("s", sequence("sub", [code("x"), llm("y", "{{input.n}} {{x.output}}")])).with("n", "{{a.output}}"),
    ]);
    check(
        case,
        "p/a output 7.0",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output 7.0
            emit step a succeeded
            emit step s started
            start p/s/x process x
            done p/s/x output "x"
            start p/s/y model standard: 7.0 x
            done p/s/y answer y
            emit step s succeeded
            result succeeded "y"
            row business/a code succeeded, tries 1, 10 ms
            row business/s pipeline succeeded, tries 1, 20 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// The row of a calling step lists the effects of its sub-pipeline.
#[test]
fn the_row_of_the_calling_step_lists_the_effects_below() {
    let inner = sequence("inner", [code("x"), group("g", [code("y"), code("z")])]);
    let world = play(&pipeline([call("s", sequence("sub", [call("t", inner)]))]), "");
    let row = &world.machine.result().unwrap().steps[0];
    assert_eq!(log::ids(&row.effects), ["p/s/t/x", "p/s/t/g/y", "p/s/t/g/z"]);
    assert_eq!((row.attempts, row.duration_ms), (1, 20), "`y` and `z` run at the same time");
}

/// cli: the attempts of a pipeline as a step are the responses of models in it, rejected ones included, or one if there
/// are none. Until version 9 they were all executions and responses in it.
#[test]
fn attempts_of_a_called_pipeline_are_responses() {
    let asks = || llm("y", "{{x.output}}").retry(2).schema("{\"type\": \"object\"}");
    let attempts = |abi: u32, asked: Option<Step>, script: &str| {
        let steps = [code("x"), code("z")].into_iter().chain(asked);
        let mut case = pipeline([call("s", sequence("sub", steps))]);
        case.start.abi = abi;
        let world = play(&case, script);
        let row = world.machine.result().expect("a result").steps[0].clone();
        (row.attempts, row.usage.calls)
    };
    assert_eq!(attempts(ABI, None, ""), (1, 0));
    assert_eq!(attempts(9, None, ""), (2, 0));
    assert_eq!(attempts(ABI, Some(asks()), "p/s/y answer hm"), (2, 2));
    assert_eq!(attempts(9, Some(asks()), "p/s/y answer hm"), (4, 2));
}

/// X-3: a sub-pipeline sees its own input and nothing of the caller's steps; its directory is its own (A-3.1).
#[test]
fn a_sub_pipeline_sees_its_own_input_only() {
    let case = pipeline([
        code("a"),
        call("s", sequence("sub", [code("x")])).with("n", "{{a.output}}").with("t", "is {{a.output}}").with("l", "yes"),
    ]);
    let world = play(&case, "p/a output 1.50");
    assert_eq!(world.stdin("p/s/x"), r#"{"input":{"n":1.50,"t":"is 1.50","l":"yes"},"steps":{}}"#);
    let crate::effect::Effect::Process(call) = world.asked("p/s/x") else { panic!("no process") };
    assert_eq!(call.dir, "pipelines/sub");
}

/// Sub-pipelines of constructor and destructor also receive the facts about the run (A-5.1).
#[test]
fn a_sub_pipeline_of_the_destructor_knows_the_run() {
    let world = play(&pipeline([code("a")]).after([call("s", sequence("sub", [code("x")]))]), "");
    let run = r#""run":{"id":"r1","pipeline":"p"},"status":"succeeded","error":null"#;
    assert_eq!(world.stdin("_d/s/x"), format!(r#"{{"input":{{}},"steps":{{}},{run}}}"#));
}

/// A failure in a sub-pipeline names the calling step, the pipeline, and the definition of the failed step.
#[test]
fn a_failure_below_names_the_pipelines_in_between_once() {
    let inner = sequence("inner", [group("g", [code("x"), code("y")])]);
    check(
        pipeline([call("s", sequence("sub", [call("t", inner)])), code("z")]),
        "p/s/t/g/y exit 4 boom",
        expect![[r#"
            emit phase business
            emit step s started
            start p/s/t/g/x process x
            start p/s/t/g/y process y
            done p/s/t/g/y exit 4 boom
            abandon p/s/t/g/x
            done p/s/t/g/x abandoned
            emit step s failed
            result failed
            error step_failed business/s in pipeline `sub`: in pipeline `inner`: code step `y` exited with status 4
              at y.yaml
              exit 4
              stderr boom
            row business/s pipeline failed, tries 1, 10 ms
            row business/z code not_started
        "#]],
    );
}

/// Input that does not fit the pipeline fails the step before anything runs.
#[test]
fn input_that_breaks_the_schema_fails_before_anything_runs() {
    let case = pipeline([
        code("a"),
        call("s", sequence("sub", [code("x")]))
            .with("n", "{{a.output}}")
            .takes(r#"{"properties": {"n": {"type": "integer"}}}"#),
    ]);
    check(
        case,
        r#"p/a output "seven""#,
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "seven"
            emit step a succeeded
            emit step s started
            emit step s failed
            result failed
            error input_invalid business/s step `s` passes an invalid input to pipeline `sub`: /n: "seven" is not of type "integer"
              at s.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/s pipeline failed
        "#]],
    );
}

#[test]
fn input_without_a_value_fails_before_anything_runs() {
    check(
        pipeline([code("a"), call("s", sequence("sub", [code("x")])).with("n", "{{a.output.n}}")]),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit step s started
            emit step s failed
            result failed
            error template_unresolved business/s `{{a.output.n}}` has no value: `a.output` is a string
              at s.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/s pipeline failed
        "#]],
    );
}

/// X-1: the calling step's timeout stops the steps below, and is the calling step's failure.
#[test]
fn the_timeout_of_the_calling_step_is_not_blamed_on_the_step_below() {
    check(
        pipeline([call("s", sequence("sub", [code("x"), code("y")])).timeout(60)]),
        "
        reach p/s/x
        p/s!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step s started
            start p/s/x process x
            start p/s!timeout deadline 60000 ms
            done p/s!timeout over
            abandon p/s/x
            done p/s/x abandoned
            emit step s failed
            result failed
            error step_timeout business/s pipeline step `s` exceeded its timeout of 1 min
              at s.yaml
            row business/s pipeline failed, tries 1, 10 ms
        "#]],
    );
}

/// A timeout of a step below is that step's failure.
#[test]
fn a_timeout_below_is_reported_as_such() {
    check(
        pipeline([call("s", sequence("sub", [code("x").timeout(60), code("y")]))]),
        "
        reach p/s/x
        p/s/x!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step s started
            start p/s/x process x
            start p/s/x!timeout deadline 60000 ms
            done p/s/x!timeout over
            abandon p/s/x
            done p/s/x abandoned
            emit step s failed
            result failed
            error step_timeout business/s in pipeline `sub`: code step `x` exceeded its timeout of 1 min
              at x.yaml
            row business/s pipeline failed, tries 1, 10 ms
        "#]],
    );
}

#[test]
fn cancel_stops_the_step_below() {
    check(
        pipeline([call("s", sequence("sub", [code("x"), code("y")])), code("z")]).after([code("close")]),
        "
        reach p/s/y
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step s started
            start p/s/x process x
            done p/s/x output "x"
            start p/s/y process y
            cancel
            abandon p/s/y
            done p/s/y abandoned
            emit step s cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/s cancelled by the user
              at s.yaml
            row business/s pipeline cancelled, tries 1, 10 ms
            row business/z code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: sub-pipelines work inside `for_each` and groups.
#[test]
fn a_sub_pipeline_per_element() {
    let sub = sequence("sub", [code("x"), code("y").when("{{input.n}}")]);
    check(
        pipeline([call("s", sub).with("n", "{{item}}").for_each("{{input.l}}").collect().max_parallel(2)])
            .input(r#"{"l":[0,1,2]}"#),
        "
        p/s[2]/x exit 1
        ",
        expect![[r#"
            emit phase business
            emit step s started
            emit item s[0] 0 started
            emit item s[1] 1 started
            start p/s[0]/x process x
            start p/s[1]/x process x
            done p/s[0]/x output "x"
            emit item s[0] 0 succeeded, 1 of 3
            emit item s[2] 2 started
            start p/s[2]/x process x
            done p/s[2]/x exit 1
            emit item s[2] 2 failed, 2 of 3
            done p/s[1]/x output "x"
            start p/s[1]/y process y
            done p/s[1]/y output "y"
            emit item s[1] 1 succeeded, 3 of 3
            emit step s succeeded
            result succeeded [{"output":null},{"output":"y"},{"error":{"code":"R0101","kind":"step_failed","phase":null,"step":"s","message":"element 2 of 3: in pipeline `sub`: code step `x` exited with status 1","file":"x.yaml","line":1,"column":1,"exit_status":1,"stderr_tail":"","stderr_lines":1,"duration_ms":10,"details":{"item":2}}}]
            row business/s pipeline succeeded, tries 1, 30 ms, items 2 of 3, 1 failed: [2]
        "#]],
    );
}
