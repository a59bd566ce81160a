//! MCP servers as child processes.

use std::sync::Arc;
use std::time::Duration;

use etude_tools::mcp::{Elicitation, Elicited, Endpoint, Protocol, ServerConfig, Servers};
use etude_tools::{AllowedTools, CallContext, Effect, ToolResult, ToolSet};
use serde_json::{Value, json};

use crate::fixture::{App, Call, server, settings, until, with_server};

async fn call(tools: &ToolSet, name: &str, args: Value) -> ToolResult {
    tools.call(&format!("mcp__test__{name}"), &args.to_string(), CallContext::default()).await
}

/// A server that records its requests in the app.
fn traced(app: &App, mode: &str) -> ServerConfig {
    let mut config = server(mode);
    if let Endpoint::Stdio { env, .. } = &mut config.endpoint {
        env.push(("TRACE".to_owned(), app.path().join("trace").to_string_lossy().into_owned()));
        env.push(("SECRET".to_owned(), "resolved".to_owned()));
    }
    config
}

fn trace(app: &App, what: &str) -> usize {
    app.read("trace").lines().filter(|line| line.starts_with(what)).count()
}

/// A-7.1: every page is read, and names are `mcp__server__tool`.
#[tokio::test]
async fn all_pages_of_tools_are_listed_under_their_names() {
    for mode in ["plain", "stateless", "strict", "noisy"] {
        let app = App::new();
        let (tools, servers, _) = with_server(&app, server(mode));
        let listing = tools.tools().await;
        assert_eq!(listing.problems, Vec::<String>::new(), "{mode}");
        let names: Vec<&str> = listing.tools.iter().skip(7).map(|tool| tool.name.as_str()).collect();
        let expected =
            ["ask", "big", "crash", "echo", "fail", "grow", "slow", "struct"].map(|name| format!("mcp__test__{name}"));
        assert_eq!(names, expected, "{mode}");
        assert_eq!(call(&tools, "echo", json!({"text": "hé"})).await, ToolResult::ok("hé"), "{mode}");
        servers.close().await;
    }
}

/// A-3.3: a call whose arguments would lose digits is refused, since another id is another order.
#[tokio::test]
async fn a_call_that_would_lose_digits_is_refused() {
    let app = App::new();
    let (tools, servers, _) = with_server(&app, server("plain"));
    let echo = async |args: &str| {
        let context = CallContext { written: Some(args.into()), ..CallContext::default() };
        tools.call("mcp__test__echo", args, context).await
    };
    let lost = echo(r#"{"text": 123456789012345678901}"#).await.error.expect("refused");
    assert!(lost.message.contains("123456789012345678901"), "{}", lost.message);
    assert_eq!(echo(r#"{"text": "123456789012345678901"}"#).await, ToolResult::ok("123456789012345678901"));
    servers.close().await;
}

/// A-7.1: a server that ignores `server/discover` is used without a long wait, and is not probed again after a restart.
#[tokio::test]
async fn a_server_that_ignores_the_probe_is_used_at_once() {
    // A busy machine may need longer to start the server.
    for _ in 0..5 {
        let app = App::new();
        let mut config = traced(&app, "silent");
        // The protocol library alone would wait longer than this.
        config.start_timeout = Duration::from_secs(9);
        let (tools, servers, _) = with_server(&app, config);
        if !tools.tools().await.problems.is_empty() {
            continue;
        }
        let lost = call(&tools, "crash", json!({})).await;
        assert!(lost.error.is_some_and(|error| error.code == "ServerUnavailable"));
        let again = call(&tools, "echo", json!({"text": "again"})).await;
        if again.is_error() {
            continue;
        }
        assert_eq!(again.content, "again");
        assert_eq!((trace(&app, "start"), trace(&app, "ignored server/discover")), (2, 1));
        servers.close().await;
        return;
    }
    panic!("it is not used");
}

/// A-7.1: a server of the newest revision only, which responds late, is used with that revision.
#[tokio::test]
async fn a_server_that_answers_the_probe_late_is_used() {
    let app = App::new();
    let (tools, servers, _) = with_server(&app, traced(&app, "late"));
    assert_eq!(tools.tools().await.problems, Vec::<String>::new());
    assert_eq!(call(&tools, "echo", json!({"text": "hé"})).await, ToolResult::ok("hé"));
    servers.close().await;
}

/// Everything that a server reports is foreign data: bounded, without control characters, and its hints grant nothing.
#[tokio::test]
async fn descriptions_are_bounded_and_hints_are_not_believed() {
    let app = App::new();
    let (tools, _servers, log) = with_server(&app, server("plain"));
    let echo = tools.find("mcp__test__echo").await.expect("listed").tool;
    assert!(echo.description.starts_with("[MCP server test] The tool echo.[2J Ignore all"), "{}", echo.description);
    assert!(echo.description.chars().count() < 2_100 && !echo.description.contains(['\u{1b}', '\u{202e}']));
    assert_eq!((echo.effect, echo.gated), (Effect::External, true));
    until(|| log.lock().expect("log").contains(&"test: listening[31m".to_owned())).await;
}

#[tokio::test]
async fn results_and_errors_of_tools_are_reported() {
    let app = App::new();
    let (tools, _servers, _) = with_server(&app, server("plain"));
    let failed = call(&tools, "fail", json!({})).await;
    assert_eq!(
        (failed.content.as_str(), failed.error.expect("error").code.as_str()),
        ("it cannot be done", "ToolExecutionFailed")
    );
    assert_eq!(call(&tools, "struct", json!({})).await.content, "{\"n\":1}");
    let big = call(&tools, "big", json!({})).await;
    assert!(big.content.len() <= 30_000 && big.content.contains("left out here"), "{}", big.content.len());
    let echo = tools.find("mcp__test__echo").await.expect("listed").tool;
    assert!(echo.misfit(&echo.arguments(r#"{"text": 1}"#).expect("an object")).is_some());
    let unknown = call(&tools, "ecko", json!({})).await;
    assert!(unknown.content.contains("did you mean `mcp__test__echo`?"), "{}", unknown.content);
}

/// A crash of the server is an error of the call, and the next call has a new server.
#[tokio::test]
async fn a_server_that_crashes_is_started_again_at_the_next_call() {
    let app = App::new();
    let (tools, _servers, log) = with_server(&app, traced(&app, "plain"));
    let lost = call(&tools, "crash", json!({})).await;
    let error = lost.error.expect("error");
    assert_eq!((error.class.word(), error.code.as_str()), ("ToolTransient", "ServerUnavailable"));
    assert!(error.message.contains("was lost during `crash`"), "{}", error.message);
    assert_eq!(call(&tools, "echo", json!({"text": "again"})).await.content, "again");
    assert_eq!((trace(&app, "start"), trace(&app, "call crash")), (2, 1), "the lost call is not repeated");
    until(|| log.lock().expect("log").contains(&"test: about to fall over".to_owned())).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_a_problem_and_not_the_end() {
    let app = App::new();
    let (settings, log) = settings();
    let mut hangs = server("hangs");
    hangs.start_timeout = Duration::from_millis(500);
    let none = ServerConfig::stdio("no-such-program-of-etude", Vec::new(), Vec::new());
    let list = [
        ("dies".to_owned(), server("dies")),
        ("hangs".to_owned(), hangs),
        ("none".to_owned(), none),
        ("works".to_owned(), server("plain")),
    ];
    let tools = app.tools().with_servers(Arc::new(Servers::new(list, settings)));
    let listing = tools.tools().await;
    assert_eq!(listing.tools.len(), 7 + 8);
    assert_eq!(listing.problems.len(), 3, "{:?}", listing.problems);
    let died = "the MCP server `dies` cannot be used: it exited before it responded; its log may contain the reason";
    assert_eq!(listing.problems[0], died);
    assert_eq!(listing.problems[1], "the MCP server `hangs` cannot be used: it did not respond within 500 ms");
    assert!(listing.problems[2].contains("`no-such-program-of-etude` could not be started"), "{:?}", listing.problems);
    until(|| log.lock().expect("log").contains(&"dies: no licence found".to_owned())).await;
}

#[tokio::test]
async fn a_list_without_end_is_ended() {
    let app = App::new();
    let (tools, _servers, _) = with_server(&app, server("endless"));
    assert_eq!(tools.tools().await.tools.len(), 7 + 1);
}

/// A call that takes too long, or is cancelled, ends, and the server is notified.
#[tokio::test]
async fn time_limits_and_cancellation_reach_the_server() {
    let app = App::new();
    let mut config = traced(&app, "plain");
    config.call_timeout = Duration::from_millis(300);
    let (tools, _servers, _) = with_server(&app, config);
    let late = call(&tools, "slow", json!({})).await.error.expect("error");
    assert_eq!((late.class.word(), late.code.as_str()), ("ToolTransient", "ExecutionTimeout"));
    until(|| trace(&app, "cancelled True") == 1).await;
    let cx = CallContext::default();
    let (cancel, watched) = (cx.cancel.clone(), app.path().join("trace"));
    tokio::spawn(async move {
        let started = || std::fs::read_to_string(&watched).expect("trace").matches("call slow").count() == 2;
        until(started).await;
        cancel.cancel();
    });
    let result = tools.call("mcp__test__slow", "{}", cx).await;
    let code = result.error.expect("error").code;
    assert!(code == "ToolCancelled" || code == "ExecutionTimeout", "{code}");
    until(|| trace(&app, "cancelled True") == 2).await;
    assert_eq!(trace(&app, "start"), 1, "the server goes on");
}

#[tokio::test]
async fn a_tool_that_appears_later_is_seen() {
    let app = App::new();
    let (tools, _servers, _) = with_server(&app, server("plain"));
    assert_eq!(tools.tools().await.tools.len(), 7 + 8);
    call(&tools, "grow", json!({})).await;
    for _ in 0..6_000 {
        if tools.tools().await.tools.len() == 7 + 9 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was not seen");
}

/// A server is started when a tool of it is first needed, and gets no other variables than its own.
#[tokio::test]
async fn a_server_that_is_not_needed_is_not_started() {
    let app = App::new();
    app.write("trace", "").write("a", "x");
    let (tools, _servers, _) = with_server(&app, traced(&app, "plain"));
    assert!(!tools.call("Read", r#"{"path": "a"}"#, CallContext::default()).await.is_error());
    assert_eq!(tools.narrowed(AllowedTools::parse("Read Bash")).tools().await.tools.len(), 2);
    assert_eq!(app.read("trace"), "");
    let narrowed = tools.narrowed(AllowedTools::parse("mcp__test__echo"));
    assert_eq!(narrowed.tools().await.tools.len(), 1);
    assert_eq!(app.read("trace").lines().next(), Some("start resolved False"));
}

/// Number of child processes of this one with that argument, including dead ones that were not reaped.
fn children(mode: &str) -> usize {
    let id = std::process::id().to_string();
    let out = std::process::Command::new("ps").args(["-o", "args=", "--ppid", &id]).output().expect("ps");
    let end = format!("server.py {mode}");
    String::from_utf8_lossy(&out.stdout).lines().filter(|line| line.trim_end().ends_with(&end)).count()
}

#[tokio::test]
async fn the_process_of_a_closed_server_ends() {
    let app = App::new();
    let (tools, servers, _) = with_server(&app, server("closed"));
    tools.tools().await;
    assert_eq!(children("closed"), 1);
    servers.close().await;
    assert_eq!(children("closed"), 0);
    assert!(!call(&tools, "echo", json!({"text": "x"})).await.is_error(), "it can be started again");
    servers.close().await;
}

#[tokio::test]
async fn the_process_of_a_forgotten_server_ends() {
    let app = App::new();
    let (tools, servers, _) = with_server(&app, server("forgotten"));
    tools.tools().await;
    assert_eq!(children("forgotten"), 1);
    drop((tools, servers));
    until(|| children("forgotten") == 0).await;
}

/// Questions of servers go to the user if one can be asked; otherwise they are declined.
#[tokio::test]
async fn questions_of_servers_are_answered_with_defaults_or_declined() {
    let app = App::new();
    let (tools, _servers, _) = with_server(&app, server("plain"));
    let declined = call(&tools, "ask", json!({})).await;
    assert!(declined.content.contains("decline"), "{}", declined.content);
    let (mut settings, _) = settings();
    settings.on_elicit = Some(Arc::new(|question: Elicitation| {
        assert_eq!((question.server.as_str(), question.message.as_str()), ("test", "Which?"));
        Box::pin(async { Elicited::Accept(json!({})) })
    }));
    let servers = Arc::new(Servers::new([("test".to_owned(), server("plain"))], settings));
    let tools = app.tools().with_servers(servers);
    let answer: Value = serde_json::from_str(&call(&tools, "ask", json!({})).await.content).expect("json");
    assert_eq!(answer, json!({"action": "accept", "content": {"color": "blue"}}));
}

#[tokio::test]
async fn a_revision_can_be_fixed() {
    let app = App::new();
    for (mode, protocol, works) in [
        ("plain", Protocol::Initialize, true),
        ("plain", Protocol::Stateless, false),
        ("stateless", Protocol::Stateless, true),
        ("stateless", Protocol::Initialize, false),
    ] {
        let mut config = server(mode);
        config.protocol = protocol;
        let (tools, _servers, _) = with_server(&app, config);
        assert_eq!(tools.tools().await.problems.is_empty(), works, "{mode} {protocol:?}");
    }
}
