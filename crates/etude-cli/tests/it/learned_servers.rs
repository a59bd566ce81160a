//! Learned pipelines that call tools of MCP servers.

use serde_json::{Value, json};

#[cfg(all(feature = "postgres", feature = "serve"))]
use crate::database::Server as Database;
#[cfg(all(feature = "postgres", feature = "serve"))]
use crate::fleet::{apply, fleet};
#[cfg(all(feature = "postgres", feature = "serve"))]
use crate::fleet_workers::WORKER;
use crate::mcp_server;
use crate::mcp_tools::SHOUT;
use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::states::row;
use crate::test::Test;

const DESCRIPTION: &str = "Says it loudly.";

/// An app with the server as `loud`.
fn app(server: &Server) -> Test {
    let test = Test::new().skill("", "Be loud.\n").model(server);
    test.put("server.py", &mcp_server::with(SHOUT));
    let path = test.path("server.py").display().to_string();
    test.file("etude.yaml", &format!("mcp: {{servers: {{loud: {{command: python3, args: [{path:?}]}}}}}}\n"))
}

/// Writes a learned pipeline that calls the tool.
fn learned(test: &Test) {
    let definition = "name: say\ndescription: Says a text.\nfallback: skill\ninput: {text: string}\nsteps:\n  - {name: loud, type: tool, tool: mcp__loud__shout, args: {text: \"{{input.text}}\"}}\n";
    test.put("app/pipelines/say/pipeline.yaml", definition);
    test.put("app/pipelines/say/learn.yaml", "learn: 1\nstate: active\nfamily: mcp__loud__shout\n");
}

/// Replaces a text of the server.
fn change(test: &Test, from: &str, to: &str) {
    let text = test.read("server.py");
    assert!(text.contains(from), "{text}");
    test.put("server.py", &text.replace(from, to));
}

fn run(test: &Test) -> Ran {
    test.run(&["run", "--pipeline", "say", "-i", "text=hello", "--yolo", "--format", "json"])
}

/// Number of calls of the tool.
fn calls(test: &Test) -> usize {
    let is_there = test.path("home/calls").exists();
    if is_there { test.read("home/calls").lines().count() } else { 0 }
}

fn state(test: &Test) -> (Value, Value) {
    let row = row(test);
    (row["state"].clone(), row["demoted"]["reason"].clone())
}

/// 2.11, L-65: an active pipeline does not call a server's tool whose description or schema has changed: the run deviates, and
/// a person confirms the calls from then on. Another order of members is the same tool.
#[test]
fn a_changed_tool_of_a_server_ends_the_trust() {
    let schema = "\"required\": [\"text\"]";
    for (from, to) in [(DESCRIPTION, "Deletes it."), (schema, "\"required\": []")] {
        let server = Server::agent([]);
        let test = app(&server);
        learned(&test);
        run(&test).exit(0).output(json!("HELLO")).has("/mode", "pipeline");
        change(
            &test,
            "\"type\": \"object\", \"properties\": {\"text\": TEXT}",
            "\"properties\": {\"text\": TEXT}, \"type\": \"object\"",
        );
        run(&test).exit(0).has("/mode", "pipeline");
        assert_eq!((calls(&test), state(&test)), (2, (json!("active"), Value::Null)));
        change(&test, from, to);
        let left = run(&test).exit(0).stderr_has("no longer `active` but `assisted` (tool_changed");
        assert_eq!(left.at("/fell_back/reason"), json!("tool_error"), "{from}");
        assert_eq!((calls(&test), state(&test)), (2, (json!("assisted"), json!("tool_changed"))));
        run(&test).exit(5).has("/waiting/0/payload/tool", "mcp__loud__shout");
        test.run(&["approve", "latest"]).exit(0);
        test.run(&["runs", "resume", "latest"]).exit(0);
        assert_eq!((calls(&test), state(&test).0), (3, json!("assisted")));
        assert_eq!(row(&test)["evidence"]["live"]["agreed"], json!(1), "a confirmed write is new evidence");
    }
}

/// 2.11: the same on a worker, which has the files of the app in another directory than the person who promoted the pipeline.
#[cfg(all(feature = "postgres", feature = "serve"))]
#[test]
fn a_worker_does_not_call_a_changed_tool() {
    let Some(database) = Database::start() else { return };
    let server = Server::agent([]);
    let test = fleet(&database, app(&server));
    learned(&test);
    apply(&test, "queues: {default: {allow: {yolo: true}}}\n");
    let worker = test.start(&WORKER);
    run(&test).exit(0).has("/mode", "pipeline");
    change(&test, DESCRIPTION, "Deletes it.");
    run(&test).exit(0).has("/fell_back/reason", "tool_error");
    assert_eq!((calls(&test), state(&test)), (1, (json!("assisted"), json!("tool_changed"))));
    worker.terminate();
    worker.finish().exit(0);
}

/// 2.11, L-77: the same if an agent calls the pipeline as a tool.
#[test]
fn a_called_pipeline_does_not_call_a_changed_tool() {
    let server = Server::agent([Reply::call("say", json!({"text": "hello"})), Reply::says("done")]);
    let test = app(&server);
    learned(&test);
    test.follow("Say hello", &["--yolo"]).exit(0);
    assert_eq!((calls(&test), state(&test).0), (1, json!("active")));
    change(&test, DESCRIPTION, "Deletes it.");
    test.follow("Say hello", &["--yolo"]).exit(0).stderr_has("(tool_changed");
    let results = server.seen().last().map(|seen| seen.results().concat()).unwrap_or_default();
    assert!(results.contains("(tool_error)") && results.contains("has changed since"), "{results}");
    assert_eq!((calls(&test), state(&test).0), (1, json!("assisted")));
}

/// 2.11: a tool that has changed since the learned runs is not called, even if the pipeline has never run.
#[test]
fn a_tool_is_compared_with_the_one_that_was_learned_from() {
    let shout = || Reply::call("mcp__loud__shout", json!({"text": "hello"}));
    let server = Server::agent([shout(), Reply::says("done")]);
    let test = app(&server);
    test.follow("Say hello", &["--yolo"]).exit(0);
    test.run(&["learn"]).exit(0);
    change(&test, DESCRIPTION, "Deletes it.");
    learned(&test);
    run(&test).exit(0).has("/fell_back/reason", "tool_error").stderr_has("(tool_changed");
    assert_eq!(state(&test).0, json!("assisted"));
}
