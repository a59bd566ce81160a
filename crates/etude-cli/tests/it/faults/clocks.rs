//! Clock jumps: during a run, between its death and its resume, while it waits for an answer, and under a prune.

use serde_json::{Value, json};

use super::{RUN, run_id, step};
use crate::crash::shim::{self, Fault, with_fault};
use crate::ran::Ran;
use crate::test::{Test, noting};

const DAY: i64 = 86_400;

/// Runs a command whose clock is that many seconds ahead.
fn later(test: &Test, seconds: i64, args: &[&str]) -> Ran {
    let mut command = with_fault(test, test.command(args), Fault::None);
    command.env("ETUDE_SHIM_CLOCK", format!("0 {seconds}"));
    test.start_with(command, args).finish()
}

/// Times are reported, and deadlines kept, by the clock; no result depends on it.
#[test]
fn a_clock_that_jumps_changes_no_result() {
    if shim::is_missing("a_clock_that_jumps_changes_no_result") {
        return;
    }
    let flaky =
        format!("cat >/dev/null; {}; [ \"$ETUDE_ATTEMPT\" -gt 1 ] || exit 7; echo '{{\"output\":2}}'", noting("two"));
    for offset in ["-86400", "86400", "-1700000000"] {
        for at in [60, 75, 90, 100] {
            let test = Test::new()
                .pipeline("p", |p| {
                    step(step(p, "one").sh_with("two", &flaky, "retry: {max: 3, backoff: 20ms}\ntimeout: 1h"), "three")
                })
                .pipeline("_destructor", |p| step(p, "end"));
            let mut command = with_fault(&test, test.command(&RUN), Fault::None);
            command.env("ETUDE_SHIM_CLOCK", format!("{at} {offset}"));
            let ran = test.start_with(command, &RUN).finish().output("three");
            assert_eq!(test.ledger(), ["one", "two", "two", "three", "end"], "{offset} s at event {at}");
            let raw: serde_json::Value = serde_json::from_slice(&ran.raw).expect("a document");
            for row in raw["steps"].as_array().expect("rows") {
                assert!(row["duration_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{offset} s at event {at}: {row}");
            }
            assert!(raw["duration_ms"].as_u64().is_some(), "{offset} s at event {at}: {raw}");
            let events = shim::events(&test).len();
            assert!(events > at, "the clock has jumped: at event {at} of {events}");
            test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs/0/status", json!("succeeded"));
        }
    }
}

/// the clock at the resume of a dead run does not affect its result: no step has taken negative time, none exceeds its
/// limit because of it, and none that has an outcome runs again.
#[test]
fn a_clock_that_jumps_between_death_and_resume_changes_no_result() {
    if shim::is_missing("a_clock_that_jumps_between_death_and_resume_changes_no_result") {
        return;
    }
    for offset in [-1_700_000_000, -DAY, DAY, 3_650 * DAY] {
        let two = format!("{}; [ -e \"$ROOT/go\" ] || exec sleep 60; echo '{{\"output\":2}}'", noting("two"));
        let test = Test::new()
            .pipeline("p", |p| {
                let limits = "timeout: 1h\nretry: {max: 2, backoff: 1h}";
                step(step(p, "one").sh_with("two", &two, limits), "three")
            })
            .pipeline("_destructor", |p| step(p, "end"));
        let running = test.start(&RUN);
        test.wait_for("two");
        running.kill();
        test.put("go", "");
        let id = run_id(&test).expect("it was begun");
        let ran = later(&test, offset, &["runs", "resume", &id, "--format", "json"]).output("three");
        let moment = format!("{offset} s");
        assert_eq!(test.ledger(), ["one", "two", "two", "three", "end"], "{moment}");
        let raw: Value = serde_json::from_slice(&ran.raw).expect("a document");
        for row in raw["steps"].as_array().expect("rows") {
            assert!(row["duration_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{moment}: {row}");
        }
        assert!(raw["duration_ms"].is_u64(), "{moment}: {raw}");
        test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/output", "three");
    }
}

/// the time to answer ends by the clock. A clock that was set back neither ends nor restarts it.
#[test]
fn the_time_to_answer_is_what_the_clock_says() {
    if shim::is_missing("the_time_to_answer_is_what_the_clock_says") {
        return;
    }
    for (policy, exit) in [("approve", 0), ("deny", 1), ("fail", 1)] {
        let gate = format!("name: gate\ntype: approval\nmessage: Go?\ntimeout: 1h\non_timeout: {policy}");
        let test = Test::new()
            .pipeline("p", |p| step(step(p, "one").step(&gate), "three"))
            .pipeline("_destructor", |p| step(p, "end"));
        let id = test.run(&RUN).exit(5).id();
        let resume = ["runs", "resume", &id, "--format", "json"];
        for seconds in [-1_700_000_000, -DAY, 0, 3_000] {
            later(&test, seconds, &resume).exit(5).has("/status", "waiting");
        }
        assert_eq!(test.ledger(), ["one"], "{policy}");
        let ran = later(&test, 4_000, &resume).exit(exit);
        let expected: (Value, &[&str]) = match policy {
            "approve" => (json!("three"), &["one", "three", "end"]),
            _ => (Value::Null, &["one", "end"]),
        };
        assert_eq!(ran.at("/output"), expected.0, "{policy}");
        assert_eq!(test.ledger(), expected.1, "{policy}");
        if policy != "approve" {
            let kind = if policy == "deny" { "approval_denied" } else { "step_timeout" };
            ran.failed_with(&[&format!("business gate: {kind}")]);
        }
        // The outcome stays, whatever the clock says afterwards.
        let show = ["runs", "show", &id, "--format", "json"];
        later(&test, -DAY, &show).exit(0).has("/output", expected.0);
        test.run(&["approve", &id]).exit(2).stderr_has("is not waiting for a decision");
    }
}

/// a prune under a wrong clock removes too many or too few finished runs, but no unfinished one: dead or waiting runs
/// continue, with their large values.
#[test]
fn a_prune_under_a_wrong_clock_removes_no_run_that_can_go_on() {
    if shim::is_missing("a_prune_under_a_wrong_clock_removes_no_run_that_can_go_on") {
        return;
    }
    for (offset, removed) in [(-3_650 * DAY, 0), (3_650 * DAY, 1)] {
        let large = "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' a; echo '\"}'";
        let two = format!(
            "n=$(wc -c); {}; [ -e \"$ROOT/go\" ] || exec sleep 60; echo \"{{\\\"output\\\":$n}}\"",
            noting("two")
        );
        let test = Test::new()
            .pipeline("done", |p| step(p, "done"))
            .pipeline("gate", |p| step(p.step("name: gate\ntype: approval\nmessage: Go?"), "after"))
            .pipeline("p", |p| p.sh("one", large).sh("two", &two));
        let finished = test.run_json("done").exit(0).id();
        let waiting = test.run_json("gate").exit(5).id();
        let running = test.start(&RUN);
        test.wait_for("two");
        running.kill();
        let dead = run_id(&test).expect("it was begun");
        later(&test, offset, &["runs", "prune", "--format", "json"]).exit(0).stdout_json(json!({ "removed": removed }));
        test.run(&["runs", "show", &finished]).exit(if removed == 1 { 2 } else { 0 });
        test.put("go", "");
        let output = test.run(&["runs", "resume", &dead, "--format", "json"]).exit(0).at("/output");
        assert!(output.as_u64().is_some_and(|bytes| bytes > 300_000), "{output}");
        test.run(&["approve", &waiting, "--format", "json"]).exit(0);
        test.run(&["runs", "resume", &waiting, "--format", "json"]).output("after");
    }
}
