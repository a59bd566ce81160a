//! MCP servers over streamable HTTP.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etude_tools::mcp::ServerConfig;
use etude_tools::{CallContext, ToolResult, ToolSet};
use serde_json::{Value, json};

use crate::fixture::{App, Call, with_server};

/// A server on a port of this machine that ends with the test.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start(mode: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/http_server.py");
        let mut child =
            Command::new("python3").arg("-S").arg(script).arg(mode).stdout(Stdio::piped()).spawn().expect("python3");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut port).expect("port");
        Self { child, url: format!("http://127.0.0.1:{}/mcp", port.trim()) }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig::http(self.url.as_str(), Vec::new())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn call(tools: &ToolSet, name: &str, args: Value) -> ToolResult {
    tools.call(&format!("mcp__test__{name}"), &args.to_string(), CallContext::default()).await
}

/// both revisions work, with and without sessions, with JSON and with event streams.
#[tokio::test]
async fn tools_are_called_over_http_in_every_form() {
    for mode in ["plain", "sse", "stateless"] {
        let (app, server) = (App::new(), Running::start(mode));
        let (tools, servers, _) = with_server(&app, server.config());
        let listing = tools.tools().await;
        assert_eq!((listing.tools.len(), listing.problems), (7 + 4, Vec::new()), "{mode}");
        assert_eq!(call(&tools, "echo", json!({"text": "hé"})).await, ToolResult::ok("hé 1"), "{mode}");
        servers.close().await;
    }
}

#[tokio::test]
async fn headers_are_sent_and_a_refusal_says_what_to_do() {
    let (app, server) = (App::new(), Running::start("auth"));
    let headers = vec![("Authorization".to_owned(), "Bearer good".to_owned())];
    let (tools, _servers, _) = with_server(&app, ServerConfig::http(server.url.as_str(), headers));
    assert_eq!(tools.tools().await.tools.len(), 7 + 4);
    let (tools, _servers, _) = with_server(&app, server.config());
    let problems = tools.tools().await.problems;
    assert!(problems[0].contains("asks for authorization; give it an `Authorization` header"), "{problems:?}");
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_and_the_next_call_works() {
    let (app, server) = (App::new(), Running::start("plain"));
    let (tools, _servers, _) = with_server(&app, server.config());
    let broken = call(&tools, "drop", json!({})).await.error.expect("error");
    assert_eq!(broken.class.word(), "ToolTransient", "{}", broken.message);
    let again = call(&tools, "echo", json!({"text": "again"})).await;
    assert!(again.content.starts_with("again "), "{}", again.content);
}

/// An expired session is begun again.
#[tokio::test]
async fn a_session_that_expired_is_renewed() {
    let (app, server) = (App::new(), Running::start("plain"));
    let (tools, _servers, _) = with_server(&app, server.config());
    let result = call(&tools, "forget", json!({"text": "x"})).await;
    assert!(!result.is_error() && result.content.starts_with("x "), "{}", result.content);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up() {
    let (app, server) = (App::new(), Running::start("plain"));
    let mut config = server.config();
    config.call_timeout = Duration::from_secs(15);
    let (tools, _servers, _) = with_server(&app, config);
    assert_eq!(call(&tools, "late", json!({})).await.error.expect("error").code, "ExecutionTimeout");
    assert!(!call(&tools, "echo", json!({"text": "x"})).await.is_error());
}

#[tokio::test]
async fn what_is_no_server_is_distinguished() {
    let (app, server) = (App::new(), Running::start("html"));
    for url in [server.url.as_str(), "http://127.0.0.1:1", "ftp://example.com", "not a url"] {
        let (tools, _servers, _) = with_server(&app, ServerConfig::http(url, Vec::new()));
        let problems = tools.tools().await.problems;
        assert!(
            problems.len() == 1 && problems[0].starts_with("the MCP server `test` cannot be used: "),
            "{problems:?}"
        );
    }
    let bad = ServerConfig::http(server.url.as_str(), vec![("X-Key".to_owned(), "hunter2\n".to_owned())]);
    let (tools, _servers, _) = with_server(&app, bad);
    let problems = tools.tools().await.problems;
    assert!(problems[0].contains("header `X-Key`") && !problems[0].contains("hunter2"), "{problems:?}");
}
