//! All tools of an agent together.

use etude_tools::pattern::{Subject, Verdict};
use etude_tools::{AllowedTools, CallContext};
use serde_json::json;

use crate::fixture::{App, Call};

fn narrowed(app: &App, list: &str) -> etude_tools::ToolSet {
    app.tools().narrowed(AllowedTools::parse(list))
}

async fn names(tools: &etude_tools::ToolSet) -> Vec<String> {
    tools.tools().await.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// `b-stages` 0.1 rule 6: these are the built-in tools.
#[tokio::test]
async fn the_built_in_tools_are_these() {
    let app = App::new();
    assert_eq!(names(&app.tools()).await, ["Read", "Write", "Edit", "Glob", "Grep", "List", "Bash"]);
    for tool in app.tools().tools().await.tools {
        assert!(
            etude_core::schema::Schema::compile(&tool.name, (*tool.input_schema).clone(), Default::default()).is_ok()
        );
    }
}

/// `b-stages` AP5: an unknown name gets a similar one as a hint.
#[tokio::test]
async fn a_name_that_is_none_gets_a_near_one() {
    let app = App::new();
    let result = app.call("read", json!({"path": "x"})).await;
    let error = result.error.expect("error");
    assert_eq!((error.class.word(), error.code.as_str()), ("ToolTerminal", "ToolNotRegistered"));
    assert_eq!(error.message, "there is no tool `read`; did you mean `Read`?");
    assert!(app.call("frobnicate", json!({})).await.content.contains("available tools: Read, Write"));
}

/// `b-stages` §11.1 (5): the caller sees all violations of the schema by arguments.
#[tokio::test]
async fn arguments_that_do_not_fit_can_be_reported_before_anything_is_done() {
    let app = App::new();
    let write = app.tools().find("Write").await.expect("there").tool;
    let args = write.arguments(r#"{"path": 1, "contents": "x"}"#).expect("an object");
    let why = write.misfit(&args).expect("faults");
    assert!(why.contains("/path: ") && why.contains("contents") && why.contains("\"content\""), "{why}");
    let result = app.tools().call("Read", "{\"path\": ", CallContext::default()).await;
    assert_eq!(result.error.expect("error").code, "InputInvalid");
}

/// A-7.1: `allowed-tools` narrows the tools and their calls.
#[tokio::test]
async fn a_list_narrows_tools_and_calls() {
    let app = App::new();
    app.write("docs/a.md", "x").write("src/a.rs", "x");
    let tools = narrowed(&app, "Read(docs/**) Bash(echo *)");
    assert_eq!(names(&tools).await, ["Read", "Bash"]);
    let verdict = async |name: &str, args: serde_json::Value| {
        let found = tools.find(name).await.expect("listed");
        let args = found.tool.arguments(&args.to_string()).expect("an object");
        tools.allowed()[0].verdict(&Subject::new(&found.tool, etude_tools::tool::members(&args), tools.roots()))
    };
    assert_eq!(verdict("Read", json!({"path": "docs/a.md"})).await, Verdict::Allow);
    assert_eq!(verdict("Bash", json!({"command": "echo hi"})).await, Verdict::Allow);
    assert_eq!(verdict("Read", json!({"path": "src/a.rs"})).await, Verdict::Unlisted);
    assert_eq!(verdict("Bash", json!({"command": "echo hi; touch x"})).await, Verdict::Unlisted);
    let error = tools.call("Write", r#"{"path": "x", "content": ""}"#, CallContext::default()).await.error;
    assert_eq!(error.expect("error").code, "ToolNotRegistered");
    assert!(!app.path().join("x").exists());
    assert_eq!(names(&tools.narrowed(AllowedTools::parse("Read Write"))).await, ["Read"], "both lists hold");
}

#[tokio::test]
async fn a_call_that_is_cancelled_beforehand_does_nothing() {
    let app = App::new();
    let cx = CallContext::default();
    cx.cancel.cancel();
    let result = app.tools().call("Write", r#"{"path": "x", "content": ""}"#, cx).await;
    assert_eq!(result.error.expect("error").code, "ToolCancelled");
    assert!(!app.path().join("x").exists());
}
