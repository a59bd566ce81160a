//! What all steps have in common (X-1): `when`, `timeout`, `cache`.

use super::build::*;
use super::{check, play, starts_after};
use crate::effect::Effect;

/// X-1: `when` holds: the step runs.
#[test]
fn a_step_whose_condition_holds_runs() {
    starts_after(r#"{"ok": true}"#, code("b").when("{{a.output.ok}}"), "b");
}

/// X-1: false: status `skipped`, output `null`, nothing runs.
#[test]
fn a_step_whose_condition_does_not_hold_is_skipped() {
    check(
        pipeline([code("a"), code("b").when("{{a.output.ok}}").timeout(5).cached(), code("c")]),
        r#"p/a output {"ok": ""}"#,
        r#"
        tell phase business
        tell step a started
        start p/a process a
        done p/a output {"ok": ""}
        tell step a succeeded
        tell step b skipped
        tell step c started
        start p/c process c
        done p/c output "c"
        tell step c succeeded
        result succeeded "c"
        row business/a code succeeded, tries 1, 10 ms
        row business/b code skipped
        row business/c code succeeded, tries 1, 10 ms
        "#,
    );
}

/// X-1: later steps see the output `null` of a skipped one.
#[test]
fn a_skipped_steps_output_is_null() {
    let world = play(&pipeline([code("a").when("{{input.x}}"), code("b")]).input(r#"{"x":null}"#), "");
    assert_eq!(world.stdin("p/b"), r#"{"input":{"x":null},"steps":{"a":{"output":null}}}"#);
}

/// A-4.1: a condition without a value is an error that names it, not false.
#[test]
fn a_condition_without_a_value_fails_the_step() {
    check(
        pipeline([code("a"), code("b").when("{{a.output.ok}}")]),
        r#"p/a output {"id": 1}"#,
        r#"
        tell phase business
        tell step a started
        start p/a process a
        done p/a output {"id": 1}
        tell step a succeeded
        tell step b failed
        result failed
        error template_unresolved business/b `{{a.output.ok}}` has no value: `a.output` has no member `ok`; it has `id`
          at b.yaml
        row business/a code succeeded, tries 1, 10 ms
        row business/b code failed
        "#,
    );
}

/// X-1: except under `exists`.
#[test]
fn exists_of_a_missing_value_skips_the_step() {
    let case =
        pipeline([code("a").when_exists("{{input.x}}"), code("b").when_exists("{{input.y}}")]).input(r#"{"y":0}"#);
    let world = play(&case, "");
    assert!(world.log.contains("tell step a skipped") && world.log.contains("tell step b succeeded"), "{}", world.log);
}

/// X-1: the step ends as `step_timeout`, once its process is gone.
#[test]
fn a_timeout_gives_the_process_up_and_waits_for_its_end() {
    check(
        pipeline([code("a").timeout(30), code("b")]).after([code("close")]),
        "
        reach p/a
        p/a!timeout over
        p/a signal SIGTERM
        ",
        r#"
        tell phase business
        tell step a started
        start p/a process a
        start p/a!timeout deadline 30000 ms
        done p/a!timeout over
        abandon p/a
        done p/a signal SIGTERM
        tell step a failed
        tell phase destructor
        tell step close started
        start _d/close process close
        done _d/close output "close"
        tell step close succeeded
        result failed
        error step_timeout business/a code step `a` did not end within its timeout of 30 s
          at a.yaml
        row business/a code failed, tries 1, 10 ms
        row business/b code not_started
        row destructor/close code succeeded, tries 1, 10 ms
        "#,
    );
}

/// What arrived before the time was up counts.
#[test]
fn an_outcome_that_came_before_the_timeout_counts() {
    check(
        pipeline([code("a").timeout(30)]),
        "
        reach p/a
        pause
        p/a output 1
        p/a!timeout over
        go_on
        ",
        r#"
        tell phase business
        tell step a started
        start p/a process a
        start p/a!timeout deadline 30000 ms
        done p/a output 1
        done p/a!timeout over
        abandon p/a!timeout
        tell step a succeeded
        result succeeded 1
        row business/a code succeeded, tries 1, 10 ms
        "#,
    );
}

/// What arrives after the time was up does not.
#[test]
fn an_outcome_that_comes_after_the_timeout_does_not_count() {
    check(
        pipeline([code("a").timeout(30)]),
        "
        reach p/a!timeout
        pause
        p/a!timeout over
        p/a output 1
        go_on
        ",
        r#"
        tell phase business
        tell step a started
        start p/a process a
        start p/a!timeout deadline 30000 ms
        done p/a!timeout over
        done p/a output 1
        abandon p/a
        tell step a failed
        result failed
        error step_timeout business/a code step `a` did not end within its timeout of 30 s
          at a.yaml
        row business/a code failed, tries 1, 10 ms
        "#,
    );
}

/// A timer leaves nothing behind when its step ends.
#[test]
fn the_timer_is_given_up_when_the_step_ends() {
    check(
        pipeline([code("a").timeout(30), code("b")]),
        "",
        r#"
        tell phase business
        tell step a started
        start p/a process a
        start p/a!timeout deadline 30000 ms
        done p/a output "a"
        abandon p/a!timeout
        tell step a succeeded
        tell step b started
        start p/b process b
        done p/b output "b"
        tell step b succeeded
        result succeeded "b"
        row business/a code succeeded, tries 1, 10 ms
        row business/b code succeeded, tries 1, 10 ms
        "#,
    );
}

/// A cancellation while a step is being given up does not change why it ends, but why the run does.
#[test]
fn cancel_after_a_timeout_is_what_the_run_ends_with() {
    check(
        pipeline([code("a").timeout(30)]),
        "
        reach p/a
        p/a!timeout over
        cancel
        ",
        r#"
        tell phase business
        tell step a started
        start p/a process a
        start p/a!timeout deadline 30000 ms
        done p/a!timeout over
        abandon p/a
        cancel
        done p/a abandoned
        tell step a failed
        result cancelled
        error cancelled business/a cancelled by the user
          at a.yaml
        row business/a code failed, tries 1, 10 ms
        "#,
    );
}

/// X-1: a hit is shown as cached, and nothing runs.
#[test]
fn a_cached_output_is_reused() {
    check(
        pipeline([code("a").cached().timeout(30)]),
        r#"p/a!recall found {"n": 1.0}"#,
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        start p/a!timeout deadline 30000 ms
        done p/a!recall found {"n": 1.0}
        abandon p/a!timeout
        tell step a succeeded
        result succeeded {"n": 1.0}
        row business/a code succeeded, tries 0, 10 ms, cached
        "#,
    );
}

/// X-1: after a miss the output is kept for later runs.
#[test]
fn a_cache_miss_runs_the_step_and_remembers_its_output() {
    check(
        pipeline([code("a").cached_by("{{input.k}}")]).input(r#"{"k":"v"}"#),
        "",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall, at most 1000 ms old
        done p/a!recall nothing
        start p/a process a
        done p/a output "a"
        start p/a!remember remember "a"
        done p/a!remember kept
        tell step a succeeded
        result succeeded "a"
        row business/a code succeeded, tries 1, 30 ms
        "#,
    );
}

/// A failure is not remembered.
#[test]
fn a_failure_is_not_remembered() {
    check(
        pipeline([code("a").cached()]),
        "p/a exit 1",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        done p/a!recall nothing
        start p/a process a
        done p/a exit 1
        tell step a failed
        result failed
        error step_failed business/a code step `a` exited with status 1
          at a.yaml
          exit 1
        row business/a code failed, tries 1, 20 ms
        "#,
    );
}

#[test]
fn cancel_while_the_cache_is_asked_starts_nothing() {
    check(
        pipeline([code("a").cached()]),
        "reach p/a!recall\ncancel\np/a!recall found 1",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        cancel
        abandon p/a!recall
        done p/a!recall found 1
        tell step a cancelled
        result cancelled
        error cancelled business/a cancelled by the user
          at a.yaml
        row business/a code cancelled, tries 0, 10 ms
        "#,
    );
}

/// An output that is there is not lost because the run is stopped while it is being kept.
#[test]
fn cancel_while_an_output_is_kept_leaves_the_step_succeeded() {
    check(
        pipeline([code("a").cached(), code("b")]),
        "reach p/a!remember\ncancel",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        done p/a!recall nothing
        start p/a process a
        done p/a output "a"
        start p/a!remember remember "a"
        cancel
        done p/a!remember kept
        tell step a succeeded
        result cancelled
        error cancelled business/? cancelled by the user
        row business/a code succeeded, tries 1, 30 ms
        row business/b code not_started
        "#,
    );
}

#[test]
fn a_timeout_while_an_output_is_kept_comes_too_late() {
    check(
        pipeline([code("a").cached().timeout(30)]),
        "reach p/a!remember\np/a!timeout over",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        start p/a!timeout deadline 30000 ms
        done p/a!recall nothing
        start p/a process a
        done p/a output "a"
        start p/a!remember remember "a"
        done p/a!timeout over
        done p/a!remember kept
        tell step a succeeded
        result succeeded "a"
        row business/a code succeeded, tries 1, 30 ms
        "#,
    );
}

/// X-1: the key depends on definition and input, or on definition and `key`.
#[test]
fn the_cache_key_depends_on_what_the_output_depends_on() {
    let key = |case: super::Case| match play(&case, "").asked("p/a!recall") {
        Effect::Recall { key, .. } => *key,
        other => panic!("{other:?}"),
    };
    let plain = |input: &str| key(pipeline([code("a").cached()]).input(input));
    assert_eq!(plain(r#"{"k":1}"#), plain(r#"{"k":1}"#));
    assert_ne!(plain(r#"{"k":1}"#), plain(r#"{"k":2}"#));
    let keyed = |input: &str| key(pipeline([code("a").cached_by("{{input.k}}")]).input(input));
    assert_eq!(keyed(r#"{"k":1,"t":1}"#), keyed(r#"{"k":1,"t":2}"#));
    assert_ne!(keyed(r#"{"k":1}"#), keyed(r#"{"k":2}"#));
}

/// X-1: an output with collected errors is not kept: a later run tries those elements again.
#[test]
fn an_output_with_collected_errors_is_not_remembered() {
    check(
        pipeline([code("a").for_each("{{input.l}}").collect().cached()]).input(r#"{"l":[1,2]}"#),
        "p/a[1] exit 1",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        done p/a!recall nothing
        tell item a[0] 1 started
        start p/a[0] process a
        done p/a[0] output "a[0]"
        tell item a[0] 1 succeeded, 1 of 2
        tell item a[1] 2 started
        start p/a[1] process a
        done p/a[1] exit 1
        tell item a[1] 2 failed, 2 of 2
        tell step a succeeded
        result succeeded [{"output":"a[0]"},{"error":{"code":"R0101","kind":"step_failed","phase":null,"step":"a","message":"element 1 of 2: code step `a` exited with status 1","exit_status":1,"stderr_tail":"","stderr_lines":1,"duration_ms":10,"details":{"item":1}}}]
        row business/a code succeeded, tries 2, 30 ms, items 1 of 2, 1 failed: [1]
        "#,
    );
}

/// X-1: one without is.
#[test]
fn the_output_of_all_elements_is_remembered() {
    check(
        pipeline([code("a").for_each("{{input.l}}").collect().cached()]).input(r#"{"l":[1,2]}"#),
        "",
        r#"
        tell phase business
        tell step a started
        start p/a!recall recall
        done p/a!recall nothing
        tell item a[0] 1 started
        start p/a[0] process a
        done p/a[0] output "a[0]"
        tell item a[0] 1 succeeded, 1 of 2
        tell item a[1] 2 started
        start p/a[1] process a
        done p/a[1] output "a[1]"
        tell item a[1] 2 succeeded, 2 of 2
        start p/a!remember remember [{"output":"a[0]"},{"output":"a[1]"}]
        done p/a!remember kept
        tell step a succeeded
        result succeeded [{"output":"a[0]"},{"output":"a[1]"}]
        row business/a code succeeded, tries 2, 40 ms, items 2 of 2
        "#,
    );
}
