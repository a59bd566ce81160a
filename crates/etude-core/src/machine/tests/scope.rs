//! Constructor, pipeline and destructor (A-5), cancellation and budgets.

use expect_test::expect;

use super::build::*;
use super::{check, play};

/// A-5.1, A-5.3: the phases run one after the other; the business output is the run's.
#[test]
fn the_phases_run_one_after_the_other() {
    check(
        pipeline([code("a")]).before([code("open")]).after([code("close")]),
        "",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open process open
            done _c/open output "open"
            emit step open succeeded
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result succeeded "a"
            row constructor/open code succeeded, tries 1, 10 ms
            row business/a code succeeded, tries 1, 10 ms
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.2: business and destructor do not run; the constructor's error is returned.
#[test]
fn constructor_failure_runs_neither_business_nor_destructor() {
    check(
        pipeline([code("a")]).before([code("open"), code("lock")]).after([code("close")]),
        "_c/open exit 3 no such file",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open process open
            done _c/open exit 3 no such file
            emit step open failed
            result failed
            error step_failed constructor/open code step `open` exited with status 3
              at open.yaml
              exit 3
              stderr no such file
            row constructor/open code failed, tries 1, 10 ms
            row constructor/lock code not_started
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}

/// A-5.3: the destructor runs after a failure; steps after the failed one are `not_started`.
#[test]
fn destructor_runs_after_business_failure() {
    check(
        pipeline([code("a"), code("b")]).after([code("close")]),
        "p/a exit 2 boom",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 2 boom
            emit step a failed
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result failed
            error step_failed business/a code step `a` exited with status 2
              at a.yaml
              exit 2
              stderr boom
            row business/a code failed, tries 1, 10 ms
            row business/b code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.4: both errors are in the result, the business one first.
#[test]
fn destructor_failure_does_not_mask_step_failure() {
    check(
        pipeline([code("a")]).after([code("close")]),
        "
        p/a exit 2
        _d/close exit 9
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 2
            emit step a failed
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close exit 9
            emit step close failed
            result failed
            error step_failed business/a code step `a` exited with status 2
              at a.yaml
              exit 2
            error step_failed destructor/close code step `close` exited with status 9
              at close.yaml
              exit 9
            row business/a code failed, tries 1, 10 ms
            row destructor/close code failed, tries 1, 10 ms
        "#]],
    );
}

/// A-5.4: a destructor failure after a business success fails the run; the business output is still returned.
#[test]
fn destructor_failure_fails_a_good_run_and_keeps_its_output() {
    check(
        pipeline([code("a")]).after([code("close"), code("sweep")]),
        "_d/close signal SIGKILL",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close signal SIGKILL
            emit step close failed
            result failed "a"
            error step_failed destructor/close code step `close` was killed by SIGKILL (signal 9)
              at close.yaml
              signal SIGKILL
            row business/a code succeeded, tries 1, 10 ms
            row destructor/close code failed, tries 1, 10 ms
            row destructor/sweep code not_started
        "#]],
    );
}

/// A-5.2: a cancelled constructor counts as failed.
#[test]
fn cancel_in_the_constructor_ends_the_run_without_destructor() {
    check(
        pipeline([code("a")]).before([code("open"), code("lock")]).after([code("close")]),
        "
        reach _c/open
        cancel
        ",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open process open
            cancel
            abandon _c/open
            done _c/open abandoned
            emit step open cancelled
            result cancelled
            error cancelled constructor/open cancelled by the user
              at open.yaml
            row constructor/open code cancelled, tries 1, 0 ms
            row constructor/lock code not_started
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}

/// A-5.3: the destructor runs after every finished constructor, however late the cancellation comes.
#[test]
fn cancel_after_the_constructors_last_outcome_still_reaches_the_destructor() {
    check(
        pipeline([code("a")]).before([code("open")]).after([code("close")]),
        "
        reach _c/open
        pause
        _c/open output 1
        cancel
        go_on
        ",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open process open
            done _c/open output 1
            cancel
            emit step open succeeded
            emit phase business
            emit step a started
            start p/a process a
            abandon p/a
            done p/a abandoned
            emit step a cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
            row constructor/open code succeeded, tries 1, 10 ms
            row business/a code cancelled, tries 1, 0 ms
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.3: cancellation stops the step, waits for its end, and runs the destructor.
#[test]
fn cancel_in_business_stops_the_step_and_runs_the_destructor() {
    check(
        pipeline([code("a"), code("b"), code("c")]).after([code("close")]),
        "
        reach p/b
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit step b started
            start p/b process b
            cancel
            abandon p/b
            done p/b abandoned
            emit step b cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/b cancelled by the user
              at b.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/b code cancelled, tries 1, 0 ms
            row business/c code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.3: a step that succeeds although it was asked to stop does not undo the cancellation.
#[test]
fn a_step_that_ends_well_after_a_cancel_is_still_cancelled() {
    check(
        pipeline([code("a"), code("b")]),
        "
        reach p/a
        cancel
        p/a output 1
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            cancel
            abandon p/a
            done p/a output 1
            emit step a cancelled
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
            row business/a code cancelled, tries 1, 10 ms
            row business/b code not_started
        "#]],
    );
}

/// Outcomes before the cancellation count; steps that have not begun do not begin.
#[test]
fn an_outcome_that_came_before_the_cancel_counts() {
    check(
        pipeline([code("a"), code("b")]),
        "
        reach p/a
        pause
        p/a output 1
        cancel
        go_on
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output 1
            cancel
            emit step a succeeded
            emit step b started
            start p/b process b
            abandon p/b
            done p/b abandoned
            emit step b cancelled
            result cancelled
            error cancelled business/b cancelled by the user
              at b.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/b code cancelled, tries 1, 0 ms
        "#]],
    );
}

/// A run whose last outcome has arrived cannot be cancelled.
#[test]
fn a_cancel_after_the_last_outcome_comes_too_late() {
    check(
        pipeline([code("a")]),
        "
        reach p/a
        pause
        p/a output 1
        cancel
        go_on
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output 1
            cancel
            emit step a succeeded
            result succeeded 1
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.3: the destructor is guaranteed to run to its end.
#[test]
fn cancel_in_the_destructor_changes_nothing() {
    check(
        pipeline([code("a")]).after([code("close")]),
        "
        reach _d/close
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit phase destructor
            emit step close started
            start _d/close process close
            cancel
            done _d/close output "close"
            emit step close succeeded
            result succeeded "a"
            row business/a code succeeded, tries 1, 10 ms
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

#[test]
fn cancel_before_anything_ran_starts_no_step_of_business() {
    check(
        pipeline([code("a")]).after([code("close")]),
        "cancel",
        expect![[r#"
            cancel
            emit phase business
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/? cancelled by the user
            row business/a code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

#[test]
fn cancel_before_anything_ran_starts_no_step_of_the_constructor() {
    check(
        pipeline([code("a")]).before([code("open")]).after([code("close")]),
        "cancel",
        expect![[r#"
            cancel
            emit phase constructor
            result cancelled
            error cancelled constructor/? cancelled by the user
            row constructor/open code not_started
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}

#[test]
fn a_second_cancel_changes_nothing() {
    check(
        pipeline([code("a")]).after([code("close")]),
        "
        reach p/a
        cancel
        cancel
        p/a abandoned
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            cancel
            abandon p/a
            cancel
            done p/a abandoned
            emit step a cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            cancel
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
            row business/a code cancelled, tries 1, 0 ms
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

#[test]
fn kill_in_business_lets_no_destructor_begin() {
    check(
        pipeline([code("a"), code("b")]).after([code("close")]),
        "
        reach p/b
        kill
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit step b started
            start p/b process b
            kill
            abandon p/b
            done p/b abandoned
            emit step b cancelled
            result cancelled
            error cancelled business/b killed by the user
              at b.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/b code cancelled, tries 1, 0 ms
            row destructor/close code not_started
        "#]],
    );
}

#[test]
fn kill_after_cancel_gives_nothing_up_twice() {
    check(
        pipeline([group("g", [code("a"), code("b")])]).after([code("close")]),
        "
        reach p/g/b
        cancel
        kill
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            cancel
            abandon p/g/a
            abandon p/g/b
            kill
            done p/g/a abandoned
            emit step a cancelled
            done p/g/b abandoned
            emit step b cancelled
            emit step g cancelled
            result cancelled
            error cancelled business/g cancelled by the user
              at g.yaml
            row business/g parallel cancelled
            row business/a code cancelled, tries 1, 0 ms
            row business/b code cancelled, tries 1, 0 ms
            row destructor/close code not_started
        "#]],
    );
}

#[test]
fn kill_in_the_destructor_stops_it_and_keeps_the_output() {
    check(
        pipeline([code("a")]).after([code("close"), code("sweep")]),
        "
        reach _d/close
        kill
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit phase destructor
            emit step close started
            start _d/close process close
            kill
            abandon _d/close
            done _d/close abandoned
            emit step close cancelled
            result failed "a"
            error cancelled destructor/close killed by the user
              at close.yaml
            row business/a code succeeded, tries 1, 10 ms
            row destructor/close code cancelled, tries 1, 0 ms
            row destructor/sweep code not_started
        "#]],
    );
}

#[test]
fn kill_in_the_destructor_after_a_failure_keeps_the_failure_first() {
    check(
        pipeline([code("a")]).after([code("close")]),
        "
        p/a exit 1
        reach _d/close
        kill
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1
            emit step a failed
            emit phase destructor
            emit step close started
            start _d/close process close
            kill
            abandon _d/close
            done _d/close abandoned
            emit step close cancelled
            result failed
            error step_failed business/a code step `a` exited with status 1
              at a.yaml
              exit 1
            error cancelled destructor/close killed by the user
              at close.yaml
            row business/a code failed, tries 1, 10 ms
            row destructor/close code cancelled, tries 1, 0 ms
        "#]],
    );
}

#[test]
fn kill_before_anything_ran_runs_nothing() {
    check(
        pipeline([code("a")]).before([code("open")]).after([code("close")]),
        "kill",
        expect![[r#"
            kill
            emit phase constructor
            result cancelled
            error cancelled constructor/? killed by the user
            row constructor/open code not_started
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}

/// `--timeout` ends a run as `budget_exceeded`; the destructor runs after that and has no time budget.
#[test]
fn the_time_budget_stops_business_and_runs_the_destructor() {
    check(
        pipeline([code("a"), code("b")]).after([code("close")]).run_timeout(90),
        "
        reach p/a
        p!timeout over
        p/a abandoned
        ",
        expect![[r#"
            start p!timeout deadline 90000 ms
            emit phase business
            emit step a started
            start p/a process a
            done p!timeout over
            abandon p/a
            done p/a abandoned
            emit step a cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result failed
            error budget_exceeded business/a the run was stopped after its time budget of 1 min 30 s
              at a.yaml
            row business/a code cancelled, tries 1, 10 ms
            row business/b code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A-5.2: the time budget holds in the constructor as well.
#[test]
fn the_time_budget_stops_the_constructor() {
    check(
        pipeline([code("a")]).before([code("open")]).after([code("close")]).run_timeout(2),
        "
        reach _c/open
        p!timeout over
        ",
        expect![[r#"
            start p!timeout deadline 2000 ms
            emit phase constructor
            emit step open started
            start _c/open process open
            done p!timeout over
            abandon _c/open
            done _c/open abandoned
            emit step open cancelled
            result failed
            error budget_exceeded constructor/open the run was stopped after its time budget of 2 s
              at open.yaml
            row constructor/open code cancelled, tries 1, 10 ms
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}

#[test]
fn the_time_budget_is_given_up_when_the_constructor_fails() {
    check(
        pipeline([code("a")]).before([code("open")]).run_timeout(2),
        "_c/open exit 1",
        expect![[r#"
            start p!timeout deadline 2000 ms
            emit phase constructor
            emit step open started
            start _c/open process open
            done _c/open exit 1
            emit step open failed
            abandon p!timeout
            result failed
            error step_failed constructor/open code step `open` exited with status 1
              at open.yaml
              exit 1
            row constructor/open code failed, tries 1, 10 ms
            row business/a code not_started
        "#]],
    );
}

/// The step failed for another reason before the stop reached it: the run ends with the stop as its reason.
#[test]
fn a_step_that_fails_while_it_is_stopped_leaves_the_stop_as_the_reason() {
    check(
        pipeline([code("a")]).run_timeout(2),
        "
        reach p/a
        p!timeout over
        p/a exit 7 interrupted
        ",
        expect![[r#"
            start p!timeout deadline 2000 ms
            emit phase business
            emit step a started
            start p/a process a
            done p!timeout over
            abandon p/a
            done p/a exit 7 interrupted
            emit step a cancelled
            result failed
            error budget_exceeded business/a the run was stopped after its time budget of 2 s
              at a.yaml
            row business/a code cancelled, tries 1, 10 ms
        "#]],
    );
}

/// A-5.1: stdin of constructor and destructor has `run`, that of the destructor also `status` and `error`.
#[test]
fn constructor_and_destructor_receive_facts_about_the_run() {
    let case = || pipeline([code("a")]).before([code("open")]).after([code("close")]).input(r#"{"n":1}"#);
    let world = play(&case(), "");
    assert_eq!(world.stdin("_c/open"), r#"{"input":{"n":1},"steps":{},"run":{"id":"r1","pipeline":"p"}}"#);
    assert_eq!(world.stdin("p/a"), r#"{"input":{"n":1},"steps":{}}"#);
    assert_eq!(
        world.stdin("_d/close"),
        r#"{"input":{"n":1},"steps":{},"run":{"id":"r1","pipeline":"p"},"status":"succeeded","error":null}"#
    );
}

/// A-5.1, cli contract: the destructor's `error` has the form of an entry of `errors`.
#[test]
fn the_destructor_receives_the_error() {
    let world = play(&pipeline([code("a")]).after([code("close")]), "p/a exit 2 boom");
    let stdin: serde_json::Value = serde_json::from_str(&world.stdin("_d/close")).unwrap();
    assert_eq!(stdin["status"], "failed");
    assert_eq!(
        stdin["error"],
        serde_json::json!({
            "code": "R0101", "kind": "step_failed", "phase": "business", "step": "a",
            "message": "code step `a` exited with status 2", "file": "a.yaml", "line": 1, "column": 1,
            "exit_status": 2, "stderr_tail": "boom", "stderr_lines": 1, "duration_ms": 10
        })
    );
}

/// A-5.1: a cancelled run is `cancelled`, a run beyond its time budget is `failed`.
#[test]
fn the_destructor_learns_whether_the_run_was_cancelled_or_failed() {
    let status = |script: &str| {
        let world = play(&pipeline([code("a")]).after([code("close")]).run_timeout(5), script);
        let stdin: serde_json::Value = serde_json::from_str(&world.stdin("_d/close")).unwrap();
        (stdin["status"].as_str().unwrap().to_owned(), stdin["error"]["kind"].as_str().unwrap().to_owned())
    };
    assert_eq!(status("reach p/a\ncancel"), ("cancelled".to_owned(), "cancelled".to_owned()));
    assert_eq!(status("reach p/a\np!timeout over"), ("failed".to_owned(), "budget_exceeded".to_owned()));
}

/// A second signal may follow so closely that the machine gets both at once: the destructor does not begin.
#[test]
fn kill_right_after_cancel_lets_no_destructor_begin() {
    check(
        pipeline([code("a").retry(1)]).after([code("close")]),
        "
        p/a exit 1
        reach p/a!backoff1
        pause
        cancel
        kill
        go_on
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1
            emit step a try 1 of 2 rejected by transport: code step `a` exited with status 1
            start p/a!backoff1 sleep 100 ms
            cancel
            kill
            abandon p/a!backoff1
            emit step a cancelled
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 1
            row business/a code cancelled, tries 1, 10 ms
            row destructor/close code not_started
        "#]],
    );
}

/// A-5.3: a constructor that finished before it could be stopped has its destructor; business does not run.
#[test]
fn cancel_while_the_constructors_output_is_kept_still_reaches_the_destructor() {
    check(
        pipeline([code("a")]).before([code("open").cached()]).after([code("close")]),
        "
        reach _c/open!remember
        cancel
        ",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open!recall recall
            done _c/open!recall nothing
            start _c/open process open
            done _c/open output "open"
            start _c/open!remember remember "open"
            cancel
            done _c/open!remember kept
            emit step open succeeded
            emit phase business
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/? cancelled by the user
            row constructor/open code succeeded, tries 1, 30 ms
            row business/a code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A killed run has no destructor, even if the constructor had finished its work.
#[test]
fn kill_while_the_constructors_output_is_kept_runs_nothing_more() {
    check(
        pipeline([code("a")]).before([code("open").cached()]).after([code("close")]),
        "
        reach _c/open!remember
        kill
        ",
        expect![[r#"
            emit phase constructor
            emit step open started
            start _c/open!recall recall
            done _c/open!recall nothing
            start _c/open process open
            done _c/open output "open"
            start _c/open!remember remember "open"
            kill
            done _c/open!remember kept
            emit step open succeeded
            result cancelled
            error cancelled constructor/? killed by the user
            row constructor/open code succeeded, tries 1, 30 ms
            row business/a code not_started
            row destructor/close code not_started
        "#]],
    );
}
