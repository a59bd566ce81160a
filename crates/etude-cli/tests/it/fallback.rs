//! Pipelines that deviate and continue in skill mode (L-67 to L-75).

use serde_json::json;

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::Test;

/// A tool that records its input, and returns its arguments.
const PROGRAM: &str = r#"
import json, os, sys
call = json.load(sys.stdin)
with open("ledger", "a") as ledger:
    ledger.write(call["tool"] + " " + json.dumps(call["args"]) + "\n")
if call["args"].get("id") == "broken":
    print(json.dumps({"ok": False, "error": {"class": "ToolTerminal", "code": "NotFound", "message": "no such order"}}))
else:
    print(json.dumps({"ok": True, "value": {"id": call["args"].get("id"), "status": "open"}}))
"#;

fn app(server: &Server, steps: &str) -> Test {
    let schema = "{type: object, required: [id], properties: {id: {type: string}}}";
    let tool = |name: &str, gated: bool| {
        format!(
            "name: {name}\ndescription: Does it.\ncommand: python3 tools/tool.py\ngated: {gated}\ninputSchema: {schema}\n"
        )
    };
    let pipeline =
        format!("name: p\ndescription: Cancels orders.\nfallback: skill\ninput: {{id: string}}\nsteps:\n{steps}");
    Test::new()
        .model(server)
        .skill("", "Help.\n")
        .file("tools/tool.py", PROGRAM)
        .file("tools/get.yaml", &tool("get", false))
        .file("tools/cancel.yaml", &tool("cancel", true))
        .pipeline("_destructor", |p| p.note("close", "1"))
        .file("pipelines/p/pipeline.yaml", &pipeline)
}

const GET: &str = "  - {name: order, type: tool, tool: get, args: {id: \"{{input.id}}\"}}\n";

const CLOSED: &str = "  - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}, \
                      require: {value: \"{{order.output.status}}\", equals: closed}}\n";

const CANCEL: &str = "  - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}}\n";

const BROKEN: &str = "  - {name: again, type: tool, tool: get, args: {id: broken}}\n";

const RUN: &[&str] = &["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"];

fn run(test: &Test, more: &[&str]) -> Ran {
    test.run(&[RUN, more].concat())
}

/// Tool calls that were made.
fn calls(test: &Test) -> Vec<String> {
    test.read("app/ledger").lines().map(str::to_owned).collect()
}

/// L-67, L-68, L-72: a guard fails before any write: the run ends as its agent ends it, which gets the request, the input and
/// the values read; the destructor runs once.
#[test]
fn a_deviation_continues_in_skill_mode() {
    let server = Server::agent([Reply::call("get", json!({"id": "B-2"}))]);
    let test = app(&server, &format!("{GET}{CLOSED}"));
    let ran = test.run(&[&["run", "cancel it"], &RUN[1..]].concat()).exit(0);
    assert_eq!(ran.at("/status"), json!("succeeded"));
    assert_eq!((ran.at("/mode"), ran.at("/pipeline"), ran.at("/output")), (json!("skill"), json!("p"), json!("done")));
    let fell_back = json!({"pipeline": "p", "step": "gone", "reason": "require", "writes_done": 0});
    assert_eq!((ran.at("/fell_back"), ran.at("/errors")), (fell_back.clone(), json!([])));
    let row = |n: usize| [ran.at(&format!("/steps/{n}/phase")), ran.at(&format!("/steps/{n}/name"))];
    let expected = [["business", "order"], ["business", "gone"], ["skill", "helper"], ["destructor", "close"]];
    assert_eq!([row(0), row(1), row(2), row(3)], expected.map(|row| row.map(|word| json!(word))));
    assert_eq!(calls(&test), [r#"get {"id": "A-1"}"#, r#"get {"id": "B-2"}"#]);
    assert_eq!(test.ledger(), ["close"]);
    let asked = server.seen()[0].request();
    assert!(asked.starts_with("cancel it\n\nInput: {\"id\":\"A-1\"}\n"), "{asked}");
    let data =
        "<data>\n{\"tool\":\"get\",\"arguments\":{\"id\":\"A-1\"},\"result\":{\"id\":\"A-1\",\"status\":\"open\"}}\n";
    assert!(asked.contains(data), "{asked}");
    let shown = test.run(&["runs", "show", "latest", "--format", "json"]).exit(0);
    assert_eq!((shown.at("/mode"), shown.at("/fell_back")), (json!("skill"), fell_back));
    let effects = ["/calls/0/effect", "/calls/1/effect"].map(|at| shown.at(at));
    assert_eq!(effects, [json!("p/order"), json!("p@skill/helper/turn1/get[0]")]);
    let text = test.run(&["runs", "show", "latest"]).exit(0);
    assert!(text.out().contains("skill, since step gone deviated (require) before any write"), "{}", text.out());
    test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs/0/mode", "skill");
}

/// L-67: with `--pipeline` and no request, the description replaces it; a run without a deviation stays in its pipeline.
#[test]
fn without_a_deviation_the_run_stays_in_its_pipeline() {
    let server = Server::agent([]);
    run(&app(&server, &format!("{GET}{CLOSED}")), &[]).exit(0);
    assert!(server.seen()[0].request().starts_with("Cancels orders.\n\nInput: {\"id\":\"A-1\"}\n"));
    let ran = run(&app(&server, GET), &[]).exit(0);
    assert_eq!((ran.at("/mode"), ran.at("/fell_back")), (json!("pipeline"), json!(null)));
    assert_eq!(ran.at("/steps").as_array().map(Vec::len), Some(2), "{}", ran.at("/steps"));
    assert_eq!(server.calls(), 1);
}

/// L-69: after a write, the agent is informed, and the same call is refused; another one is not.
#[test]
fn a_write_is_not_made_again() {
    let both = [("cancel", json!({"id": "A-1"})), ("cancel", json!({"id": "B-2"}))];
    let server = Server::agent([Reply::calls(both)]);
    let test = app(&server, &format!("{GET}{CANCEL}{BROKEN}"));
    let ran = run(&test, &["--yolo"]).exit(0);
    assert_eq!((ran.at("/fell_back/reason"), ran.at("/fell_back/writes_done")), (json!("tool_error"), json!(1)));
    let cancelled: Vec<String> = calls(&test).into_iter().filter(|line| line.starts_with("cancel")).collect();
    assert_eq!(cancelled, [r#"cancel {"id": "A-1"}"#, r#"cancel {"id": "B-2"}"#]);
    assert!(server.seen()[0].request().contains("\"changed\":true"));
    let results = server.seen()[1].results();
    assert!(results[0].contains("AlreadyMade") && results[1].contains("B-2"), "{results:?}");
}

/// L-69: `effects` of a tool decides if it writes, whatever needs approval.
#[test]
fn effects_of_a_tool_decide_what_a_write_is() {
    let server = Server::agent([]);
    let test = app(&server, &format!("{GET}{CANCEL}{BROKEN}"));
    for (tool, effects) in [("get", true), ("cancel", false)] {
        let path = format!("app/tools/{tool}.yaml");
        test.put(&path, &format!("{}effects: {effects}\n", test.read(&path)));
    }
    let ran = run(&test, &["--yolo"]).exit(0);
    assert_eq!((ran.at("/fell_back/step"), ran.at("/fell_back/writes_done")), (json!("again"), json!(1)));
    let asked = server.seen()[0].request();
    let changed: Vec<&str> = asked.lines().filter(|line| line.contains("\"changed\":true")).collect();
    assert!(matches!(changed[..], [one] if one.contains("\"tool\":\"get\"")), "{changed:?}");
}

/// L-45: a denied call deviates; the agent has the same rights as in skill mode.
#[test]
fn a_denied_call_deviates() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A-1"}))]);
    let test = app(&server, &format!("{GET}{CANCEL}"));
    let ran = run(&test, &[]).exit(0);
    assert_eq!((ran.at("/fell_back/step"), ran.at("/fell_back/reason")), (json!("gone"), json!("denied")));
    assert_eq!(calls(&test), [r#"get {"id": "A-1"}"#]);
    assert!(server.seen()[1].results()[0].contains("ApprovalDenied"));
}

/// L-66: a call of the agent waits for its approval after a deviation, and the run continues in skill mode.
#[test]
fn the_agent_waits_for_an_approval() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A-1"}))]);
    let test = app(&server, &format!("{GET}{CLOSED}")).file("etude.yaml", "approvals: {unattended: wait}\n");
    let waits = run(&test, &[]).exit(5);
    assert_eq!((waits.at("/mode"), waits.at("/fell_back/step")), (json!("skill"), json!("gone")));
    assert_eq!(waits.at("/waiting/0/payload/arguments"), json!({"id": "A-1"}));
    test.run(&["runs", "show", "latest", "--format", "json"]).exit(0).has("/mode", "skill");
    test.run(&["approve", "latest"]).exit(0);
    let ran = test.run(&["runs", "resume", "latest", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/mode"), ran.at("/output")), (json!("skill"), json!("done")));
    assert_eq!(calls(&test), [r#"get {"id": "A-1"}"#, r#"cancel {"id": "A-1"}"#]);
    assert_eq!((server.calls(), test.ledger().len()), (2, 1));
}

/// L-71, A-5.6: another attempt at a run whose agent failed continues with the agent, and repeats nothing of the pipeline; a
/// retry from a step runs the pipeline again.
#[test]
fn another_attempt_continues_in_skill_mode() {
    let server = Server::by(|_, number| match number {
        0 => Reply::call("get", json!({"id": "B-2"})),
        1 => Reply::status(400),
        _ => Reply::says("done"),
    });
    let test = app(&server, &format!("{GET}{CANCEL}{BROKEN}"));
    let ran = run(&test, &["--yolo"]).exit(1);
    assert_eq!((ran.at("/errors/0/phase"), ran.at("/fell_back/writes_done")), (json!("skill"), json!(1)));
    let ran = test.run(&["runs", "resume", "latest", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/output"), ran.at("/fell_back/step")), (json!("done"), json!("again")));
    let tools = |test: &Test| -> Vec<String> {
        calls(test).iter().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    };
    assert_eq!(tools(&test), ["get", "cancel", "get", "get"]);
    test.run(&["runs", "retry", "latest", "--from", "again", "--format", "json"]).exit(0);
    assert_eq!(tools(&test), ["get", "cancel", "get", "get", "get"]);
    assert_eq!((server.calls(), test.ledger().len()), (4, 3));
}

/// cli: a deviation is an event, and a line on stderr.
#[test]
fn a_deviation_is_reported_when_it_happens() {
    let server = Server::agent([]);
    let test = app(&server, &format!("{GET}{CLOSED}"));
    let ran = test.run(&[&RUN[..RUN.len() - 1], &["jsonl"]].concat()).exit(0);
    let event = ran.lines().into_iter().find(|line| line["event"] == "fell_back").expect("an event");
    assert_eq!((&event["step"], &event["reason"]), (&json!("gone"), &json!("require")));
    assert_eq!((&event["pipeline"], &event["writes_done"]), (&json!("p"), &json!(0)));
    let ran = test.run(&RUN[..RUN.len() - 2]).exit(0);
    assert!(ran.err().contains("deviates at gone (require)"), "{}", ran.err());
}

/// A-4.9: a limit of money on a model without a price ends the run before it starts, even if only the agent of a deviation
/// would call it.
#[test]
fn a_budget_that_does_not_bound_the_fallback_is_refused() {
    let server = Server::agent([]);
    let test = app(&server, GET).model_with(&server, "states_cost: false");
    let ran = run(&test, &["--max-cost", "1"]).exit(4);
    assert!(ran.err().contains("the price of `mock/m-std` is unknown"), "{}", ran.err());
    assert_eq!(test.ledger(), [""; 0]);
}

/// L-75: without `SKILL.md` there is no fallback; constructor and destructor never fall back.
#[test]
fn a_fallback_needs_a_skill() {
    let server = Server::agent([]);
    let test = app(&server, GET);
    std::fs::remove_file(test.path("app/SKILL.md")).expect("it is there");
    let checked = test.run(&["check", "--format", "json"]).exit(3);
    assert_eq!(checked.at("/diagnostics/0/file"), json!("pipelines/p/pipeline.yaml"));
    assert!(checked.at("/diagnostics/0/message").to_string().contains("SKILL.md"), "{}", checked.at("/diagnostics/0"));
    run(&test, &[]).exit(3);
    let constructor =
        "name: _constructor\ndescription: d\nfallback: skill\nsteps: [{name: a, type: code, command: \"true\"}]\n";
    let test = app(&server, GET).file("pipelines/_constructor/pipeline.yaml", constructor);
    let checked = test.run(&["check", "--format", "json"]).exit(3);
    assert_eq!(checked.at("/diagnostics/0/file"), json!("pipelines/_constructor/pipeline.yaml"));
}

/// cli: the possible fallback is shown before a run starts, with its agent in the bound of the cost.
#[test]
fn a_dry_run_and_a_graph_show_the_fallback() {
    let server = Server::agent([]);
    let test = app(&server, GET);
    let dry = run(&test, &["--dry-run"]).exit(0);
    assert_eq!((dry.at("/steps/1/phase"), dry.at("/steps/1/name")), (json!("skill"), json!("helper")));
    assert_eq!(dry.at("/worst_case/model_calls"), json!(50));
    let dry = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--dry-run"]).exit(0);
    assert!(dry.out().contains("skill, after a deviation"), "{}", dry.out());
    let graph = test.run(&["graph", "p", "--format", "json"]).exit(0);
    let is_shown = graph.at("/nodes").as_array().into_iter().flatten().any(|node| node["type"] == "fallback");
    assert!(is_shown, "{}", graph.at("/nodes"));
}
