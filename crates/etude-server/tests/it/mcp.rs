//! `POST /mcp`: the protocol of agents over HTTP.

use std::io::Write;
use std::net::TcpStream;

use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::support::{Reply, Running};

/// A client of 2026-07-28, which sends all its state with each request.
struct Client<'s> {
    server: &'s Running,
    token: String,
    capabilities: Value,
}

impl<'s> Client<'s> {
    fn new(server: &'s Running, token: &str) -> Self {
        let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        Self { server, token: token.to_owned(), capabilities }
    }

    fn owner(server: &'s Running) -> Self {
        Self { capabilities: json!({}), ..Self::new(server, &server.owner) }
    }

    fn message(&self, method: &str, params: &Value) -> Value {
        let mut params = params.clone();
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "tester", "version": "1"});
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    fn send(&self, method: &str, params: &Value) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let name = ["name", "uri", "taskId"].iter().find_map(|key| params[*key].as_str()).unwrap_or_default();
        let headers = [
            ("Authorization", &*bearer),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
            ("Mcp-Name", name),
        ];
        self.server.raw("POST", "/mcp", &headers, Some(self.message(method, params).to_string()))
    }

    fn result(&self, method: &str, params: &Value) -> Value {
        let document = self.send(method, params).json();
        assert!(document["result"].is_object(), "{document}");
        document["result"].clone()
    }

    fn code(&self, method: &str, params: &Value) -> i64 {
        let document = self.send(method, params).json();
        document["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {document}"))
    }

    fn names(&self) -> Vec<String> {
        let listed = self.result("tools/list", &json!({}));
        let tools = listed["tools"].as_array().expect("tools");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    fn call(&self, name: &str, arguments: &Value) -> Value {
        self.result("tools/call", &json!({"name": name, "arguments": arguments}))
    }
}

const SLOW: &str = "while [ ! -e go ]; do sleep 0.05; done; echo '{\"output\": 7}'";

/// `GET` and `DELETE` are 405, and there is no session.
#[test]
fn only_post_is_served_and_no_session() {
    let server = Running::start();
    for method in ["GET", "DELETE"] {
        let reply = server.send(method, "/mcp", None);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
    }
    let greeting = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    });
    let reply = server.send("POST", "/mcp", Some(&greeting));
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(reply.header("mcp-session-id"), None);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(server.send("POST", "/mcp", Some(&note)).status, 202);
}

/// S-157: tools beyond the token's scope or its pipelines are neither listed nor callable.
#[test]
fn a_token_has_the_tools_of_its_scopes() {
    let server = Running::start();
    server.pipeline("deploy-a", "", &["echo '{\"output\": 1}'"]);
    server.pipeline("other", "", &["echo '{\"output\": 2}'"]);
    let reader = server.token("reader", &[Scope::Read], &[], None);
    let reader = Client::new(&server, &reader);
    assert_eq!(reader.names(), ["etude_find", "etude_runs", "etude_show"]);
    for name in ["other", "etude_cancel", "etude_call"] {
        assert_eq!(reader.code("tools/call", &json!({"name": name, "arguments": {}})), -32602, "{name}");
    }
    let limited = server.token("limited", &[Scope::Read, Scope::Run], &["deploy-*"], None);
    let limited = Client::new(&server, &limited);
    assert_eq!(limited.names(), ["deploy-a", "etude_cancel", "etude_find", "etude_resume", "etude_runs", "etude_show"]);
    assert_eq!(limited.code("tools/call", &json!({"name": "other", "arguments": {}})), -32602);
    assert_eq!(limited.call("deploy-a", &json!({}))["structuredContent"]["output"], 1);
}

/// Section 16.4: lists have one page, so no cursor can be from this server.
#[test]
fn a_cursor_that_was_never_sent_is_refused() {
    let server = Running::start();
    let client = Client::owner(&server);
    for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        assert_eq!(client.code(list, &json!({"cursor": "eyJvIjoxfQ"})), -32602, "{list}");
        assert!(client.result(list, &json!({"cursor": null})).is_object(), "{list}");
    }
}

/// S-157: a token with `run` alone has the tool of each pipeline that it covers, and calls it to its end, at once and as a task.
/// It reads nothing else.
#[test]
fn a_token_that_may_only_run_calls_pipelines() {
    let server = Running::start();
    server.pipeline("deploy-a", "", &["echo '{\"output\": 1}'"]);
    server.pipeline("deploy-slow", "", &[SLOW]);
    server.pipeline("other", "", &["echo '{\"output\": 2}'"]);
    let runner = server.token("runner", &[Scope::Run], &["deploy-*"], None);
    let mut runner = Client::new(&server, &runner);
    assert_eq!(runner.names(), ["deploy-a", "deploy-slow", "etude_cancel", "etude_resume"]);
    assert_eq!(runner.call("deploy-a", &json!({}))["structuredContent"]["output"], 1);
    let task = runner.call("deploy-slow", &json!({}));
    let id = json!({"taskId": task["taskId"]});
    assert_eq!(runner.result("tasks/get", &id)["status"], "working");
    std::fs::write(server.dir().join("demo/pipelines/deploy-slow/go"), "").expect("written");
    std::fs::write(server.dir().join("demo/go"), "").expect("written");
    let run_id = task["taskId"].as_str().expect("an id");
    server.until(run_id, &["succeeded"]);
    assert_eq!(runner.result("tasks/get", &id)["result"]["structuredContent"]["output"], 7);
    runner.capabilities = json!({});
    for name in ["other", "etude_find", "etude_runs", "etude_show"] {
        assert_eq!(runner.code("tools/call", &json!({"name": name, "arguments": {}})), -32602, "{name}");
    }
    assert_eq!(runner.result("resources/list", &json!({}))["resources"], json!([]));
    for uri in [format!("etude://runs/{run_id}"), format!("etude://runs/{run_id}/output")] {
        assert_eq!(runner.code("resources/read", &json!({"uri": uri})), -32602, "{uri}");
    }
}

/// S-149: another token's task is unknown, also to `tasks/cancel`. S-147: another server on the journal knows the task.
#[test]
fn a_task_belongs_to_its_token_and_to_every_server() {
    let server = Running::start();
    let dir = server.dir().join("demo/pipelines/slow");
    server.pipeline("slow", "", &[SLOW]);
    let scopes = [Scope::Read, Scope::Run];
    let (mine, other) = (server.token("mine", &scopes, &[], None), server.token("other", &scopes, &[], None));
    let task = Client::new(&server, &mine).call("slow", &json!({}));
    assert_eq!(task["resultType"], "task");
    let id = json!({"taskId": task["taskId"]});
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        assert_eq!(Client::new(&server, &other).code(method, &id), -32602, "{method}");
    }
    std::fs::write(dir.join("go"), "").expect("written");
    std::fs::write(server.dir().join("demo/go"), "").expect("written");
    let run = server.until(task["taskId"].as_str().expect("an id"), &["succeeded"]);
    assert_eq!((&run["cause"], &run["by"]), (&json!("mcp"), &json!("mine")));
    let next = Running::at(server.stop(), |_| ());
    let seen = Client::new(&next, &mine).result("tasks/get", &id);
    assert_eq!((&seen["status"], &seen["result"]["structuredContent"]["output"]), (&json!("completed"), &json!(7)));
}

/// S-152: a closed connection leaves the run in progress, and an equal call joins it.
#[test]
fn a_closed_connection_leaves_the_run() {
    let server = Running::start();
    server.pipeline("slow", "", &[SLOW]);
    let client = Client::owner(&server);
    let body = client.message("tools/call", &json!({"name": "slow", "arguments": {}})).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: slow\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        server.owner,
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("written");
    let runs = || server.send("GET", "/v1/runs", None).json()["runs"].as_array().expect("runs").clone();
    while !runs().iter().any(|run| run["status"] == "running") {
        std::thread::yield_now();
    }
    drop(stream);
    let id = runs()[0]["run_id"].as_str().expect("an id").to_owned();
    // The server takes a moment to notice the end of a connection.
    std::thread::sleep(std::time::Duration::from_secs(1));
    for place in ["demo/go", "demo/pipelines/slow/go"] {
        std::fs::write(server.dir().join(place), "").expect("written");
    }
    server.until(&id, &["succeeded"]);
    let result = client.call("slow", &json!({}));
    assert_eq!(result["structuredContent"]["run_id"], *id);
    assert_eq!(runs().len(), 1);
}

/// Path and body of a decision about the only open question.
fn decision(server: &Running, approved: bool) -> (String, Value) {
    let open = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/v1/decisions/{}", open["id"].as_str().expect("an id").replace('/', "%2F"));
    (path, json!({"approved": approved, "question": open["question"]}))
}

/// S-153: with `approvals: client` a form settles an approval under the client's name, except where approvers are named. S-154: a
/// tampered `requestState` is refused.
#[test]
fn a_form_settles_an_approval_only_if_configured() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(dir.path().join("demo")).expect("an app");
    std::fs::write(dir.path().join("demo/etude.yaml"), "serve: {mcp: {approvals: client}}\n").expect("written");
    let server = Running::at(dir, |_| ());
    server.pipeline("open", "", &["approval: message: go on?", "echo '{\"output\": 1}'"]);
    server.pipeline("named", "", &["approval: message: go on?, approvers: [boss]", "echo '{\"output\": 2}'"]);
    let mut client = Client::owner(&server);
    client.capabilities = json!({"elicitation": {"form": {}}});
    let asked = client.call("open", &json!({}));
    assert_eq!(asked["resultType"], "input_required");
    let (path, denial) = decision(&server, false);
    let key = asked["inputRequests"].as_object().and_then(|open| open.keys().next()).expect("a question").to_owned();
    let form = &asked["inputRequests"][&key]["params"];
    assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
    assert_eq!(form["requestedSchema"]["properties"]["decision"].get("default"), None);
    let state = asked["requestState"].as_str().expect("a state");
    let response = json!({"action": "accept", "content": {"decision": "approve"}});
    let again = |state: &str| json!({"name": "open", "arguments": {}, "requestState": state, "inputResponses": {key.as_str(): response}});
    let mut tampered = state.to_owned();
    tampered.replace_range(0..1, if state.starts_with('e') { "f" } else { "e" });
    assert_eq!(client.code("tools/call", &again(&tampered)), -32602);
    let result = client.result("tools/call", &again(state));
    assert_eq!(result["structuredContent"]["output"], 1);
    let late = server.send("POST", &path, Some(&denial));
    assert_eq!((late.status, &late.json()["by"]), (409, &json!("mcp:tester")));

    let waiting = client.call("named", &json!({}));
    assert_eq!(
        (&waiting["resultType"], &waiting["structuredContent"]["status"]),
        (&json!("complete"), &json!("waiting"))
    );
    let text = waiting["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("etude approve") && text.contains("/runs/"), "{text}");
}

/// A client that opens addresses gets the address of an approval: the page decides, the client does not.
#[test]
fn an_approval_is_an_address_for_clients_that_open_them() {
    let server = Running::start();
    server.pipeline("open", "", &["approval: message: go on?", "echo '{\"output\": 1}'"]);
    let mut client = Client::owner(&server);
    client.capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    let asked = client.call("open", &json!({}));
    let requests = asked["inputRequests"].as_object().expect("requests");
    let params = &requests.values().next().expect("one")["params"];
    assert_eq!(params["mode"], "url");
    assert!(params["url"].as_str().expect("an address").starts_with(&format!("http://{}/runs/", server.address)));
    let key = requests.keys().next().expect("one").clone();
    let made_up = json!({"action": "accept", "content": {"decision": "approve"}});
    let again = json!({
        "name": "open", "arguments": {}, "requestState": asked["requestState"], "inputResponses": {key: made_up},
    });
    let (path, body) = decision(&server, true);
    std::thread::scope(|scope| {
        let repeated = scope.spawn(|| client.result("tools/call", &again));
        assert_eq!(server.send("POST", &path, Some(&body)).status, 200);
        assert_eq!(repeated.join().expect("no panic")["structuredContent"]["output"], 1);
    });
}

/// `serve.mcp` of the app sets which tools are read-only, when a call returns, and if a cancelled call ends its run; a change
/// applies at once.
#[test]
fn an_app_says_how_agents_are_served() {
    let server = Running::start();
    server.pipeline("slow", "", &[SLOW]);
    server.configure("serve: {mcp: {read_only: [slow], answer_within: 10ms}}\n");
    let client = Client::owner(&server);
    let is_read_only = || {
        let listed = client.result("tools/list", &json!({}));
        let tools = listed["tools"].as_array().expect("tools").clone();
        let tool = tools.into_iter().find(|tool| tool["name"] == "slow").expect("a tool");
        tool["annotations"]["readOnlyHint"] == true
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_read_only() {
        assert!(std::time::Instant::now() < deadline, "the file was not read again");
    }
    let called = client.call("slow", &json!({}));
    let status = called["structuredContent"]["status"].as_str().expect("a status");
    assert!(["queued", "running"].contains(&status) && called["isError"] == false, "{called}");
    std::fs::write(server.dir().join("demo/pipelines/slow/go"), "").expect("written");
    server.until(called["structuredContent"]["run_id"].as_str().expect("an id"), &["succeeded"]);
}
