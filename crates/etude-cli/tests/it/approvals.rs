//! Approval steps: the run waits outside any process; the answer comes from another one (X-3).

use std::time::Duration;

use serde_json::{Value, json};

#[cfg(feature = "serve")]
use crate::serve::Serving;
use crate::test::{Running, Test, printing, wait_until, with_some_limit};

fn gate(fields: &str) -> Test {
    Test::new()
        .pipeline("p", |p| {
            p.with("input: {who: string}")
                .note("before", "1")
                .step(&format!("name: gate\ntype: approval\nmessage: \"Send to {{{{input.who}}}}?\"\n{fields}"))
                .sh("after", "cat > \"$ROOT/after.json\"; echo after >> \"$LEDGER\"; echo '{\"output\":\"sent\"}'")
        })
        .pipeline("_destructor", |p| p.note("end", "1"))
}

const RUN: [&str; 7] = ["run", "-p", "p", "-i", "who=Ada", "--format", "json"];

fn resume(test: &Test, id: &str) -> crate::ran::Ran {
    test.run(&["runs", "resume", id, "--format", "json"])
}

fn output_of_gate(test: &Test) -> Value {
    let stdin: Value = serde_json::from_str(&test.read("after.json")).expect("stdin was kept");
    stdin["steps"]["gate"]["output"].clone()
}

/// X-3, cli: a waiting run ends its process with exit status 5, names its question, and has not run its destructor.
#[test]
fn a_waiting_run_says_for_what_and_ends_its_process() {
    let test = gate("approvers: [ann, bob]");
    let ran = test.run(&RUN).exit(5).has("/status", "waiting").has("/errors", json!([])).has("/output", Value::Null);
    let mut waiting = ran.at("/waiting");
    let question = waiting[0]["payload"].as_object_mut().and_then(|payload| payload.remove("question"));
    assert!(question.is_some_and(|question| question.is_string()), "an answer names the question that it is for");
    assert_eq!(
        waiting,
        json!([{
            "id": "[RUN]:p/gate", "kind": "approval",
            "payload": {"message": "Send to Ada?", "schema": null, "approvers": ["ann", "bob"]},
        }])
    );
    let ran = ran.steps(&["before succeeded 1", "gate not_started 0", "after not_started 0", "end not_started 0"]);
    assert_eq!(test.ledger(), ["before"]);
    // A resume without an answer waits again.
    resume(&test, &ran.id()).exit(5).has("/status", "waiting");
    assert_eq!(test.ledger(), ["before"]);
}

/// X-3: approved from another process, the run continues; the approver is in the step's output.
#[test]
fn an_approved_run_goes_on() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    test.run(&["approve", &id, "--format", "json"]).exit(0).stdout_json(json!({
        "run_id": "[RUN]", "id": "[RUN]:p/gate", "decision": "approved",
    }));
    resume(&test, &id).output("sent");
    let given = output_of_gate(&test);
    assert_eq!((&given["approved"], &given["by"], &given["answer"]), (&json!(true), &json!("tester"), &Value::Null));
    assert_eq!(test.ledger(), ["before", "after", "end"]);
}

/// X-3, SECURITY.md: an answer that names its question applies to that question only; the decision is shown.
#[test]
fn an_answer_names_the_question_that_was_seen() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    let other = "0".repeat(32);
    for verb in ["approve", "deny"] {
        test.run(&[verb, &id, "--question", &other]).exit(2).stderr_has("does not wait for the answer to question");
        test.run(&[verb, &id, "--question", ""]).exit(2);
    }
    let shown = test.run(&["runs", "show", &id]).exit(0);
    let question = shown.out().split("--question ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let question = question.expect("the question is shown").to_owned();
    // A part of the id may also be the beginning of another question's.
    test.run(&["approve", &id, "--question", &question[..31]]).exit(2);
    test.run(&["approve", &id, "--question", &question]).exit(0).stderr_has("Send to Ada?");
    let shown = test.run(&["runs", "show", &id]).exit(0);
    assert!(shown.out().contains("by tester") && !shown.out().contains("etude approve"), "{}", shown.out());
    assert!(test.run(&["runs", "list"]).exit(0).out().contains("approved; continue with"));
    let listed = test.run(&["-C", ".", "runs", "list", "--format", "json"]).exit(0);
    let reason = listed.at("/runs/0/reason");
    assert!(reason.as_str().is_some_and(|text| text.contains("`etude -C . runs resume ")), "{reason}");
    resume(&test, &id).output("sent");
}

/// X-3: a denial fails the step with its own kind, and the reason; the destructor runs.
#[test]
fn a_denial_fails_the_step_and_says_why() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    test.run(&["deny", &id, "--reason", "not on a Friday", "--by", "ann"]).exit(0);
    let ran = resume(&test, &id).exit(1).failed_with(&["business gate: approval_denied"]);
    let message = ran.at("/errors/0/message");
    assert!(message.as_str().is_some_and(|text| text.contains("ann") && text.contains("not on a Friday")), "{message}");
    assert_eq!(test.ledger(), ["before", "end"]);
}

/// X-3: an answer is bound by its schema, an approver by the list.
#[test]
fn answers_and_approvers_are_checked() {
    let test = gate("schema: answer.json\napprovers: [ann]")
        .file("pipelines/p/answer.json", r#"{"type":"object","required":["amount"]}"#);
    let id = test.run(&RUN).exit(5).id();
    test.run(&["approve", &id, "--by", "eve", "--answer", "{\"amount\":1}"]).exit(2).stderr_has("ann");
    test.run(&["approve", &id, "--by", "ann", "--answer", "{}"]).exit(2).stderr_has("amount");
    test.run(&["approve", &id, "--by", "ann"]).exit(2).stderr_has("an answer is missing").stderr_has("amount");
    test.run(&["approve", &id, "--by", "ann", "--answer", "{\"amount\":1}"]).exit(0);
    test.run(&["approve", &id, "--by", "ann", "--answer", "{\"amount\":2}"])
        .exit(2)
        .stderr_has("already been answered");
    resume(&test, &id).output("sent");
    assert_eq!(output_of_gate(&test)["answer"], json!({"amount": 1}));
    test.run(&["approve", &id]).exit(2).stderr_has("already been answered");
}

/// X-3, A-3.3: an answer keeps its digits; one that cannot be parsed is refused, never taken for `null`.
#[test]
fn an_answer_is_taken_as_it_is_or_refused() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    for answer in [r#""\ud800""#, "[1e400]"] {
        test.run(&["approve", &id, "--answer", answer])
            .exit(2)
            .stderr_has("`--answer` is not valid: the value cannot be parsed");
    }
    test.run(&["approve", &id, "--answer", "{\"n\": 123456789012345678901}"]).exit(0);
    resume(&test, &id).output("sent");
    let stdin = test.read("after.json");
    assert!(stdin.contains(r#""answer":{"n":123456789012345678901}"#), "{stdin}");
}

/// A run whose gate waits for a limited time, and that time.
fn timed_gate(policy: &str) -> (Test, String, Duration) {
    let mut waiting = None;
    with_some_limit(|limit| {
        let test = gate(&format!("timeout: {limit}\non_timeout: {policy}"));
        let ran = test.run(&RUN);
        if ran.code() == 5 {
            let seconds = limit.trim_end_matches('s').parse().expect("seconds");
            waiting = Some((test, ran.id(), Duration::from_secs(seconds)));
        }
        waiting.is_some()
    });
    waiting.expect("it waits")
}

/// X-3: the time to answer passes while no process runs; the step decides what follows.
#[test]
fn the_time_to_answer_goes_on_outside_any_process() {
    for (policy, exit, approved) in [("fail", 1, None), ("deny", 1, None), ("approve", 0, Some(true))] {
        let (test, id, _) = timed_gate(policy);
        let mut ended = None;
        crate::test::wait_until("the end of the time to answer", || {
            let ran = resume(&test, &id);
            let is_over = ran.at("/status") != "waiting";
            ended = is_over.then_some(ran);
            is_over
        });
        let kind = ended.expect("it has ended").exit(exit).at("/errors/0/kind");
        match policy {
            "fail" => assert_eq!(kind, "step_timeout"),
            "deny" => assert_eq!(kind, "approval_denied"),
            _ => assert_eq!(output_of_gate(&test)["approved"], json!(approved)),
        }
    }
}

/// X-3: a decision after the deadline is refused, and the run continues as its step declares.
#[test]
fn a_decision_after_the_deadline_is_refused() {
    let (test, id, limit) = timed_gate("deny");
    // Nothing changes when the time is over, so nothing else can be waited for.
    std::thread::sleep(limit + Duration::from_millis(200));
    for word in ["approve", "deny"] {
        let refused = test.run(&[word, &id]).exit(2);
        assert!(refused.err().contains("a later decision does not count"), "{}", refused.err());
    }
    assert_eq!(resume(&test, &id).exit(1).at("/errors/0/kind"), "approval_denied");
}

/// X-3: approvals within a fan-out are answered one by one, each by its id.
#[test]
fn several_things_are_waited_for_and_answered_one_by_one() {
    let test = Test::new().pipeline("p", |p| {
        p.note("list", "[\"a\",\"b\"]")
            .step("name: gate\ntype: approval\nmessage: \"{{item}}?\"\nfor_each: \"{{list.output}}\"\nmax_parallel: 2")
            .note("after", "\"done\"")
    });
    let ran = test.run_json("p").exit(5);
    assert_eq!(
        (ran.at("/waiting/0/id"), ran.at("/waiting/1/id")),
        (json!("[RUN]:p/gate[0]"), json!("[RUN]:p/gate[1]"))
    );
    let id = ran.id();
    let several = test.run(&["approve", &id]).exit(2).stderr_has("waits for several decisions");
    several.stderr_has("hint: name one of them: '[RUN]:p/gate[0]', '[RUN]:p/gate[1]'");
    test.run(&["approve", &format!("{id}:p/gate[1]")]).exit(0);
    resume(&test, &id).exit(5).has("/waiting/0/id", "[RUN]:p/gate[0]").has("/waiting/1", Value::Null);
    test.run(&["approve", &format!("{id}:p/gate[0]")]).exit(0);
    resume(&test, &id).output("done");
    assert_eq!(test.ledger(), ["list", "after"]);
}

/// X-3: the remaining one of two questions needs no name, even before the run has continued with the first answer.
#[test]
fn what_has_been_answered_is_asked_no_more() {
    let test = Test::new().pipeline("p", |p| {
        p.note("list", "[\"a\",\"b\"]")
            .step("name: gate\ntype: approval\nmessage: \"{{item}}?\"\nfor_each: \"{{list.output}}\"\nmax_parallel: 2")
            .note("after", "\"done\"")
    });
    let id = test.run_json("p").exit(5).id();
    test.run(&["approve", &format!("{id}:p/gate[0]")]).exit(0);
    test.run(&["approve", &id]).exit(0).stderr_has("p/gate[1]");
    test.run(&["approve", &id]).exit(2).stderr_has("already been answered");
    resume(&test, &id).output("done");
}

/// X-3: a run that waits can be cancelled; its destructor runs.
#[test]
fn a_waiting_run_can_be_cancelled() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!(test.ledger(), ["before", "end"]);
}

/// X-1: an approval names the steps up to the next one that change the outside world.
#[test]
fn an_approval_names_the_effects_after_it() {
    let approval = |name: &str| format!("name: {name}\ntype: approval\nmessage: Go?");
    let test = Test::new().pipeline("p", |p| {
        p.sh_with("a", &printing("1"), "effects: true")
            .step(&approval("g"))
            .sh_with("h", &printing("1"), "effects: true")
            .note("i", "1")
            .step(&approval("k"))
            .sh_with("z", &printing("1"), "effects: true")
    });
    let ran = test.run_json("p").exit(5).has("/waiting/0/payload/effects", json!(["h"]));
    let shown = test.run(&["runs", "show", &ran.id()]).exit(0);
    assert!(shown.out().contains("then      h changes the outside world\n"), "{}", shown.out());
    test.run(&["run", "-p", "p"]).exit(5).stderr_has("then: h changes the outside world");
}

/// Human-readable output of a waiting run: its question, and the commands to answer.
#[test]
fn people_see_how_to_answer() {
    gate("").run(&["run", "-p", "p", "-i", "who=Ada"]).exit(5).stdout("").stderr(
        r"
  ✓ before [TIME]

p waiting in [TIME], run [RUN]

waiting: Send to Ada?
hint: etude approve [RUN]:p/gate --question 73d3256b38985696ad8d91cb650ba634
hint: or: etude deny [RUN]:p/gate --question 73d3256b38985696ad8d91cb650ba634
hint: then: etude runs resume [RUN]",
    );
}

/// X-3, cli: the commands to answer a question with a schema name the option that they require.
#[test]
fn people_see_the_answer_that_a_schema_requires() {
    let ran = gate("schema: {enum: [fast, slow]}").run(&["run", "-p", "p", "-i", "who=Ada"]).exit(5);
    ran.stderr_has("waiting: Send to Ada?\nanswer: --answer JSON that satisfies {\"enum\":[\"fast\",\"slow\"]}\nhint: etude approve");
}

/// cli: `approve --resume` decides and prints what `runs resume` would: the output for people, the result document as JSON.
#[test]
fn approve_with_resume_continues_the_run() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    let ran = test.run(&["approve", &id, "--resume"]).exit(0).stdout("\"sent\"");
    ran.stderr_has("approved [RUN]:p/gate").stderr_has("succeeded");
    assert_eq!(test.ledger(), ["before", "after", "end"]);
    let id = test.run(&RUN).exit(5).id();
    test.run(&["approve", &id, "--resume", "--raw"]).exit(0).stdout("sent");
    let id = test.run(&RUN).exit(5).id();
    test.run(&["approve", &id, "--resume", "--format", "json"]).output("sent").has("/status", "succeeded");
    test.run(&["approve", &id, "--raw"]).exit(2);
}

/// cli: `deny --resume` lets the run end, with the exit status of that end.
#[test]
fn deny_with_resume_ends_the_run() {
    let test = gate("");
    let id = test.run(&RUN).exit(5).id();
    let ran = test.run(&["deny", &id, "--reason", "no", "--resume", "--format", "json"]).exit(1);
    ran.has("/status", "failed").has("/errors/0/kind", "approval_denied");
    assert_eq!(test.ledger(), ["before", "end"]);
}

/// A run that asks A and B, and works after the answer to A until the file `go` exists.
fn working() -> Test {
    let group = "type: parallel, steps: [{name: x, type: pipeline, pipeline: long}, {name: y, type: approval, message: \"B?\"}]";
    Test::new()
        .pipeline("long", |p| {
            let script =
                "echo begun >> \"$LEDGER\"; until test -e \"$ROOT/go\"; do sleep 0.02; done; echo '{\"output\":1}'";
            p.step("name: a\ntype: approval\nmessage: \"A?\"").sh("work", script)
        })
        .yaml("both", &format!("name: both\ndescription: Asks twice.\nsteps:\n  - {{name: g, {group}}}\n"))
}

const BOTH: [&str; 5] = ["run", "-p", "both", "--format", "json"];

/// The document as printed, with ids and durations.
fn document(ran: &crate::ran::Ran) -> Value {
    serde_json::from_slice(&ran.raw).expect("stdout is JSON")
}

fn question(ran: &crate::ran::Ran, message: &str) -> String {
    let document = document(ran);
    let all = &document["waiting"];
    let found = all.as_array().and_then(|all| all.iter().find(|one| one["payload"]["message"] == message));
    found.and_then(|one| one["id"].as_str()).expect("a question").to_owned()
}

/// Runs until the answer to A, and returns the id of the run and of B, with the process that works.
fn answered(test: &Test) -> (String, String, Running) {
    let ran = test.run(&BOTH).exit(5);
    let (id, other) = (ran.id(), question(&ran, "B?"));
    test.run(&["approve", &question(&ran, "A?")]).exit(0);
    let at_work = test.start(&["runs", "resume", &id, "--format", "json"]);
    test.wait_for("begun");
    (id, other, at_work)
}

/// ADR 0189: a question of a run that is at work is answered at once, with its id or as the only open one of the run.
#[test]
fn a_run_at_work_takes_an_answer() {
    for is_named in [true, false] {
        let test = working();
        let (id, other, at_work) = answered(&test);
        let place = if is_named { &other } else { &id };
        test.run(&["approve", place]).exit(0).stderr_has("approved [RUN]:both/g/y: B?");
        test.run(&["approve", place]).exit(2).stderr_has("already been answered");
        test.put("go", "");
        let ran = at_work.finish();
        let ran = if ran.code() == 5 { resume(&test, &id) } else { ran };
        ran.exit(0).has("/status", "succeeded");
    }
}

/// cli: `--resume` of a decision about a run that is at work follows the run.
#[test]
fn a_decision_about_a_run_at_work_follows_it() {
    let test = working();
    let (_, other, at_work) = answered(&test);
    let following = test.start(&["deny", &other, "--reason", "no", "--resume", "--format", "json"]);
    let ends = |ran: crate::ran::Ran| ran.exit(1).has("/status", "failed").has("/errors/0/kind", "approval_denied");
    let journal = rusqlite::Connection::open(test.path("home/.local/state/etude/journal.db")).expect("it opens");
    let answers = || journal.query_row("select count(*) from signals", [], |row| row.get::<_, i64>(0)).expect("sql");
    wait_until("the denial is stored beside the approval", || answers() == 2);
    test.put("go", "");
    ends(at_work.finish());
    ends(following.finish());
}

/// ADR 0216: the same for a run of a server.
#[cfg(feature = "serve")]
#[test]
fn a_run_at_work_takes_an_answer_on_a_server() {
    for is_named in [true, false] {
        let test = working();
        let serving = Serving::start(&test, &["--port", "0"]);
        let ran = test.run(&["run", "-p", "both", "--server", "local", "--format", "json"]).exit(5);
        let (id, other) = (ran.id(), question(&ran, "B?"));
        test.run(&["approve", &question(&ran, "A?"), "--server", "local"]).exit(0);
        test.wait_for("begun");
        let place = if is_named { &other } else { &id };
        test.run(&["approve", place, "--server", "local"]).exit(0).stderr_has("approved [RUN]:both/g/y: B?");
        test.put("go", "");
        serving.until(&format!("/v1/runs/{id}"), "succeeded");
        assert_eq!(serving.end().0, Some(0));
    }
}

/// ADR 0217: the duration of a run is its active time, during its work as at its end: lists, `runs show` and HTTP agree.
#[cfg(feature = "serve")]
#[test]
fn the_duration_of_a_run_at_work_excludes_its_wait() {
    const HOUR_MS: u64 = 3_600_000;
    let test = working();
    let ran = test.run(&BOTH).exit(5);
    let id = ran.id();
    // The wait was long.
    let journal = test.path("home/.local/state/etude/journal.db");
    let connection = rusqlite::Connection::open(journal).expect("it opens");
    let earlier = "update runs set created_at_ms = created_at_ms - ?1, started_at_ms = started_at_ms - ?1";
    connection.execute(earlier, [HOUR_MS.cast_signed()]).expect("sql");
    for question in ["A?", "B?"] {
        test.run(&["approve", &self::question(&ran, question)]).exit(0);
    }
    let at_work = test.start(&["runs", "resume", &id, "--format", "json"]);
    test.wait_for("begun");
    let serving = Serving::start(&test, &["--port", "0"]);
    let durations = || {
        let list = document(&test.run(&["runs", "list", "--format", "json"]))["runs"][0]["duration_ms"].clone();
        let show = document(&test.run(&["runs", "show", &id, "--format", "json"]))["duration_ms"].clone();
        let row = serving.document("GET", "/v1/runs", "")["runs"][0]["duration_ms"].clone();
        let document = serving.document("GET", &format!("/v1/runs/{id}"), "")["duration_ms"].clone();
        [list, show, row, document].map(|duration| duration.as_u64().expect("a number"))
    };
    let working = durations();
    assert!(working.is_sorted() && working.iter().all(|ms| *ms > 0 && *ms < HOUR_MS), "{working:?}");
    test.put("go", "");
    let end = document(&at_work.finish())["duration_ms"].as_u64().expect("a number");
    assert!((working[3]..HOUR_MS).contains(&end), "{working:?} and then {end}");
    assert_eq!(durations(), [end; 4]);
}
