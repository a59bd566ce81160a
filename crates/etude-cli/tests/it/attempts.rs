//! Runs that did not succeed, and are continued.

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{Test, noting, printing, wait_until, with_some_limit};

/// App with pipeline `p`: `a`, then `b`, which fails until its script is repaired, then `c`; a constructor and a destructor.
/// All of them record in the ledger that they ran; those of the scope with `run.attempt`.
fn app() -> Test {
    let attempt = |name: &str| {
        format!(
            "echo {name} $(sed -e 's/.*\"attempt\":\\([0-9]*\\).*/\\1/' -e t -e 's/.*/1/') >> \"$LEDGER\"; {}",
            printing("0")
        )
    };
    Test::new()
        .pipeline("p", |p| p.note("a", "1").sh("b", &format!("{}; exit 1", noting("b"))).note("c", "3"))
        .pipeline("_constructor", |p| p.sh("open", &attempt("open")))
        .pipeline("_destructor", |p| p.sh("close", &attempt("close")))
}

/// The failing script, repaired.
fn repair(test: &Test) {
    test.put("app/pipelines/p/steps/b.sh", &format!("{}; {}\n", noting("b"), printing("2")));
}

fn runs(test: &Test, words: &[&str]) -> Ran {
    test.run(&[&["runs"], words, &["--format", "json"]].concat())
}

/// once the script is repaired, the run continues: the constructor first, then the failed step, the destructor last;
/// successful steps are not repeated.
#[test]
fn a_failed_run_continues_after_its_script_is_repaired() {
    let test = app();
    let ran = test.run_json("p").exit(1).failed_with(&["business b: step_failed"]).has("/attempt", 1);
    assert!(ran.err().contains("hint: fix the cause, then run: etude runs resume "), "{}", ran.err());
    let id = ran.id();
    repair(&test);
    runs(&test, &["resume", &id]).exit(3).failed_with(&["- -: definition_invalid"]);
    let again = runs(&test, &["resume", &id, "--accept-changes"]).output(3).has("/attempt", 2);
    again.steps(&["open succeeded 1", "a succeeded 1", "b succeeded 1", "c succeeded 1", "close succeeded 1"]);
    assert_eq!(test.ledger(), ["open 1", "a", "b", "close 1", "open 2", "b", "c", "close 2"]);
    let over = runs(&test, &["resume", &id]).output(3).has("/attempt", 2);
    assert!(over.err().contains("nothing is left to do"), "{}", over.err());
    assert_eq!(test.ledger().len(), 8);
}

/// a run continues as often as it fails.
#[test]
fn a_run_that_fails_again_is_continued_again() {
    let test = app();
    let id = test.run_json("p").exit(1).id();
    for attempt in 2..=3 {
        runs(&test, &["resume", &id]).exit(1).has("/attempt", attempt).failed_with(&["business b: step_failed"]);
    }
    assert_eq!(test.ledger().iter().filter(|line| *line == "a").count(), 1);
    assert_eq!(test.ledger()[test.ledger().len() - 3..], ["open 3", "b", "close 3"]);
}

/// a constructor that failed runs again as a whole, and the destructor once, at the end.
#[test]
fn a_failed_constructor_runs_again_as_a_whole() {
    let lock = format!("{}; test -e \"$ROOT/free\" || exit 1; {}", noting("lock"), printing("0"));
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("_constructor", |p| p.note("open", "0").sh("lock", &lock))
        .pipeline("_destructor", |p| p.note("close", "0"));
    let id = test.run_json("p").exit(1).failed_with(&["constructor lock: step_failed"]).id();
    test.put("free", "");
    runs(&test, &["resume", &id]).output(1).has("/attempt", 2);
    assert_eq!(test.ledger(), ["open", "lock", "open", "lock", "a", "close"]);
}

/// `runs retry` discards the outcome of a step and of all later ones, also of a successful run.
#[test]
fn a_retry_discards_a_step_and_what_follows() {
    let test = app();
    repair(&test);
    let id = test.run_json("p").output(3).id();
    runs(&test, &["retry", &id, "--from", "b"]).output(3).has("/attempt", 2);
    let expected = ["open 1", "a", "b", "c", "close 1", "open 2", "b", "c", "close 2"];
    assert_eq!(test.ledger(), expected);
    let unknown = runs(&test, &["retry", &id, "--from", "bb"]).exit(2);
    assert!(unknown.err().contains("did you mean `b`?"), "{}", unknown.err());
    assert_eq!(test.ledger().len(), expected.len());
}

/// a retry runs a step again although its output is stored, also if it is killed there and resumed.
#[test]
fn a_retry_recalls_nothing() {
    let script = |word: &str| {
        let hold = "[ ! -e \"$ROOT/hold\" ] || while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done";
        format!("{}; {hold}; {}", noting(word), printing("1"))
    };
    let test = Test::new().pipeline("p", |p| {
        p.sh_with("a", &script("a"), "cache: true").sh_with("b", &script("b"), "cache: true").sh_with(
            "c",
            &script("c"),
            "cache: true",
        )
    });
    let id = test.run_json("p").output(1).id();
    runs(&test, &["retry", &id, "--from", "b"]).output(1).has("/steps/1/cached", serde_json::Value::Null);
    assert_eq!(test.ledger(), ["a", "b", "c", "b", "c"]);
    test.put("hold", "");
    let running = test.start(&["runs", "retry", &id, "--from", "b", "--format", "json"]);
    wait_until("b runs again", || test.ledger().len() == 6);
    running.kill();
    test.put("go", "");
    runs(&test, &["resume", &id]).output(1);
    assert_eq!(test.ledger(), ["a", "b", "c", "b", "c", "b", "b", "c"]);
    test.run_json("p").output(1).has("/steps/2/cached", true);
}

/// a cancelled run that is continued does not stay cancelled.
#[test]
fn a_cancelled_run_continues() {
    let hold = format!("{}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; {}", noting("hold"), printing("2"));
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1").sh("hold", &hold))
        .pipeline("_destructor", |p| p.note("close", "0"));
    let running = test.start(&["run", "-p", "p", "--format", "json"]);
    test.wait_for("hold");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    runs(&test, &["cancel", &id]).exit(0);
    running.finish().exit(130).has("/status", "cancelled");
    test.put("go", "");
    runs(&test, &["resume", &id]).output(2).has("/attempt", 2);
    assert_eq!(test.ledger(), ["a", "hold", "close", "hold", "close"]);
}

/// a run whose time is used up is refused with a hint, and continues with a larger limit.
#[test]
fn a_timed_out_run_continues_with_more_time() {
    let wait = format!("touch \"$ROOT/begun\"; test -e \"$ROOT/go\" || sleep 300; {}", printing("2"));
    let (mut test, mut ended) = (Test::new(), None);
    with_some_limit(|limit| {
        test = Test::new().pipeline("p", |p| p.note("a", "1").sh("wait", &wait));
        let ran = test.run(&["run", "-p", "p", "--format", "json", "--timeout", limit]).exit(1);
        ended = test.path("begun").exists().then_some((limit.to_owned(), ran));
        ended.is_some()
    });
    let (limit, ran) = ended.expect("the step has begun");
    let twice = 2 * limit.trim_end_matches('s').parse::<u32>().expect("seconds");
    let words = [format!("--timeout {twice}s"), format!("--timeout {}m", twice / 60)];
    assert!(words.iter().any(|words| ran.err().contains(words)), "{}", ran.err());
    let id = ran.failed_with(&["business wait: budget_exceeded"]).id();
    let refused = runs(&test, &["resume", &id]).exit(1).failed_with(&["- -: budget_exceeded"]);
    assert!(refused.err().contains("hint: raise it: etude runs resume"), "{}", refused.err());
    let refused = runs(&test, &["retry", &id, "--from", "wait", "--accept-changes"]).exit(1);
    let again = "hint: raise it: etude runs retry [RUN] --from wait --accept-changes --timeout";
    assert!(refused.err().contains(again), "{}", refused.err());
    test.put("go", "");
    runs(&test, &["resume", &id, "--timeout", "5m"]).output(2).has("/attempt", 2);
    assert_eq!(test.ledger(), ["a"]);
}

/// `--timeout` is a new limit also for a waiting run: the deadline recorded for the old limit has no effect.
#[test]
fn a_waiting_run_gets_a_new_time_budget() {
    let test = Test::new().pipeline("p", |p| p.step("{name: ok, type: approval, message: \"Ship?\"}").note("a", "1"));
    // A run that waits, and whose time is over.
    let late = || {
        let mut id = None;
        with_some_limit(|limit| {
            let ran = test.run(&["run", "-p", "p", "--format", "json", "--timeout", limit]);
            if ran.code() == 5 {
                id = Some(ran.id());
                let seconds = limit.trim_end_matches('s').parse().expect("seconds");
                std::thread::sleep(std::time::Duration::from_secs(seconds) + std::time::Duration::from_millis(200));
            }
            id.is_some()
        });
        id.expect("it waits")
    };
    let id = late();
    runs(&test, &["resume", &id, "--timeout", "1h"]).exit(5).has("/status", "waiting");
    test.run(&["approve", &id]).exit(0);
    runs(&test, &["resume", &id]).output(1);
    runs(&test, &["resume", &late()]).exit(1).failed_with(&["business ok: budget_exceeded"]);
}

/// a new limit applies to the whole run: the time of a killed process counts.
#[test]
fn the_time_of_a_killed_process_is_gone() {
    let hold = format!("{}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; {}", noting("hold"), printing("2"));
    let slow = format!("sleep 0.1; {}", printing("1"));
    let test = Test::new().pipeline("p", |p| p.sh("a", &slow).sh("hold", &hold));
    let running = test.start(&["run", "-p", "p", "--format", "json", "--timeout", "1h"]);
    test.wait_for("hold");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    let refused = runs(&test, &["resume", &id, "--timeout", "1ms"]).exit(1).failed_with(&["- -: budget_exceeded"]);
    assert!(refused.err().contains("hint: raise it: etude runs resume"), "{}", refused.err());
    test.put("go", "");
    runs(&test, &["resume", &id]).output(2).has("/attempt", 1);
}

/// a denied approval fails the run; a resume asks again.
#[test]
fn a_denied_approval_is_asked_again() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1").step("{name: ok, type: approval, message: \"Ship?\"}"));
    let id = test.run_json("p").exit(5).id();
    test.run(&["deny", &id]).exit(0);
    runs(&test, &["resume", &id]).exit(1).failed_with(&["business ok: approval_denied"]);
    runs(&test, &["resume", &id]).exit(5).has("/attempt", 2);
    test.run(&["approve", &id]).exit(0);
    runs(&test, &["resume", &id]).exit(0).has("/attempt", 2);
    assert_eq!(test.ledger(), ["a"]);
}

/// `run --again` starts a new run with the same input, in which given values are replaced.
#[test]
fn a_run_is_started_again_with_other_values() {
    let test = Test::new().pipeline("p", |p| {
        p.with("input: {n: integer, word: string}").sh("a", "sed 's/.*\"input\":\\({[^}]*}\\).*/{\"output\":\\1}/'")
    });
    let first = test.run(&["run", "-p", "p", "-i", "n=1", "-i", "word=x", "--format", "json"]);
    let id = first.output(serde_json::json!({"n": 1, "word": "x"})).id();
    let again = test.run(&["run", "--again", &id, "-i", "n=2", "--format", "json"]);
    let again = again.output(serde_json::json!({"n": 2, "word": "x"})).has("/attempt", 1);
    assert!(String::from_utf8_lossy(&again.raw).contains(&format!("\"again_of\":\"{id}\"")));
    test.run(&["run", "--again", "zzzz"]).exit(2);
    test.run(&["run", "--again", &id, "-p", "p"]).exit(2);
}

/// `run --again` keeps the request, unless a value is replaced, since the request then differs.
#[test]
fn a_run_that_is_started_again_has_its_request() {
    let server = Server::agent([Reply::says("yes"), Reply::says("yes")]);
    let test = Test::new().model(&server).file("etude.yaml", "router: {mode: embedded}\n").pipeline("p", |p| {
        p.with("triggers: [water the plants]\ninput: {n: {type: integer, default: 1}}").llm("a", "{{run.request}}?", "")
    });
    let id = test.run(&["run", "water the plants", "--format", "json"]).exit(0).id();
    test.run(&["run", "--again", &id]).exit(0);
    test.run(&["run", "--again", &id, "-i", "n=2"]).exit(0);
    let asked: Vec<bool> = server.seen().iter().map(|seen| seen.request().contains("water the plants?")).collect();
    assert_eq!(asked, [true, true, false]);
}

/// cli: the events of another attempt are complete: each end has its beginning, and kept results are not repeated.
#[test]
fn the_events_of_another_attempt_begin_what_they_end() {
    let test = app();
    let id = test.run_json("p").exit(1).id();
    repair(&test);
    let ran = test.run(&["runs", "resume", &id, "--accept-changes", "--format", "jsonl"]).exit(0);
    let reported = |line: &serde_json::Value| {
        let name = line["step"].as_str().or_else(|| line["phase"].as_str()).unwrap_or_default();
        line["event"].as_str().map(|event| format!("{event} {name}"))
    };
    let reported: Vec<String> = ran.lines().iter().filter_map(reported).collect();
    let expected = [
        "phase_started constructor",
        "step_started open",
        "step_ended open",
        "phase_started business",
        "step_started b",
        "step_ended b",
        "step_started c",
        "step_ended c",
        "phase_started destructor",
        "step_started close",
        "step_ended close",
    ];
    assert_eq!(reported, expected);
}

/// a refused resume reports the run as it is: its steps and its attempt, and nothing of a new one.
#[test]
fn a_refused_resume_reports_the_run_as_it_is() {
    let test = app();
    let ran = test.run_json("p").exit(1);
    repair(&test);
    let refused = runs(&test, &["resume", &ran.id()]).exit(3).has("/attempt", 1);
    assert_eq!(refused.at("/steps"), ran.at("/steps"));
    assert!(!refused.err().contains("note: attempt"), "{}", refused.err());
}
