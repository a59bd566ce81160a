//! Steps that call tools (L-43 to L-45).

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::Test;

/// A tool that records its input and returns its arguments.
const PROGRAM: &str = r#"
import json, os, sys
call = json.load(sys.stdin)
with open("ledger", "a") as ledger:
    ledger.write(json.dumps([call["tool"], call["args"], os.environ.get("ETUDE_EFFECT_ID", "")]) + "\n")
if call["args"].get("id") == "broken":
    print(json.dumps({"ok": False, "error": {"class": "ToolTerminal", "code": "NotFound", "message": "no such order"}}))
else:
    print(json.dumps({"ok": True, "value": {"id": call["args"].get("id"), "lines": [{"sku": "a"}, {"sku": "b"}]}}))
"#;

fn app(steps: &str) -> Test {
    let schema = "{type: object, required: [id], properties: {id: {type: string}}}";
    let tool = |name: &str, gated: bool| {
        format!(
            "name: {name}\ndescription: Does it.\ncommand: python3 tools/tool.py\ngated: {gated}\ninputSchema: {schema}\n"
        )
    };
    Test::new()
        .file("tools/tool.py", PROGRAM)
        .file("tools/get.yaml", &tool("get", false))
        .file("tools/cancel.yaml", &tool("cancel", true))
        .file("pipelines/p/pipeline.yaml", &format!("name: p\ndescription: d\ninput: {{id: string}}\nsteps:\n{steps}"))
}

const GET: &str = "  - {name: order, type: tool, tool: get, args: {id: \"{{input.id}}\"}}\n";

/// L-43, L-44: the output of a tool step is the tool's value, and the elements of a list are called one by one.
#[test]
fn a_tool_step_has_the_value_of_its_tool() {
    let each =
        "  - {name: each, type: tool, tool: get, for_each: \"{{order.output.lines}}\", args: {id: \"{{item.sku}}\"}}\n";
    let test = app(&format!("{GET}{each}"));
    let ran = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/steps/0/type"), json!("tool"));
    assert_eq!((ran.at("/output/0/id"), ran.at("/output/1/id")), (json!("a"), json!("b")));
    let ledger = test.read("app/ledger");
    assert_eq!(ledger.lines().count(), 3);
    assert!(ledger.starts_with("[\"get\", {\"id\": \"A-1\"}, \"") && !ledger.contains("\"\"]"), "{ledger}");
}

/// L-43, L-45: a call that policy denies to an agent is denied to a step, and invalid arguments start nothing.
#[test]
fn a_tool_step_passes_the_checks_of_an_agents_call() {
    let cancel = "  - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}}\n";
    let test = app(&format!("{GET}{cancel}"));
    let run = ["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"];
    let denied = test.run(&run).exit(1);
    assert_eq!(denied.at("/errors/0/kind"), json!("approval_denied"));
    assert_eq!(denied.at("/errors/0/step"), json!("gone"));
    let denied = test.run(&[&run[..], &["--yolo"]].concat()).exit(0);
    assert_eq!(denied.at("/output/id"), json!("A-1"));
    let failed = app(GET).run(&["run", "--pipeline", "p", "-i", "id=broken", "--format", "json"]).exit(1);
    assert_eq!(failed.at("/errors/0/kind"), json!("step_failed"));
    assert!(failed.at("/errors/0/message").to_string().contains("no such order"));
    let test = app("  - {name: order, type: tool, tool: get, args: {id: 12}}\n");
    let failed = test.run(&run).exit(1);
    assert_eq!(failed.at("/errors/0/kind"), json!("step_failed"));
    assert!(!test.path("app/ledger").exists());
}

/// L-44: a step with a question waits without a process, and its call is made once.
#[test]
fn a_tool_step_waits_for_an_answer() {
    let cancel = "  - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}}\n";
    let test = app(&format!("{GET}{cancel}")).file("etude.yaml", "approvals: {unattended: wait}\n");
    let waits = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(5);
    assert_eq!(waits.at("/waiting/0/payload/arguments"), json!({"id": "A-1"}));
    test.run(&["approve", "latest"]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(0);
    let ledger = test.read("app/ledger");
    let tools: Vec<&str> = ledger.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(tools, ["get", "cancel"]);
}

/// L-43: `runs show` lists the calls of steps with tool, arguments and result, as it lists those of an agent.
#[test]
fn calls_of_steps_are_shown() {
    let each =
        "  - {name: each, type: tool, tool: get, for_each: \"{{order.output.lines}}\", args: {id: \"{{item.sku}}\"}}\n";
    let cancel = "  - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}}\n";
    let test = app(&format!("{GET}{each}{cancel}")).file("etude.yaml", "approvals: {unattended: wait}\n");
    test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(5);
    let call = |ran: &crate::ran::Ran, n: usize| {
        ["effect", "tool", "arguments"].map(|member| ran.at(&format!("/calls/{n}/{member}")))
    };
    let row = |effect: &str, tool: &str, id: &str| [json!(effect), json!(tool), json!({ "id": id })];
    let shown = test.run(&["runs", "show", "latest", "--format", "json"]).exit(0);
    assert_eq!(call(&shown, 0), row("p/order", "get", "A-1"));
    assert_eq!((call(&shown, 1), call(&shown, 2)), (row("p/each[0]", "get", "a"), row("p/each[1]", "get", "b")));
    assert_eq!((call(&shown, 3), shown.at("/calls/3/result")), (row("p/gone", "cancel", "A-1"), json!(null)));
    test.run(&["approve", "latest"]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(0);
    let shown = test.run(&["runs", "show", "latest", "--format", "json"]).exit(0);
    assert_eq!(shown.at("/calls").as_array().map(Vec::len), Some(4), "{}", shown.at("/calls"));
    assert!(shown.at("/calls/3/result").to_string().contains("A-1"), "{}", shown.at("/calls/3"));
    assert_eq!(
        shown.at("/calls/3/origins/~1id"),
        json!([{"from": "input", "at": "/id"}, {"from": "p/order", "at": "/id"}])
    );
    let text = test.run(&["runs", "show", "latest"]).exit(0);
    assert!(text.out().contains(r#"cancel {"id":"A-1"}"#) && text.out().contains("get, 2 calls"), "{}", text.out());
    let text = test.run(&["runs", "show", "latest", "order"]).exit(0);
    assert!(text.out().contains(r#"get {"id":"A-1"} returned "#), "{}", text.out());
}

/// L-46: a dry run shows the calls and requirements of a run before it starts.
#[test]
fn a_dry_run_shows_calls_and_requirements() {
    let test = app(
        "  - {name: order, type: tool, tool: get, args: {id: \"{{input.id}}\"}, require: {value: \"{{input.id}}\", equals: B}}\n",
    );
    let dry = test.run(&["run", "--pipeline", "p", "-i", "id=A", "--dry-run", "--format", "json"]).exit(0);
    let step = dry.at("/steps/0");
    assert_eq!((&step["tool"], &step["args"]), (&json!("get"), &json!({"id": "\"A\""})));
    assert_eq!(step["require"], json!({"condition": "input.id equals \"B\"", "holds": false}));
}

const CHOOSE: &str = r#"  - {name: first, type: llm, prompt: "{{run.request}}: which line?", choose: {from: "{{order.output.lines}}", by: sku}}
  - {name: second, type: llm, prompt: "Which id?", choose: {from: "{{order.output.lines}}", by: sku, many: true}}
  - {name: last, type: tool, tool: get, args: {id: "{{first.output.sku}}"}}
"#;

/// L-47, L-49: a choice is an element of its list, two questions are one call, and the prompt has the request.
#[test]
fn choices_are_elements_of_their_list() {
    let server = Server::new([Reply::says(r#"{"first": "b", "second": ["b", "a"]}"#)]);
    let test = app(&format!("{GET}{CHOOSE}")).model(&server);
    let ran = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/output/id"), json!("b"));
    assert_eq!(server.seen().len(), 1, "two questions, one call");
    let asked = server.seen()[0].conversation().join(" ");
    assert!(asked.contains("which line?") && asked.contains("Which id?") && asked.contains("A-1"), "{asked}");
}

/// A-5.6, L-49: a question of a joint call that ended the run is asked by itself in every later attempt, and likewise with
/// `retry --from`. The earlier question keeps its reply until it is started again itself.
#[test]
fn a_question_of_a_joint_call_is_asked_again() {
    let (none, other) = (r#"{"second": ["none"]}"#, r#"{"first": "a", "second": ["b"]}"#);
    let says = [r#"{"first": "b", "second": ["none"]}"#, none, r#"{"second": ["b", "a"]}"#, none, other];
    let server = Server::new(says.map(Reply::says));
    let test = app(&format!("{GET}{CHOOSE}")).model(&server);
    let id = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(1).id();
    let runs = |words: &[&str]| test.run(&[&["runs"], words, &["--format", "json"]].concat());
    runs(&["resume", &id]).exit(1).has("/errors/0/reason", "choose_none");
    runs(&["resume", &id]).exit(0).has("/output/id", "b");
    let asked = |at: usize| server.seen()[at].conversation().join(" ");
    assert_eq!(server.seen().len(), 3);
    assert!(!asked(1).contains("which line?") && asked(2).contains("Which id?"), "{}", asked(1));
    runs(&["retry", &id, "--from", "second"]).exit(1).has("/errors/0/reason", "choose_none");
    runs(&["retry", &id, "--from", "first"]).exit(0).has("/output/id", "a");
    assert_eq!(server.seen().len(), 5, "both in one call again");
}

/// L-47, L-50: `none` is a deviation, and nothing after it starts.
#[test]
fn no_choice_deviates() {
    let server = Server::new([Reply::says(r#"{"first": "none", "second": []}"#)]);
    let test = app(&format!("{GET}{CHOOSE}")).model(&server);
    let ran = test.run(&["run", "--pipeline", "p", "-i", "id=A-1", "--format", "json"]).exit(1);
    assert_eq!(ran.at("/errors/0/kind"), json!("deviated"));
    assert_eq!(ran.at("/errors/0/reason"), json!("choose_none"));
    assert_eq!(ran.at("/errors/0/condition"), json!("{{order.output.lines}}"));
    assert_eq!(test.read("app/ledger").lines().count(), 1);
}
