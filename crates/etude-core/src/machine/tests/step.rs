//! The common frame of all steps (X-1): `when`, `timeout`, `cache`.

use expect_test::expect;

use super::build::*;
use super::{check, play, starts_after};
use crate::digest::Digest;
use crate::effect::Effect;
use crate::machine::ABI;
use crate::report::StepStatus;

/// X-1: a step whose `when` holds runs.
#[test]
fn a_step_whose_condition_holds_runs() {
    starts_after(r#"{"ok": true}"#, code("b").when("{{a.output.ok}}"), "b");
}

/// X-1: a step whose `when` is false has status `skipped` and output `null`, and nothing runs.
#[test]
fn a_step_whose_condition_does_not_hold_is_skipped() {
    check(
        pipeline([code("a"), code("b").when("{{a.output.ok}}").timeout(5).cached(), code("c")]),
        r#"p/a output {"ok": ""}"#,
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output {"ok": ""}
            emit step a succeeded
            emit step b skipped
            emit step c started
            start p/c process c
            done p/c output "c"
            emit step c succeeded
            result succeeded "c"
            row business/a code succeeded, tries 1, 10 ms
            row business/b code skipped
            row business/c code succeeded, tries 1, 10 ms
        "#]],
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
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output {"id": 1}
            emit step a succeeded
            emit step b failed
            result failed
            error template_unresolved business/b `{{a.output.ok}}` has no value: `a.output` has no member `ok`; it has `id`
              at b.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/b code failed
        "#]],
    );
}

/// L-46: a `require` that holds changes nothing.
#[test]
fn a_step_whose_requirement_is_met_runs() {
    starts_after(r#"{"ok": true}"#, code("b").require("{{a.output.ok}}"), "b");
}

/// L-46, L-50: a `require` that does not hold, or has no value, is a failure of kind `deviated`; the step starts nothing.
#[test]
fn a_step_whose_requirement_is_not_met_deviates() {
    for output in [r#"{"ok": false, "list": [1]}"#, r#"{"list": [1]}"#] {
        let b = code("b").for_each("{{a.output.list}}").require("{{a.output.ok}}").timeout(5).cached();
        let world = play(&pipeline([code("a"), b, code("c")]), &format!("p/a output {output}"));
        assert!(!world.log.contains("start p/b"), "{}", world.log);
        let result = world.machine.result().expect("a result");
        assert_eq!(
            result.steps.iter().map(|row| row.status.word()).collect::<Vec<_>>(),
            ["succeeded", "failed", "not_started"]
        );
        let error = crate::report::error_json(&result.errors[0]);
        assert_eq!(
            (&error["kind"], &error["step"], &error["reason"]),
            (&"deviated".into(), &"b".into(), &"require".into())
        );
        assert_eq!(error["condition"], "{{a.output.ok}}");
    }
}

/// L-46: `require` is evaluated after `when`: a skipped step does not deviate.
#[test]
fn a_skipped_step_does_not_deviate() {
    let b = code("b").when("{{a.output.ok}}").require("{{a.output.ok}}");
    let world = play(&pipeline([code("a"), b]), r#"p/a output {"ok": false}"#);
    assert!(world.log.contains("row business/b code skipped"), "{}", world.log);
    assert!(world.log.contains("result succeeded"), "{}", world.log);
}

/// L-50: a deviation in another pipeline, called for an element, keeps its reason and condition.
#[test]
fn a_deviation_inside_an_element_keeps_its_reason() {
    let sub = sequence("sub", [code("x").require("{{input.n}}")]);
    let world = play(&pipeline([call("each", sub).for_each("{{input.list}}")]).input(r#"{"list":[0]}"#), "");
    let error = crate::report::error_json(&world.machine.result().expect("a result").errors[0]);
    assert_eq!((&error["kind"], &error["condition"]), (&"deviated".into(), &"{{input.n}}".into()));
}

/// L-46: a `require` that reads the answer to a permission question deviates with the reason `not_allowed`.
#[test]
fn a_write_that_is_not_allowed_deviates_with_its_own_reason() {
    let case = pipeline([code("allowed"), code("b").require("{{allowed.output.allowed}}")]);
    let world = play(&case, r#"p/allowed output {"allowed": false}"#);
    let error = crate::report::error_json(&world.machine.result().expect("a result").errors[0]);
    assert_eq!(error["reason"], "not_allowed");
}

/// X-1: `exists` of a missing value is false, not an error.
#[test]
fn exists_of_a_missing_value_skips_the_step() {
    let case =
        pipeline([code("a").when_exists("{{input.x}}"), code("b").when_exists("{{input.y}}")]).input(r#"{"y":0}"#);
    let world = play(&case, "");
    let rows = &world.machine.result().expect("the run is over").steps;
    assert_eq!((rows[0].status, rows[1].status), (StepStatus::Skipped, StepStatus::Succeeded), "{}", world.log);
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
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 30000 ms
            done p/a!timeout over
            abandon p/a
            done p/a signal SIGTERM
            emit step a failed
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result failed
            error step_timeout business/a code step `a` exceeded its timeout of 30 s
              at a.yaml
            row business/a code failed, tries 1, 10 ms
            row business/b code not_started
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// Outcomes that arrive before the timeout count.
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
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 30000 ms
            done p/a output 1
            done p/a!timeout over
            abandon p/a!timeout
            emit step a succeeded
            result succeeded 1
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// Outcomes that arrive after the timeout do not count.
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
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 30000 ms
            done p/a!timeout over
            done p/a output 1
            abandon p/a
            emit step a failed
            result failed
            error step_timeout business/a code step `a` exceeded its timeout of 30 s
              at a.yaml
            row business/a code failed, tries 1, 10 ms
        "#]],
    );
}

/// A timer is abandoned when its step ends.
#[test]
fn the_timer_is_given_up_when_the_step_ends() {
    check(
        pipeline([code("a").timeout(30), code("b")]),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 30000 ms
            done p/a output "a"
            abandon p/a!timeout
            emit step a succeeded
            emit step b started
            start p/b process b
            done p/b output "b"
            emit step b succeeded
            result succeeded "b"
            row business/a code succeeded, tries 1, 10 ms
            row business/b code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// A cancellation during a timeout does not change the step's failure, but the run's.
#[test]
fn cancel_after_a_timeout_is_what_the_run_ends_with() {
    check(
        pipeline([code("a").timeout(30)]),
        "
        reach p/a
        p/a!timeout over
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 30000 ms
            done p/a!timeout over
            abandon p/a
            cancel
            done p/a abandoned
            emit step a failed
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
            row business/a code failed, tries 1, 10 ms
        "#]],
    );
}

/// X-1: a hit is shown as cached, and nothing runs.
#[test]
fn a_cached_output_is_reused() {
    check(
        pipeline([code("a").cached().timeout(30)]),
        r#"p/a!recall found {"n": 1.0}"#,
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall
            start p/a!timeout deadline 30000 ms
            done p/a!recall found {"n": 1.0}
            abandon p/a!timeout
            emit step a succeeded
            result succeeded {"n": 1.0}
            row business/a code succeeded, tries 0, 10 ms, cached
        "#]],
    );
}

/// X-1: after a miss the output is stored for later runs.
#[test]
fn a_cache_miss_runs_the_step_and_remembers_its_output() {
    check(
        pipeline([code("a").cached_by("{{input.k}}")]).input(r#"{"k":"v"}"#),
        "",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall, at most 1000 ms old
            done p/a!recall nothing
            start p/a process a
            done p/a output "a"
            start p/a!remember remember "a"
            done p/a!remember kept
            emit step a succeeded
            result succeeded "a"
            row business/a code succeeded, tries 1, 30 ms
        "#]],
    );
}

/// A failure is not remembered.
#[test]
fn a_failure_is_not_remembered() {
    check(
        pipeline([code("a").cached()]),
        "p/a exit 1",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall
            done p/a!recall nothing
            start p/a process a
            done p/a exit 1
            emit step a failed
            result failed
            error step_failed business/a code step `a` exited with status 1
              at a.yaml
              exit 1
            row business/a code failed, tries 1, 20 ms
        "#]],
    );
}

#[test]
fn cancel_while_the_cache_is_asked_starts_nothing() {
    check(
        pipeline([code("a").cached()]),
        "reach p/a!recall\ncancel\np/a!recall found 1",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall
            cancel
            abandon p/a!recall
            done p/a!recall found 1
            emit step a cancelled
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
            row business/a code cancelled, tries 0, 10 ms
        "#]],
    );
}

/// A finished output is not lost if the run is stopped while it is being stored.
#[test]
fn cancel_while_an_output_is_kept_leaves_the_step_succeeded() {
    check(
        pipeline([code("a").cached(), code("b")]),
        "reach p/a!remember\ncancel",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall
            done p/a!recall nothing
            start p/a process a
            done p/a output "a"
            start p/a!remember remember "a"
            cancel
            done p/a!remember kept
            emit step a succeeded
            result cancelled
            error cancelled business/? cancelled by the user
            row business/a code succeeded, tries 1, 30 ms
            row business/b code not_started
        "#]],
    );
}

#[test]
fn a_timeout_while_an_output_is_kept_comes_too_late() {
    check(
        pipeline([code("a").cached().timeout(30)]),
        "reach p/a!remember\np/a!timeout over",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a!recall recall
            start p/a!timeout deadline 30000 ms
            done p/a!recall nothing
            start p/a process a
            done p/a output "a"
            start p/a!remember remember "a"
            done p/a!timeout over
            done p/a!remember kept
            emit step a succeeded
            result succeeded "a"
            row business/a code succeeded, tries 1, 30 ms
        "#]],
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

/// X-1: values that differ in their JSON type, in the last digit of a number or in their limits have different keys, so
/// that no step gets the output of other values. Keys of runs that an earlier version began stay as they were.
#[test]
fn different_values_have_different_cache_keys() {
    let keys = |key: &str, list: &[&str], abi: u32| -> Vec<Digest> {
        let one = |values: &&str| {
            let mut case = pipeline([code("a").cached_by(key)]).input(values);
            case.start.abi = abi;
            match play(&case, "").asked("p/a!recall") {
                Effect::Recall { key, .. } => *key,
                other => panic!("{other:?}"),
            }
        };
        let mut keys: Vec<Digest> = list.iter().map(one).collect();
        keys.sort();
        keys.dedup();
        keys
    };
    let types = [r#"{"k":1}"#, r#"{"k":"1"}"#, r#"{"k":true}"#, r#"{"k":"true"}"#, r#"{"k":null}"#, r#"{"k":"null"}"#];
    let more = [r#"{"k":""}"#, r#"{"k":"\"\""}"#, r#"{"k":[]}"#, r#"{"k":"[]"}"#, r#"{"k":[1]}"#, r#"{"k":["1"]}"#];
    let halves = [r#"{"k":"\ud800"}"#, r#"{"k":"\ud801"}"#, r#"{"k":"\ufffd"}"#];
    let all: Vec<&str> = types.into_iter().chain(more).chain(halves).collect();
    assert_eq!(keys("{{input.k}}", &all, ABI).len(), all.len());
    assert_eq!(keys("{{input.k}}", &types, 12).len(), 3);
    let split = [r#"{"k":"x","l":"yz"}"#, r#"{"k":"xy","l":"z"}"#, r#"{"k":"x\"\n\"y","l":"z"}"#];
    for key in ["{{input.k}}{{input.l}}", "{{input.k}}-{{input.l}}"] {
        assert_eq!(keys(key, &split, ABI).len(), 3, "{key}");
    }
    // The same value has the same key, however it is written.
    assert_eq!(keys("{{input.k}}", &[r#"{"k":"A"}"#, r#"{"k":"\u0041"}"#], ABI).len(), 1);
    assert_eq!(keys("{{input.k}}", &[r#"{"k":[1,2]}"#, r#"{"k": [1, 2] }"#], ABI).len(), 1);
}

/// X-1: an element replaces the array that it came from, and nothing else: the rest of the value counts to the last
/// digit. Keys of runs that an earlier version began stay as they were.
#[test]
fn the_rest_of_a_value_counts_to_the_last_digit() {
    let key = |input: &str, abi: u32| {
        let mut case = pipeline([code("a").for_each("{{input.l}}").cached()]).input(input);
        case.start.abi = abi;
        match play(&case, "").asked("p/a[0]!recall") {
            Effect::Recall { key, .. } => *key,
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (r#"{"id":123456789012345678901,"l":[1]}"#, r#"{"id":123456789012345678902,"l":[1]}"#);
    assert_ne!(key(one, ABI), key(other, ABI));
    assert_eq!(key(one, 12), key(other, 12));
    // Other elements of the array do not count; the element itself does.
    assert_eq!(key(r#"{"id":1,"l":[1]}"#, ABI), key(r#"{"id":1,"l":[1,2,"x"]}"#, ABI));
    assert_ne!(key(r#"{"id":1,"l":[1]}"#, ABI), key(r#"{"id":1,"l":["1"]}"#, ABI));
    assert_ne!(key(r#"{"id":1,"l":[1]}"#, ABI), key(r#"{"id":"1","l":[1]}"#, ABI));
    assert_ne!(key(r#"{"l":[1],"m":[2]}"#, ABI), key(r#"{"l":[1],"m":[3]}"#, ABI));
}

/// X-1: entries whose keys were right are still used: those without a `key`, and those of the elements of an output.
#[test]
fn entries_of_earlier_versions_are_used_where_their_keys_were_right() {
    let keys = |abi: u32| {
        let steps = [code("a"), code("b").cached(), code("c").for_each("{{a.output}}").cached()];
        let mut case = pipeline(steps).input(r#"{"n":1e400}"#);
        case.start.abi = abi;
        let world = play(&case, "p/a output [1, 2]");
        ["p/b!recall", "p/c[0]!recall", "p/c[1]!recall"].map(|id| match world.asked(id) {
            Effect::Recall { key, .. } => *key,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(keys(ABI), keys(12));
}

/// X-1: each element has its own cache entry: failures are not stored, and stored elements are not repeated.
#[test]
fn every_element_of_a_fan_out_is_cached_by_itself() {
    check(
        pipeline([code("a").for_each("{{input.l}}").collect().cached()]).input(r#"{"l":[1,2,3]}"#),
        "p/a[0]!recall found 10\np/a[2] exit 1",
        expect![[r#"
            emit phase business
            emit step a started
            emit item a[0] 1 started
            start p/a[0]!recall recall
            done p/a[0]!recall found 10
            emit item a[0] 1 succeeded, cached, 1 of 3
            emit item a[1] 2 started
            start p/a[1]!recall recall
            done p/a[1]!recall nothing
            start p/a[1] process a
            done p/a[1] output "a[1]"
            start p/a[1]!remember remember "a[1]"
            done p/a[1]!remember kept
            emit item a[1] 2 succeeded, 2 of 3
            emit item a[2] 3 started
            start p/a[2]!recall recall
            done p/a[2]!recall nothing
            start p/a[2] process a
            done p/a[2] exit 1
            emit item a[2] 3 failed, 3 of 3
            emit step a succeeded
            result succeeded [{"output":10},{"output":"a[1]"},{"error":{"code":"R0101","kind":"step_failed","phase":null,"step":"a","message":"element 2 of 3: code step `a` exited with status 1","exit_status":1,"stderr_tail":"","stderr_lines":1,"duration_ms":10,"details":{"item":2}}}]
            row business/a code succeeded, tries 2, 60 ms, items 2 of 3, 1 failed: [2]
        "#]],
    );
}

/// X-1: a fan-out whose elements all come from earlier runs is cached.
#[test]
fn a_fan_out_is_cached_if_all_of_its_elements_are() {
    let world = play(
        &pipeline([code("a").for_each("{{input.l}}").cached()]).input(r#"{"l":[1,2]}"#),
        "p/a[0]!recall found 10\np/a[1]!recall found 20",
    );
    let result = world.machine.result().unwrap();
    assert_eq!(format!("{:?}", result.output), "Some([10,20])");
    let row = &result.steps[0];
    assert_eq!((row.cached, row.attempts, row.items.as_ref().map(|items| items.cached)), (true, 0, Some(2)));
}

/// X-1: an element's key depends on the element, and on everything except the arrays that it came from.
#[test]
fn one_changed_element_changes_one_key() {
    let keys = |case: super::Case, script: &str, effects: &[&str]| -> Vec<crate::digest::Digest> {
        let world = play(&case, script);
        let key = |id: &&str| match world.asked(id) {
            Effect::Recall { key, .. } => *key,
            other => panic!("{other:?}"),
        };
        effects.iter().map(key).collect()
    };
    let of_input = |input: &str| {
        let case = pipeline([code("a").for_each("{{input.l}}").cached()]).input(input);
        keys(case, "", &["p/a[0]!recall", "p/a[1]!recall"])
    };
    let first = of_input(r#"{"l":[1,2],"k":1}"#);
    assert_ne!(first[0], first[1]);
    let changed = of_input(r#"{"l":[1,3],"k":1}"#);
    assert_eq!(first[0], changed[0]);
    assert_ne!(first[1], changed[1]);
    assert_eq!(of_input(r#"{"l":[2,1],"k":1}"#), [first[1], first[0]], "the place of an element does not count");
    assert_ne!(of_input(r#"{"l":[1,2],"k":2}"#)[0], first[0], "the rest of the input counts");

    // A list that a step makes, and elements that come from another fan-out's elements.
    let chained = |list: &str| {
        let mut check = code("check").for_each("{{read.output}}").cached();
        let chain = ["read.output", "list.output.files"].map(|text| text.parse().unwrap());
        check.for_each.as_mut().unwrap().stands_for = chain.to_vec();
        let read = code("read").for_each("{{list.output.files}}");
        let script = format!("p/list output {list}\np/read[0] output \"x\"\np/read[1] output {}", list.len());
        keys(pipeline([code("list"), read, check]), &script, &["p/check[0]!recall", "p/check[1]!recall"])
    };
    let first = chained(r#"{"files":["a","b"],"rules":1}"#);
    let changed = chained(r#"{"files":["a","cc"],"rules":1}"#);
    assert_eq!(first[0], changed[0]);
    assert_ne!(first[1], changed[1]);
    assert_ne!(chained(r#"{"files":["a","b"],"rules":2}"#)[0], first[0], "what else the step printed counts");
}

/// X-1: a `key` that refers to the element replaces it; with any other key the element counts as well.
#[test]
fn a_key_without_the_element_does_not_make_elements_alike() {
    let keys = |key: &str, input: &str| {
        let case = pipeline([code("a").for_each("{{input.l}}").cached_by(key)]).input(input);
        let world = play(&case, "");
        ["p/a[0]!recall", "p/a[1]!recall"].map(|id| match world.asked(id) {
            Effect::Recall { key, .. } => *key,
            other => panic!("{other:?}"),
        })
    };
    let [one, two] = keys("{{input.v}}", r#"{"l":[1,2],"v":1}"#);
    assert_ne!(one, two);
    let [one, two] = keys("{{item.id}}", r#"{"l":[{"id":1,"t":1},{"id":1,"t":2}]}"#);
    assert_eq!(one, two);
}

/// X-1: children of a group and steps of a pipeline that an element runs have their own entries.
#[test]
fn caches_hold_inside_groups_and_sub_pipelines_of_elements() {
    let inner = sequence("inner", [code("x").cached()]);
    let case = pipeline([
        group("g", [code("a").cached(), code("b")]).for_each("{{input.l}}"),
        call("s", inner).with("n", "{{item}}").for_each("{{input.l}}"),
    ])
    .input(r#"{"l":[1,2]}"#);
    let world = play(&case, "p/g[1]/a!recall found 5\np/s[0]/x!recall found 6");
    let result = world.machine.result().unwrap();
    assert_eq!(format!("{:?}", result.output), r#"Some([6,"x"])"#);
    assert_eq!((result.steps[0].cached, result.steps[1].cached, result.steps[1].attempts), (false, false, 1));
    assert!(world.log.contains("start p/g[0]/a!remember remember \"a\""), "{}", world.log);
    assert!(!world.log.contains("start p/g[1]/a process"), "{}", world.log);
}

/// X-1: the output of a pipeline with collected failures is not stored.
#[test]
fn a_pipeline_with_collected_errors_is_not_remembered() {
    let inner = sequence("inner", [code("x").for_each("{{input.l}}").collect()]);
    let case = pipeline([call("s", inner).with("l", "{{input.l}}").cached()]).input(r#"{"l":[1,2]}"#);
    assert!(play(&case, "").log.contains("start p/s!remember"));
    assert!(!play(&case, "p/s/x[1] exit 1").log.contains("!remember"));
}
