//! Concurrent commands on one run, and stopped steps: one of the commands wins, and every document agrees afterwards.

use serde_json::Value;

use super::{RUN, dead_run, run_id, step};
use crate::ran::Ran;
use crate::test::{Running, Test, noting, wait_until, with_some_limit};

/// Number of rounds of each race, since the winner varies.
const ROUNDS: usize = 6;

/// a stopped step does not outlive its time: it cannot handle SIGTERM, and is killed.
#[test]
fn a_stopped_step_is_ended_by_its_timeout() {
    let script =
        format!("cat >/dev/null; echo $$ > \"$ROOT/pid\"; {}; kill -s STOP $$; {}", noting("begun"), noting("on"));
    with_some_limit(|limit| {
        let test = Test::new()
            .pipeline("p", |p| p.sh_with("a", &script, &format!("timeout: {limit}")))
            .pipeline("_destructor", |p| step(p, "end"));
        test.run(&RUN).exit(1).failed_with(&["business a: step_timeout"]);
        let has_begun = test.ledger().len() > 1;
        if has_begun {
            assert_eq!(test.ledger(), ["begun", "end"]);
            let id = test.read("pid");
            let alive = std::process::Command::new("kill").args(["-0", id.trim()]).output().expect("kill is there");
            assert!(!alive.status.success(), "process {id} is still there");
        }
        has_begun
    });
}

/// Status of the run once no process is active, from two commands that must agree.
#[track_caller]
fn settled(test: &Test, id: &str) -> Value {
    let show = || test.run(&["runs", "show", id, "--format", "json"]).exit(0);
    let status = show().at("/status");
    if ["succeeded", "failed", "cancelled"].iter().any(|last| status == *last) {
        // A resume would begin another attempt.
        return status;
    }
    let resumed = test.run(&["runs", "resume", id, "--format", "json"]);
    let shown = show();
    for place in ["/status", "/output", "/errors", "/steps"] {
        assert_eq!(shown.at(place), resumed.at(place), "{place}");
    }
    shown.at("/status")
}

/// of simultaneous answers the first one counts. The others are reported as too late, and the run continues with the
/// accepted one.
#[test]
fn of_opposite_answers_at_once_one_counts() {
    for round in 0..ROUNDS {
        let test = Test::new()
            .pipeline("p", |p| step(p.step("name: gate\ntype: approval\nmessage: Go?"), "after"))
            .pipeline("_destructor", |p| step(p, "end"));
        let id = test.run(&RUN).exit(5).id();
        let mut words = ["approve", "deny", "approve", "deny"];
        words.rotate_left(round % 2);
        let all: Vec<_> = words.iter().map(|word| (*word, test.start(&[word, &id, "--format", "json"]))).collect();
        let mut taken = Vec::new();
        for (word, running) in all {
            let ran = running.finish();
            match ran.code() {
                0 => taken.push(word),
                _ => assert!(ran.exit(2).err().contains("already been answered")),
            }
        }
        let expected: (&str, &[&str]) = match taken.as_slice() {
            ["approve"] => ("succeeded", &["after", "end"]),
            ["deny"] => ("failed", &["end"]),
            other => panic!("{other:?} were taken"),
        };
        assert_eq!(settled(&test, &id), expected.0);
        assert_eq!(test.ledger(), expected.1);
    }
}

/// answers and concurrent resumes do not hinder each other: the run ends as the accepted answer says, and each step runs
/// once.
#[test]
fn answers_and_resumes_at_once_agree() {
    for round in 0..ROUNDS {
        let test = Test::new()
            .pipeline("p", |p| step(step(p, "one").step("name: gate\ntype: approval\nmessage: Go?"), "after"))
            .pipeline("_destructor", |p| step(p, "end"));
        let id = test.run(&RUN).exit(5).id();
        let word = ["approve", "deny"][round % 2];
        let answer = test.start(&[word, &id, "--format", "json"]);
        let resumes: Vec<_> = (0..3).map(|_| test.start(&["runs", "resume", &id, "--format", "json"])).collect();
        answer.finish().exit(0);
        let resumes: Vec<_> = resumes.into_iter().map(Running::finish).collect();
        for ran in resumes {
            assert!([0, 1, 4, 5].contains(&ran.code()), "{}: {}", ran.code(), ran.err());
            assert!(ran.code() != 4 || ran.err().contains("is being executed by another process"), "{}", ran.err());
        }
        // A resume after the denial begins another attempt, which asks again.
        let expected: (&[&str], &[&str]) = if word == "approve" {
            (&["succeeded"], &["one", "after", "end"])
        } else {
            (&["failed", "waiting"], &["one", "end"])
        };
        let status = settled(&test, &id);
        assert!(expected.0.iter().any(|expected| status == *expected), "{status}");
        assert_eq!(test.ledger(), expected.1);
    }
}

/// a run that another process holds, to look for an answer, accepts one at once.
#[test]
fn an_answer_does_not_wait_for_readers() {
    let test = Test::new().pipeline("p", |p| step(p.step("name: gate\ntype: approval\nmessage: Go?"), "after"));
    let id = test.run(&RUN).exit(5).id();
    let state = test.path("home/.local/state/etude");
    let lock_owner = std::fs::File::create(state.join("locks/1-1.lock")).expect("it can be made");
    lock_owner.try_lock().expect("it is free");
    let connection = rusqlite::Connection::open(state.join("journal.db")).expect("it opens");
    connection.execute("update runs set state = 'running', holder = '1-1'", []).expect("sql");
    test.run(&["approve", &id]).exit(0).stderr_has("hint: the run reads the decision as it goes on: etude runs watch");
    test.run(&["approve", &id]).exit(2).stderr_has("already been answered");
    connection.execute("update runs set state = 'waiting', holder = null", []).expect("sql");
    assert_eq!(settled(&test, &id), "succeeded");
}

/// Number of records of a step.
fn count(test: &Test, name: &str) -> usize {
    test.ledger().iter().filter(|line| *line == name).count()
}

/// with a simultaneous cancellation and resume, the run is cancelled or ends, and its destructor has run once for each
/// attempt, after everything else. A resume after the cancellation is another attempt.
#[test]
fn a_cancellation_and_a_resume_at_once_agree() {
    for _ in 0..ROUNDS {
        let (test, id) = dead_run(false);
        let commands = [["runs", "cancel"], ["runs", "resume"], ["runs", "cancel"]];
        let all = commands.map(|[a, b]| test.start(&[a, b, &id, "--format", "json"]));
        for running in all {
            let ran = running.finish();
            assert!([0, 2, 4, 130].contains(&ran.code()), "{}: {}", ran.code(), ran.err());
            assert!(!ran.err().contains("panicked"), "{}", ran.err());
        }
        let status = settled(&test, &id);
        assert!(status == "cancelled" || status == "succeeded", "{status}");
        let three = count(&test, "three");
        assert!(three == 1 || (three == 0 && status == "cancelled"), "{status} {:?}", test.ledger());
        assert_eq!(count(&test, "one"), 1, "{:?}", test.ledger());
        assert!((1..=2).contains(&count(&test, "end")), "{:?}", test.ledger());
        assert!((1..=3).contains(&count(&test, "two")), "{:?}", test.ledger());
        assert_eq!(test.ledger().last().map(String::as_str), Some("end"));
    }
}

/// True for the complete result of a resume that met a prune; otherwise it must report that there is no such run.
#[track_caller]
fn whole_or_gone(ran: Ran) -> bool {
    match ran.code() {
        0 => {
            ran.output("three");
            true
        }
        _ => {
            assert!(ran.exit(2).err().contains("no run"));
            false
        }
    }
}

/// with a simultaneous prune and resume, a run that can continue is not removed; a finished one is shown completely, or
/// is gone.
#[test]
fn a_prune_and_a_resume_at_once_leave_a_whole_run_or_none() {
    for _ in 0..ROUNDS {
        let (test, id) = dead_run(false);
        let resume = test.start(&["runs", "resume", &id, "--format", "json"]);
        let prune = || test.start(&["runs", "prune", "--older-than", "1ms", "--format", "json"]);
        let prunes = [prune(), prune()];
        assert!(whole_or_gone(resume.finish()), "it could go on");
        prunes.into_iter().for_each(|prune| drop(prune.finish().exit(0)));
        assert_eq!(test.ledger(), ["one", "two", "two", "three", "end"]);
        // Now that the run is over, either may come first.
        let resume = test.start(&["runs", "resume", &id, "--format", "json"]);
        prune().finish().exit(0);
        whole_or_gone(resume.finish());
        wait_until("the prune of the run", || {
            prune().finish().exit(0);
            run_id(&test).is_none()
        });
        test.run(&["runs", "show", &id]).exit(2);
        assert_eq!(test.ledger(), ["one", "two", "two", "three", "end"]);
    }
}
