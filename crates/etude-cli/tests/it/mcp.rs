//! `etude mcp` as agents use it: pipelines as tools on stdin and stdout.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::Serving;
use crate::test::{Test, wait_until};

/// A client that has started `etude mcp`.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    revision: &'static str,
    capabilities: Value,
    /// Messages received that were not responses.
    received: Vec<Value>,
}

impl Client {
    /// A client of 2026-07-28, which has no handshake.
    fn start(test: &Test, args: &[&str]) -> Self {
        let mut command = test.command(&[&["mcp"], args].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let output = BufReader::new(output);
        let capabilities = json!({});
        Self { child, input, output, next: 0, revision: "2026-07-28", capabilities, received: Vec::new() }
    }

    /// A client of a revision with a handshake.
    fn connected(test: &Test, revision: &'static str, capabilities: &Value) -> Self {
        let mut client = Self { revision, ..Self::start(test, &[]) };
        let greeting = client.request(
            "initialize",
            &json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}),
        );
        assert_eq!(greeting["result"]["protocolVersion"], revision);
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn with_tasks(mut self) -> Self {
        self.capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        self
    }

    fn write(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("it reads");
    }

    /// Sends a request. Returns its id.
    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let mut params = params.clone();
        if self.revision == "2026-07-28" {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.revision.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
        }
        self.write(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    /// Reads the next message. Every line of stdout is one.
    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).expect("a line") > 0, "the server has closed its end");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.read();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.received.push(message);
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.response(id)
    }

    /// Result of a tool call.
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let response = self.request("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert!(response.get("error").is_none(), "{response}");
        response["result"].clone()
    }

    fn tools(&mut self) -> Vec<Value> {
        self.request("tools/list", &json!({}))["result"]["tools"].as_array().expect("tools").clone()
    }

    fn names(&mut self) -> Vec<String> {
        self.tools().iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Closes its end and waits for the server's.
    fn end(mut self) {
        drop(self.input.take());
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

fn code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {response}"))
}

/// Waits until a run has a status. Returns its document.
fn until(client: &mut Client, run_id: &str, status: &str) -> Value {
    let mut run = Value::Null;
    wait_until(&format!("{run_id} is {status}"), || {
        run = client.call("etude_show", &json!({"run_id": run_id}))["structuredContent"].clone();
        run["status"] == status
    });
    run
}

/// Id of the only run.
fn only_run(client: &mut Client) -> String {
    let runs = client.call("etude_runs", &json!({}));
    let runs = runs["structuredContent"]["runs"].as_array().expect("runs").clone();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0]["run_id"].as_str().expect("an id").to_owned()
}

fn greeter() -> Test {
    Test::new().pipeline("greet", |p| {
        p.with("input: {name: string}").sh("hello", "echo noise >&2; echo '{\"output\": {\"text\": \"hello\"}}'")
    })
}

/// A pipeline that runs until the file `go` exists, and records the end of its scope.
fn slow() -> Test {
    Test::new().pipeline("slow", |p| {
        p.sh(
            "wait",
            "echo begun >> \"$LEDGER\"; while [ ! -e \"$ROOT/go\" ]; do sleep 0.05; done; echo '{\"output\": 7}'",
        )
    })
}

/// S-140, S-142, S-143: commands of approved applications are tools with the results of all tools. A command that a person must
/// confirm returns the instructions, and starts nothing.
#[test]
fn commands_of_applications_are_tools() {
    let test = crate::echo_box::with(&[]).pipeline("p", |p| p.note("a", "1"));
    let mut client = Client::start(&test, &["--tools", "app_*_[aw]*"]);
    let tools = client.tools();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "app_echo-box_args", "app_echo-box_box_wipe", "app_echo-box_wipe", "etude_cancel", "etude_find",
            "etude_resume", "etude_runs", "etude_show"
        ]
    );
    assert_eq!(tools[0]["inputSchema"]["properties"]["args"]["type"], "array");
    assert_eq!(tools[0]["annotations"]["destructiveHint"], true);
    let result = client.call("app_echo-box_args", &json!({"args": ["word", "-x"]}));
    let structured = &result["structuredContent"];
    assert_eq!((&result["isError"], &structured["status"]), (&json!(false), &json!("succeeded")), "{result}");
    assert_eq!((&structured["run_id"], &structured["output"]["args"]), (&Value::Null, &json!(["word", "-x"])));
    let started = crate::echo_box::started(&test).len();
    let result = client.call("app_echo-box_wipe", &json!({"args": ["--confirm"]}));
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(result["structuredContent"]["errors"][0]["kind"], "confirmation_required", "{result}");
    assert!(result["isError"] == true && text.contains("etude approve ask-"), "{text}");
    let result = client.call("app_echo-box_args", &json!({"words": ["a"]}));
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["errors"][0]["pointer"]),
        (&json!(true), &json!("/words"))
    );
    assert_eq!(crate::echo_box::started(&test).len(), started, "nothing else is started");
    client.end();
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    crate::echo_box::put(&test, crate::echo_box::PROJECT, &[]);
    let mut client = Client::start(&test, &[]);
    assert!(!client.names().iter().any(|name| name.starts_with("app_")), "it is not approved");
    client.end();
}

/// cli: agents start their servers in every project. A project without an app has no pipelines, and those that are created
/// there become tools.
#[test]
fn a_project_without_an_app_is_served_and_may_become_one() {
    let test = Test::new().cwd("elsewhere");
    let mut client = Client::start(&test, &[]);
    assert_eq!(client.names(), ["etude_cancel", "etude_find", "etude_resume", "etude_runs", "etude_show"]);
    let about = client.request("server/discover", &json!({}));
    let instructions = about["result"]["instructions"].as_str().unwrap_or_default();
    assert!(instructions.contains("`etude new .` makes one"), "{about}");
    let step = "{name: a, type: code, command: \"echo 7\", output: text}";
    let made = format!("name: made\ndescription: Print seven.\nsteps:\n  - {step}\n");
    test.put("elsewhere/pipelines/made/pipeline.yaml", &made);
    assert!(client.names().contains(&"made".to_owned()));
    assert_eq!(client.call("made", &json!({}))["structuredContent"]["output"], "7");
    client.end();
    // A missing directory is an error.
    test.run(&["mcp", "-C", "nowhere"]).exit(2).stderr_has("there is no directory `nowhere`");
}

/// S-139: stdout carries only messages, though the step prints to stderr; a call of each revision has the run's output.
#[test]
fn each_revision_lists_and_calls_a_pipeline() {
    let test = greeter();
    for revision in ["2026-07-28", "2025-11-25", "2025-06-18"] {
        let mut client = match revision {
            "2026-07-28" => Client::start(&test, &[]),
            _ => Client::connected(&test, revision, &json!({})),
        };
        assert_eq!(client.names(), ["etude_cancel", "etude_find", "etude_resume", "etude_runs", "etude_show", "greet"]);
        let result = client.call("greet", &json!({"name": "Ada"}));
        assert_eq!(result["isError"], false);
        assert_eq!(result["content"], json!([{"type": "text", "text": "{\"text\": \"hello\"}"}]));
        let structured = &result["structuredContent"];
        assert_eq!(structured["status"], "succeeded");
        assert_eq!(structured["output"], json!({"text": "hello"}));
        assert_eq!(structured["errors"], json!([]));
        assert!(structured["run_id"].is_string() && structured["usage"].is_object());
        assert_eq!(result.get("resultType").is_some(), revision == "2026-07-28");
        client.end();
    }
}

/// S-143: a failed run is `isError` with its message; so are bad arguments, with the field.
#[test]
fn failures_and_bad_arguments_are_results() {
    let test = greeter().pipeline("bad", |p| p.sh("fail", "echo the disk is full >&2; exit 3"));
    let mut client = Client::start(&test, &[]);
    let failed = client.call("bad", &json!({}));
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["structuredContent"]["status"], "failed");
    let text = failed["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("`fail`"), "{text}");
    for (arguments, field) in
        [(json!({"name": 1}), "/name"), (json!({}), "/name"), (json!({"name": "a", "x": 1}), "/x")]
    {
        let refused = client.call("greet", &arguments);
        assert_eq!(refused["isError"], true, "{arguments}");
        let text = refused["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains(field), "{field}: {text}");
        assert_eq!(refused["structuredContent"]["run_id"], Value::Null);
    }
    assert_eq!(code(&client.request("tools/call", &json!({"name": "none"}))), -32602);
    assert_eq!(code(&client.request("tools/call", &json!({"name": "greet", "arguments": [1]}))), -32602);
    client.end();
}

/// S-141: more than 30 tools give the compact set, and `etude_call` reaches the rest. S-140: the order is the same each time.
#[test]
fn many_pipelines_give_the_compact_set() {
    let test = (0..27).fold(Test::new(), |test, number| {
        test.pipeline(&format!("p{number:02}"), |p| p.sh("a", "echo '{\"output\": 5}'"))
    });
    let mut client = Client::start(&test, &[]);
    let compact = ["etude_call", "etude_cancel", "etude_find", "etude_resume", "etude_runs", "etude_show"];
    assert_eq!(client.names(), compact);
    assert_eq!(client.names(), compact);
    let discovered = client.request("server/discover", &json!({}));
    assert!(discovered["result"]["instructions"].as_str().expect("a text").contains("etude_call"));
    let result = client.call("etude_call", &json!({"tool": "p03", "arguments": {}}));
    assert_eq!(result["structuredContent"]["output"], 5);
    let refused = client.call("etude_call", &json!({"tool": "none"}));
    assert_eq!(
        (&refused["isError"], &refused["structuredContent"]["errors"][0]["pointer"]),
        (&json!(true), &json!("/tool"))
    );
    assert_eq!(code(&client.request("tools/call", &json!({"name": "p03"}))), -32602);
    client.end();
    let mut client = Client::start(&test, &["--tools", "p0*"]);
    assert_eq!(client.names().iter().filter(|name| name.starts_with('p')).count(), 10);
    client.end();
}

/// S-155: an edited definition changes `tools/list` without a restart.
#[test]
fn an_edited_definition_changes_the_list() {
    let test = greeter();
    let mut client = Client::start(&test, &[]);
    let tool = |client: &mut Client| client.tools().into_iter().find(|tool| tool["name"] == "greet").expect("a tool");
    assert_eq!(tool(&mut client)["inputSchema"]["required"], json!(["name"]));
    let path = "app/pipelines/greet/pipeline.yaml";
    let text = std::fs::read_to_string(test.path(path)).expect("a file").replace("{name: string}", "{whom: string}");
    test.put(path, &text);
    assert_eq!(tool(&mut client)["inputSchema"]["required"], json!(["whom"]));
    client.end();
}

/// S-155: a client is notified that the list has changed: unasked after `initialize`, and in 2026-07-28 if it listens.
#[test]
fn a_client_is_notified_of_an_edited_definition() {
    let test = greeter();
    let mut first = Client::connected(&test, "2025-11-25", &json!({}));
    assert!(first.names().contains(&"greet".to_owned()));
    let mut second = Client::start(&test, &[]);
    second.send("subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(second.read()["method"], "notifications/subscriptions/acknowledged");
    let path = "app/pipelines/greet/pipeline.yaml";
    let text = std::fs::read_to_string(test.path(path)).expect("a file").replace("{name: string}", "{whom: string}");
    test.put(path, &text);
    for client in [&mut first, &mut second] {
        assert_eq!(client.read()["method"], "notifications/tools/list_changed");
    }
    first.end();
    second.end();
}

/// stderr of `etude mcp` lists the definitions that are not tools because of errors.
#[test]
fn a_definition_with_errors_is_said_on_stderr() {
    let test = greeter();
    test.put("app/pipelines/broken/pipeline.yaml", "name: broken\n");
    let mut child = test
        .command(&["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("note: not available as a tool: the pipeline `broken` has errors: P"), "{line}");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// S-155: a call uses the current definition, whatever was listed before.
#[test]
fn a_call_is_of_the_definition_as_it_is_now() {
    let test = greeter();
    let mut client = Client::start(&test, &[]);
    assert!(client.names().contains(&"greet".to_owned()));
    let path = "app/pipelines/greet/pipeline.yaml";
    let text = std::fs::read_to_string(test.path(path)).expect("a file");
    test.put(path, &text.replace("{name: string}", "{name: integer}"));
    let refused = client.call("greet", &json!({"name": "Ada"}));
    assert_eq!(
        (&refused["isError"], &refused["structuredContent"]["run_id"]),
        (&json!(true), &Value::Null),
        "{refused}"
    );
    std::fs::rename(test.path("app/pipelines/greet"), test.path("app/pipelines/salute")).expect("renamed");
    test.put("app/pipelines/salute/pipeline.yaml", &text.replace("name: greet", "name: salute"));
    let gone = client.request("tools/call", &json!({"name": "greet", "arguments": {"name": "Ada"}}));
    assert_eq!(code(&gone), -32602, "{gone}");
    let called = client.call("salute", &json!({"name": "Ada"}));
    assert_eq!(called["structuredContent"]["status"], "succeeded", "{called}");
    client.end();
}

/// S-144: a result over 16 KiB is cut and linked, and the link has the whole output.
#[test]
fn a_large_result_is_cut_and_linked() {
    let script = "python3 -c 'import json; print(json.dumps({\"output\": \"x\" * 40000}))'";
    let test = Test::new().pipeline("large", |p| p.sh("a", script));
    let mut client = Client::start(&test, &[]);
    let result = client.call("large", &json!({}));
    assert!(result["content"][0]["text"].as_str().expect("a text").len() <= 16 * 1024);
    let link = &result["content"][1];
    assert_eq!(link["type"], "resource_link");
    assert_eq!(result["structuredContent"]["output"], Value::Null);
    let read = client.request("resources/read", &json!({"uri": link["uri"]}));
    let text = read["result"]["contents"][0]["text"].as_str().expect("a text");
    assert_eq!(text.len(), 40_002);
    client.end();
}

/// S-145: with the extension, a slow call is a task whose id is a run. S-147: `tasks/get` works across a restart.
#[test]
fn a_slow_call_is_a_task_that_survives_the_process() {
    let test = slow();
    let mut client = Client::start(&test, &[]).with_tasks();
    let task = client.call("slow", &json!({}));
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    assert_eq!((&task["ttlMs"], &task["pollIntervalMs"]), (&Value::Null, &json!(1_000)));
    let id = task["taskId"].as_str().expect("an id").to_owned();
    assert_eq!(id, only_run(&mut client));
    client.kill();
    let mut client = Client::start(&test, &[]).with_tasks();
    let get = |client: &mut Client| client.request("tasks/get", &json!({"taskId": id}))["result"].clone();
    assert_eq!(get(&mut client)["status"], "working");
    test.put("go", "");
    let mut task = Value::Null;
    wait_until("the task is completed", || {
        task = get(&mut client);
        task["status"] == "completed"
    });
    assert_eq!(
        (&task["result"]["isError"], &task["result"]["structuredContent"]["output"]),
        (&json!(false), &json!(7))
    );
    assert_eq!(task["resultType"], "complete");
    client.end();
}

/// S-146: without the extension no call is a task. S-148: `tasks/list` and `tasks/result` are unknown methods.
#[test]
fn without_the_extension_no_call_is_a_task() {
    let test = slow();
    let mut client = Client::start(&test, &[]);
    let id = client.send("tools/call", &json!({"name": "slow", "arguments": {}}));
    wait_until("the run has begun", || test.path("ledger").exists());
    test.put("go", "");
    let response = client.response(id);
    assert_eq!(response["result"]["resultType"], "complete");
    assert_eq!(response["result"]["structuredContent"]["status"], "succeeded");
    for method in ["tasks/list", "tasks/result"] {
        assert_eq!(code(&client.request(method, &json!({"taskId": "x"}))), -32601, "{method}");
    }
    assert_eq!(code(&client.request("tasks/get", &json!({"taskId": "x"}))), -32021);
    client = client.with_tasks();
    assert_eq!(code(&client.request("tasks/get", &json!({"taskId": "x"}))), -32602);
    client.end();
}

/// S-150: `tasks/cancel` runs the destructor.
#[test]
fn cancelling_a_task_runs_the_destructor() {
    let forever = "echo begun >> \"$LEDGER\"; while :; do sleep 0.05; done";
    let test = Test::new()
        .pipeline("slow", |p| p.sh("wait", forever))
        .pipeline("_destructor", |p| p.sh("clean", "echo cleaned >> \"$LEDGER\"; echo '{}'"));
    let mut client = Client::start(&test, &[]).with_tasks();
    let task = client.call("slow", &json!({}));
    let id = json!({"taskId": task["taskId"]});
    // A run that has not begun has no destructor.
    wait_until("the run has begun", || test.path("ledger").exists());
    assert_eq!(client.request("tasks/cancel", &id)["result"]["resultType"], "complete");
    wait_until("the task is cancelled", || client.request("tasks/get", &id)["result"]["status"] == "cancelled");
    let ledger = std::fs::read_to_string(test.path("ledger")).expect("a file");
    assert!(ledger.contains("cleaned"), "{ledger}");
    client.end();
}

/// S-152: a call that the client abandons leaves the run, and an equal call joins it.
#[test]
fn an_abandoned_call_leaves_its_run_which_an_equal_call_joins() {
    let test = slow();
    let mut client = Client::connected(&test, "2025-11-25", &json!({}));
    let params = json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": "t"}});
    let id = client.send("tools/call", &params);
    // A call that reports progress has the id of its run.
    while client.read()["method"] != "notifications/progress" {}
    client.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    let run_id = only_run(&mut client);
    until(&mut client, &run_id, "running");
    test.put("go", "");
    let result = client.call("slow", &json!({}));
    assert_eq!(result["structuredContent"]["run_id"], run_id);
    assert_eq!(only_run(&mut client), run_id);
    client.end();
}

/// A step waits for a person: without elicitation the call returns with the id and the command to answer.
#[test]
fn a_call_that_waits_for_a_person_returns_at_once() {
    let test = approval();
    let mut client = Client::start(&test, &[]);
    let result = client.call("deploy", &json!({}));
    assert_eq!((&result["isError"], &result["structuredContent"]["status"]), (&json!(false), &json!("waiting")));
    let run_id = result["structuredContent"]["run_id"].as_str().expect("an id");
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains(run_id) && text.contains("etude approve"), "{text}");
    client.end();
}

fn approval() -> Test {
    Test::new().pipeline("deploy", |p| {
        p.step("{name: ask, type: approval, message: \"Deploy?\"}").sh("a", "echo '{\"output\": \"deployed\"}'")
    })
}

/// S-153: a form does not settle an approval: a client with forms is not asked, and a response that it makes up decides
/// nothing.
#[test]
fn a_form_does_not_settle_an_approval() {
    let test = approval();
    let mut client = Client::connected(&test, "2025-11-25", &json!({"elicitation": {}}));
    let result = client.call("deploy", &json!({}));
    assert_eq!(result["structuredContent"]["status"], "waiting");
    assert!(client.received.iter().all(|message| message["method"] != "elicitation/create"), "{:?}", client.received);
    client.end();
    let mut client = Client::start(&test, &[]).with_tasks();
    client.capabilities["elicitation"] = json!({"form": {}});
    let task = client.call("deploy", &json!({}));
    let id = task["taskId"].clone();
    let of_task = json!({"taskId": id});
    wait_until("the question", || client.request("tasks/get", &of_task)["result"]["status"] == "input_required");
    let run = client.call("etude_show", &json!({"run_id": id}));
    let question =
        run["structuredContent"]["waiting"][0]["payload"]["question"].as_str().expect("a question").to_owned();
    let responses = json!({question: {"action": "accept", "content": {"decision": "approve"}}});
    client.request("tasks/update", &json!({"taskId": id, "inputResponses": responses}));
    assert_eq!(client.request("tasks/get", &json!({"taskId": id}))["result"]["status"], "input_required");
    client.end();
}

/// Section 9: a signal ends `etude mcp` although the client keeps its end open; an open call returns its run first.
#[test]
fn a_signal_ends_it_with_the_run_of_an_open_call() {
    let test = slow();
    let mut client = Client::start(&test, &[]);
    let id = client.send("tools/call", &json!({"name": "slow", "arguments": {}}));
    wait_until("the run has begun", || test.path("ledger").exists());
    let (pid, since) = (client.child.id().to_string(), Instant::now());
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill is there").success());
    let result = client.response(id)["result"].clone();
    let structured = &result["structuredContent"];
    assert_eq!((&structured["status"], &result["isError"]), (&json!("running"), &json!(false)), "{result}");
    assert!(structured["run_id"].is_string(), "{result}");
    assert_eq!(client.child.wait().expect("it ends").code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
}

/// Section 9: beside a server, results link to its page of the run, and questions that authorize use URL mode.
#[test]
fn pages_of_a_server_beside_are_linked() {
    let test = approval();
    let serving =
        Serving::start(&test, &["--port", "0", "--host", "etude.example", "--behind-proxy", "--base-path", "/e"]);
    let mut client = Client::start(&test, &[]);
    client.capabilities = json!({"elicitation": {"url": {}}});
    let asked = client.call("deploy", &json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().expect("requests");
    let params = &requests.values().next().expect("a question")["params"];
    let run_id = only_run(&mut client);
    let page = format!("https://etude.example/e/runs/{run_id}");
    assert_eq!((&params["mode"], &params["url"]), (&json!("url"), &json!(page)));
    client.end();
    let mut client = Client::start(&test, &[]);
    let result = client.call("deploy", &json!({}));
    let run_id = result["structuredContent"]["run_id"].as_str().expect("an id");
    assert_eq!(result["structuredContent"]["url"], format!("https://etude.example/e/runs/{run_id}"));
    client.end();
    serving.end();
}

/// S-156: a server beside `etude mcp` drives its runs, which outlive the client.
#[test]
fn a_server_drives_the_runs_of_its_clients() {
    let test = slow().pipeline("first", |p| p.sh("a", "echo '{\"output\": 1}'"));
    // A journal without a run does not show that a server exists.
    test.run_json("first").exit(0);
    let serving = Serving::start(&test, &["--port", "0"]);
    let mut client = Client::start(&test, &[]).with_tasks();
    let task = client.call("slow", &json!({}));
    wait_until("the run has begun", || test.path("ledger").exists());
    client.kill();
    test.put("go", "");
    let path = format!("/v1/runs/{}", task["taskId"].as_str().expect("an id"));
    let run = serving.until(&path, "succeeded");
    assert_eq!((&run["cause"], &run["output"]), (&json!("mcp"), &json!(7)));
    assert_eq!(std::fs::read_to_string(test.path("ledger")).expect("a file"), "begun\n");
    serving.end();
}
