//! Runs in skill mode: bounds, resume, cancellation and reports.

use std::fs;

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::{Test, wait_until, with_some_limit};

/// A model that calls a tool without end.
fn restless() -> Server {
    Server::by(|seen, _| Reply::bash(&format!("echo {} >> \"$LEDGER\"", seen.turn())))
}

fn app(server: &Server) -> Test {
    Test::new().skill("", "Be brief.\n").model(server)
}

fn reading() -> Reply {
    Reply::call("Read", json!({"path": "SKILL.md"}))
}

fn resume(test: &Test, id: &str) -> crate::ran::Ran {
    test.run(&["runs", "resume", id, "--format", "json"])
}

/// cli: the complete result document of a run in skill mode.
#[test]
fn the_result_document_says_that_a_skill_was_followed() {
    let server = Server::agent([reading()]);
    app(&server).follow("go", &[]).exit(0).stdout_json(json!({
        "run_id": "[RUN]", "status": "succeeded", "mode": "skill", "pipeline": null, "output": "done", "errors": [],
        "steps": [{"phase": "skill", "name": "helper", "type": "skill", "status": "succeeded", "attempts": 2,
            "duration_ms": 0, "usage": {"calls": 2, "input_tokens": 200, "output_tokens": 20, "cached_tokens": 0,
            "reasoning_tokens": 0, "cost_usd": null}, "model": "mock/m-std"}],
        "usage": {"calls": 2, "input_tokens": 200, "output_tokens": 20, "cached_tokens": 0, "reasoning_tokens": 0,
            "cost_usd": null, "shadow": {"calls": 0, "input_tokens": 0, "output_tokens": 0}},
        "fell_back": null, "attempt": 1, "duration_ms": 0,
    }));
}

/// cli: turns and tool calls are events, in order, with the result document last.
#[test]
fn turns_and_tool_calls_are_events() {
    let said = Reply::Calls { text: "I look.".into(), calls: vec![("Read".into(), json!({"path": "gone.txt"}))] };
    let server = Server::agent([said]);
    let lines = app(&server).run(&["run", "--skill", "go", "--format", "jsonl"]).exit(0).lines();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["phase_started", "step_started", "agent_said", "tool_started", "tool_ended", "step_ended"]);
    assert_eq!(lines[0]["phase"], "skill");
    assert_eq!((&lines[2]["turn"], &lines[2]["text"]), (&json!(1), &json!("I look.")));
    let effect = json!("skill/helper/turn1/Read[0]");
    assert_eq!((&lines[3]["tool"], &lines[3]["effect"]), (&json!("Read"), &effect));
    assert_eq!(lines[3]["arguments"], json!({"path": "gone.txt"}));
    assert!(
        lines[4]["error"].as_str().is_some_and(|error| error.contains("`gone.txt` does not exist")),
        "{}",
        lines[4]
    );
    assert_eq!((&lines[6]["status"], &lines[6]["output"]), (&json!("succeeded"), &json!("done")));
}

/// every turn and every call is in the journal, with its request and its result.
#[test]
fn every_turn_and_every_call_is_in_the_journal() {
    let server = Server::agent([Reply::bash("echo out; echo err >&2")]);
    let test = app(&server);
    let id = test.follow("do something", &["--yolo"]).output("done").id();
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    assert_eq!(shown.at("/input"), json!({"request": "do something"}));
    let effects = shown.at("/effects");
    let ids: Vec<&str> = effects.as_array().into_iter().flatten().filter_map(|effect| effect["id"].as_str()).collect();
    assert_eq!(
        ids,
        ["skill/helper/tools", "skill/helper/turn1", "skill/helper/turn1/Bash[0]", "skill/helper/turn2"],
        "{effects:#}"
    );
    let stream = |name: &str| test.run(&["runs", "show", &id, "--stream", name]).exit(0).out().to_owned();
    assert!(stream("skill/helper/turn1/prompt").contains("do something"));
    let second = stream("skill/helper/turn2/prompt");
    assert!(second.contains("out\nerr") && !second.contains("do something"), "only what is new is kept: {second}");
    assert!(stream("skill/helper/turn2/answer").contains("done"));
    let text = test.run(&["runs", "show", "latest", "helper", "1"]).exit(0);
    assert!(text.out().contains("turn 1, Bash[0] returned "), "{}", text.out());
    assert!(test.run(&["runs", "show", &id]).exit(0).out().contains("skill     helper\n"));
    let exported = test.run(&["runs", "export", &id]).exit(0);
    assert!(exported.out().contains("echo out; echo err"), "{}", exported.out());
}

/// the limit on turns is `max_turns` of the nearest configuration; in the last turn the model is informed.
#[test]
fn turns_are_bounded() {
    let server = restless();
    let test = app(&server).file("etude.yaml", "agent: {max_turns: 3, tier: lite}\n");
    test.follow("go", &["--yolo"])
        .exit(1)
        .failed_with(&["skill helper: budget_exceeded"])
        .has("/errors/0/message", "skill `helper` did not finish within 3 turns; raise the limit with `max_turns`")
        .stderr_has("hint: allow more turns: agent: {max_turns: 100} in etude.yaml")
        .has("/usage/calls", 3);
    assert_eq!(test.ledger(), ["0", "1", "2"]);
    let last = server.seen().pop().expect("a model was asked");
    assert_eq!(last.body["model"], "m-lite");
    assert!(last.body["messages"].to_string().contains("This is your last turn"), "{}", last.body["messages"]);
}

/// tokens and money are bounded: no call follows the completion that exceeds them.
#[test]
fn tokens_and_money_are_bounded() {
    let server = restless();
    let test = app(&server).file("etude.yaml", "prices: {m-std: {input: 10000, output: 0}}\n");
    let ran = test.follow("go", &["--yolo", "--max-tokens", "250"]).exit(1);
    ran.failed_with(&["skill helper: budget_exceeded"]).has("/usage/calls", 3);
    assert_eq!(test.ledger(), ["0", "1"]);
    let ran = test.follow("go", &["--yolo", "--max-cost", "1.5"]).exit(1);
    ran.failed_with(&["skill helper: budget_exceeded"]).has("/usage/calls", 2);
    assert_eq!(test.ledger(), ["0", "1", "0"]);
}

/// time is bounded: an active call is ended together with its processes.
#[test]
fn time_is_bounded() {
    with_some_limit(|limit| {
        let server = Server::agent([Reply::bash("echo $$ > \"$ROOT/pid\"; sleep 300")]);
        let test = app(&server);
        let ran = test.follow("go", &["--yolo", "--timeout", limit]).exit(1).has("/status", "failed");
        let pid = test.read("pid");
        if !pid.is_empty() {
            ran.failed_with(&["skill helper: budget_exceeded"]);
            is_gone(&pid);
        }
        !pid.is_empty()
    });
}

/// Ctrl-C during a call cancels the run and leaves no process of it, not even one in its own session.
#[test]
fn nothing_is_left_of_a_cancelled_call() {
    let line = "setsid sh -c 'echo $$ > \"$ROOT/other\"; exec sleep 300' & while [ ! -s \"$ROOT/other\" ]; do sleep 0.01; done; \
                echo $$ > \"$ROOT/pid\"; echo begun >> \"$LEDGER\"; sleep 300; echo not reached >> \"$LEDGER\"";
    let server = Server::agent([Reply::bash(line)]);
    let test = app(&server);
    let running = test.start(&["run", "--skill", "go", "--yolo", "--format", "json"]);
    test.wait_for("begun");
    running.interrupt();
    let ran = running.finish().exit(130).has("/status", "cancelled").has("/mode", "skill");
    let ran = ran.failed_with(&["skill helper: cancelled"]).steps(&["helper cancelled 1"]);
    is_gone(&test.read("pid"));
    is_gone(&test.read("other"));
    assert_eq!((server.calls(), test.ledger()), (1, vec!["begun".to_owned()]));
    test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!(server.calls(), 1);
}

pub(crate) fn is_gone(pid: &str) {
    let pid = pid.trim();
    assert!(!pid.is_empty(), "the process was there");
    let alive = || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    wait_until(&format!("the end of process {pid}"), || !alive());
}

/// a model that becomes unreachable fails the run with the model's message; completed calls ran once.
#[test]
fn a_run_that_lost_its_model_says_so_and_keeps_what_it_did() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::bash("echo once >> \"$LEDGER\""),
        _ => Reply::status(400).message("no more"),
    });
    let test = app(&server);
    let ran = test.follow("go", &["--yolo"]).exit(1).failed_with(&["skill helper: model_error"]);
    assert!(ran.at("/errors/0/message").as_str().is_some_and(|text| text.contains("no more")), "{}", ran.out());
    assert_eq!(test.ledger(), ["once"]);
}

/// a killed run continues at its last point, with the grants of the command line and from any directory.
#[test]
fn what_was_granted_survives_a_resume() {
    let hold = "echo begun >> \"$LEDGER\"; [ -e \"$ROOT/go\" ] || sleep 300";
    let server = Server::agent([
        Reply::bash(hold),
        Reply::call("Read", json!({"path": "../elsewhere/a.txt"})),
        Reply::call("Write", json!({"path": "../out/b.txt", "content": "written\n"})),
    ]);
    let test = app(&server);
    test.put("elsewhere/a.txt", "granted words\n");
    fs::create_dir(test.path("out")).expect("a directory can be made");
    let running = test
        .start(&["run", "--skill", "go", "--yolo", "--read", "../elsewhere", "--write", "../out", "--format", "json"]);
    test.wait_for("begun");
    running.kill();
    test.put("go", "");
    let test = test.cwd("somewhere/else");
    let id = test.run(&["runs", "list", "--all", "--format", "json"]).id_of_first_run();
    resume(&test, &id).output("done").has("/mode", "skill").has("/usage/calls", 4);
    let results = server.seen().pop().expect("a model was asked").results();
    assert!(results[1].contains("granted words"), "{results:?}");
    assert_eq!(test.read("out/b.txt"), "written\n");
    assert_eq!(server.calls(), 4, "the first turn was not asked for again");
}

/// a run whose SKILL.md or tools have changed continues only on request. A new tool is a change: the agent would get it.
#[test]
fn a_changed_skill_is_noticed() {
    for (path, text) in [
        ("app/SKILL.md", "Be long.\n"),
        ("app/tools/t.sh", "#!/bin/sh\n# Other.\necho 2\n"),
        ("app/tools/new.yaml", "name: new\ndescription: d\ncommand: echo 3\n"),
    ] {
        let server = Server::agent([Reply::bash("echo begun >> \"$LEDGER\"; [ -e \"$ROOT/go\" ] || sleep 300")]);
        let test = app(&server).file("tools/t.sh", "#!/bin/sh\n# One.\necho 1\n").executable("tools/t.sh");
        let running = test.start(&["run", "--skill", "go", "--yolo", "--format", "json"]);
        test.wait_for("begun");
        running.kill();
        test.put(path, text);
        test.put("go", "");
        let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
        let ran = resume(&test, &id).exit(3).has("/errors/0/kind", "definition_invalid");
        assert!(ran.err().contains(path.trim_start_matches("app/")), "{}", ran.err());
        test.run(&["runs", "resume", &id, "--accept-changes", "--format", "json"]).output("done");
    }
}

/// results beyond the model's window are left out, the oldest first, and that is an event.
#[test]
fn old_results_are_left_out_when_the_window_is_full() {
    let long = |n: usize| Reply::bash(&format!("echo result {n}; head -c 9000 /dev/zero | tr '\\0' 'x'"));
    let server = Server::agent([long(0), long(1), long(2), long(3)]);
    let test = app(&server).model_with(&server, "context: 6000");
    let lines = test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl"]).exit(0).lines();
    assert!(lines.iter().any(|line| line["event"] == "context_trimmed"), "{lines:?}");
    let seen = server.seen().pop().expect("a model was asked");
    let results = seen.results();
    assert!(results[0].contains("bytes left out to save room"), "{}", results[0]);
    assert!(results[3].starts_with("result 3"), "{}", results[3]);
    assert_eq!((seen.system().as_str(), seen.request().as_str()), ("Be brief.", "go"));
}

/// a completion without text and without calls leads to one more request, within the turns.
#[test]
fn an_empty_answer_is_not_the_end() {
    let server = Server::agent([Reply::says("")]);
    app(&server).follow("go", &[]).output("done").has("/usage/calls", 2);
    let messages = server.seen()[1].body["messages"].clone();
    assert!(messages.to_string().contains("Your answer was empty"), "{messages}");
    let refusing = Server::new([Reply::Refuses("not this")]);
    app(&refusing).follow("go", &[]).exit(1).failed_with(&["skill helper: model_refused"]).has("/output", Value::Null);
}
