//! Connection to a provider: transport retries, refusals, keys, and the kinds of failed calls (A-4.5).

use serde_json::{Value, json};

use crate::server::{Reply, Server, unreachable_url};
use crate::test::{KEY, Test, with_some_limit};

fn asks(server: &Server) -> Test {
    Test::new().pipeline("p", |p| p.llm("ask", "x", "retry: 1")).model(server)
}

/// A-4.5: 429, 5xx and lost connections are retried after the requested time, and count neither as attempts nor as calls.
#[test]
fn transport_failures_are_tried_again_and_are_no_attempts() {
    let now = |status| Reply::status(status).header("retry-after-ms", "1");
    let server = Server::new([now(429), now(503), now(529), Reply::says("ok")]);
    asks(&server).run_json("p").output("ok").steps(&["ask succeeded 1"]).has("/usage/calls", 1);
    assert_eq!(server.calls(), 4);
}

/// A-4.5: people and programs see that the transport waits, and for how long.
#[test]
fn waits_of_the_transport_are_shown() {
    let busy = || Reply::status(429).header("retry-after-ms", "20").message("slow down");
    let server = Server::new([busy(), Reply::says("ok")]);
    let test = asks(&server);
    let ran = test.run(&["run", "-p", "p"]).exit(0);
    assert!(ran.err().contains("↻ ask 429, next attempt in [TIME] (2 of 5)\n"), "{}", ran.err());

    let server = Server::new([busy(), Reply::says("ok")]);
    let lines = asks(&server).run(&["run", "-p", "p", "--format", "jsonl"]).exit(0).lines();
    let waits: Vec<&Value> = lines.iter().filter(|line| line["event"] == "transport_retry").collect();
    let expected = json!({
        "event": "transport_retry", "effect": "p/ask", "status": 429, "reason": "status 429: slow down", "wait_ms": 20,
        "attempt": 2, "max_attempts": 5,
    });
    assert_eq!(waits, [&expected]);
}

/// A-4.4, A-4.5: transport retries have their own budget, in the middle of a conversation too.
#[test]
fn transport_retries_do_not_use_the_retries_of_the_step() {
    let now = || Reply::status(503).header("retry-after-ms", "1");
    let replies = [now(), Reply::says("not json"), now(), now(), Reply::says("{}")];
    let server = Server::new(replies);
    Test::new()
        .model(&server)
        .pipeline("p", |p| p.llm("ask", "x", "retry: 1\nschema: s.json").file("s.json", r#"{"type":"object"}"#))
        .run_json("p")
        .output(json!({}))
        .steps(&["ask succeeded 2"])
        .has("/usage/calls", 2);
    assert_eq!(server.calls(), 5);
    assert_eq!(server.seen()[4].conversation().len(), 3);
}

/// A-4.5: endless failures end after at most ten attempts, with the provider's last message.
#[test]
fn endless_failures_end_after_a_bounded_number_of_attempts() {
    for status in [429, 500, 503] {
        let server = Server::new([Reply::status(status).header("retry-after-ms", "1").message("overloaded, sorry")]);
        let ran =
            asks(&server).run_json("p").exit(1).failed_with(&["business ask: model_error"]).steps(&["ask failed 0"]);
        let last = format!("`mock/m-std`: status {status}: overloaded, sorry (attempt 5 of 5)");
        let attempt = |n| format!("attempt {n} of 5: status {status}: overloaded, sorry; asked to wait [TIME]");
        let mut attempts: Vec<String> = (1..5).map(attempt).collect();
        attempts.push(last.clone());
        ran.has("/errors/0/message", format!("llm step `ask` got no response: {last}")).has(
            "/errors/0/attempts",
            json!([{"rejected_by": "transport", "errors": attempts, "duration_ms": 0, "tokens": 0}]),
        );
        assert_eq!(server.calls(), 5);
    }
}

/// A-4.5: 400, 403 and 404 are errors of the model (exit status 1), 401 one of the environment (4); none is repeated.
#[test]
fn refused_requests_are_not_repeated() {
    let cases = [(400, 1, "model_error"), (403, 1, "model_error"), (404, 1, "model_error"), (401, 4, "environment")];
    for (status, exit, kind) in cases {
        let server = Server::new([Reply::status(status).message("no such luck")]);
        let ran = asks(&server).run_json("p").exit(exit).failed_with(&[&format!("business ask: {kind}")]);
        assert!(ran.at("/errors/0/message").as_str().is_some_and(|text| text.contains("no such luck")), "{status}");
        assert_eq!(server.calls(), 1, "{status}");
    }
}

/// cli: a provider that cannot be reached is an environment error, exit status 4.
#[test]
fn a_provider_out_of_reach_is_the_environment() {
    let url = unreachable_url();
    Test::new()
        .pipeline("p", |p| p.llm("ask", "x", "timeout: 20s"))
        .user_config(&format!(
            "model_mapping: {{standard: mock/m}}\nproviders: {{mock: {{kind: openai-compatible, base_url: \"{url}\"}}}}\n"
        ))
        .run_json("p")
        .exit(4)
        .failed_with(&["business ask: environment"]);
}

/// cli: a proxy or a file of certificates that cannot be used is named with its variable, and no attempt is made without it.
#[test]
fn variables_of_the_network_are_named_in_errors() {
    let proxy = unreachable_url();
    let via = " cannot be reached through the proxy `http://127.0.0.1:[PORT]` of `HTTP_PROXY`: ";
    let answering = Server::new([Reply::status(502)]);
    let answers = "`mock/m`: status 502 through the proxy `http://127.0.0.1:[PORT]` of `HTTP_PROXY`";
    let wrong = "`mock/m`: the value of `HTTP_PROXY` is not the URL of a proxy";
    let certificates = "`mock/m`: `SSL_CERT_FILE` names `/missing.pem`, which cannot be read: ";
    for (scheme, variable, value, exit, part) in [
        ("http", "HTTP_PROXY", proxy.as_str(), 4, via),
        ("http", "HTTP_PROXY", &answering.url(), 1, answers),
        ("http", "HTTP_PROXY", "http://", 4, wrong),
        ("https", "SSL_CERT_FILE", "/missing.pem", 4, certificates),
    ] {
        let config = format!(
            "model_mapping: {{standard: mock/m}}\nproviders: {{mock: {{kind: openai-compatible, retries: 0, \
             base_url: \"{scheme}://far.invalid/v1\"}}}}\n"
        );
        let test = Test::new().pipeline("p", |p| p.llm("ask", "x", "timeout: 20s")).user_config(&config);
        let ran = test.env(variable, value).run_json("p").exit(exit);
        let message = ran.at("/errors/0/message");
        assert!(message.as_str().is_some_and(|text| text.contains(part)), "{message}");
    }
}

/// cli: a missing key is an environment error: exit status 4, a complete document, the variable named, no call made.
#[test]
fn a_missing_key_is_named_without_a_call() {
    let server = Server::new([Reply::says("never")]);
    let test = asks(&server).without_env("MOCK_KEY");
    let ran = test.run_json("p").exit(4).failed_with(&["business ask: environment"]).steps(&["ask failed 0"]);
    let message = ran.at("/errors/0/message");
    assert!(message.as_str().is_some_and(|text| text.contains("MOCK_KEY")), "{message}");
    assert_eq!((server.calls(), ran.at("/status")), (0, Value::from("failed")));
}

/// cli: without any model the error lists the ways to get one; a pipeline without model steps is not affected.
#[test]
fn without_a_model_the_ways_to_one_are_named() {
    let test = Test::new().pipeline("p", |p| p.llm("ask", "x", "")).pipeline("q", |p| p.note("one", "1")).user_config(
        "providers: {x: {kind: openai-compatible, base_url: \"http://127.0.0.1:9\"}}\nmodel_mapping: {standard: absent/m}\n",
    );
    let ran = test.run_json("p").exit(4).failed_with(&["- -: environment"]);
    let message = ran.at("/errors/0/message");
    assert!(message.as_str().is_some_and(|text| text.contains("absent")), "{message}");
    test.run_json("q").output(1);
}

/// A-4.2: a tier may name several models; the next one is called if one cannot be reached.
#[test]
fn the_next_model_of_a_tier_is_asked_when_one_is_out_of_reach() {
    let (dead, live) = (unreachable_url(), Server::new([Reply::says("ok")]));
    Test::new()
        .pipeline("p", |p| p.llm("ask", "x", ""))
        .user_config(&format!(
            "model_mapping: {{standard: [dead/m, live/m]}}\nproviders:\n  dead: {{kind: openai-compatible, base_url: \"{dead}\"}}\n  \
             live: {{kind: openai-compatible, base_url: \"{}\"}}\n",
            live.url()
        ))
        .run_json("p")
        .output("ok")
        .has("/steps/0/model", "live/m");
}

/// A-4.3: a provider that is a program gets the prompt and prints the response; the schema still applies.
#[test]
fn a_program_can_be_the_provider() {
    let script = "cat > \"$ROOT/prompt\"; echo '{\"n\": 7}'";
    let test = Test::new()
        .pipeline("p", |p| p.llm("ask", "say n", "schema: s.json").file("s.json", r#"{"required":["n"]}"#))
        .file("model.sh", script)
        .user_config(
            "model_mapping: {standard: prog/any}\nproviders: {prog: {kind: command, command: \"sh model.sh\"}}\n",
        );
    test.run_json("p").output(json!({"n": 7}));
    assert!(test.read("prompt").contains("say n"));
    assert!(!test.read("prompt").contains(KEY));
}

/// A-4.5: a model call that is slower than the provider's time limit is a transport failure, and is retried.
#[test]
fn a_call_that_takes_too_long_is_tried_again() {
    with_some_limit(|limit| {
        let server = Server::new([Reply::Hang, Reply::says("ok")]);
        let ran = Test::new()
            .pipeline("p", |p| p.llm("ask", "x", ""))
            .user_config(&format!(
                "model_mapping: {{standard: mock/m}}\nproviders: {{mock: {{kind: openai-compatible, base_url: \"{}\", timeout: {limit}}}}}\n",
                server.url()
            ))
            .run_json("p");
        let is_in_time = server.calls() == 2 && ran.code() == 0;
        if is_in_time {
            ran.output("ok").steps(&["ask succeeded 1"]);
        }
        is_in_time
    });
}
