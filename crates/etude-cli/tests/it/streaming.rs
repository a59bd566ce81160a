//! `--format jsonl`: events as they occur, with the result document last.

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::{Test, noting, wait_until};

/// cli: each event is a line; the last line is the document that `--format json` prints.
#[test]
fn events_come_in_order_and_the_document_last() {
    let server = Server::new([Reply::says("no"), Reply::says("{}")]);
    let test = Test::new().model(&server).pipeline("_destructor", |p| p.note("end", "1")).pipeline("p", |p| {
        p.sh("one", "echo said >&2; sleep 0.2; echo '{\"output\":1}'")
            .llm("ask", "x", "schema: s.json")
            .file("s.json", r#"{"type":"object"}"#)
            .step("name: never\ntype: code\ncommand: \"true\"\nwhen: \"{{one.output}}\"")
    });
    let lines = test.run(&["run", "-p", "p", "--format", "jsonl"]).exit(1).lines();
    let (document, events) = lines.split_last().expect("there are lines");
    let short: Vec<String> = events
        .iter()
        .map(|event| {
            let place = ["step", "effect", "phase"].iter().find_map(|name| event[name].as_str()).unwrap_or("-");
            let more = ["status", "text"].iter().find_map(|name| event[name].as_str()).unwrap_or("");
            format!("{} {place} {more}", event["event"].as_str().unwrap_or("-")).trim().to_owned()
        })
        .collect();
    let expected = [
        "phase_started business",
        "step_started one",
        "stderr p/one said",
        "step_ended one succeeded",
        "step_started ask",
        "attempt_rejected ask",
        "step_ended ask succeeded",
        "step_started never",
        "step_ended never failed",
        "phase_started destructor",
        "step_started end",
        "step_ended end succeeded",
    ];
    assert_eq!(short, expected);
    let rejected = json!({
        "event": "attempt_rejected", "phase": "business", "step": "ask", "type": "llm", "attempt": 1,
        "max_attempts": 3, "rejected_by": "schema",
        "errors": ["the answer is not JSON (expected ident at line 1 column 2); it begins with: no"],
    });
    assert_eq!(events[5], rejected);
    assert_eq!(document["status"], "failed");
}

/// cli: events are printed as they happen, not at the end.
#[test]
fn events_are_printed_as_they_happen() {
    let test = Test::new().pipeline("p", |p| {
        p.note("one", "1").sh(
            "hold",
            &format!("{}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{{\"output\":2}}'", noting("hold")),
        )
    });
    let running = test.start(&["run", "-p", "p", "--format", "jsonl"]);
    wait_until("the end of the first step on stdout", || running.stdout_so_far().contains("\"step_ended\""));
    test.put("go", "");
    let lines = running.finish().exit(0).lines();
    assert_eq!(lines.last().map(|line| &line["output"]), Some(&json!(2)));
}

/// cli: a run that could not be started still prints the document with `--format jsonl`.
#[test]
fn a_refused_run_is_a_document_as_well() {
    let lines = Test::new().run(&["run", "-p", "p", "--format", "jsonl"]).exit(2).lines();
    assert_eq!((lines.len(), &lines[0]["errors"][0]["kind"]), (1, &json!("input_invalid")));
}
