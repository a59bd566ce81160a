//! Questions to people (X-3).

use expect_test::expect;

use super::build::*;
use super::check;
use crate::plan::OnTimeout::{Approve, Deny};

/// X-3: the run waits outside any process: exit 5.
#[test]
fn a_run_waits_for_its_approval() {
    check(
        pipeline([code("a"), approval("ok", "Ship {{a.output}}?"), code("b")]),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit step ok started
            start p/ok gate Ship a?
            waiting for p/ok
        "#]],
    );
}

/// X-3: the output is `{"approved", "answer", "by", "at"}`.
#[test]
fn an_approval_gives_the_answer() {
    check(
        pipeline([approval("ok", "Ship?")]),
        r#"p/ok approved {"n": 1.0}"#,
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            done p/ok approved {"n": 1.0}
            emit step ok succeeded
            result succeeded {"approved":true,"answer":{"n": 1.0},"by":"ada","at":"2026-01-01T00:00:00Z"}
            row business/ok approval succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: denied fails the step.
#[test]
fn a_denial_fails_the_step() {
    check(
        pipeline([approval("ok", "Ship?"), code("b")]).after([code("close")]),
        "p/ok denied too early",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            done p/ok denied too early
            emit step ok failed
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result failed
            error approval_denied business/ok denied by ada: too early
              at ok.yaml
            row business/ok approval failed, tries 1, 10 ms
            row business/b code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: unless `on_deny: continue`.
#[test]
fn a_denial_is_a_result_where_the_step_says_so() {
    check(
        pipeline([approval("ok", "Ship?").continue_on_deny()]),
        "p/ok denied",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            done p/ok denied
            emit step ok succeeded
            result succeeded {"approved":false,"answer":null,"by":"ada","at":"2026-01-01T00:00:00Z"}
            row business/ok approval succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: `on_timeout: fail`.
#[test]
fn no_answer_arrives_and_the_step_fails() {
    check(
        pipeline([approval("ok", "Ship?").timeout(3600)]),
        "p/ok!timeout over",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 3600000 ms
            done p/ok!timeout over
            abandon p/ok
            emit step ok failed
            result failed
            error step_timeout business/ok approval step `ok` exceeded its timeout of 1 h 0 min
              at ok.yaml
            row business/ok approval failed, tries 0, 10 ms
        "#]],
    );
}

/// X-3: `on_timeout: deny`.
#[test]
fn no_answer_arrives_and_it_counts_as_denied() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Deny)]),
        "p/ok!timeout over",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            done p/ok!timeout over
            abandon p/ok
            emit step ok failed
            result failed
            error approval_denied business/ok denied by timeout: no one answered in time
              at ok.yaml
            row business/ok approval failed, tries 0, 10 ms
        "#]],
    );
}

#[test]
fn no_answer_arrives_and_the_denial_is_a_result() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Deny).continue_on_deny()]),
        "p/ok!timeout over",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            done p/ok!timeout over
            abandon p/ok
            emit step ok succeeded
            result succeeded {"approved":false,"answer":null,"by":"timeout","at":null}
            row business/ok approval succeeded, tries 0, 10 ms
        "#]],
    );
}

/// X-3: `on_timeout: approve`.
#[test]
fn no_answer_arrives_and_it_counts_as_approved() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Approve)]),
        "p/ok!timeout over",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            done p/ok!timeout over
            abandon p/ok
            emit step ok succeeded
            result succeeded {"approved":true,"answer":null,"by":"timeout","at":null}
            row business/ok approval succeeded, tries 0, 10 ms
        "#]],
    );
}

/// An answer in time abandons the timer.
#[test]
fn an_answer_in_time_gives_the_timer_up() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Approve)]),
        "p/ok denied no",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            done p/ok denied no
            abandon p/ok!timeout
            emit step ok failed
            result failed
            error approval_denied business/ok denied by ada: no
              at ok.yaml
            row business/ok approval failed, tries 1, 10 ms
        "#]],
    );
}

/// A cancellation is not a timeout: `on_timeout: approve` does not approve.
#[test]
fn cancel_while_waiting_approves_nothing() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Approve), code("b")]).after([code("close")]),
        "
        reach p/ok
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            cancel
            abandon p/ok
            abandon p/ok!timeout
            emit step ok cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/ok cancelled by the user
              at ok.yaml
            row business/ok approval cancelled
            row business/b code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// The time budget of the run is not a timeout of the step either.
#[test]
fn the_time_budget_approves_nothing() {
    check(
        pipeline([approval("ok", "Ship?").timeout(60).on_timeout(Approve), code("b")]).run_timeout(5),
        "
        reach p/ok
        p!timeout over
        ",
        expect![[r#"
            start p!timeout deadline 5000 ms
            emit phase business
            emit step ok started
            start p/ok gate Ship?
            start p/ok!timeout deadline 60000 ms
            done p!timeout over
            abandon p/ok
            abandon p/ok!timeout
            emit step ok cancelled
            result failed
            error budget_exceeded business/ok the run was stopped after its time budget of 5 s
              at ok.yaml
            row business/ok approval cancelled, tries 0, 10 ms
            row business/b code not_started
        "#]],
    );
}

/// The timeout of the group around an approval does not approve it.
#[test]
fn the_timeout_of_a_group_approves_nothing() {
    check(
        pipeline([group("g", [approval("ok", "Ship?").on_timeout(Approve)]).timeout(5)]),
        "
        reach p/g/ok
        p/g!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step ok started
            start p/g/ok gate Ship?
            start p/g!timeout deadline 5000 ms
            done p/g!timeout over
            abandon p/g/ok
            emit step ok cancelled
            emit step g failed
            result failed
            error step_timeout business/g parallel step `g` exceeded its timeout of 5 s
              at g.yaml
            row business/g parallel failed, tries 0, 10 ms
            row business/ok approval cancelled, tries 0, 10 ms
        "#]],
    );
}

/// The timeout of the step that calls the pipeline does not approve it.
#[test]
fn the_timeout_of_a_calling_step_approves_nothing() {
    check(
        pipeline([call("s", sequence("sub", [approval("ok", "Ship?").on_timeout(Approve)])).timeout(5)]),
        "
        reach p/s/ok
        p/s!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step s started
            start p/s/ok gate Ship?
            start p/s!timeout deadline 5000 ms
            done p/s!timeout over
            abandon p/s/ok
            emit step s failed
            result failed
            error step_timeout business/s pipeline step `s` exceeded its timeout of 5 s
              at s.yaml
            row business/s pipeline failed, tries 0, 10 ms
        "#]],
    );
}

/// X-3: approvals work inside `for_each`; those without an answer in time resolve as `on_timeout` says.
#[test]
fn unanswered_elements_come_to_what_on_timeout_says() {
    check(
        pipeline([approval("ok", "Ship {{item}}?")
            .timeout(60)
            .on_timeout(Approve)
            .for_each("{{input.l}}")
            .max_parallel(2)])
        .input(r#"{"l":[1,2,3,4]}"#),
        "
        p/ok[1] approved
        p/ok!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step ok started
            emit item ok[0] 1 started
            emit item ok[1] 2 started
            start p/ok[0] gate Ship 1?
            start p/ok[1] gate Ship 2?
            start p/ok!timeout deadline 60000 ms
            done p/ok[1] approved
            emit item ok[1] 2 succeeded, 1 of 4
            emit item ok[2] 3 started
            start p/ok[2] gate Ship 3?
            done p/ok!timeout over
            abandon p/ok[0]
            abandon p/ok[2]
            emit item ok[0] 1 succeeded, 2 of 4
            emit item ok[2] 3 succeeded, 3 of 4
            emit item ok[3] 4 started
            emit item ok[3] 4 succeeded, 4 of 4
            emit step ok succeeded
            result succeeded [{"approved":true,"answer":null,"by":"timeout","at":null},{"approved":true,"answer":null,"by":"ada","at":"2026-01-01T00:00:00Z"},{"approved":true,"answer":null,"by":"timeout","at":null},{"approved":true,"answer":null,"by":"timeout","at":null}]
            row business/ok approval succeeded, tries 1, 10 ms, items 4 of 4
        "#]],
    );
}

/// X-1: with `on_timeout: fail`, the timeout of a `for_each` is the step's failure.
#[test]
fn unanswered_elements_fail_the_step() {
    check(
        pipeline([approval("ok", "Ship {{item}}?").timeout(60).for_each("{{input.l}}").collect()])
            .input(r#"{"l":[1,2]}"#),
        "
        p/ok[0] approved
        p/ok!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step ok started
            emit item ok[0] 1 started
            start p/ok[0] gate Ship 1?
            start p/ok!timeout deadline 60000 ms
            done p/ok[0] approved
            emit item ok[0] 1 succeeded, 1 of 2
            emit item ok[1] 2 started
            start p/ok[1] gate Ship 2?
            done p/ok!timeout over
            abandon p/ok[1]
            emit item ok[1] 2 cancelled, 2 of 2
            emit step ok failed
            result failed
            error step_timeout business/ok approval step `ok` exceeded its timeout of 1 min
              at ok.yaml
            row business/ok approval failed, tries 1, 10 ms, items 1 of 2
        "#]],
    );
}

/// X-3: approvals work inside a group; the work of other children continues meanwhile.
#[test]
fn a_group_goes_on_while_it_waits_for_an_approval() {
    check(
        pipeline([group("g", [approval("ok", "Ship?"), code("a").retry(1)]), code("b")]),
        "
        p/g/a exit 1
        reach p/g/a#2
        p/g/a#2 output 1
        p/g/ok approved
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step ok started
            start p/g/ok gate Ship?
            emit step a started
            start p/g/a process a
            done p/g/a exit 1
            emit step a try 1 of 2 rejected by transport: code step `a` exited with status 1
            start p/g/a!backoff1 sleep 100 ms
            done p/g/a!backoff1 over
            start p/g/a#2 process a
            done p/g/a#2 output 1
            emit step a succeeded
            done p/g/ok approved
            emit step ok succeeded
            emit step g succeeded
            emit step b started
            start p/b process b
            done p/b output "b"
            emit step b succeeded
            result succeeded "b"
            row business/g parallel succeeded, tries 0, 30 ms
            row business/ok approval succeeded, tries 1, 30 ms
            row business/a code succeeded, tries 2, 30 ms, retries 1
            row business/b code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// Two answers that arrived together count in the order of their arrival.
#[test]
fn the_first_of_two_answers_counts_first() {
    check(
        pipeline([group("g", [approval("a", "A?"), approval("b", "B?")])]),
        "
        reach p/g/b
        pause
        p/g/b denied no
        p/g/a approved
        go_on
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a gate A?
            emit step b started
            start p/g/b gate B?
            done p/g/b denied no
            done p/g/a approved
            emit step b failed
            abandon p/g/a
            emit step a cancelled
            emit step g failed
            result failed
            error approval_denied business/b denied by ada: no
              at b.yaml
            row business/g parallel failed, tries 0, 10 ms
            row business/a approval cancelled, tries 0, 10 ms
            row business/b approval failed, tries 1, 10 ms
        "#]],
    );
}
