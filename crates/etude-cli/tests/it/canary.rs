//! Canary tests: one app with everything that a run can contain, and canaries given in each way in which a key can be given.
//!
//! No run leaves a canary in any byte that was written, in a prompt, or in the environment of a child that did not receive it
//! (A-3.7, SECURITY.md). The canaries have characters that are escaped in JSON, addresses and base64.

use serde_json::{Value, json};

use crate::crash::shim::{Fault, is_missing, with_fault};
use crate::echo_box::{self, USER};
use crate::mcp_server;
use crate::secrets::{CONFIG, forms, nothing_holds};
use crate::server::{Reply, Seen, Server};
use crate::test::{Test, binary, printing};

/// Key of the called provider, from the environment.
const KEY: &str = "sk-canary\"1/+\\%&=provider";
/// Key of another provider, in its usual variable.
const OTHER: &str = "sk-canary\"2/+\\%&=usual";
/// Header of the provider, as a literal in the user's configuration.
const HEADER: &str = "canary\"3/+\\%&=header";
/// Variable of an MCP server.
const MCP_ENV: &str = "canary\"4/+\\%&=mcp-env";
/// Header of an MCP server.
const MCP_HEADER: &str = "canary\"5/+\\%&=mcp-header";

const ALL: [&str; 5] = [KEY, OTHER, HEADER, MCP_ENV, MCP_HEADER];

/// MCP server whose tool leaks its variable in every form, in results, errors and on stderr.
const LEAKING: &str = r#"
token = os.environ["TOKEN"]
encoded = base64.b64encode(("user:" + token).encode()).decode()
forms = [token, json.dumps(token), urllib.parse.quote(token, safe=""), encoded]
print("started with", *forms, file=sys.stderr, flush=True)
REFUSAL = "no such method for " + token
TOOL = {"name": "leak", "description": "Leaks.", "inputSchema": {"type": "object"}}


def call(_):
    return {"content": [{"type": "text", "text": text} for text in forms + [json.dumps(forms)]], "isError": False}
"#;

/// An MCP server over HTTP that returns the header it received, and refuses its second tool with it.
fn far() -> Server {
    Server::by(|seen, _| {
        let header = seen.header("x-token").unwrap_or("none").to_owned();
        let result = match seen.body["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": seen.body["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            "tools/list" => {
                json!({"tools": [{"name": "say", "description": "Says.", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => {
                json!({"content": [{"type": "text", "text": format!("you sent {header}")}], "isError": true})
            }
            _ => return Reply::Status { status: 202, headers: Vec::new(), message: String::new() },
        };
        Reply::Body(json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string())
    })
}

/// A shell line that records its environment.
fn noting_env(name: &str) -> String {
    format!("ROOT=${{ROOT:-$XDG_TEST_ROOT}}; mkdir -p \"$ROOT/elsewhere/env\"; env > \"$ROOT/elsewhere/env/{name}\"")
}

fn app(model: &Server, far: &Server) -> Test {
    let test = Test::new();
    let script = test.path("leaking.py").display().to_string();
    test.put("leaking.py", &mcp_server::with(LEAKING));
    echo_box::put(&test, USER, &[]);
    let header = Value::from(HEADER);
    let config = format!(
        "model_mapping: {{lite: mock/m, standard: mock/m, reasoning: mock/m}}\nproviders:\n  mock:\n    kind: openai-compatible\n    \
         base_url: \"{}/v1\"\n    api_key: \"${{env:MOCK_KEY}}\"\n    headers: {{X-Team: {header}}}\n    \
         capabilities: {{toolCalling: hard}}\n  anthropic: {{base_url: \"http://127.0.0.1:9\"}}\nmcp:\n  servers:\n    leaking: {{command: python3, args: [\"{script}\"], env: {{TOKEN: \
         \"${{env:MCP_ENV}}\"}}}}\n    far: {{url: \"{}/mcp\", headers: {{X-Token: \"${{env:MCP_HEADER}}\"}}}}\n",
        model.url(),
        far.url()
    );
    test.user_config(&config)
        .env("MOCK_KEY", KEY)
        .env("ANTHROPIC_API_KEY", OTHER)
        .env("MCP_ENV", MCP_ENV)
        .env("MCP_HEADER", MCP_HEADER)
        .env("RUST_BACKTRACE", "full")
        .env("RUST_LOG", "trace")
}

/// Checks everything that a run leaves: with every command, and then byte for byte.
#[track_caller]
fn is_clean(test: &Test, models: &[&Server]) {
    let listed = test.run(&["runs", "list", "--format", "json"]).exit(0);
    let document: Value = serde_json::from_slice(&listed.raw).expect("a document");
    for run in document["runs"].as_array().into_iter().flatten() {
        let id = run["run_id"].as_str().expect("an id");
        for args in [
            &["runs", "show", id][..],
            &["runs", "show", id, "--verbose"],
            &["runs", "show", id, "--format", "json"],
            &["runs", "export", id],
            &["runs", "resume", id, "--format", "jsonl"],
        ] {
            test.run(args);
        }
    }
    let forms: Vec<String> = ALL.iter().flat_map(|canary| forms(canary)).collect();
    for seen in models.iter().flat_map(|model| model.seen()) {
        let body = seen.body.to_string();
        let plain = unescaped(&body);
        let found = forms.iter().find(|form| body.contains(*form) || plain.contains(*form));
        assert_eq!(found, None, "a prompt holds a key: {body}");
    }
    nothing_holds(test, &ALL, &[CONFIG]);
}

/// A JSON text with its escapes resolved.
fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// A-3.7: a pipeline with code, a model, its validator, and all provider errors about keys leaks no key.
#[test]
fn no_key_is_left_by_pipelines() {
    let said = json!({"what": KEY, "team": HEADER}).to_string();
    let faults = [
        Reply::status(401).message(&format!("the key {KEY} of {HEADER} is wrong")),
        Reply::status(400).message(&said),
        Reply::status(500).header("retry-after-ms", "1").message(&said),
        Reply::Body(said.clone()),
        Reply::Body(format!("not JSON {KEY} {HEADER}")),
        Reply::says("fine"),
    ];
    for fault in faults {
        let (model, far) = (Server::new([fault]), far());
        let test = app(&model, &far)
            .pipeline("_constructor", |p| p.sh("begin", &format!("{}; echo '{{\"output\":1}}'", noting_env("begin"))))
            .pipeline("_destructor", |p| p.sh("end", &format!("{}; echo '{{\"output\":1}}'", noting_env("end"))))
            .pipeline("p", |p| {
                let step = format!("{}; env >&2; echo '{{\"output\":1}}'", noting_env("step"));
                let check = format!("{}; echo '{{\"valid\":true}}'", noting_env("validator"));
                p.sh("one", &step).llm("ask", "x", "validate: steps/check.sh\nretry: 1").file("steps/check.sh", &check)
            });
        test.run(&["run", "-p", "p", "--format", "jsonl", "--verbose"]);
        test.run(&["run", "-p", "p", "--format", "human"]);
        test.run(&["model", "list"]);
        test.run(&["model", "list", "--format", "json"]);
        assert!(test.read("elsewhere/env/step").contains("HOME="), "the step ran");
        is_clean(&test, &[&model]);
    }
}

/// Model responses that contain all canaries, plain and as other programs escape them.
fn forwarding(also: &str) -> [String; 2] {
    let plain = format!("{also} {KEY} {OTHER} {HEADER} {MCP_ENV} {MCP_HEADER}");
    let escaped = json!({"told": plain}).to_string().replace('/', "\\/").replace("canary", "\\u0063anary");
    [plain, escaped]
}

/// A-3.7: a model's text reaches steps, prompts, people and the journal without the keys in it.
#[test]
fn no_key_is_left_by_answers() {
    for said in forwarding("here they are:") {
        let (model, far) = (Server::new([Reply::says(&said)]), far());
        let test = app(&model, &far).pipeline("p", |p| {
            let step = format!("mkdir -p \"$ROOT/elsewhere\"; cat > \"$ROOT/elsewhere/stdin\"; {}", printing("1"));
            p.llm("a", "x", "").llm("b", "see {{a.output}}", "").sh("c", &step)
        });
        for format in ["jsonl", "json", "human"] {
            let ran = test.run(&["run", "-p", "p", "--format", format, "--verbose"]);
            assert_eq!(ran.code(), 0, "{}", ran.err());
        }
        assert!(model.seen()[1].request().contains("***"), "{:?}", model.seen()[1].conversation());
        assert!(test.read("elsewhere/stdin").contains("***"), "{}", test.read("elsewhere/stdin"));
        is_clean(&test, &[&model]);
    }
}

/// A-3.7, A-7.1: the arguments of an agent's tool calls and its other text contain no key.
#[test]
fn no_key_is_left_by_arguments_of_tools() {
    let [plain, escaped] = forwarding("echo");
    let (bash, far_call) = (json!({"command": format!("cat <<'X'\n{plain}\nX")}), json!({"x": plain}));
    let calls = vec![("Bash".to_owned(), bash), ("mcp__far__say".to_owned(), far_call)];
    let raw = json!({"choices": [{"finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": plain, "tool_calls": [{
            "id": MCP_HEADER, "type": "function",
            "function": {"name": "Bash", "arguments": escaped.replacen("told", "command", 1)},
        }],
    }}]});
    let turns = [Reply::Calls { text: plain.clone(), calls }, Reply::Body(raw.to_string()), Reply::says(&escaped)];
    let (model, far) = (Server::agent(turns), far());
    let test = app(&model, &far).skill("", "Look around.\n");
    test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let results = model.seen().last().expect("a model was asked").results();
    assert!(results.len() == 3 && results[0].contains("echo ***"), "{results:?}");
    is_clean(&test, &[&model]);
}

/// A-3.7: a failed call shows its output like a successful one, also if it is JSON with escapes.
#[test]
fn no_key_is_left_by_calls_that_fail() {
    let escaped: String = KEY.chars().map(|sign| format!("\\u{:04x}", u32::from(sign))).collect();
    let model = Server::agent([Reply::bash("cat secret.json"), Reply::bash("cat secret.json; exit 3")]);
    let test = Test::new()
        .skill("", "Look around.\n")
        .file("secret.json", &format!("{{\"a\": \"{escaped}\"}}\n"))
        .model(&model)
        .env("MOCK_KEY", KEY);
    test.run(&["run", "--skill", "go", "--yolo"]).exit(0);
    let results = model.seen().last().expect("a model was asked").results();
    assert!(results.len() == 2 && results.iter().all(|result| result.contains("***")), "{results:?}");
    assert!(results.iter().all(|result| !result.contains(&escaped)), "{results:?}");
}

/// A-3.7, A-7.1: an MCP server that puts the received header into its tool list leaks no key.
#[test]
fn no_key_is_left_by_tools_that_are_listed() {
    let far = Server::by(|seen, _| {
        let header = seen.header("x-token").unwrap_or("none").to_owned();
        let listed = |name: &str| {
            let schema =
                json!({"type": "object", "description": header, "properties": {header.clone(): {"enum": [header]}}});
            json!({"name": name, "description": format!("Says {header}"), "inputSchema": schema})
        };
        let result = match seen.body["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": seen.body["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": header, "version": header}, "instructions": header,
            }),
            "tools/list" => json!({"tools": [listed("say"), listed(&format!("say-{header}"))]}),
            "tools/call" => {
                json!({"content": [{"type": "text", "text": header}], "structuredContent": {header.clone(): header}})
            }
            _ => return Reply::Status { status: 202, headers: Vec::new(), message: String::new() },
        };
        Reply::Body(json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string())
    });
    let model = Server::agent([
        Reply::call("mcp__far__say", json!({})),
        Reply::call("mcp__far__say", json!({"other": 1})),
        Reply::call("mcp__far__nothing", json!({})),
    ]);
    let test = app(&model, &far).skill("", "Look around.\n");
    test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let available = &model.seen()[0].body["tools"].to_string();
    assert!(available.contains("Says ***") && available.contains("{\"***\":{\"enum\":[\"***\"]}}"), "{available}");
    is_clean(&test, &[&model]);
}

/// A-3.7, A-7.1: an agent whose tools, servers and commands leak what they know leaves no key.
#[test]
fn no_key_is_left_by_agents() {
    let turns = [
        Reply::bash(&format!("{}; tr '\\0' '\\n' < /proc/$PPID/environ", noting_env("bash"))),
        Reply::call("mcp__leaking__leak", json!({})),
        Reply::call("mcp__far__say", json!({})),
        Reply::call("peek", json!({})),
        Reply::call("run_application", json!({"application": "echo-box", "command": "env"})),
    ];
    let count = turns.len();
    let model = Server::agent(turns);
    let far = far();
    let peek = format!("{}; env >&2; echo '{{\"ok\":true,\"value\":1}}'\n", noting_env("tool"));
    let test = app(&model, &far)
        .skill("", "Look around.\n")
        .file("tools/peek.yaml", "name: peek\ndescription: Peeks.\ncommand: sh tools/peek.sh\n")
        .file("tools/peek.sh", &peek);
    test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let results = model.seen().last().expect("a model was asked").results();
    assert_eq!(results.len(), count, "{results:?}");
    assert!(results[1].contains("***") && results[2].contains("you sent ***"), "the canaries were there: {results:?}");
    assert_eq!(
        far.seen().last().and_then(|seen| seen.header("x-token").map(str::to_owned)).as_deref(),
        Some(MCP_HEADER)
    );
    assert_eq!(model.seen()[0].header("x-team"), Some(HEADER));
    is_clean(&test, &[&model]);
}

/// A-3.7, B-IS2: a machine with hooks, guards and tools leaks no key; a key that a hook puts into the prompt is not sent.
#[test]
fn no_key_is_left_by_machines() {
    for leak in [None, Some(KEY), Some(OTHER), Some(MCP_ENV), Some(HEADER)] {
        let model = Server::by(|seen: &Seen, _| match seen.turn() {
            0 => Reply::call("look", json!({})),
            _ => Reply::call("submit_plan", json!({"summary": "s"})),
        });
        let far = far();
        let hook = |name: &str, prints: &str| format!("cat >/dev/null; {}; echo '{prints}'\n", noting_env(name));
        let setup = match leak {
            None => hook("setup", "{\"ctx\":{\"task\":\"T\"}}"),
            // The hook reads it from a file of the test, so that it is never in the app itself.
            Some(_) => format!("cat >/dev/null; {}; cat \"$ROOT/leak.json\"\n", noting_env("setup")),
        };
        let test = app(&model, &far)
            .file("tools/look.yaml", "name: look\ndescription: Looks.\ncommand: sh tools/look.sh\n")
            .file("tools/look.sh", &hook("look", "{\"ok\":true,\"value\":1}"))
            .file(
                "machines/m/machine.yaml",
                "kind: StateMachine\nid: m\nentryStage: plan\nstateSlot: {slotVersion: \"1.0.0\", schema: {type: object}}\n\
                 pipeline:\n  plan: {setup: {script: sh scripts/setup.sh}, exit: {script: sh scripts/exit.sh}}\n",
            )
            .file("machines/m/scripts/setup.sh", &setup)
            .file("machines/m/scripts/exit.sh", &hook("exit", "{\"output\":{}}"))
            .file(
                "machines/m/stages/plan.md",
                "---\nid: plan\nname: plan\nallowedTools: [look]\ncompletionTool: submit_plan\ncompletionSchema: {type: object, \
                 required: [summary]}\nretryPolicy: {maxAttempts: 2, backoff: none}\nturnCap: 4\nresolutionPolicy: retry-later\n\
                 ---\nTask: {{ctx.task}}\n",
            )
            .file("etude.yaml", "guards: [{command: sh guard.sh}]\n")
            .file("guard.sh", &hook("guard", "{\"decision\":\"allow\"}"));
        test.put("leak.json", &json!({"ctx": {"task": leak}}).to_string());
        let ran = test.run(&["machine", "run", "m", "--yolo", "--format", "jsonl", "--verbose"]);
        match leak {
            None => {
                ran.exit(0);
                is_clean(&test, &[&model]);
            }
            Some(_) => {
                assert_eq!(model.calls(), 0, "a key was sent: {}", ran.err());
                assert!(ran.out().contains("LLMContextLeak"), "{}", ran.out());
            }
        }
    }
}

/// A-3.7, C-1.13: applications get few variables, from commands, steps and checks.
#[test]
fn no_key_is_left_by_applications() {
    let (model, far) = (Server::new([Reply::says("done")]), far());
    let test = app(&model, &far)
        .pipeline("p", |p| p.step("name: call\ntype: application\napplication: echo-box\ncommand: env\nargs: []"));
    test.run(&["apps", "run", "--format", "json", "echo-box", "env"]).exit(0);
    test.run(&["run", "-p", "p", "--format", "jsonl"]).exit(0);
    test.run(&["apps", "check", "home/.agents/apps/echo-box", "--format", "json"]);
    test.run(&["apps", "show", "echo-box", "--format", "json"]).exit(0);
    is_clean(&test, &[&model]);
}

/// A-3.7, D-16: code tools and middleware of the cascade leak no key.
#[test]
fn no_key_is_left_by_skills_and_middleware() {
    let (model, far) = (Server::new([Reply::says("done")]), far());
    let test = app(&model, &far)
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], watch: {on: true}}\n---\n")
        .file(
            "skills/greet.skill.md",
            "---\nname: greet\ncommand: sh greet.sh\nmetadata: {params: {type: object}}\n---\n",
        )
        .file(
            "skills/greet.sh",
            &format!("cat >/dev/null; {}; env >&2; echo '{{\"result\": 1}}'\n", noting_env("greet")),
        )
        .file("skills/watch.skill.md", "---\nname: watch\ncommand: sh watch.sh\nmetadata: {role: middleware}\n---\n")
        .file(
            "skills/watch.sh",
            &format!(
                "cat >/dev/null; {}; r=$({} host next) || exit 1; printf '{{\"result\": %s}}' \"$r\"\n",
                noting_env("watch"),
                binary()
            ),
        );
    test.run(&["skill", "run", "greet", "--format", "json"]).exit(0);
    test.run(&["skill", "run", "greet", "--verbose"]);
    test.run(&["skill", "explain", "greet", "--format", "json"]);
    assert!(test.read("elsewhere/env/greet").contains("HOME="), "the tool ran");
    is_clean(&test, &[&model]);
}

/// A-3.7: recordings of model calls contain neither the key nor the headers with which they were made.
#[test]
fn no_key_is_left_in_recordings() {
    let (model, far) = (Server::new([Reply::says("fine")]), far());
    let test = app(&model, &far)
        .pipeline("p", |p| p.llm("ask", "x", ""))
        .file("tests/one.yaml", "pipeline: p\ninput: {}\nexpect: {status: succeeded}\n");
    test.run(&["test", "--record", "--format", "json"]).exit(0);
    assert!(!test.files_below("app/tests/recordings").is_empty(), "something was recorded");
    test.run(&["test", "--format", "json"]).exit(0);
    is_clean(&test, &[&model]);
}

/// A-3.7: a panic reports its location and no secrets, however few threads there are.
#[test]
fn no_key_is_left_by_a_crash() {
    if is_missing("no_key_is_left_by_a_crash") {
        return;
    }
    let mut broken = 0;
    for most in 0..10 {
        let (model, far) = (Server::new([Reply::says("fine")]), far());
        let test = app(&model, &far).pipeline("p", |p| p.sh("one", "echo '{\"output\":1}'").llm("ask", "x", ""));
        let args = ["run", "-p", "p", "--format", "json"];
        let mut command = with_fault(&test, test.command(&args), Fault::None);
        command.env("ETUDE_SHIM_THREADS", most.to_string());
        let ran = test.start_with(command, &args).finish();
        assert!([0, 4, 70].contains(&ran.code()), "{most} threads: exit status {}: {}", ran.code(), ran.err());
        let document: Value = serde_json::from_slice(&ran.raw).expect("one document");
        assert_eq!(document["status"] == "succeeded", ran.code() == 0, "{most} threads: {document}");
        broken += usize::from(ran.code() != 0);
        is_clean(&test, &[&model]);
    }
    assert!(broken > 0, "it never panicked");
}
