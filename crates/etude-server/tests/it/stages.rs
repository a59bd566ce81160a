//! Stage machines: their runs in the API.

use serde_json::{Value, json};

use crate::support::Running;

const MACHINE: &str = r#"kind: StateMachine
id: m
contractVersion: "1.0.0"
description: Looks, then says what it saw
triggers: [look]
input: {}
entryStage: look
stages: stages/*.md
context: {required: [], optional: []}
stateSlot:
  slotVersion: "1.0.0"
  schema: {type: object}
  drift: reject
pipeline:
  look:
    next:
      - {when: {path: result.verdict, equals: ok}, sequential: [say]}
      - {else: true, terminal: true}
  say:
    next: [{else: true, terminal: true}]
"#;

/// A stage whose prompt holds its name.
fn stage(id: &str, tools: &str) -> String {
    format!(
        "---\nid: {id}\nname: Stage {id}\nallowedTools: [{tools}]\ncompletionTool: submit_{id}\n\
         completionSchema: {{type: object, required: [text], properties: {{text: {{type: string}}}}}}\n\
         retryPolicy: {{maxAttempts: 1, backoff: none}}\nturnCap: 3\nresolutionPolicy: retry-later\n---\nSTAGE-{id}\n"
    )
}

/// The stage `look` reads a file before it is done.
fn model(prompt: &str) -> Option<String> {
    let say = match (prompt.contains("STAGE-say"), prompt.contains("seen before")) {
        (true, _) => r#"call submit_say {"text": "all is well"}"#,
        (false, false) => r#"call Read {"path": "note.txt"}"#,
        (false, true) => r#"call submit_look {"text": "it is there"}"#,
    };
    Some(say.to_owned())
}

/// A server whose app has the machine.
fn server() -> Running {
    let server = Running::with_model(model, |_| ());
    let dir = server.dir().join("demo/machines/m/stages");
    std::fs::create_dir_all(&dir).expect("made");
    for (path, text) in
        [("../machine.yaml", MACHINE.to_owned()), ("look.md", stage("look", "Read")), ("say.md", stage("say", ""))]
    {
        std::fs::write(dir.join(path), text).expect("written");
    }
    std::fs::write(server.dir().join("demo/note.txt"), "seen before").expect("written");
    server
}

/// S-64: the graph of a machine has the states of a run, for any names of its stages.
#[test]
fn the_graph_of_a_machine_has_the_states_of_a_run() {
    let server = server();
    let run = server.run(&json!({"machine": "m"}));
    let path = format!("/v1/apps/demo/machines/m/graph?run={}", run["run_id"].as_str().expect("an id"));
    let graph = server.send("GET", &path, None).json();
    let nodes: Vec<_> = graph["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| (text(node, "name"), text(&node["state"], "status")))
        .collect();
    assert_eq!(nodes, [("Stage look", "succeeded"), ("Stage say", "succeeded")]);
}

/// The tree of a machine has its stages, each with turns and tool calls, and each effect names its node.
#[test]
fn the_tree_of_a_machine_has_its_stages() {
    let server = server();
    let run = server.run(&json!({"machine": "m"}));
    assert_eq!(run["status"], "succeeded", "{run}");
    let id = run["run_id"].as_str().expect("an id");
    let tree = server.send("GET", &format!("/v1/runs/{id}/tree"), None).json();
    let nodes: Vec<(&str, &str, u64)> = tree["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| (text(node, "id"), text(node, "kind"), node["children"].as_u64().expect("a number")))
        .collect();
    assert_eq!(
        nodes,
        [
            ("business", "phase", 1),
            ("business/m", "step", 2),
            ("business/m/look#1", "stage", 2),
            ("business/m/look#1/turn1", "turn", 1),
            ("business/m/look#1/turn1/Read[0]", "tool", 0),
            ("business/m/look#1/turn2", "turn", 0),
            ("business/m/say#1", "stage", 1),
            ("business/m/say#1/turn1", "turn", 0),
        ]
    );
    assert_eq!((&tree["nodes"][1]["attempt"], &tree["nodes"][2]["attempt"]), (&Value::Null, &json!(1)));
    let below = server.send("GET", &format!("/v1/runs/{id}/tree?parent=business%2Fm"), None).json();
    let below: Vec<&str> = below["nodes"].as_array().expect("nodes").iter().map(|node| text(node, "name")).collect();
    assert_eq!(below, ["look", "say"]);
    let effects = server.send("GET", &format!("/v1/runs/{id}/effects"), None).json();
    let mut found = effects["effects"].as_array().expect("effects").iter().map(|effect| text(effect, "node"));
    assert!(found.all(|node| nodes.iter().any(|(id, ..)| *id == node)), "{effects}");
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}
