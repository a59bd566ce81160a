//! `kill -9` of the binary, everywhere: after each record of its journal and at arbitrary moments. A resumed run ends as
//! one that was never killed: same output, no finished effect done again, the destructor finished exactly once (A-5.3).
//!
//! The steps keep the ledger themselves: `+ID` when one begins, `-ID` when it has done its work. After `-ID` a step still
//! has to hand its output over; a run that is killed in between may do that one effect once more, and no other.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::{Pipeline, Running, Test};

/// An app that is killed, and what is approved along the way.
struct App {
    name: &'static str,
    build: fn(Test) -> Test,
    run: &'static [&'static str],
    /// It is killed after every so many records.
    stride: usize,
}

const APPS: [App; 7] = [
    App { name: "sequence", build: sequence, run: &RUN, stride: 1 },
    App { name: "fan-out", build: fan_out, run: &RUN, stride: 1 },
    App { name: "group and sub-pipeline", build: group, run: &RUN, stride: 1 },
    App { name: "model with retries", build: model, run: &RUN, stride: 1 },
    App { name: "failing step", build: failing, run: &RUN, stride: 1 },
    App { name: "approval", build: approval, run: &RUN, stride: 1 },
    App { name: "agent", build: agent, run: &["run", "--skill", "work", "--yolo", "--format", "json"], stride: 2 },
];

/// A step that keeps the ledger and prints `output`.
fn step(pipeline: Pipeline, name: &str, output: &str, fields: &str) -> Pipeline {
    pipeline.sh_with(name, &script(&format!("echo '{{\"output\":{output}}}'")), fields)
}

fn script(end: &str) -> String {
    format!(
        "echo \"+$ETUDE_EFFECT_ID\" >> \"$LEDGER\"; cat >/dev/null; echo \"-$ETUDE_EFFECT_ID\" >> \"$LEDGER\"; {end}"
    )
}

fn scoped(test: Test) -> Test {
    test.pipeline("_constructor", |p| step(p, "begin", "1", "")).pipeline("_destructor", |p| step(p, "end", "1", ""))
}

fn sequence(test: Test) -> Test {
    scoped(test).pipeline("p", |p| step(step(step(p, "one", "1", ""), "two", "2", ""), "three", "{\"done\":true}", ""))
}

fn fan_out(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "list", "[1,2,3,4]", "");
        let p = step(p, "each", "\"e\"", "for_each: \"{{list.output}}\"\nmax_parallel: 2");
        step(p, "last", "1", "").with("output: each")
    })
}

fn group(test: Test) -> Test {
    let test = test.pipeline("inner", |p| step(step(p, "first", "1", ""), "second", "\"inner\"", ""));
    scoped(test).pipeline("p", |p| {
        p.step(
            "name: both\ntype: parallel\nsteps:\n  - {name: left, type: code, command: sh steps/left.sh}\n  \
             - {name: right, type: code, command: sh steps/right.sh}",
        )
        .file("steps/left.sh", &script("echo '{\"output\":\"l\"}'"))
        .file("steps/right.sh", &script("echo '{\"output\":\"r\"}'"))
        .step("name: sub\ntype: pipeline\npipeline: inner")
    })
}

fn model(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "");
        let p = p.llm("ask", "give n", "schema: n.json\nvalidate: steps/check.sh\nretry: 3");
        let p = p.file("n.json", r#"{"type":"object","required":["n"]}"#).file(
            "steps/check.sh",
            "echo \"+$ETUDE_EFFECT_ID\" >> \"$LEDGER\"\ncase \"$(cat)\" in\n*'\"n\":7'*) v='{\"valid\":true}' ;;\n\
             *) v='{\"valid\":false,\"errors\":[\"n is not 7\"]}' ;;\nesac\necho \"-$ETUDE_EFFECT_ID\" >> \"$LEDGER\"\necho \"$v\"\n",
        );
        step(p, "last", "\"after\"", "").with("output: ask")
    })
}

fn failing(test: Test) -> Test {
    scoped(test).pipeline("p", |p| step(p, "one", "1", "").sh("two", &script("exit 3")))
}

fn approval(test: Test) -> Test {
    scoped(test).pipeline("p", |p| {
        let p = step(p, "one", "1", "").step("name: gate\ntype: approval\nmessage: go on?");
        step(p, "two", "\"went on\"", "")
    })
}

/// How many tool calls the agent makes, in how many turns: half of them one by one, the others two at a time.
const TOOL_CALLS: usize = 20;
const TURNS: usize = TOOL_CALLS / 2 + TOOL_CALLS / 4;

fn agent(test: Test) -> Test {
    let tool = "name: work\ndescription: Works.\ncommand: sh tools/work.sh\n";
    test.skill("", "Work.\n")
        .file("tools/work.yaml", tool)
        .file("tools/work.sh", &script("echo '{\"ok\":true,\"value\":1}'"))
}

/// Answers by the conversation alone, so that order and repetition do not matter.
fn answers() -> Server {
    let bash = || ("Bash", json!({"command": script("echo worked")}));
    Server::by(move |seen, _| match seen.conversation().len() {
        _ if !seen.tools().is_empty() => match seen.turn() {
            turn if turn < TOOL_CALLS / 2 => Reply::calls([bash()]),
            turn if turn < TURNS => Reply::calls([("work", json!({})), bash()]),
            _ => Reply::says(&format!("worked {} times", seen.results().len())),
        },
        1 => Reply::says("not json"),
        3 => Reply::says("{\"n\":6}"),
        _ => Reply::says("{\"n\":7}"),
    })
}

/// How a run ended, without what may differ.
#[derive(Debug, PartialEq)]
struct End {
    status: Value,
    output: Value,
    errors: Vec<Value>,
    steps: Vec<(Value, Value, Value)>,
    /// How often each effect finished its work.
    effects: BTreeMap<String, usize>,
}

fn end_of(test: &Test, document: &Value) -> End {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let mut effects = BTreeMap::new();
    for line in test.ledger().iter().filter_map(|line| line.strip_prefix('-')) {
        // An id begins with that of its run.
        let (_, path) = line.split_once('/').expect("an effect id is a path");
        *effects.entry(path.to_owned()).or_insert(0) += 1;
    }
    End {
        status: document["status"].clone(),
        output: document["output"].clone(),
        errors: list("errors").iter().map(|error| error["message"].clone()).collect(),
        steps: list("steps")
            .iter()
            .map(|row| (row["name"].clone(), row["status"].clone(), row["attempts"].clone()))
            .collect(),
        effects,
    }
}

const RUN: [&str; 5] = ["run", "-p", "p", "--format", "json"];

/// Approves what waits, and goes on until the run is over; the last document.
fn to_the_end(test: &Test, mut document: Value, resume: bool) -> Value {
    let id = document["run_id"].as_str().map_or_else(|| run_id(test).expect("a run was begun"), str::to_owned);
    let mut must_resume = resume;
    loop {
        if document["status"] == "waiting" {
            // Who was killed just after approving has approved.
            let code = test.run(&["approve", &id]).code();
            assert!(code == 0 || code == 2, "approving ended with {code}");
        } else if !must_resume {
            return document;
        }
        must_resume = false;
        let ran = test.run(&["runs", "resume", &id, "--format", "json"]);
        document = serde_json::from_slice(&ran.raw).unwrap_or_else(|e| panic!("{e}: {}", ran.err()));
    }
}

/// The id of the only run, read beside the binary so that each kill costs one process less.
fn run_id(test: &Test) -> Option<String> {
    ask(&journal(test), "SELECT id FROM runs", |row| row.get(0))
}

/// The first row of an answer. No file, no table yet, or busy: nothing that can be seen.
fn ask<T>(journal: &Path, query: &str, read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>) -> Option<T> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(journal, flags).ok()?;
    connection.query_row(query, [], read).ok()
}

/// How many records the only run has, committed.
fn records(journal: &Path) -> i64 {
    ask(journal, "SELECT count(*) FROM records", |row| row.get(0)).unwrap_or(0)
}

fn journal(test: &Test) -> std::path::PathBuf {
    test.path("home/.local/state/etude/journal.db")
}

/// Kills `running` as soon as the journal holds `count` records; false if it was over before.
fn kill_at(test: &Test, mut running: Running, count: i64) -> bool {
    let journal = journal(test);
    while records(&journal) < count {
        if running.is_over() {
            return false;
        }
    }
    if running.is_over() {
        return false;
    }
    running.kill();
    true
}

/// No finished effect is done again but the one that was in flight when the process was killed, and that once a kill;
/// the destructor comes to its end as often as it does without kills.
fn same_but_for_what_was_in_flight(app: &str, moment: &str, expected: &End, found: &End, kills: usize) {
    let without = |end: &End| (end.status.clone(), end.output.clone(), end.errors.clone(), end.steps.clone());
    assert_eq!(without(found), without(expected), "{app}, killed {moment}");
    let again: usize =
        found.effects.iter().map(|(id, times)| times - expected.effects.get(id).copied().unwrap_or(0)).sum();
    let ids = |end: &End| end.effects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected), "{app}, killed {moment}: other effects");
    let at_once = if app == "fan-out" || app.starts_with("group") { 2 } else { 1 };
    assert!(again <= kills * at_once, "{app}, killed {moment}: {again} effects done again: {:#?}", found.effects);
}

fn killed_everywhere(app: &App) {
    let server = answers();
    let fresh = || (app.build)(Test::new().model(&server));
    let whole = fresh();
    let ran = whole.run(app.run);
    let document = to_the_end(&whole, serde_json::from_slice(&ran.raw).expect("a document"), false);
    let expected = end_of(&whole, &document);
    let asked = server.calls();
    assert!(expected.effects.values().all(|times| *times == 1), "{:?}", expected.effects);
    let total = records(&journal(&whole));
    assert!(total >= 4, "{}: the journal was found and read, {total} records", app.name);

    for count in (1..=total).step_by(app.stride) {
        let test = fresh();
        let before = server.calls();
        let running = test.start(app.run);
        let killed = kill_at(&test, running, count);
        let document = to_the_end(&test, Value::Null, true);
        let again = server.calls() - before - asked;
        assert!(again <= usize::from(killed), "{}, killed at {count}: {again} answers asked for again", app.name);
        let moment = format!("after {count} of {total} records");
        same_but_for_what_was_in_flight(app.name, &moment, &expected, &end_of(&test, &document), usize::from(killed));
    }
}

/// A-5.3, A-3.7: killed after each record, a run that is resumed ends as one that was not.
#[test]
fn sequence_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[0]);
}

/// A-5.3, X-1: the same for elements that run at once.
#[test]
fn fan_out_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[1]);
}

/// A-5.3, X-3: the same for groups and sub-pipelines.
#[test]
fn group_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[2]);
}

/// A-5.3, A-4.4: the same in the middle of a conversation with a model: rejected answers are not asked for again.
#[test]
fn model_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[3]);
}

/// A-5.3: the same for a run that fails.
#[test]
fn failing_run_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[4]);
}

/// A-5.3, X-3: the same for a run that waits for an approval.
#[test]
fn approval_killed_after_any_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[5]);
}

/// A-7.2: the same for an agent with 20 tool calls: no finished call is made again, no answer asked for again, and the
/// last answer is the same.
#[test]
fn agent_killed_after_every_other_record_ends_as_if_it_had_not_been() {
    killed_everywhere(&APPS[6]);
}

/// A-7.2: killed again and again until it is done, each time at another moment, the agent comes to the same end.
#[test]
fn agent_killed_again_and_again_ends_as_if_it_had_not_been() {
    let server = answers();
    let fresh = || agent(Test::new().model(&server));
    let whole = fresh();
    let expected = end_of(&whole, &whole.run(APPS[6].run).doc());
    let asked = server.calls();
    let test = fresh();
    let mut running = test.start(APPS[6].run);
    let mut kills = 0;
    for n in 0..12_u64 {
        std::thread::sleep(std::time::Duration::from_millis(40 + n * 67 % 190));
        if running.is_over() {
            break;
        }
        running.kill();
        kills += 1;
        running = match run_id(&test) {
            Some(id) => test.start(&["runs", "resume", &id, "--format", "json"]),
            None => test.start(APPS[6].run),
        };
    }
    running.finish();
    let document = to_the_end(&test, Value::Null, true);
    same_but_for_what_was_in_flight("agent", "again and again", &expected, &end_of(&test, &document), kills);
    assert!(server.calls() - asked <= asked + kills, "answers were asked for again");
}

/// A-7.2: the agent makes as many calls as the test above means to interrupt.
#[test]
fn agent_makes_twenty_tool_calls() {
    let server = answers();
    let test = agent(Test::new().model(&server));
    let ran = test.run(APPS[6].run).output(format!("worked {TOOL_CALLS} times"));
    let effects = end_of(&test, &ran.doc()).effects;
    assert_eq!((effects.len(), server.calls()), (TOOL_CALLS, TURNS + 1), "{effects:#?}");
}

/// A-5.3: killed again and again at arbitrary moments, resumes included, every app comes to the same end.
#[test]
fn killed_at_arbitrary_moments_again_and_again_the_end_is_the_same() {
    let server = answers();
    for (number, app) in APPS.iter().enumerate() {
        let fresh = || (app.build)(Test::new().model(&server));
        let whole = fresh();
        let ran = whole.run(app.run);
        let document = to_the_end(&whole, serde_json::from_slice(&ran.raw).expect("a document"), false);
        let expected = end_of(&whole, &document);
        let test = fresh();
        // Anything from before the journal is there to after the end; which of it happens decides no assertion.
        let pause = |n: usize| {
            std::thread::sleep(std::time::Duration::from_millis((11 + 23 * n as u64 + 7 * number as u64) % 60))
        };
        let first = test.start(app.run);
        pause(number);
        first.kill();
        let mut kills = 1;
        let Some(id) = run_id(&test) else { continue };
        for n in 0..3 {
            let again = test.start(&["runs", "resume", &id, "--format", "json"]);
            pause(n);
            again.kill();
            kills += 1;
        }
        let document = to_the_end(&test, Value::Null, true);
        same_but_for_what_was_in_flight(app.name, "at arbitrary moments", &expected, &end_of(&test, &document), kills);
    }
}
