//! `parallel` groups (X-3) and `for_each` (X-1).

use expect_test::expect;

use super::build::*;
use super::{check, play};
use crate::machine::{ABI, Command, Machine};

/// X-3: the output is `{child: output}` in the order of the plan, whichever child ends first.
#[test]
fn a_groups_output_is_in_plan_order() {
    check(
        pipeline([group("g", [code("a"), code("b")])]),
        "
        p/g/b output 2
        p/g/a output 1
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            done p/g/b output 2
            emit step b succeeded
            done p/g/a output 1
            emit step a succeeded
            emit step g succeeded
            result succeeded {"a":1,"b":2}
            row business/g parallel succeeded, tries 0, 10 ms
            row business/a code succeeded, tries 1, 10 ms
            row business/b code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: `stop`: a failure cancels the siblings; the group waits for their end, and the first failure is the group's.
#[test]
fn a_failure_stops_the_siblings() {
    check(
        pipeline([group("g", [code("a"), code("b"), code("c")]), code("z")]),
        "
        p/g/c output 3
        p/g/b exit 1 boom
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            emit step c started
            start p/g/c process c
            done p/g/c output 3
            emit step c succeeded
            done p/g/b exit 1 boom
            emit step b failed
            abandon p/g/a
            done p/g/a abandoned
            emit step a cancelled
            emit step g failed
            result failed
            error step_failed business/b code step `b` exited with status 1
              at b.yaml
              exit 1
              stderr boom
            row business/g parallel failed, tries 0, 10 ms
            row business/a code cancelled, tries 1, 10 ms
            row business/b code failed, tries 1, 10 ms
            row business/c code succeeded, tries 1, 10 ms
            row business/z code not_started
        "#]],
    );
}

/// A sibling that fails because it was stopped is `cancelled`, and its failure is not the group's.
#[test]
fn a_sibling_that_fails_after_it_was_stopped_is_cancelled() {
    check(
        pipeline([group("g", [code("a"), code("b")])]),
        "
        p/g/b exit 1
        p/g/a exit 143 terminated
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            done p/g/b exit 1
            emit step b failed
            abandon p/g/a
            done p/g/a exit 143 terminated
            emit step a cancelled
            emit step g failed
            result failed
            error step_failed business/b code step `b` exited with status 1
              at b.yaml
              exit 1
            row business/g parallel failed, tries 0, 10 ms
            row business/a code cancelled, tries 1, 10 ms
            row business/b code failed, tries 1, 10 ms
        "#]],
    );
}

/// X-3: `wait`: the siblings run to their end; then the group fails with all failures in the order of the plan, whichever came first.
#[test]
fn wait_lets_the_siblings_end() {
    check(
        pipeline([group("g", [code("a"), code("b"), code("c")]).wait()]),
        "
        p/g/b exit 1 first
        p/g/a exit 2 second
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            emit step c started
            start p/g/c process c
            done p/g/b exit 1 first
            emit step b failed
            done p/g/a exit 2 second
            emit step a failed
            done p/g/c output "c"
            emit step c succeeded
            emit step g failed
            result failed
            error step_failed business/a code step `a` exited with status 2
              at a.yaml
              exit 2
              stderr second
            error step_failed business/b code step `b` exited with status 1
              at b.yaml
              exit 1
              stderr first
            row business/g parallel failed, tries 0, 10 ms
            row business/a code failed, tries 1, 10 ms
            row business/b code failed, tries 1, 10 ms
            row business/c code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-3: a run of an earlier interpreter fails with the failure that came first.
#[test]
fn runs_of_earlier_interpreters_fail_with_what_came_first() {
    let mut case = pipeline([group("g", [code("a"), code("b")]).wait()]);
    let failed = |case: &Case| {
        play(case, "p/g/b exit 1\np/g/a exit 2").machine.result().expect("a result").errors[0].step.clone()
    };
    assert_eq!(failed(&case).as_deref(), Some("a"));
    case.start.abi = 5;
    assert_eq!(failed(&case).as_deref(), Some("b"));
}

/// X-1: `max_parallel` holds for groups; after a failure no further child begins.
#[test]
fn max_parallel_bounds_a_group() {
    check(
        pipeline([group("g", [code("a"), code("b"), code("c")]).max_parallel(2)]),
        "
        p/g/b output 2
        p/g/a exit 1
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            done p/g/b output 2
            emit step b succeeded
            emit step c started
            start p/g/c process c
            done p/g/a exit 1
            emit step a failed
            abandon p/g/c
            done p/g/c abandoned
            emit step c cancelled
            emit step g failed
            result failed
            error step_failed business/a code step `a` exited with status 1
              at a.yaml
              exit 1
            row business/g parallel failed, tries 0, 10 ms
            row business/a code failed, tries 1, 10 ms
            row business/b code succeeded, tries 1, 10 ms
            row business/c code cancelled, tries 1, 0 ms
        "#]],
    );
}

/// A child that fails before it starts anything keeps the others from starting at all.
#[test]
fn a_child_that_cannot_begin_keeps_its_siblings_from_starting() {
    check(
        pipeline([group("g", [code("a").env("X", "{{input.x}}"), code("b"), code("c")])]),
        "",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            emit step a failed
            emit step g failed
            result failed
            error template_unresolved business/a `{{input.x}}` has no value: `input` is an empty object
              at a.yaml
            row business/g parallel failed
            row business/a code failed
            row business/b code not_started
            row business/c code not_started
        "#]],
    );
}

/// X-3: children see the steps before the group, not each other.
#[test]
fn children_do_not_see_each_other() {
    let case = pipeline([code("a"), group("g", [code("b"), code("c")]).max_parallel(1), code("z")]);
    let world = play(&case, "");
    assert_eq!(world.stdin("p/g/c"), r#"{"input":{},"steps":{"a":{"output":"a"}}}"#);
    assert_eq!(world.stdin("p/z"), r#"{"input":{},"steps":{"a":{"output":"a"},"g":{"output":{"b":"b","c":"c"}}}}"#);
}

/// A-2.5: a child of a group may give the pipeline its output.
#[test]
fn a_child_may_be_the_pipelines_output() {
    let world = play(&pipeline([group("g", [code("a"), code("b")]), code("z")]).output("b"), "");
    assert_eq!(format!("{:?}", world.machine.result().unwrap().output), r#"Some("b")"#);
}

/// X-1: the output of a skipped step is `null`, and so are the outputs of its children.
#[test]
fn the_output_of_a_child_of_a_skipped_group_is_null() {
    check(
        pipeline([group("g", [code("a")]).when("{{input.x}}")]).input(r#"{"x":false}"#).output("a"),
        "",
        expect![[r#"
            emit phase business
            emit step g skipped
            result succeeded null
            row business/g parallel skipped
            row business/a code skipped
        "#]],
    );
}

/// X-1: a skipped child is `null` in the group's output.
#[test]
fn a_skipped_child_is_null() {
    check(
        pipeline([group("g", [code("a").when("{{input.x}}"), code("b")])]).input(r#"{"x":0}"#),
        "",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a skipped
            emit step b started
            start p/g/b process b
            done p/g/b output "b"
            emit step b succeeded
            emit step g succeeded
            result succeeded {"a":null,"b":"b"}
            row business/g parallel succeeded, tries 0, 10 ms
            row business/a code skipped
            row business/b code succeeded, tries 1, 10 ms
        "#]],
    );
}

#[test]
fn cancel_stops_all_children_and_waits_for_them() {
    check(
        pipeline([group("g", [code("a"), llm("b", "Hi"), approval("c", "Ok?")])]).after([code("close")]),
        "
        reach p/g/c
        cancel
        p/g/b answer late
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b model standard: Hi
            emit step c started
            start p/g/c gate Ok?
            cancel
            abandon p/g/a
            abandon p/g/b
            abandon p/g/c
            emit step c cancelled
            done p/g/b answer late
            emit step b cancelled
            done p/g/a abandoned
            emit step a cancelled
            emit step g cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/g cancelled by the user
              at g.yaml
            row business/g parallel cancelled, tries 0, 10 ms
            row business/a code cancelled, tries 1, 10 ms
            row business/b llm cancelled, tries 1, 10 ms, calls 1 tokens 3+2
            row business/c approval cancelled
            row destructor/close code succeeded, tries 1, 10 ms
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// X-1: the timeout of a group is the group's failure; its children were stopped.
#[test]
fn the_timeout_of_a_group_stops_its_children() {
    check(
        pipeline([group("g", [code("a"), code("b")]).timeout(9)]),
        "
        p/g/a output 1
        p/g!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            start p/g!timeout deadline 9000 ms
            done p/g/a output 1
            emit step a succeeded
            done p/g!timeout over
            abandon p/g/b
            done p/g/b abandoned
            emit step b cancelled
            emit step g failed
            result failed
            error step_timeout business/g parallel step `g` exceeded its timeout of 9 s
              at g.yaml
            row business/g parallel failed, tries 0, 10 ms
            row business/a code succeeded, tries 1, 10 ms
            row business/b code cancelled, tries 1, 10 ms
        "#]],
    );
}

/// X-1: the timeout of a child is the child's failure, and stops its siblings.
#[test]
fn the_timeout_of_a_child_fails_the_group() {
    check(
        pipeline([group("g", [code("a").timeout(1), code("b")])]),
        "
        reach p/g/b
        p/g/a!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            start p/g/a!timeout deadline 1000 ms
            emit step b started
            start p/g/b process b
            done p/g/a!timeout over
            abandon p/g/a
            done p/g/a abandoned
            emit step a failed
            abandon p/g/b
            done p/g/b abandoned
            emit step b cancelled
            emit step g failed
            result failed
            error step_timeout business/a code step `a` exceeded its timeout of 1 s
              at a.yaml
            row business/g parallel failed, tries 0, 10 ms
            row business/a code failed, tries 1, 10 ms
            row business/b code cancelled, tries 1, 10 ms
        "#]],
    );
}

/// X-1: one element after the other by default; the output is the array of outputs.
#[test]
fn for_each_runs_once_per_element() {
    check(
        pipeline([code("a").for_each("{{input.l}}")]).input(r#"{"l":[1,"two"]}"#),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            start p/a[0] process a
            done p/a[0] output "a[0]"
            emit item a[0] 1 succeeded, 1 of 2
            emit item a[1] two started
            start p/a[1] process a
            done p/a[1] output "a[1]"
            emit item a[1] two succeeded, 2 of 2
            emit step a succeeded
            result succeeded ["a[0]","a[1]"]
            row business/a code succeeded, tries 2, 20 ms, items 2 of 2
        "#]],
    );
}

/// X-1: outputs are in input order, whichever element ends first; `max_parallel` bounds the number at once. The time of
/// the step is wall time: three elements, two at a time, take as long as two.
#[test]
fn for_each_output_is_in_input_order() {
    check(
        pipeline([code("a").for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2,3]}"#),
        "
        p/a[1] output 20
        p/a[2] output 30
        p/a[0] output 10
        ",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            emit item a[1] 2 started
            start p/a[0] process a
            start p/a[1] process a
            done p/a[1] output 20
            emit item a[1] 2 succeeded, 1 of 3
            emit item a[2] 3 started
            start p/a[2] process a
            done p/a[2] output 30
            emit item a[2] 3 succeeded, 2 of 3
            done p/a[0] output 10
            emit item a[0] 1 succeeded, 3 of 3
            emit step a succeeded
            result succeeded [10,20,30]
            row business/a code succeeded, tries 3, 20 ms, items 3 of 3
        "#]],
    );
}

/// X-1: `stop` cancels the rest and fails; the message and `details` name the element.
#[test]
fn a_failing_element_stops_the_rest() {
    check(
        pipeline([code("a").for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2,3]}"#),
        "
        reach p/a[1]
        p/a[1] exit 1 boom
        ",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            emit item a[1] 2 started
            start p/a[0] process a
            start p/a[1] process a
            done p/a[1] exit 1 boom
            abandon p/a[0]
            emit item a[1] 2 failed, 1 of 3
            done p/a[0] abandoned
            emit item a[0] 1 cancelled, 2 of 3
            emit step a failed
            result failed
            error step_failed business/a element 1 of 3: code step `a` exited with status 1
              at a.yaml
              exit 1
              stderr boom
              item 1
            row business/a code failed, tries 2, 10 ms, items 0 of 3, 1 failed: [1]
        "#]],
    );
}

/// X-1: `collect` continues and yields `{"output"}` or `{"error"}` per element.
#[test]
fn collect_keeps_going() {
    check(
        pipeline([code("a").for_each("{{input.l}}").collect()]).input(r#"{"l":[1,2,3]}"#),
        "
        p/a[1] exit 1 boom
        ",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            start p/a[0] process a
            done p/a[0] output "a[0]"
            emit item a[0] 1 succeeded, 1 of 3
            emit item a[1] 2 started
            start p/a[1] process a
            done p/a[1] exit 1 boom
            emit item a[1] 2 failed, 2 of 3
            emit item a[2] 3 started
            start p/a[2] process a
            done p/a[2] output "a[2]"
            emit item a[2] 3 succeeded, 3 of 3
            emit step a succeeded
            result succeeded [{"output":"a[0]"},{"error":{"code":"R0101","kind":"step_failed","phase":null,"step":"a","message":"element 1 of 3: code step `a` exited with status 1","exit_status":1,"stderr_tail":"boom","stderr_lines":1,"duration_ms":10,"details":{"item":1}}},{"output":"a[2]"}]
            row business/a code succeeded, tries 3, 30 ms, items 2 of 3, 1 failed: [1]
        "#]],
    );
}

/// A-4.9: a used-up budget ends the run; it is not one more collected error.
#[test]
fn collect_does_not_swallow_a_used_up_budget() {
    check(
        pipeline([llm("x", "{{item}}").for_each("{{input.l}}").collect().max_parallel(2)])
            .input(r#"{"l":[1,2,3,4]}"#)
            .max_tokens(10),
        "
        p/x[0] refuses no
        p/x[1] spends 9 1 0 hello
        ",
        expect![[r#"
            emit phase business
            emit step x started
            emit item x[0] 1 started
            emit item x[1] 2 started
            start p/x[0] model standard: 1
            start p/x[1] model standard: 2
            done p/x[0] refuses no
            emit item x[0] 1 failed, 1 of 4
            emit item x[2] 3 started
            start p/x[2] model standard: 3
            done p/x[1] spends 9 1 0 hello
            abandon p/x[2]
            emit item x[1] 2 failed, 2 of 4
            done p/x[2] abandoned
            emit item x[2] 3 cancelled, 3 of 4
            emit step x failed
            result failed
            error budget_exceeded business/x element 1 of 4: the run has used 15 tokens; its budget is 10
              at x.yaml
              item 1
            row business/x llm failed, tries 2, 10 ms, items 0 of 4, 2 failed: [0, 1], calls 2 tokens 12+3 $0
            usage calls 2 tokens 12+3 $0
        "#]],
    );
}

/// A missing key would fail every element alike: it ends the run, so that a list of errors is not taken for a result.
#[test]
fn collect_does_not_swallow_a_missing_key() {
    check(
        pipeline([llm("x", "{{item}}").for_each("{{input.l}}").collect()]).input(r#"{"l":[1,2]}"#),
        "
        p/x[0] no_key set THE_KEY
        ",
        expect![[r#"
            emit phase business
            emit step x started
            emit item x[0] 1 started
            start p/x[0] model standard: 1
            done p/x[0] no_key set THE_KEY
            emit item x[0] 1 failed, 1 of 2
            emit step x failed
            result failed
            error environment business/x element 0 of 2: llm step `x` got no response: set THE_KEY
              at x.yaml
              item 0
            row business/x llm failed, tries 0, 10 ms, items 0 of 2, 1 failed: [0]
        "#]],
    );
}

/// A-4.9: a group that waits for its children does not continue without a budget.
#[test]
fn wait_does_not_outlast_a_used_up_budget() {
    check(
        pipeline([group("g", [code("a"), llm("x", "Hi"), code("b")]).wait()]).max_tokens(10),
        "
        p/g/a exit 1
        p/g/x spends 9 2 0 hello
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step x started
            start p/g/x model standard: Hi
            emit step b started
            start p/g/b process b
            done p/g/a exit 1
            emit step a failed
            done p/g/x spends 9 2 0 hello
            emit step x failed
            abandon p/g/b
            done p/g/b abandoned
            emit step b cancelled
            emit step g failed
            result failed
            error budget_exceeded business/x the run has used 11 tokens; its budget is 10
              at x.yaml
            row business/g parallel failed, tries 0, 10 ms
            row business/a code failed, tries 1, 10 ms
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 9+2 $0
            row business/b code cancelled, tries 1, 10 ms
            usage calls 1 tokens 9+2 $0
        "#]],
    );
}

/// X-1: 20,000 elements run a few at a time: the number of elements does not affect how many effects
/// are requested at once, how many are outstanding, and how much is reported per element.
#[test]
fn twenty_thousand_elements_stay_bounded() {
    const COUNT: usize = 20_000;
    let list: Vec<usize> = (0..COUNT).collect();
    let input = serde_json::json!({ "l": list }).to_string();
    let step = code("a").for_each("{{input.l}}").max_items(COUNT).max_parallel(8).collect();
    let case = pipeline([step]).input(&input);
    let mut machine = Machine::new(&case.plan, case.start.clone());
    let mut running = std::collections::VecDeque::new();
    let mut reported = 0;
    let mut ended = 0;
    loop {
        let commands = machine.poll();
        assert!(commands.len() <= 32, "{} commands at once", commands.len());
        for command in commands {
            match command {
                Command::Start(id, _) => running.push_back(id),
                Command::Emit(_) => reported += 1,
                Command::Abandon(id) => panic!("{id} is given up"),
            }
        }
        assert!(running.len() <= 8);
        let Some(id) = running.pop_front() else { break };
        let outcome = if ended % 1000 == 7 { "exit 1" } else { "output 1" };
        machine.complete(&id, super::script::outcome(outcome));
        ended += 1;
    }
    let result = machine.result().expect("a result");
    let items = result.steps[0].items.as_ref().expect("a fan-out");
    assert_eq!((items.total, items.succeeded, items.failed.len()), (COUNT, COUNT - 20, 20));
    assert_eq!(items.failed[..2], [7, 1007]);
    assert_eq!(reported, 2 * COUNT + 3);
}

/// X-1: an empty array gives an empty array, and nothing runs.
#[test]
fn an_empty_array_runs_nothing() {
    check(
        pipeline([code("a").for_each("{{input.l}}")]).input(r#"{"l":[ ]}"#),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            emit step a succeeded
            result succeeded []
            row business/a code succeeded, items 0 of 0
        "#]],
    );
}

/// X-1: a longer array is an error before anything runs.
#[test]
fn an_array_over_max_items_fails_before_anything_runs() {
    check(
        pipeline([code("a").for_each("{{input.l}}").max_items(2)]).input(r#"{"l":[1,2,3]}"#),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            emit step a failed
            result failed
            error step_failed business/a `for_each` of step `a` got 3 elements; `max_items` is 2
              at a.yaml
            row business/a code failed
        "#]],
    );
}

#[test]
fn for_each_over_something_else_fails_and_shows_it() {
    check(
        pipeline([code("a").for_each("{{input.l}}")]).input(r#"{"l":{"k":1}}"#),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            emit step a failed
            result failed
            error template_unresolved business/a `for_each` of step `a` needs an array, found: {"k":1}
              at a.yaml
            row business/a code failed
        "#]],
    );
}

#[test]
fn for_each_over_nothing_fails_and_names_it() {
    check(
        pipeline([code("a").for_each("{{input.l}}")]),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            emit step a failed
            result failed
            error template_unresolved business/a `{{input.l}}` has no value: `input` is an empty object
              at a.yaml
            row business/a code failed
        "#]],
    );
}

/// X-1: `{{item}}`, `{{item.field}}`, `{{index}}` exist inside, and stdin has `item` and `index`.
#[test]
fn item_and_index_exist_inside() {
    let case = pipeline([
        code("a").env("K", "{{index}}:{{item.k}}").for_each("{{input.l}}"),
        llm("x", "{{index}} {{item}}").for_each("{{input.l}}"),
    ])
    .input(r#"{"l":[{"k":1.50},{"k":"v"}]}"#);
    let world = play(&case, "");
    assert_eq!(
        world.stdin("p/a[0]"),
        r#"{"input":{"l":[{"k":1.50},{"k":"v"}]},"steps":{},"item":{"k":1.50},"index":0}"#
    );
    for line in [
        "start p/a[0] process a K=0:1.50",
        "start p/a[1] process a K=1:v",
        r#"start p/x[0] model standard: 0 {"k":1.50}"#,
        r#"start p/x[1] model standard: 1 {"k":"v"}"#,
    ] {
        assert!(world.log.lines().any(|l| l == line), "{line} is not in:\n{}", world.log);
    }
}

/// An element whose template has no value fails like any other element.
#[test]
fn an_element_without_the_field_fails_that_element() {
    check(
        pipeline([llm("x", "{{item.k}}").for_each("{{input.l}}").collect()]).input(r#"{"l":[{"k":1},{}]}"#),
        "",
        expect![[r#"
            emit phase business
            emit step x started
            emit item x[0] started
            start p/x[0] model standard: 1
            done p/x[0] answer x[0]
            emit item x[0] succeeded, 1 of 2
            emit item x[1] started
            emit item x[1] failed, 2 of 2
            emit step x succeeded
            result succeeded [{"output":"x[0]"},{"error":{"code":"R0104","kind":"template_unresolved","phase":null,"step":"x","message":"element 1 of 2: `{{item.k}}` has no value: `item` is an empty object","details":{"item":1}}}]
            row business/x llm succeeded, tries 1, 10 ms, items 1 of 2, 1 failed: [1], calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// X-3: a group runs once per element, and its children see the element. Children share a row, which keeps the worst state.
#[test]
fn a_group_per_element() {
    check(
        pipeline([group("g", [code("a").env("I", "{{item}}"), code("b")]).for_each("{{input.l}}").collect()])
            .input(r#"{"l":[1,2]}"#),
        "
        p/g[0]/a exit 1
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit item g[0] 1 started
            emit step a[0] 1 started
            start p/g[0]/a process a I=1
            emit step b[0] 1 started
            start p/g[0]/b process b
            done p/g[0]/a exit 1
            emit step a[0] 1 failed
            abandon p/g[0]/b
            done p/g[0]/b abandoned
            emit step b[0] 1 cancelled
            emit item g[0] 1 failed, 1 of 2
            emit item g[1] 2 started
            emit step a[1] 2 started
            start p/g[1]/a process a I=2
            emit step b[1] 2 started
            start p/g[1]/b process b
            done p/g[1]/a output "a"
            emit step a[1] 2 succeeded
            done p/g[1]/b output "b"
            emit step b[1] 2 succeeded
            emit item g[1] 2 succeeded, 2 of 2
            emit step g succeeded
            result succeeded [{"error":{"code":"R0101","kind":"step_failed","phase":null,"step":"a","message":"element 0 of 2: code step `a` exited with status 1","file":"a.yaml","line":1,"column":1,"exit_status":1,"stderr_tail":"","stderr_lines":1,"duration_ms":10,"details":{"item":0}}},{"output":{"a":"a","b":"b"}}]
            row business/g parallel succeeded, tries 0, 20 ms, items 1 of 2, 1 failed: [0]
            row business/a code failed, tries 2, 20 ms
            row business/b code cancelled, tries 2, 20 ms
        "#]],
    );
}

/// X-1: `for_each` works inside a group.
#[test]
fn for_each_inside_a_group() {
    check(
        pipeline([group("g", [code("a").for_each("{{input.l}}").max_parallel(2), code("b")])]).input(r#"{"l":[1,2]}"#),
        "
        reach p/g/b
        p/g/b exit 1
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            emit item a[0] 1 started
            emit item a[1] 2 started
            start p/g/a[0] process a
            start p/g/a[1] process a
            emit step b started
            start p/g/b process b
            done p/g/b exit 1
            emit step b failed
            abandon p/g/a[0]
            abandon p/g/a[1]
            done p/g/a[0] abandoned
            emit item a[0] 1 cancelled, 1 of 2
            done p/g/a[1] abandoned
            emit item a[1] 2 cancelled, 2 of 2
            emit step a cancelled
            emit step g failed
            result failed
            error step_failed business/b code step `b` exited with status 1
              at b.yaml
              exit 1
            row business/g parallel failed, tries 0, 10 ms
            row business/a code cancelled, tries 2, 10 ms, items 0 of 2
            row business/b code failed, tries 1, 10 ms
        "#]],
    );
}

/// X-1: the timeout covers all elements.
#[test]
fn the_timeout_covers_all_elements() {
    check(
        pipeline([code("a").for_each("{{input.l}}").timeout(3)]).input(r#"{"l":[1,2,3]}"#),
        "
        reach p/a[1]
        p/a!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            start p/a[0] process a
            start p/a!timeout deadline 3000 ms
            done p/a[0] output "a[0]"
            emit item a[0] 1 succeeded, 1 of 3
            emit item a[1] 2 started
            start p/a[1] process a
            done p/a!timeout over
            abandon p/a[1]
            done p/a[1] abandoned
            emit item a[1] 2 cancelled, 2 of 3
            emit step a failed
            result failed
            error step_timeout business/a code step `a` exceeded its timeout of 3 s
              at a.yaml
            row business/a code failed, tries 2, 10 ms, items 1 of 3
        "#]],
    );
}

/// Retries work inside: an element's pause is abandoned when a sibling fails.
#[test]
fn a_failing_element_ends_the_pause_of_another() {
    check(
        pipeline([code("a").retry(1).for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2]}"#),
        "
        p/a[0] exit 1
        p/a[1] not_started no such file
        ",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            emit item a[1] 2 started
            start p/a[0] process a
            start p/a[1] process a
            done p/a[0] exit 1
            emit step a[0] 1 try 1 of 2 rejected by transport: code step `a` exited with status 1
            start p/a[0]!backoff1 sleep 100 ms
            done p/a[1] not_started no such file
            emit item a[1] 2 failed, 1 of 2
            abandon p/a[0]!backoff1
            emit item a[0] 1 cancelled, 2 of 2
            emit step a failed
            result failed
            error step_failed business/a element 1 of 2: code step `a` could not be started: no such file
              at a.yaml
              try rejected by transport (10 ms, 0 tokens): code step `a` could not be started: no such file
              item 1
            row business/a code failed, tries 2, 10 ms, items 0 of 2, 1 failed: [1]
        "#]],
    );
}

/// Of two failures the one that came first is reported, even if both arrived before the machine was polled.
#[test]
fn the_failure_that_came_first_is_the_groups() {
    check(
        pipeline([group("g", [code("a"), code("b")])]),
        "
        reach p/g/b
        pause
        p/g/b exit 2
        p/g/a exit 1
        go_on
        ",
        expect![[r#"
            emit phase business
            emit step g started
            emit step a started
            start p/g/a process a
            emit step b started
            start p/g/b process b
            done p/g/b exit 2
            done p/g/a exit 1
            emit step b failed
            abandon p/g/a
            emit step a cancelled
            emit step g failed
            result failed
            error step_failed business/b code step `b` exited with status 2
              at b.yaml
              exit 2
            row business/g parallel failed, tries 0, 10 ms
            row business/a code cancelled, tries 1, 10 ms
            row business/b code failed, tries 1, 10 ms
        "#]],
    );
}

/// An outcome of a damaged journal is not collected as an element's result.
#[test]
fn collect_does_not_swallow_a_defect() {
    check(
        pipeline([code("a").for_each("{{input.l}}").collect()]).input(r#"{"l":[1,2]}"#),
        "p/a[0] kept",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            start p/a[0] process a
            done p/a[0] kept
            emit item a[0] 1 failed, 1 of 2
            emit step a failed
            result failed
            error internal business/a element 0 of 2: internal error: the outcome of `p/a[0]` does not match its effect
              at a.yaml
              item 0
            row business/a code failed, tries 1, 10 ms, items 0 of 2, 1 failed: [0]
        "#]],
    );
}

/// A-2.5: with `for_each` a group has a list of outputs, so its child has no single output.
#[test]
fn a_child_of_a_group_per_element_gives_no_output() {
    check(
        pipeline([group("g", [code("a")]).for_each("{{input.l}}")]).input(r#"{"l":[1]}"#).output("a"),
        "",
        expect![[r#"
            emit phase business
            emit step g started
            emit item g[0] 1 started
            emit step a[0] 1 started
            start p/g[0]/a process a
            done p/g[0]/a output "a"
            emit step a[0] 1 succeeded
            emit item g[0] 1 succeeded, 1 of 1
            emit step g succeeded
            result failed
            error template_unresolved business/? `{{g.output.a}}` has no value: `g.output` is an array, which has no member `a`
            row business/g parallel succeeded, tries 0, 10 ms, items 1 of 1
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-1: the index of a failed element is in `details.item`, also if the failure has facts of its own, and also for each
/// failed child of a group. In runs of earlier versions it replaced these facts.
#[test]
fn the_index_of_an_element_is_beside_its_own_facts() {
    let errors = |case: super::Case, abi: u32, script: &str| -> Vec<serde_json::Value> {
        let mut case = case.input(r#"{"l":[1,2]}"#);
        case.start.abi = abi;
        let world = play(&case, script);
        world.machine.result().expect("a result").errors.iter().map(crate::report::error_json).collect()
    };
    let sub = || call("s", sequence("sub", [code("u").require("{{input.n}}")]));
    let guarded = || pipeline([sub().with("n", "{{item}}").for_each("{{input.l}}")]).input(r#"{"l":[0]}"#);
    let deviates = |abi| {
        let mut case = guarded();
        case.start.abi = abi;
        let world = play(&case, "");
        crate::report::error_json(&world.machine.result().expect("a result").errors[0])
    };
    let (now, before) = (deviates(ABI), deviates(12));
    assert_eq!((&now["reason"], &now["details"]["item"]), (&"require".into(), &0.into()), "{now}");
    assert_eq!((&before["reason"], &before["details"]), (&"require".into(), &serde_json::Value::Null), "{before}");
    let children = || pipeline([group("g", [code("a"), code("b")]).wait().for_each("{{input.l}}")]);
    let script = "p/g[0]/a exit 1\np/g[0]/b exit 2";
    let items = |errors: &[serde_json::Value]| -> Vec<serde_json::Value> {
        errors.iter().map(|error| error["details"]["item"].clone()).collect()
    };
    let now = errors(children(), ABI, script);
    assert_eq!(items(&now), [0, 0], "{now:?}");
    assert!(now.iter().all(|error| error["message"].as_str().is_some_and(|why| why.starts_with("element 0 of 2: "))));
    assert_eq!(items(&errors(children(), 12, script)), [serde_json::json!(0), serde_json::Value::Null]);
}
