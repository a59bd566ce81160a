//! MCP servers as a source of tools, with separate processes, secrets and faults (A-7.1).

use serde_json::json;

use crate::mcp_server;
use crate::server::{Reply, Server};
use crate::test::Test;

/// The tool `shout` of a server that records its environment, and each call.
pub(crate) const SHOUT: &str = r#"
with open(os.environ["HOME"] + "/server.env", "w") as out:
    out.write("\n".join(f"{name}={value}" for name, value in sorted(os.environ.items())))

REFUSAL = "no such method"
TEXT = {"type": "string"}
TOOL = {
    "name": "shout",
    "description": "Says it loudly.",
    "inputSchema": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
}


def call(arguments):
    text = arguments["text"]
    if text == "exit":
        sys.exit(3)
    with open(os.environ["HOME"] + "/calls", "a") as out:
        out.write(f"{os.getpid()} {text}\n")
    return {"content": [{"type": "text", "text": text.upper()}], "isError": text == "fail"}
"#;

const TOKEN: &str = "tok-canary-1234-never-shown";

/// An app with the server as `loud`, and further configuration.
fn app(server: &Server, frontmatter: &str, more: &str) -> Test {
    let config = "mcp: {servers: {loud: {command: python3, args: [\"$ROOT/server.py\"], env: {TOKEN: \"${env:LOUD_TOKEN}\"}}}}\n";
    let test = Test::new().skill(frontmatter, "Be loud.\n").model(server).env("LOUD_TOKEN", TOKEN).env("OTHER", "kept");
    test.put("server.py", &mcp_server::with(SHOUT));
    let path = test.path("server.py").display().to_string();
    test.file("etude.yaml", &format!("{}{more}", config.replace("$ROOT/server.py", &path)))
}

fn shout(text: &str) -> Reply {
    Reply::call("mcp__loud__shout", json!({ "text": text }))
}

/// Results of its calls that the model received in its last request.
fn results(server: &Server) -> Vec<String> {
    server.seen().pop().expect("a model was asked").results()
}

/// A-7.1: tools of a server are listed after the others, called, and their failures are reported.
#[test]
fn tools_of_a_server_are_listed_and_called() {
    let server = Server::agent([shout("hello"), shout("fail"), Reply::call("mcp__loud__shout", json!({}))]);
    let test = app(&server, "", "");
    test.follow("go", &["--yolo"]).output("done");
    let tools = server.seen()[0].body["tools"].clone();
    let last = &tools.as_array().expect("tools are a list")[7]["function"];
    assert_eq!(
        (&last["name"], &last["description"]),
        (&json!("mcp__loud__shout"), &json!("[MCP server loud] Says it loudly."))
    );
    assert_eq!(last["parameters"]["required"], json!(["text"]));
    let results = results(&server);
    assert_eq!(results[0], "HELLO");
    assert!(results[1].contains("FAIL"), "{results:?}");
    assert!(results[2].contains("InputInvalid"), "{results:?}");
    assert_eq!(test.read("home/calls").lines().count(), 2);
}

/// A-7.1, A-3.7: a server gets exactly the variables of its configuration; scripts and commands do not get them, and nothing of
/// them is in journal, prompts or events.
#[test]
fn a_server_has_secrets_of_its_own() {
    let server =
        Server::agent([shout("hello"), Reply::bash("env > \"$ROOT/bash.env\"; env"), Reply::call("show", json!({}))]);
    let test = app(&server, "", "")
        .file("tools/show.sh", "#!/bin/sh\n# Shows.\nenv > \"$ROOT/tool.env\"\nprintf '\"%s\"' \"$LOUD_TOKEN$TOKEN\"\n")
        .executable("tools/show.sh");
    let ran = test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let env = test.read("home/server.env");
    assert!(env.contains(&format!("TOKEN={TOKEN}")) && env.contains("PATH="), "{env}");
    for absent in ["LOUD_TOKEN", "MOCK_KEY", "OTHER=", "ETUDE"] {
        assert!(!env.contains(absent), "{absent}: {env}");
    }
    for file in ["bash.env", "tool.env"] {
        let env = test.read(file);
        assert!(env.contains("OTHER=kept") && !env.contains("TOKEN") && !env.contains("MOCK_KEY"), "{file}: {env}");
    }
    test.run(&["runs", "export", &ran.id()]).exit(0);
    std::fs::remove_file(test.path("home/server.env")).expect("it was there");
    crate::secrets::nothing_holds(&test, &[TOKEN, crate::test::KEY], &[]);
    assert!(server.seen().iter().all(|seen| !seen.body.to_string().contains(TOKEN)));
}

/// A-7.1: a server that cannot be started or reached is a problem that the model sees; the run continues without it, and no
/// secret of its command line, its variables or its address is in the report.
#[test]
fn a_server_that_cannot_start_is_reported_and_the_run_goes_on() {
    let server = Server::agent([shout("hello"), Reply::call("mcp__gone__x", json!({}))]);
    let gone = "mcp:\n  servers:\n    gone: {command: no-such-program, args: [\"--key=${env:LOUD_TOKEN}\"], env: {T: \"${env:LOUD_TOKEN}\"}}\n    \
                far: {url: \"http://127.0.0.1:9/mcp?key=${env:LOUD_TOKEN}\", headers: {Authorization: \"Bearer ${env:LOUD_TOKEN}\"}}\n    \
                bad: {command: sh, args: [-c, \"echo no licence >&2; exit 4\"]}\n";
    let test = Test::new().skill("", "Be loud.\n").model(&server).env("LOUD_TOKEN", TOKEN).file("etude.yaml", gone);
    let ran = test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let system = server.seen()[0].system();
    assert!(system.starts_with("Be loud.\n\nSome tools are missing: "), "{system}");
    for name in ["`gone`", "`far`", "`bad`"] {
        assert!(system.contains(name), "{name}: {system}");
    }
    let missing = ran.lines().into_iter().find(|line| line["event"] == "tools_missing").expect("the user is told, too");
    assert_eq!(missing["problems"].as_array().map(Vec::len), Some(3), "{missing}");
    assert!(results(&server).iter().all(|result| result.contains("no tool of that name")), "{:?}", results(&server));
    test.run(&["runs", "export", &ran.id()]).exit(0);
    crate::secrets::nothing_holds(&test, &[TOKEN], &[]);
    assert!(server.seen().iter().all(|seen| !seen.body.to_string().contains(TOKEN)));
}

/// A-3.7, A-7.1: a secret in a tool's result, from a server that repeats its own or a command that finds etude's, is redacted
/// for all readers: model, journal, events. Other values stay.
#[test]
fn a_secret_that_a_tool_gives_is_taken_out() {
    let look = "tr '\\0' '\\n' < /proc/$PPID/environ; echo home is $HOME";
    let server = Server::agent([shout("which token?"), Reply::bash(look), Reply::call("Read", json!({"path": "t"}))]);
    let test = app(&server, "", "");
    test.put("server.py", &mcp_server::with(&SHOUT.replace("text.upper()", "os.environ['TOKEN']")));
    let config = test.read("app/etude.yaml").replace("env: {", "env: {WHERE: \"${env:HOME}\", ");
    let test = test.file("etude.yaml", &config).file("t", "the token: see elsewhere\n");
    let ran = test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl", "--verbose"]).exit(0);
    let results = results(&server);
    assert_eq!(results[0], "***");
    assert!(results[1].contains(&format!("home is {}", test.path("home").display())), "{results:?}");
    assert!(results[2].contains("the token: see elsewhere"), "{results:?}");
    test.run(&["runs", "export", &ran.id()]).exit(0);
    std::fs::remove_file(test.path("home/server.env")).expect("it was there");
    crate::secrets::nothing_holds(&test, &[TOKEN, crate::test::KEY], &[]);
    let reported = |seen: &crate::server::Seen| seen.results().concat();
    assert!(
        server.seen().iter().all(|seen| !reported(seen).contains(TOKEN) && !reported(seen).contains(crate::test::KEY))
    );
}

/// A-7.1: a server that ends in the middle is restarted at the next call.
#[test]
fn a_server_that_ends_is_started_again() {
    let server = Server::agent([shout("one"), shout("exit"), shout("two")]);
    let test = app(&server, "", "");
    test.follow("go", &["--yolo"]).output("done");
    let results = results(&server);
    assert_eq!((results[0].as_str(), results[2].as_str()), ("ONE", "TWO"));
    assert!(results[1].contains("`loud`"), "{results:?}");
    let calls = test.read("home/calls");
    let pids: Vec<&str> = calls.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(pids.len() == 2 && pids[0] != pids[1], "{calls}");
}

/// A-7.1: no server outlives its run, and none is started for an agent that may not use it.
#[test]
fn servers_are_started_when_needed_and_end_with_the_run() {
    let server = Server::agent([shout("one")]);
    let test = app(&server, "", "");
    test.follow("go", &["--yolo"]).output("done");
    let calls = test.read("home/calls");
    let pid = calls.split(' ').next().expect("the server noted its id");
    crate::skill_runs::is_gone(pid);
    let test = app(&server, "allowed-tools: Read\n", "");
    test.follow("go", &["--yolo"]).output("done");
    assert!(!test.path("home/server.env").exists(), "no server was started");
    assert_eq!(server.seen().pop().expect("a model was asked").tools(), ["Read"]);
}

/// A-7.1, A-7.3: tools of servers are narrowed and approved like all others.
#[test]
fn tools_of_servers_are_narrowed_and_approved() {
    let server = Server::agent([shout("one")]);
    app(&server, "", "").follow("go", &[]).output("done");
    assert!(results(&server)[0].contains("`mcp__loud__shout` needs approval"), "{:?}", results(&server));
    let test = app(&server, "allowed-tools: mcp__loud\n", "approvals: {mode: allowlist, allow: [mcp__loud__*]}\n");
    test.follow("go", &[]).output("done");
    assert_eq!(results(&server), ["ONE"]);
    assert_eq!(server.seen().pop().expect("a model was asked").tools(), ["mcp__loud__shout"]);
}

/// A-7.2: a successful call of a server is not made again after a crash.
#[test]
fn a_finished_call_of_a_server_is_not_made_again() {
    let hold = "echo begun >> \"$LEDGER\"; [ -e \"$ROOT/go\" ] || sleep 300";
    let server = Server::agent([shout("one"), Reply::bash(hold), shout("two")]);
    let test = app(&server, "", "");
    let running = test.start(&["run", "--skill", "go", "--yolo", "--format", "json"]);
    test.wait_for("begun");
    running.kill();
    test.put("go", "");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    test.run(&["runs", "resume", &id, "--format", "json"]).output("done");
    let calls = test.read("home/calls");
    let texts: Vec<&str> = calls.lines().filter_map(|line| line.split_once(' ')).map(|(_, text)| text).collect();
    assert_eq!(texts, ["one", "two"]);
}

/// A-7.1: a literal key in a server's configuration is as secret as one from the environment; other values are not.
#[test]
fn a_key_that_is_written_out_is_a_secret() {
    let server = Server::agent([shout(&format!("{TOKEN} and plainvalue"))]);
    let test = app(&server, "", "");
    let config = test
        .read("app/etude.yaml")
        .replace("\"${env:LOUD_TOKEN}\"", &format!("{}, MODE: plainvalue", TOKEN.to_uppercase()));
    let test = test.file("etude.yaml", &config).without_env("LOUD_TOKEN");
    test.run(&["run", "--skill", "go", "--yolo", "--format", "json"]).exit(0).output("done");
    let results = server.seen().last().map(crate::server::Seen::results).unwrap_or_default();
    assert!(results[0].contains("PLAINVALUE") && !results[0].contains(&TOKEN.to_uppercase()), "{results:?}");
}

/// A server whose tool asks the user for a count, before it returns.
const ASKING: &str = r#"
import json, sys

def read():
    return json.loads(sys.stdin.readline())

def write(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

while True:
    message = read()
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "asking", "version": "1"}
        write({"id": message["id"], "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        write({"id": message["id"], "result": {"tools": [{"name": "Knock_Knock!", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        schema = {"type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]}
        write({"id": 900, "method": "elicitation/create", "params": {"message": "How often?", "requestedSchema": schema}})
        answer = read()["result"]
        text = json.dumps({"action": answer["action"], "times": (answer.get("content") or {}).get("times")})
        write({"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})
    elif "id" in message:
        write({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
"#;

/// A project whose main skill declares these servers.
fn declaring(servers: &serde_json::Value) -> Test {
    let metadata = json!({"role": "main", "paths": ["./skills"], "mcp": servers});
    let test = Test::new().cwd("project").env("TOKEN_OF_SERVER", TOKEN);
    test.put("project/app.skill.md", &format!("---\nname: app\nmetadata: {metadata}\n---\n"));
    test.put("project/server.py", &mcp_server::with(SHOUT));
    test.put("project/asking.py", ASKING);
    test
}

fn code_skill(test: &Test, name: &str, script: &str) {
    test.put(&format!("project/skills/{name}.skill.md"), &format!("---\nname: {name}\ncommand: sh {name}.sh\n---\n"));
    test.put(&format!("project/skills/{name}.sh"), script);
}

/// D-12, D-9.1, D-N01, D-N02: tools of servers that metadata declares are skills: by name, by address, for agents, and with a
/// chain; variables that `env` leaves to the launch are looked up then, and the servers end with the call.
#[test]
fn tools_of_declared_servers_are_skills() {
    let e = crate::test::binary();
    let env = json!({"TOKEN": "\\${TOKEN_OF_SERVER}"});
    let test = declaring(&json!({"Loud Server": {"command": "python3", "args": ["server.py"], "env": env}}));
    let calls = format!(
        "cat >/dev/null\nr=$({e} host invoke loud-server-shout --args '{{\"text\": \"one\"}}') || exit 1\n\
         s=$({e} host invoke mcp://loud-server/shout --args '{{\"text\": \"two\"}}') || exit 1\n\
         {e} host invoke loud-server-shout --args '{{}}' 2>/dev/null && exit 1\n\
         {e} host invoke loud-server-shout --args '{{\"text\": \"fail\"}}' 2>/dev/null && exit 1\n\
         printf '{{\"result\": [%s, %s]}}' \"$r\" \"$s\"\n"
    );
    code_skill(&test, "calls", &calls);
    assert_eq!(test.run(&["skill", "run", "calls"]).exit(0).value(), json!(["ONE", "TWO"]));
    let reported = test.read("home/calls");
    let pids: Vec<&str> = reported.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(pids.len() == 3 && pids.iter().all(|pid| *pid == pids[0]), "{reported}");
    crate::skill_runs::is_gone(pids[0]);
    assert!(test.read("home/server.env").contains(&format!("TOKEN={TOKEN}")));

    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("loud-server-shout", json!({"text": "agent"})),
        _ => Reply::says(&seen.results()[0]),
    });
    let test = test.model(&server);
    test.put("project/skills/asks.skill.md", "---\nname: asks\ndescription: Asks.\n---\nShout.\n");
    assert_eq!(test.run(&["skill", "run", "asks"]).exit(0).value(), json!("AGENT"));
    assert!(!server.seen()[0].body.to_string().contains(TOKEN));
}

/// D-12: a question of a server goes to the gateway of the caller of its tool; without one it is declined.
#[test]
fn questions_of_declared_servers_go_to_the_gateway() {
    let e = crate::test::binary();
    let test = declaring(&json!({"door": {"command": "python3", "args": ["asking.py"]}}));
    let calls = format!(
        "cat >/dev/null\nr=$({e} host invoke door-knock-knock) || exit 1\nprintf '{{\"result\": %s}}' \"$r\"\n"
    );
    code_skill(&test, "calls", &calls);
    assert_eq!(test.run(&["skill", "run", "calls"]).exit(0).value()["action"], json!("cancel"));
    let answers = "cat >/dev/null\necho '{\"result\": {\"times\": 3}}'\n";
    code_skill(&test, "gateway-receive", answers);
    test.put(
        "project/skills/gateway-receive.skill.md",
        "---\nname: gateway-receive\ncommand: sh gateway-receive.sh\nmetadata: {params: {type: object}}\n---\n",
    );
    assert_eq!(test.run(&["skill", "run", "calls"]).exit(0).value(), json!({"action": "accept", "times": 3}));
}

/// D-12, D-11, A-4.5: metadata never gets the key of a provider from the environment: not for servers, not in prompts.
#[test]
fn metadata_gets_no_key_of_a_provider() {
    let server = Server::by(|_, _| Reply::says("read"));
    let env = json!({"TAKEN": "\\${MOCK_KEY}"});
    let thief = |is_optional: bool| {
        let thief = json!({"command": "python3", "args": ["server.py"], "env": env, "optional": is_optional});
        let test = declaring(&json!({ "thief": thief })).model(&server);
        test.put("project/skills/asks.skill.md", "---\nname: asks\ndescription: Asks.\n---\nIt is <:env[MOCK_KEY]>.\n");
        test.run(&["skill", "run", "asks", "--format", "json"])
    };
    let why = "`thief` is not started: the variable `MOCK_KEY` is set, but contains a key of a model provider";
    let ran = thief(false).exit(4).has("/status", "failed").has("/errors/0/kind", "environment");
    assert!(ran.err().contains(why) && server.seen().is_empty(), "{}", ran.err());
    let ran = thief(true).exit(0);
    assert!(ran.err().contains(&format!("warning: the MCP server {why}")), "{}", ran.err());
    assert!(server.seen()[0].body.to_string().contains("It is <>."), "{}", server.seen()[0].body);
}

/// D-12, cli: the user can stop waiting for a server that does not start.
#[test]
fn a_declared_server_that_hangs_can_be_left() {
    let hangs = "import os, time; open(os.environ['HOME'] + '/hangs', 'w'); time.sleep(600)";
    let test = declaring(&json!({"hangs": {"command": "python3", "args": ["-c", hangs]}}));
    code_skill(&test, "fine", "echo ran >> \"$LEDGER\"\n");
    let running = test.start(&["skill", "run", "fine"]);
    crate::test::wait_until("the server", || test.path("home/hangs").exists());
    running.interrupt();
    running.finish().exit(130);
    assert!(test.ledger().is_empty());
}

/// D-12: without a server the skill that declares it does not run, unless the server is optional.
#[test]
fn a_declared_server_that_does_not_start_is_thrown() {
    let run = |is_optional: bool| {
        let servers = json!({
            "lost": {"command": "no-such-program", "optional": is_optional},
            "short": {"command": "python3", "env": {"A": "\\${NOT_SET}"}, "optional": is_optional},
        });
        let test = declaring(&servers);
        code_skill(&test, "fine", "cat >/dev/null\necho ran >> \"$LEDGER\"\necho '{\"result\": 1}'\n");
        let ran = test.run(&["skill", "run", "fine"]);
        for reported in ["MCP server `short` is not started: the variable `NOT_SET` is not set", "`lost`"] {
            assert!(ran.err().contains(reported), "{}", ran.err());
        }
        (ran.code(), test.ledger())
    };
    assert_eq!(run(false), (4, Vec::<String>::new()));
    assert_eq!(run(true), (0, vec!["ran".to_owned()]));
}
