//! Tests of the protocol on an interface with fixed replies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::api::{Api, Configuring, Finding, Listing, Method, Reply, Replying, Request, Skill};
use crate::catalog::Selection;
use crate::changes;
use crate::peer::Peer;
use crate::seal::SealKey;
use crate::service::{Service, Transport};
use crate::wire::read_params;

/// An interface with one fixed document per path, which records its requests. A `POST` has its method before the path.
struct Fixed {
    replies: Mutex<BTreeMap<&'static str, (u16, Value)>>,
    asked: Mutex<Vec<String>>,
    definitions: watch::Sender<u64>,
    news: watch::Sender<()>,
    stop: watch::Sender<bool>,
}

impl Fixed {
    fn new(replies: impl IntoIterator<Item = (&'static str, (u16, Value))>) -> Arc<Self> {
        let replies = Mutex::new(replies.into_iter().collect());
        let (definitions, news, stop) = (watch::Sender::default(), watch::Sender::default(), watch::Sender::default());
        Arc::new(Self { replies, asked: Mutex::default(), definitions, news, stop })
    }

    fn reply(&self, path: &str) -> Option<(u16, Value)> {
        self.replies.lock().expect("no panic").get(path).cloned()
    }
}

impl Api for Fixed {
    fn send(&self, request: Request) -> Replying<'_> {
        let key = match request.method {
            Method::Get => request.path.clone(),
            Method::Post => format!("POST {}", request.path),
        };
        let (status, body) = self.reply(&key).unwrap_or((404, json!({"detail": "the run is unknown"})));
        self.asked.lock().expect("no panic").push(key);
        Box::pin(async move { Reply { status, body: body.to_string().into_bytes() } })
    }

    fn status<'a>(&'a self, run_id: &'a str) -> Finding<'a> {
        let run = self.reply(&format!("/v1/runs/{run_id}"));
        let status = run.and_then(|(_, run)| run["status"].as_str().map(str::to_owned));
        Box::pin(async { status })
    }

    fn settings(&self) -> Configuring<'_> {
        Box::pin(async { BTreeMap::new() })
    }

    fn skills(&self) -> Listing<'_> {
        Box::pin(async { Vec::new() })
    }

    fn skill<'a>(&'a self, _: &'a Skill) -> Finding<'a> {
        Box::pin(async { None })
    }

    fn news(&self, _: &str) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn definitions(&self) -> watch::Receiver<u64> {
        self.definitions.subscribe()
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn caller(&self) -> &'static str {
        "owner"
    }

    fn may(&self, _: &str) -> bool {
        true
    }

    fn covers(&self, _: &str) -> bool {
        true
    }

    fn pages(&self) -> Option<String> {
        None
    }
}

/// A client of an interface with these replies.
struct Client {
    service: Service,
    peer: Arc<Peer>,
    api: Arc<Fixed>,
}

impl Client {
    async fn new(is_compact: bool, replies: impl IntoIterator<Item = (&'static str, (u16, Value))>) -> Self {
        let api = Fixed::new(replies);
        let selection = Selection::new(None, is_compact).expect("no glob");
        let service = Service::new(Arc::<Fixed>::clone(&api), Transport::Stdio, SealKey::derive("secret"), "1")
            .selection(selection);
        let client = Self { service, peer: Arc::new(Peer::new(mpsc::unbounded_channel().0)), api };
        client.request("initialize", &json!({"protocolVersion": "2025-11-25"})).await;
        client
    }

    async fn request(&self, method: &str, params: &Value) -> Value {
        request(&self.service, &self.peer, method, params).await
    }

    async fn call(&self, name: &str, arguments: Value) -> Value {
        let response = self.request("tools/call", &json!({"name": name, "arguments": arguments})).await;
        response.get("result").cloned().unwrap_or_else(|| response["error"].clone())
    }
}

/// The response to the request 1.
async fn request(service: &Service, peer: &Arc<Peer>, method: &str, params: &Value) -> Value {
    let id = RawValue::from_string("1".to_owned()).expect("JSON");
    let params = read_params(&params.to_string()).expect("parameters");
    let response = service.respond(peer, None, &id, method, &params).await;
    serde_json::from_str(&response.text).expect("a message")
}

/// A run with further members.
fn run(status: &str, more: &Value) -> Value {
    let mut run = json!({
        "run_id": "r1", "status": status, "cause": "mcp", "by": "owner", "created_at": "", "changed_at": "", "output": null, "errors": [],
        "usage": null, "links": {"page": "/runs/r1"},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        run[name] = value.clone();
    }
    run
}

/// An app with a pipeline, a machine and a command.
fn apps() -> (u16, Value) {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let applications = json!([{
        "slug": "box", "description": "Keeps parcels.", "trust": "approved", "compatible": true, "commands": ["weigh"],
    }]);
    let app = json!({
        "app": "a", "pipelines": [{"name": "one", "description": "Counts.", "input": input}],
        "machines": [{"name": "change", "description": "Changes.", "input": input}], "applications": applications, "diagnostics": [],
    });
    (200, json!({"apps": [app]}))
}

fn text(result: &Value) -> String {
    let content = result["content"].as_array().cloned().unwrap_or_default();
    content.iter().filter_map(|one| one["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// S-141: a pipeline that `etude_find` returns can be called, by the name of its tool and by its own, and its input schema is in
/// the answer.
#[tokio::test]
async fn what_is_found_can_be_called() {
    let route =
        json!({"pipeline": "change", "candidates": [{"name": "change", "score": 1}, {"name": "one", "score": 0}]});
    let refused = json!({
        "code": "input_invalid", "detail": "the input is not valid", "errors": [{"pointer": "/input/n", "detail": "`n` is required"}],
    });
    let replies = [("/v1/apps", apps()), ("POST /v1/apps/a/route", (200, route)), ("POST /v1/runs", (422, refused))];
    let client = Client::new(true, replies).await;
    let found = client.call("etude_find", json!({"request": "change the weigh of parcels"})).await;
    let found = &found["structuredContent"];
    assert_eq!((&found["pipeline"], &found["tool"]), (&json!("change"), &json!("machine_change")), "{found}");
    assert_eq!((&found["description"], &found["input_schema"]["required"]), (&json!("Changes."), &json!(["n"])));
    assert_eq!(
        (&found["candidates"][0]["tool"], &found["candidates"][1]["tool"]),
        (&json!("machine_change"), &json!("one"))
    );
    assert_eq!(found["commands"][0]["tool"], "app_box_weigh", "{found}");
    for name in ["change", "machine_change"] {
        let result = client.call("etude_call", json!({"tool": name, "arguments": {}})).await;
        assert_eq!(result["structuredContent"]["errors"][0]["pointer"], "/n", "{result}");
        assert_eq!(result["structuredContent"]["input_schema"]["required"], json!(["n"]), "{result}");
        assert!(text(&result).contains(r#""required":["n"]"#), "{result}");
    }
    let unlisted = client.call("change", json!({})).await;
    let message = unlisted["message"].as_str().expect("an error");
    assert!(message.starts_with("there is no tool `change`") && message.contains("`machine_change`"), "{unlisted}");
    let misspelt = client.call("etude_finds", json!({})).await;
    assert_eq!(misspelt["message"], "there is no tool `etude_finds`; did you mean `etude_find`?");
    let called = client.call("etude_call", json!({"tool": "machine_changes", "arguments": {}})).await;
    assert!(called.to_string().contains("did you mean `machine_change`?"), "{called}");
    assert_eq!(client.call("weather", json!({})).await["message"], "there is no tool `weather`");
}

/// S-141: of several apps, the pipeline with the highest score is found, for any order of the apps; a failing app is skipped.
#[tokio::test]
async fn the_surest_of_all_apps_is_found() {
    let of = |app: &str, name: &str| {
        let schema = json!({"type": "object"});
        json!({
            "app": app, "machines": [], "skills": [], "applications": [], "diagnostics": [],
            "pipelines": [{"name": name, "description": "What it does.", "input": schema}],
        })
    };
    let route = |name: &str, score: f64| {
        let candidates = json!([{"name": name, "score": score}]);
        (200, json!({"pipeline": name, "score": score, "margin": score, "candidates": candidates, "notes": []}))
    };
    let apps = json!({"apps": [of("a", "weather"), of("b", "away"), of("c", "invoice")]});
    let replies = [
        ("/v1/apps", (200, apps)),
        ("POST /v1/apps/a/route", route("weather", 0.25)),
        ("POST /v1/apps/b/route", (503, json!({"detail": "there is no directory"}))),
        ("POST /v1/apps/c/route", route("invoice", 0.75)),
    ];
    let client = Client::new(false, replies).await;
    let found = client.call("etude_find", json!({"request": "pay the invoice"})).await;
    let found = &found["structuredContent"];
    assert_eq!((&found["tool"], &found["margin"]), (&json!("invoice"), &json!(0.5)), "{found}");
    let candidates = found["candidates"].as_array().expect("candidates");
    let tools: Vec<&Value> = candidates.iter().map(|candidate| &candidate["tool"]).collect();
    assert_eq!(tools, ["invoice", "weather"]);
}

/// S-143, S-144: the texts alone and the structured content alone have the same facts about a run.
#[tokio::test]
async fn texts_and_structured_content_say_the_same() {
    let stderr = (0..99).map(|line| format!("line {line}\n")).collect::<String>() + "the disk is full\n";
    let error = json!({"message": "it exited", "file": "pipelines/one/pipeline.yaml", "line": 4, "column": 12, "stderr_tail": stderr});
    let failed = run("failed", &json!({"errors": [error]}));
    let client = Client::new(false, started(failed)).await;
    let result = client.call("one", json!({"n": 1})).await;
    assert_eq!(
        (&result["content"][0]["text"], &result["structuredContent"]["message"]),
        (&json!("it exited"), &json!("it exited"))
    );
    let facts = result["content"][1]["text"].as_str().expect("a second text");
    for fact in ["r1", "pipelines/one/pipeline.yaml:4:12", "the disk is full", "etude_resume"] {
        assert!(facts.contains(fact), "{fact}: {facts}");
    }
    assert!(!facts.contains("line 50\n"), "{facts}");

    let large = run("succeeded", &json!({"output": "ü".repeat(20_000)}));
    let client = Client::new(false, started(large)).await;
    let result = client.call("one", json!({"n": 1})).await;
    let cut = &result["structuredContent"]["output_cut"];
    assert_eq!(result["structuredContent"]["output"], Value::Null);
    assert_eq!((&cut["uri"], &cut["bytes"]), (&json!("etude://runs/r1/output"), &json!(40_002)), "{cut}");
    assert_eq!(cut["start"], result["content"][0]["text"]);

    let schema = json!({"type": "object", "properties": {"color": {"enum": ["it's red"]}}, "required": ["color"]});
    let question = json!({
        "id": "r1:one/ask", "kind": "approval", "payload": {"message": "Which?", "schema": schema, "approvers": [], "question": "d"},
    });
    let waiting = run("waiting", &json!({"waiting": [question]}));
    let replies = started(waiting).into_iter().chain([("/v1/decisions/r1%3Aone%2Fask", (200, json!({})))]);
    let client = Client::new(false, replies).await;
    let result = client.call("one", json!({"n": 1})).await;
    let asked = &result["structuredContent"]["waiting"][0];
    assert_eq!((&asked["message"], &asked["schema"]), (&json!("Which?"), &schema), "{result}");
    assert_eq!(asked["command"], r#"etude approve r1:one/ask --answer '{"color":"it'\''s red"}'"#);
    assert!(text(&result).contains(asked["command"].as_str().expect("a command")), "{result}");
    assert_eq!(result["structuredContent"]["message"], result["content"][0]["text"]);
}

/// The replies to a call that starts this run.
fn started(run: Value) -> [(&'static str, (u16, Value)); 3] {
    [("/v1/apps", apps()), ("POST /v1/runs", (201, run.clone())), ("/v1/runs/r1", (200, run))]
}

/// Section 9: a client with an invalid answer is asked again about the same run, with the fault, until an answer fits.
#[tokio::test]
async fn a_client_is_asked_again_after_a_faulty_answer() {
    let schema = json!({"type": "object", "properties": {"color": {"type": "string", "enum": ["red"]}}});
    let question = json!({
        "id": "r1:one/ask", "kind": "Ask", "payload": {"message": "Which?", "schema": schema, "approvers": [], "question": "d"},
    });
    let open = [("/v1/decisions/r1%3Aone%2Fask", (200, json!({})))];
    let waiting = run("waiting", &json!({"waiting": [question]}));
    let client = Client::new(false, started(waiting).into_iter().chain(open)).await;
    let own = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "one", "arguments": {"n": 1}, "_meta": own});
    let asked = client.request("tools/call", &params).await["result"].clone();
    assert_eq!(asked["inputRequests"]["r1:one/ask#d"]["params"]["message"], "Which?", "{asked}");

    let of = |status: u16, reply: Value| {
        let mut replies = client.api.replies.lock().expect("no panic");
        replies.insert("POST /v1/decisions/r1%3Aone%2Fask", (status, reply));
    };
    let detail = "the answer does not match the schema: /color: `green` is not one of: red";
    of(422, json!({"code": "input_invalid", "detail": detail}));
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({"r1:one/ask#d": {"action": "accept", "content": {"color": "green"}}});
    let again = client.request("tools/call", &params).await["result"].clone();
    assert_eq!(again["resultType"], "input_required", "{again}");
    assert_eq!(again["inputRequests"]["r1:one/ask#d"]["params"]["message"], format!("{detail}\nWhich?"));

    of(200, json!({}));
    let ended = (200, run("succeeded", &json!({"output": 7})));
    client.api.replies.lock().expect("no panic").insert("/v1/runs/r1", ended);
    params["requestState"] = again["requestState"].clone();
    let result = client.request("tools/call", &params).await["result"].clone();
    assert_eq!(result["structuredContent"]["output"], 7, "{result}");
    assert_eq!(result["structuredContent"]["run_id"], "r1");
}

/// S-153: equal questions of two steps are two questions. An answer decides only the one under whose key it is.
#[tokio::test]
async fn equal_questions_are_answered_one_by_one() {
    let schema = json!({"type": "object", "properties": {"color": {"type": "string"}}});
    let question = |step: &str| json!({"id": format!("r1:one/{step}"), "kind": "Ask", "payload": {"message": "Which?", "schema": schema, "question": "d"}});
    let waiting = run("waiting", &json!({"waiting": [question("a"), question("b")]}));
    let open = ["/v1/decisions/r1%3Aone%2Fa", "/v1/decisions/r1%3Aone%2Fb", "POST /v1/decisions/r1%3Aone%2Fb"];
    let client =
        Client::new(false, started(waiting).into_iter().chain(open.map(|path| (path, (200, json!({})))))).await;
    let own = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "one", "arguments": {"n": 1}, "_meta": own});
    let asked = client.request("tools/call", &params).await["result"].clone();
    let keys: Vec<&String> = asked["inputRequests"].as_object().expect("questions").keys().collect();
    assert_eq!(keys, ["r1:one/a#d", "r1:one/b#d"]);

    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({"r1:one/b#d": {"action": "accept", "content": {"color": "red"}}});
    client.request("tools/call", &params).await;
    let sent = client.api.asked.lock().expect("no panic").clone();
    let decided: Vec<&String> = sent.iter().filter(|path| path.starts_with("POST /v1/decisions")).collect();
    assert_eq!(decided, ["POST /v1/decisions/r1%3Aone%2Fb"]);
}

/// S-155: a definition with errors is not a tool, and every answer that misses it gives the reason.
#[tokio::test]
async fn a_broken_definition_is_named() {
    let (_, mut apps) = apps();
    apps["apps"][0]["pipelines"][0]["valid"] = false.into();
    apps["apps"][0]["diagnostics"] = json!([
        {"code": "P0104", "severity": "error", "message": "another", "file": "pipelines/one-more/pipeline.yaml", "line": 1},
        {"code": "P0104", "severity": "error", "message": "not YAML", "file": "pipelines/one/pipeline.yaml", "line": 11, "column": 5},
    ]);
    let route = json!({"pipeline": null, "candidates": [], "notes": []});
    let replies = [("/v1/apps", (200, apps)), ("POST /v1/apps/a/route", (200, route))];
    let fault = "the pipeline `one` has errors: P0104 pipelines/one/pipeline.yaml:11:5 not YAML";
    let client = Client::new(false, replies.clone()).await;
    let error = client.call("one", json!({})).await;
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(fault)), "{error}");
    let found = client.call("etude_find", json!({"request": "count"})).await;
    let note = found["structuredContent"]["notes"][0].as_str().expect("a note");
    assert!(note.contains(fault), "{note}");
    let greeting = client.request("initialize", &json!({"protocolVersion": "2025-11-25"})).await;
    let instructions = greeting["result"]["instructions"].as_str().expect("a text");
    assert!(instructions.contains(fault), "{instructions}");
    let client = Client::new(true, replies).await;
    let refused = client.call("etude_call", json!({"tool": "one"})).await;
    assert!(text(&refused).contains(fault), "{refused}");
}

/// S-144: the document of a run is cut and linked as its result is; a page of runs is short and leads to the next.
#[tokio::test]
async fn documents_of_fixed_tools_are_bounded() {
    let steps: Vec<Value> = (0..2_000).map(|number| json!({"name": format!("step-{number}")})).collect();
    let large = run("succeeded", &json!({"output": "x".repeat(1 << 20), "input": vec![1; 20_000], "steps": steps}));
    let runs = json!({"runs": [], "next": null});
    let replies = [
        ("/v1/apps", apps()),
        ("/v1/runs/r1", (200, large)),
        ("/v1/runs?limit=10", (200, runs.clone())),
        ("/v1/runs?limit=3&cursor=1.2.a", (200, runs)),
    ];
    let client = Client::new(false, replies).await;
    let shown = client.call("etude_show", json!({"run_id": "r1"})).await;
    let document = &shown["structuredContent"];
    assert!(document.to_string().len() < 40_000);
    assert_eq!((&document["output"], &document["output_cut"]["bytes"]), (&Value::Null, &json!((1 << 20) + 2)));
    assert_eq!(document["output_cut"]["uri"], "etude://runs/r1/output");
    assert!(document["output_cut"]["start"].as_str().is_some_and(|start| start.starts_with("xxx")));
    assert_eq!((&document["input"], &document["input_cut"]["uri"]), (&Value::Null, &json!("etude://runs/r1")));
    let kept = document["steps"].as_array().expect("steps").len();
    assert_eq!(document["steps_cut"]["items"], 2_000);
    assert!((1..2_000).contains(&kept) && document["steps_cut"]["kept"] == kept, "{kept}");
    for arguments in [json!({}), json!({"limit": 3, "cursor": "1.2.a"})] {
        assert_eq!(client.call("etude_runs", arguments).await["isError"], false);
    }
}

/// Section 16: an id prefix and `latest` name no run here, and the answer explains which id does.
#[tokio::test]
async fn a_run_that_is_not_found_is_named_by_its_whole_id() {
    let client = Client::new(false, [("/v1/apps", apps())]).await;
    for tool in ["etude_show", "etude_cancel", "etude_resume"] {
        let refused = client.call(tool, json!({"run_id": "latest"})).await;
        assert!(refused["isError"] == true && text(&refused).contains("give the full id"), "{tool}: {refused}");
    }
}

/// Section 9: a cancellation that has not ended the run yet says so, because the status of the run is still another.
#[tokio::test]
async fn a_cancellation_says_that_the_run_still_ends() {
    let document = |status: &str| (200, json!({"run_id": "r1", "status": status}));
    for (status, is_noted) in [("running", true), ("cancelled", false)] {
        let client = Client::new(false, [("/v1/apps", apps()), ("POST /v1/runs/r1/cancel", document(status))]).await;
        let result = client.call("etude_cancel", json!({"run_id": "r1"})).await;
        assert_eq!(text(&result).contains("Run r1 is being cancelled."), is_noted, "{result}");
        assert_eq!(result["structuredContent"]["status"], status);
    }
}

/// The text of faulty arguments has each fault once.
#[tokio::test]
async fn a_fault_is_not_repeated() {
    let client = Client::new(false, [("/v1/apps", apps())]).await;
    let refused = client.call("etude_show", json!({"run": "r1"})).await;
    let said = text(&refused);
    assert_eq!(said.matches("there is no argument `run`").count(), 1, "{said}");
    assert!(said.contains("/run: there is no argument `run`"), "{said}");
    assert_eq!(refused["structuredContent"]["errors"][0]["pointer"], "/run");
}

/// S-143: a fault of a query's parameter names the argument, like a fault of a body's member.
#[tokio::test]
async fn a_faulty_parameter_is_named() {
    let detail = "`limit` must be a number from 1 to 200";
    let refused =
        json!({"code": "input_invalid", "detail": detail, "errors": [{"parameter": "limit", "detail": detail}]});
    let client = Client::new(false, [("/v1/apps", apps()), ("/v1/runs?limit=0", (422, refused))]).await;
    let result = client.call("etude_runs", json!({"limit": 0})).await;
    assert_eq!(result["structuredContent"]["errors"][0]["pointer"], "/limit", "{result}");
    assert_eq!(text(&result), format!("/limit: {detail}"));
}

/// Section 9: a read returns at most 256 KiB, and has the address of the rest, for text and for bytes.
#[tokio::test]
async fn a_resource_is_read_in_parts() {
    let output = "ü".repeat(300_000);
    let client = Client::new(false, started(run("succeeded", &json!({"output": output})))).await;
    let (mut uri, mut whole, mut reads) = ("etude://runs/r1/output".to_owned(), String::new(), 0);
    loop {
        let read = client.request("resources/read", &json!({"uri": uri})).await;
        let contents = read["result"]["contents"].as_array().cloned().unwrap_or_else(|| panic!("no contents: {read}"));
        let part = contents[0]["text"].as_str().expect("a text");
        assert!(part.len() <= 256 * 1024 && contents[0]["mimeType"] == "text/plain");
        whole.push_str(part);
        reads += 1;
        let Some(next) = contents[0]["_meta"]["etude/next"].as_str() else { break };
        assert_eq!(contents[0]["_meta"]["etude/bytes"], 600_002);
        assert!(
            contents[1]["text"].as_str().is_some_and(|note| note.starts_with("[cut: bytes") && note.contains(next))
        );
        uri = next.to_owned();
    }
    assert_eq!((reads, serde_json::from_str::<String>(&whole).expect("the output")), (3, output));
    for wrong in ["etude://runs/r1/output?offset=700000", "etude://runs/r1/output?from=1", "etude://runs/r1?offset=-1"]
    {
        assert_eq!(client.request("resources/read", &json!({"uri": wrong})).await["error"]["code"], -32002, "{wrong}");
    }
    let small = client.request("resources/read", &json!({"uri": "etude://runs/r1/output?offset=600001"})).await;
    assert_eq!(
        small["result"]["contents"],
        json!([{"uri": "etude://runs/r1/output?offset=600001", "mimeType": "text/plain", "text": "\""}])
    );
}

/// Section 9: an open call returns its run when the server stops. Without the id, its client would start another run.
#[tokio::test]
async fn a_call_returns_its_run_when_the_server_stops() {
    let client = Client::new(false, started(run("running", &json!({})))).await;
    let stop = async {
        tokio::task::yield_now().await;
        client.api.stop.send_replace(true);
    };
    let call = async { tokio::join!(client.call("one", json!({"n": 1})), stop).0 };
    let called = tokio::time::timeout(std::time::Duration::from_secs(60), call).await.expect("a result");
    let structured = &called["structuredContent"];
    assert_eq!((&structured["run_id"], &structured["status"]), (&json!("r1"), &json!("running")), "{called}");
    assert_eq!(called["isError"], false);
}

/// S-155: a call of a known tool reads no definition but its own.
#[tokio::test]
async fn a_known_tool_is_called_without_reading_the_list_again() {
    let client = Client::new(false, started(run("succeeded", &json!({"output": 1})))).await;
    client.api.asked.lock().expect("no panic").clear();
    for _ in 0..2 {
        let called = client.call("one", json!({"n": 1})).await;
        assert_eq!(called["structuredContent"]["status"], "succeeded", "{called}");
    }
    let asked = client.api.asked.lock().expect("no panic").clone();
    assert_eq!(asked, ["POST /v1/runs", "/v1/runs/r1"].repeat(2));
}

/// The API, a client on a pair of streams, and the messages that are sent to it.
fn connected() -> (Arc<Fixed>, Arc<Service>, Arc<Peer>, mpsc::UnboundedReceiver<String>) {
    let api = Fixed::new([("/v1/apps", apps())]);
    let service = Service::new(Arc::<Fixed>::clone(&api), Transport::Stdio, SealKey::derive("secret"), "1");
    let (out, sent) = mpsc::unbounded_channel();
    (api, Arc::new(service), Arc::new(Peer::new(out)), sent)
}

/// Waits for a receiver of definitions, then replaces them if `apps` is given.
async fn look(api: &Fixed, apps: Option<(u16, Value)>) {
    while api.definitions.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    if let Some(apps) = apps {
        api.replies.lock().expect("no panic").insert("/v1/apps", apps);
    }
    api.definitions.send_modify(|digest| *digest += 1);
}

async fn message(sent: &mut mpsc::UnboundedReceiver<String>) -> Value {
    serde_json::from_str(&sent.recv().await.expect("a message")).expect("JSON")
}

/// Section 9: a message that is too long is refused by its id, and later ones are served as before.
#[tokio::test]
async fn a_message_that_is_too_long_ends_no_connection() {
    let (_, service, _, _) = connected();
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}},\"id\":5}}\n",
        "x".repeat(17 << 20)
    );
    let next = "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}\n";
    let (output, mut read) = tokio::io::duplex(1 << 16);
    let input = std::io::Cursor::new(format!("{long}{next}"));
    crate::stdio::serve(service, input, output).await.expect("served");
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut read, &mut text).await.expect("read");
    let responses: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&responses[0]["id"], &responses[0]["error"]["code"]), (&json!(5), &json!(-32600)), "{text}");
    assert_eq!((&responses[1]["id"], responses[1]["result"].is_object()), (&json!(6), true), "{text}");
}

/// Section 9: when the server stops, the client gets the responses of its open calls, although it keeps its end open.
#[tokio::test]
async fn a_server_that_stops_ends_the_connection_after_its_responses() {
    let api = Fixed::new(started(run("running", &json!({}))));
    let service = Service::new(Arc::<Fixed>::clone(&api), Transport::Stdio, SealKey::derive("secret"), "1");
    let (mut client, input) = tokio::io::duplex(1 << 16);
    let (output, mut read) = tokio::io::duplex(1 << 16);
    let served = tokio::spawn(crate::stdio::serve(Arc::new(service), input, output));
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(&mut read));
    let own = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "one", "arguments": {"n": 1}, "_meta": own});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
    tokio::io::AsyncWriteExt::write_all(&mut client, format!("{call}\n").as_bytes()).await.expect("written");
    while api.news.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    api.stop.send_replace(true);
    let response: Value = serde_json::from_str(&lines.next_line().await.expect("read").expect("a line")).expect("JSON");
    let structured = &response["result"]["structuredContent"];
    assert_eq!((&response["id"], &structured["run_id"]), (&json!(5), &json!("r1")), "{response}");
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), served).await.expect("an end");
    ended.expect("no panic").expect("served");
}

/// S-155: a client of `initialize` that has listed the tools is notified of each change of them, and of nothing else.
#[tokio::test]
async fn a_client_is_notified_that_the_tools_have_changed() {
    let (api, service, peer, mut sent) = connected();
    let notified = tokio::spawn(changes::notify(Arc::clone(&service), Arc::clone(&peer)));
    let greeting = request(&service, &peer, "initialize", &json!({"protocolVersion": "2025-11-25"})).await;
    assert_eq!(greeting["result"]["capabilities"]["tools"], json!({"listChanged": true}));
    request(&service, &peer, "tools/list", &json!({})).await;
    look(&api, None).await;
    for apps in [(200, json!({"apps": []})), apps()] {
        look(&api, Some(apps)).await;
        assert_eq!(
            message(&mut sent).await,
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
        );
    }
    assert!(sent.try_recv().is_err());
    notified.abort();
}

/// S-155: in 2026-07-28 a listening client is notified: the subscription is acknowledged first, and all notifications name the
/// request.
#[tokio::test]
async fn a_client_listens_to_changes_of_the_tools() {
    let (api, service, peer, mut sent) = connected();
    let own = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"_meta": own, "notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let discovered = request(&service, &peer, "server/discover", &json!({"_meta": own})).await;
    assert_eq!(discovered["result"]["capabilities"]["tools"], json!({"listChanged": true}));
    let refused = request(&service, &peer, "subscriptions/listen", &json!({"_meta": own})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let (of, at) = (Arc::clone(&service), Arc::clone(&peer));
    let listening = tokio::spawn(async move { request(&of, &at, "subscriptions/listen", &params).await });
    let first = message(&mut sent).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}));
    look(&api, Some((200, json!({"apps": []})))).await;
    let second = message(&mut sent).await;
    assert_eq!(second["method"], "notifications/tools/list_changed");
    peer.leave();
    let ended = listening.await.expect("no panic")["result"].clone();
    assert_eq!(ended["resultType"], "complete");
    for of in [&first["params"], &second["params"], &ended] {
        assert_eq!(of["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{of}");
    }
}
