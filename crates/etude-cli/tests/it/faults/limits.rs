//! Shortages of resources that processes need.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{RUN, app, goes_on, run_id};
use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::Test;

/// Runs with these limits of the shell.
fn limited(test: &Test, limit: &str) -> Ran {
    test.start_through(&["bash", "-c", &format!("{limit}; exec \"$@\""), "bash"], &RUN).finish()
}

/// True if the run is complete. Otherwise it must be stopped by the environment, and report that; there is neither a panic nor
/// a failed step.
#[track_caller]
fn is_whole_or_stopped(ran: &Ran, moment: &str) -> bool {
    assert!(!ran.err().contains("panicked"), "{moment}: {}", ran.err());
    match ran.code() {
        0 => true,
        4 => {
            assert_eq!(ran.at("/errors/0/kind"), "environment", "{moment}: {}", ran.out());
            let said = ran.err();
            assert!(said.contains("Too many open files") || said.contains("too few"), "{moment}: {said}");
            false
        }
        code => panic!("{moment}: exit status {code}: {}", ran.err()),
    }
}

/// with too few file descriptors a run stops or is complete; it neither panics nor hangs, and continues with enough.
#[test]
fn too_few_descriptors_are_reported() {
    let mut stopped = 0;
    for most in [4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 36] {
        let test = app();
        let ran = limited(&test, &format!("ulimit -n {most}"));
        if is_whole_or_stopped(&ran, &format!("{most} descriptors")) {
            ran.output("three");
        } else {
            stopped += 1;
            assert!(most < 36, "{most} descriptors are enough: {}", ran.err());
            goes_on(&test, 1);
        }
    }
    assert!(stopped > 0, "four descriptors are too few");
}

/// `count` elements, `most` of them concurrent, each of which records itself.
fn wide(count: usize, most: usize, script: &str) -> Test {
    let list: Vec<usize> = (0..count).collect();
    let list = format!("cat >/dev/null; echo '{{\"output\":{list:?}}}'");
    let fields = format!("for_each: \"{{{{list.output}}}}\"\nmax_parallel: {most}");
    Test::new().pipeline("p", |p| p.sh("list", &list).sh_with("each", script, &fields))
}

const NOTED: &str = "cat >/dev/null; echo \"$ETUDE_EFFECT_ID\" >> \"$LEDGER\"; sleep 0.05; echo '{\"output\":1}'";

/// with too few descriptors for all processes at once, those without one wait for others to end. No step fails
/// because of that, and none begins twice.
#[test]
fn a_fan_out_waits_for_descriptors() {
    for most in [18, 22, 26, 30, 40, 50, 60, 80, 100, 150] {
        let test = wide(30, 25, NOTED);
        let moment = format!("{most} descriptors");
        let ran = limited(&test, &format!("ulimit -n {most}"));
        let is_whole = is_whole_or_stopped(&ran, &moment);
        assert!(is_whole || most < 40, "{moment} are enough: {}", ran.err());
        let ran = match run_id(&test) {
            _ if is_whole => ran,
            Some(id) => test.run(&["runs", "resume", &id, "--format", "json"]),
            None => test.run(&RUN),
        };
        ran.output(vec![1; 30]);
        let (all, different) = (test.ledger().len(), test.ledger().into_iter().collect::<BTreeSet<_>>().len());
        assert_eq!(different, 30, "{moment}");
        assert!(all == 30 || (!is_whole && all <= 55), "{moment}: {all} began");
    }
}

/// a thousand concurrent steps wait for descriptors where a few hundred fit, or even a few: neither a process nor its
/// handle holds one after its end.
#[test]
fn a_thousand_steps_wait_for_descriptors() {
    let steps: String =
        (0..1_000).map(|n| format!("      - {{name: s{n}, type: code, output: text, command: \"true\"}}\n")).collect();
    let head = "name: p\ndescription: P.\nsteps:\n  - name: g\n    type: parallel\n    steps:\n";
    let test = Test::new().yaml("p", &format!("{head}{steps}"));
    for most in [256, 128, 64] {
        let ran = limited(&test, &format!("ulimit -n {most}"));
        assert_eq!(ran.code(), 0, "{most} descriptors: {}", ran.err());
    }
}

/// so do model calls, by a program or over the network.
#[test]
fn calls_of_models_wait_for_descriptors() {
    let server = Server::by(|_, _| Reply::says("fine"));
    let steps: String =
        (0..200).map(|n| format!("      - {{name: s{n}, type: llm, prompt: hi, retry: 0}}\n")).collect();
    let yaml = format!("name: p\ndescription: P.\nsteps:\n  - name: g\n    type: parallel\n    steps:\n{steps}");
    let program = "model_mapping: {standard: prog/m}\nproviders: {prog: {kind: command, command: \"sh model.sh\"}}\n";
    let by_program = Test::new().file("model.sh", "cat >/dev/null; echo fine\n").user_config(program);
    for test in [by_program.yaml("p", &yaml), Test::new().model(&server).yaml("p", &yaml)] {
        let ran = limited(&test, "ulimit -n 96");
        assert_eq!(ran.code(), 0, "{}", ran.err());
    }
}

/// if the user may have more descriptors, etude uses them, and runs the requested number of processes at once: each of
/// these waits for all others. They have the limit that etude inherited.
#[test]
fn a_wide_fan_out_takes_more_descriptors_and_leaves_its_steps_theirs() {
    if !cfg!(target_os = "linux") {
        return crate::test::skipped("limits of descriptors", "other systems have no way to give a child its own");
    }
    let script = "cat >/dev/null; echo x >> \"$LEDGER\"; while [ \"$(wc -l < \"$LEDGER\")\" -lt 40 ]; do sleep 0.05; done\n\
                  echo \"{\\\"output\\\":$(ulimit -Sn)}\"";
    let ran = limited(&wide(40, 40, script), "ulimit -Hn 2000; ulimit -Sn 70");
    ran.output(Value::from(vec![json!(70); 40]));
}
