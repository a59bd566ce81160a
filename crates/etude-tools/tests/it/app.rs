//! Tools of the app's `tools/` (`b-stages` §20.5).

use std::path::Path;

use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};
use etude_tools::app::AppTools;
use etude_tools::{CallContext, Effect, ToolResult, ToolSet};
use serde_json::{Value, json};

use crate::fixture::{App, Call};

/// The files of the app, as the command line provides them.
struct Files<'a>(&'a Path);

impl Sources for Files<'_> {
    fn read(&self, path: &str, _limit: u64) -> Result<Vec<u8>, ReadFailure> {
        std::fs::read(self.0.join(path)).map_err(|error| ReadFailure::Other(error.to_string()))
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let entries = std::fs::read_dir(self.0.join(dir)).map_err(|_| ReadFailure::Missing)?;
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let names = entries.map(|entry| name(entry.expect("entry")));
        Ok(names.filter_map(|name| Some(Entry { kind: self.kind(&format!("{dir}/{name}")).ok()?, name })).collect())
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        use std::os::unix::fs::PermissionsExt;
        let about = std::fs::metadata(self.0.join(path)).map_err(|_| ReadFailure::Missing)?;
        let executable = about.permissions().mode() & 0o111 != 0;
        Ok(if about.is_dir() { FileKind::Dir } else { FileKind::File { executable } })
    }
}

async fn tools(app: &App) -> ToolSet {
    let (tools, diagnostics) = etude_spec::tool::load(&Files(&app.path()));
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let app_dir = app.path().to_string_lossy().into_owned();
    app.tools().with_app(AppTools { tools, app_dir }).await
}

fn sidecar(app: &App, name: &str, more: &str, script: &str) {
    let text = format!("name: {name}\ndescription: A tool.\ncommand: python3 -S tools/{name}.py\n{more}");
    app.write(&format!("tools/{name}.yaml"), text).write(&format!("tools/{name}.py"), script);
}

async fn call(app: &App, name: &str, args: Value) -> ToolResult {
    call_from(app, name, args, Some("stage-1")).await
}

/// Calls a tool from a stage, or from skill mode.
async fn call_from(app: &App, name: &str, args: Value, stage: Option<&str>) -> ToolResult {
    let cx = CallContext {
        call_id: "call-1".to_owned(),
        workflow_run_id: "run-1".to_owned(),
        stage_execution_id: stage.map(str::to_owned),
        ..CallContext::default()
    };
    tools(app).await.call(name, &args.to_string(), cx).await
}

const ECHO: &str = "import json, sys\nprint(json.dumps({'ok': True, 'value': json.load(sys.stdin)}))\n";

/// `b-stages` §20.5: a tool reads `{tool, args, toolCallId, run}` on stdin, and its value is returned.
#[tokio::test]
async fn a_tool_gets_its_call_and_returns_a_value() {
    let app = App::new();
    sidecar(&app, "echo", "", ECHO);
    let result = call(&app, "echo", json!({"a": [1, "é"]})).await;
    let run = json!({"workflowRunId": "run-1", "stageExecutionId": "stage-1", "cwd": app.path()});
    let expected = json!({"tool": "echo", "args": {"a": [1, "é"]}, "toolCallId": "call-1", "run": run});
    assert_eq!(serde_json::from_str::<Value>(&result.content).expect("json"), expected);
}

/// A-3.3: numbers keep their digits on the way in and out.
#[tokio::test]
async fn numbers_keep_their_digits() {
    let app = App::new();
    let script = "import sys\ntext = sys.stdin.read()\nprint('{\"ok\": true, \"value\": ' + text + '}')\n";
    sidecar(&app, "echo", "", script);
    let text = r#"{ "id": 123456789012345678901, "f": 0.12345678901234567890, "g": [1.50, 1e2] }"#;
    let cx = CallContext { written: Some(text.into()), ..CallContext::default() };
    let found = tools(&app).await.find("echo").await.expect("the tool");
    let args = found.tool.arguments(text).expect("arguments");
    let content = found.call(std::sync::Arc::new(args), cx).await.content;
    let kept = r#""args":{"id":123456789012345678901,"f":0.12345678901234567890,"g":[1.50,1e2]},"#;
    assert!(content.contains(kept), "{content}");
}

/// L-43: a step gets the whole value, however long; a model reads its two ends.
#[tokio::test]
async fn a_step_gets_the_whole_value() {
    let app = App::new();
    let script = "import json\nprint(json.dumps({'ok': True, 'value': {'no': 7, 'text': 'x' * 40000}}))\n";
    sidecar(&app, "long", "", script);
    let call = async |is_whole| {
        let cx = CallContext { is_whole, ..CallContext::default() };
        tools(&app).await.call("long", "{}", cx).await.content
    };
    let value: Value = serde_json::from_str(&call(true).await).expect("json");
    assert_eq!((value["no"].as_u64(), value["text"].as_str().map(str::len)), (Some(7), Some(40_000)));
    let shown = call(false).await;
    assert!(shown.len() <= 30_000 && serde_json::from_str::<Value>(&shown).is_err(), "{}", shown.len());
}

#[tokio::test]
async fn a_tool_runs_in_the_app_with_a_stable_key() {
    let app = App::new();
    let script = "import json, os\nprint(json.dumps({'ok': True, 'value': os.getcwd() + ' ' + os.environ['ETUDE_EFFECT_ID'].rsplit('/', 1)[1]}))\n";
    sidecar(&app, "where", "", script);
    assert_eq!(call(&app, "where", json!({})).await.content, format!("{} call-1", app.path().display()));
}

/// `b-stages` §20.5: each kind of failure has its class and code.
#[tokio::test]
async fn failures_have_their_codes() {
    let app = App::new();
    let typed = "print('{\"ok\": false, \"error\": {\"class\": \"ToolTransient\", \"code\": \"ResourceBusy\", \"message\": \"later\"}}')";
    for (name, script, class, code, text) in [
        (
            "exits",
            "import sys\nsys.stderr.write('broken pipe of thought\\n')\nsys.exit(3)",
            "ToolTerminal",
            "ToolExecutionFailed",
            "status 3",
        ),
        ("chats", "print('hello')", "ToolTerminal", "OutputMalformed", "stdout is text, not JSON"),
        ("silent", "", "ToolTerminal", "OutputMalformed", "stdout is empty"),
        ("other", "print('{\"value\": 1}')", "ToolTerminal", "OutputMalformed", "must be `{\"ok\": true"),
        ("typed", typed, "ToolTransient", "ResourceBusy", "later"),
        ("bare", "print('{\"ok\": false}')", "ToolTerminal", "OutputMalformed", "without an `error`"),
        ("slow", "import time\ntime.sleep(600)", "ToolTransient", "ExecutionTimeout", "longer than 300 ms"),
    ] {
        sidecar(&app, name, if name == "slow" { "timeout: 300ms\n" } else { "" }, script);
        let result = call(&app, name, json!({})).await;
        let error = result.error.expect(name);
        assert_eq!((error.class.word(), error.code.as_str()), (class, code), "{name}: {}", error.message);
        assert!(result.content.contains(text), "{name}: {}", result.content);
    }
}

/// `b-stages` AP4: a stage's model sees class, code and message. In skill mode it also sees the end of stderr.
#[tokio::test]
async fn what_a_program_wrote_for_people_is_not_shown_to_a_stage() {
    let app = App::new();
    sidecar(&app, "exits", "", "import sys\nsys.stderr.write('broken pipe of thought\\n')\nsys.exit(3)");
    let reported = call_from(&app, "exits", json!({}), None).await.content;
    assert!(reported.contains("status 3; stderr ends in:\nbroken pipe of thought"), "{reported}");
    let reported = call_from(&app, "exits", json!({}), Some("stage-1")).await.content;
    assert!(reported.contains("status 3") && !reported.contains("thought"), "{reported}");
}

/// `b-stages` §11.1 (5): arguments can be checked against the description before anything is started.
#[tokio::test]
async fn the_schema_of_a_sidecar_reports_what_does_not_fit() {
    let app = App::new();
    let schema = "inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}\n";
    sidecar(&app, "strict", schema, "open('ran', 'w')");
    let tool = tools(&app).await.find("strict").await.expect("there").tool;
    let args = tool.arguments(r#"{"n": "x"}"#).expect("an object");
    assert!(tool.misfit(&args).expect("a fault").contains("/n"));
}

/// A-7.1: scripts with JSON in and out need no sidecar.
#[tokio::test]
async fn a_script_without_a_sidecar_is_a_tool() {
    let app = App::new();
    app.script("tools/add.py", "#!/usr/bin/env -S python3 -S\n\"\"\"Adds `a` and `b`.\"\"\"\nimport json, sys\nargs = json.load(sys.stdin)['args']\nprint(json.dumps(args['a'] + args['b']))\n");
    app.script("tools/usage.sh", "#!/bin/sh\nif [ \"$1\" = --help ]; then echo 'usage: gives the time' >&2; exit 0; fi\necho '{\"ok\": true, \"value\": \"noon\"}'\n");
    app.script("tools/mute.sh", "#!/bin/sh\ntouch \"ran-$#\"\necho 1\n");
    let tools = tools(&app).await;
    let listed = tools.tools().await.tools;
    let about = |name: &str| listed.iter().find(|tool| tool.name == name).expect("listed");
    assert_eq!(about("add").description, "Adds `a` and `b`.");
    assert_eq!(about("usage").description, "usage: gives the time");
    assert_eq!(about("mute").description, "The program `tools/mute.sh` of this app.");
    assert_eq!((about("add").effect, about("add").gated), (Effect::Executes, true));
    assert!(!app.path().join("ran-1").exists(), "a script that does not speak of `--help` is not asked for it");
    assert_eq!(call(&app, "add", json!({"a": 2, "b": 3})).await.content, "5");
    assert_eq!(call(&app, "usage", json!({})).await.content, "noon");
}

#[tokio::test]
async fn long_values_are_cut_with_a_word_about_it() {
    let app = App::new();
    sidecar(&app, "long", "", "import json\nprint(json.dumps({'ok': True, 'value': 'x' * 500000}))\n");
    let result = call(&app, "long", json!({})).await;
    assert!(result.content.len() <= 30_000 && result.content.contains("left out here; request less data in one call"));
}
