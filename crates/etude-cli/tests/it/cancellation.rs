//! Tests of Ctrl-C, SIGTERM and `etude runs cancel`: the first one cancels and the destructor runs, the second one kills.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test::{Test, noting, wait_until};

/// App with constructor `c`, step `slow` that never ends by itself, and destructor `d`.
fn slow() -> Test {
    Test::new()
        .pipeline("_constructor", |p| p.note("c", "1"))
        .pipeline("p", |p| p.sh("slow", &format!("{}; exec sleep 300", noting("slow"))).note("after", "1"))
        .pipeline("_destructor", |p| {
            p.sh("d", &format!("cat > \"$ROOT/d.json\"; {}; echo '{{\"output\":1}}'", noting("d")))
        })
}

const RUN: [&str; 5] = ["run", "-p", "p", "--format", "json"];

/// a cancelled run stops active steps, starts nothing more, and ends in its destructor, which sees the
/// cancellation.
#[test]
fn the_first_signal_cancels_and_the_destructor_runs() {
    for name in ["INT", "TERM"] {
        let test = slow();
        let running = test.start(&RUN);
        test.wait_for("slow");
        if name == "INT" {
            running.interrupt()
        } else {
            running.terminate()
        }
        let message = if name == "INT" { "cancelled by Ctrl-C" } else { "cancelled by SIGTERM" };
        running
            .finish()
            .exit(130)
            .has("/status", "cancelled")
            .failed_with(&["business slow: cancelled"])
            .has("/errors/0/message", message)
            .steps(&["c succeeded 1", "slow cancelled 1", "after not_started 0", "d succeeded 1"]);
        assert_eq!(test.ledger(), ["c", "slow", "d"]);
        let reported: Value = serde_json::from_str(&test.read("d.json")).expect("stdin was kept");
        assert_eq!((&reported["status"], &reported["error"]["kind"]), (&json!("cancelled"), &json!("cancelled")));
    }
}

/// a second signal while the destructor runs kills it; the run is over.
#[test]
fn a_second_signal_kills_the_destructor_as_well() {
    let test = Test::new()
        .pipeline("p", |p| p.sh("slow", &format!("{}; exec sleep 300", noting("slow"))))
        .pipeline("_destructor", |p| p.sh("d", &format!("{}; exec sleep 300", noting("d"))));
    let running = test.start(&RUN);
    test.wait_for("slow");
    running.interrupt();
    test.wait_for("d");
    running.interrupt();
    let ran = running.finish().exit(130).has("/status", "cancelled");
    assert_eq!(test.ledger(), ["slow", "d"]);
    let listed = test.run(&["runs", "list", "--format", "json"]);
    assert_eq!(listed.at("/runs/0/status"), "cancelled", "{:#}", ran.doc());
}

/// after a second signal the program ends, whatever blocks it: here a terminal that accepts nothing any more.
#[test]
fn two_signals_end_a_program_that_is_held_up() {
    let script = "yes | head -c 400000 >&2; exec sleep 300";
    let test = Test::new().pipeline("p", |p| p.sh("a", &format!("{}; {script}", noting("begun"))));
    let mut command = test.command(&["run", "-p", "p", "--verbose"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // An unread pipe is full before all of it is printed.
    test.wait_for("begun");
    let mut exit = None;
    wait_until("the end of a program that is held up", || {
        // The operating system merges pending signals of one kind: two of them may be one.
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill is there").success());
        exit = child.try_wait().expect("it is ours");
        exit.is_some()
    });
    assert_eq!(exit.and_then(|exit| exit.code()), Some(130));
}

/// after a second signal while a step is still being stopped, the destructor does not run.
#[test]
fn a_second_signal_during_the_grace_period_kills_the_run() {
    // The second signal must come within the grace period of two seconds, which a busy machine may miss.
    for _ in 0..10 {
        let test = Test::new()
            .pipeline("p", |p| {
                p.sh(
                    "slow",
                    &format!(
                        "trap '{}' TERM; {}; while :; do sleep 0.05; done",
                        noting("asked").replace('\'', ""),
                        noting("slow")
                    ),
                )
            })
            .pipeline("_destructor", |p| p.note("d", "1"));
        let mut running = test.start(&RUN);
        test.wait_for("slow");
        let since = Instant::now();
        running.terminate();
        wait_until("the trap", || running.is_over() || test.ledger().contains(&"asked".to_owned()));
        if !running.is_over() {
            running.terminate();
        }
        let is_in_time = since.elapsed() < Duration::from_millis(1_500);
        let ran = running.finish().exit(130).has("/status", "cancelled");
        if is_in_time {
            ran.has("/steps/1/status", "not_started");
            assert_eq!(test.ledger(), ["slow", "asked"]);
            return;
        }
    }
    panic!("this machine never sends two signals within two seconds");
}

/// a signal while the destructor runs after a success does not cut it short.
#[test]
fn a_first_signal_does_not_cut_the_destructor_short() {
    let wait = "while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done";
    let test = Test::new().pipeline("p", |p| p.note("a", "\"out\"")).pipeline("_destructor", |p| {
        p.sh("d", &format!("{}; {wait}; {}; echo '{{\"output\":1}}'", noting("d"), noting("end")))
    });
    let mut running = test.start(&RUN);
    test.wait_for("d");
    running.terminate();
    assert!(!running.is_over());
    test.put("go", "");
    let ran = running.finish();
    assert_eq!(test.ledger(), ["a", "d", "end"]);
    assert_eq!(ran.at("/steps/1/status"), "succeeded", "{:#}", ran.doc());
}

/// a run that is cancelled in its constructor runs neither its steps nor its destructor.
#[test]
fn cancelled_in_the_constructor_nothing_else_runs() {
    let test = Test::new()
        .pipeline("_constructor", |p| p.sh("c", &format!("{}; exec sleep 300", noting("c"))))
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("_destructor", |p| p.note("d", "1"));
    let running = test.start(&RUN);
    test.wait_for("c");
    running.interrupt();
    running.finish().exit(130).failed_with(&["constructor c: cancelled"]);
    assert_eq!(test.ledger(), ["c"]);
}

/// processes that a step started in the background, also in a separate session, are gone when the run is over.
#[test]
fn nothing_of_a_cancelled_run_survives() {
    let script = format!(
        "sleep 300 & echo $! >> \"$ROOT/pids\"; setsid sh -c 'echo $$ >> \"$ROOT/pids\"; exec sleep 300' & \
         while [ \"$(wc -l < \"$ROOT/pids\")\" -lt 2 ]; do sleep 0.01; done; {}; wait",
        noting("slow")
    );
    let test = Test::new().pipeline("p", |p| p.sh("slow", &script));
    let running = test.start(&RUN);
    test.wait_for("slow");
    running.interrupt();
    running.finish().exit(130);
    for pid in test.read("pids").lines() {
        let alive = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        wait_until(&format!("the end of process {pid}"), || !alive());
    }
}

/// cli: a run of another process is cancelled through the journal; its destructor runs there.
#[test]
fn a_live_run_is_cancelled_from_another_process() {
    let test = slow();
    let running = test.start(&RUN);
    test.wait_for("slow");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    test.run(&["runs", "cancel", &id, "--format", "json"])
        .exit(0)
        .stdout_json(json!({"run_id": "[RUN]", "cancelling": true}));
    running
        .finish()
        .exit(130)
        .failed_with(&["business slow: cancelled"])
        .has("/errors/0/message", "cancelled by `etude runs cancel`");
    assert_eq!(test.ledger(), ["c", "slow", "d"]);
}

/// cli, A-5.3: an accepted cancellation holds: if the process dies before it handles the cancellation, the next one cancels the
/// run and does not start again a step that it would cancel.
#[test]
fn a_cancellation_outlives_the_process_that_was_notified() {
    let test = slow();
    let running = test.start(&RUN);
    test.wait_for("slow");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.signal("STOP");
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/cancelling", true);
    running.kill();
    test.run(&["runs", "resume", &id, "--format", "json"])
        .exit(130)
        .has("/errors/0/message", "cancelled by `etude runs cancel`")
        .steps(&["c succeeded 1", "slow cancelled 1", "after not_started 0", "d succeeded 1"]);
    assert_eq!(test.ledger(), ["c", "slow", "d"]);
}

/// cli, A-5.3: a run whose process died is cancelled at once: its destructor runs, the step does not run again.
#[test]
fn a_dead_run_is_cancelled_and_still_gets_its_destructor() {
    let test = slow();
    let running = test.start(&RUN);
    test.wait_for("slow");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    let listed = test.run(&["runs", "list", "--format", "json"]);
    assert_eq!(listed.at("/runs/0/status"), "interrupted");
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!(test.ledger(), ["c", "slow", "d"]);
    test.run(&["runs", "cancel", &id]).exit(2).stderr_has("has ended: cancelled");
}

/// cancellations are recorded: a run that dies while its destructor runs stays cancelled when it is resumed.
#[test]
fn a_cancelled_run_that_died_stays_cancelled() {
    let test = Test::new().pipeline("p", |p| p.sh("slow", &format!("{}; exec sleep 300", noting("slow")))).pipeline(
        "_destructor",
        |p| {
            // The decision is made by a process of the killed run, before the kill.
            let (decided, noted) = ("[ -e \"$ROOT/go\" ] && on=1", noting("d"));
            p.sh(
                "d",
                &format!(
                    "{decided}; {noted}; [ \"$on\" ] || exec sleep 300; {}; echo '{{\"output\":1}}'",
                    noting("end")
                ),
            )
        },
    );
    let running = test.start(&RUN);
    test.wait_for("slow");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.interrupt();
    test.wait_for("d");
    running.kill();
    test.put("go", "");
    test.run(&["runs", "resume", &id, "--format", "json"])
        .exit(130)
        .has("/status", "cancelled")
        .steps(&["slow cancelled 1", "d succeeded 1"]);
    assert_eq!(test.ledger(), ["slow", "d", "d", "end"]);
}
