//! A pipeline as a tool over stdio, beside the same pipeline over HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::process::Served;
use super::{app, http};
use crate::measure::{Pair, Report, etude};

/// `etude mcp` of an app, after the handshake.
struct Tools {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Tools {
    fn start(home: &Path) -> Self {
        let app = home.join("app").display().to_string();
        let mut child = etude(home, &["mcp", "-C", &app])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut tools = Self { child, input, output, next: 0 };
        let client = json!({"name": "baselines", "version": "1"});
        let revision = "2025-11-25";
        tools.ask("initialize", &json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client}));
        tools.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        tools
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("written");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("a line") > 0, "the server has ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id && message.get("method").is_none() {
                assert!(message.get("error").is_none(), "{message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call of a tool whose pipeline has one step.
pub(crate) fn tool(report: &mut Report, home: &Path) {
    app(home);
    let (served, _) = Served::start(home);
    let request = served.request("POST /v1/runs", "prefer: wait=20\r\n", Some(&json!({"pipeline": "one"})));
    let mut tools = Tools::start(home);
    let pair = Pair {
        key: "serve/tool",
        what: "a tool call over stdio, pipeline of one step",
        baseline: "the same by `POST /v1/runs` that waits",
    };
    let ours = || {
        let result = tools.ask("tools/call", &json!({"name": "one", "arguments": {}}));
        assert_ne!(result["isError"], true, "{result}");
    };
    let baseline = || assert_eq!(served.wait(http::once(served.process.port, &request)).status, 201);
    report.compare(&pair, 60, ours, baseline);
}
