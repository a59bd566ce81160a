//! All tools of an agent together.

use etude_tools::{AllowedTools, CallContext};
use serde_json::json;

use crate::fixture::App;

fn narrowed(app: &App, list: &str) -> etude_tools::ToolSet {
    app.tools().narrowed(AllowedTools::parse(list))
}

async fn names(tools: &etude_tools::ToolSet) -> Vec<String> {
    tools.tools().await.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// `b-stages` 0.1 rule 6.
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

/// `b-stages` AP5.
#[tokio::test]
async fn a_name_that_is_none_gets_a_near_one() {
    let app = App::new();
    let result = app.call("read", json!({"path": "x"})).await;
    let error = result.error.expect("error");
    assert_eq!((error.class.word(), error.code.as_str()), ("ToolTerminal", "ToolNotRegistered"));
    assert_eq!(error.message, "there is no tool `read`; did you mean `Read`?");
    assert!(app.call("frobnicate", json!({})).await.content.contains("there are Read, Write"));
}

#[tokio::test]
async fn arguments_are_checked_before_anything_is_done() {
    let app = App::new();
    let (code, content) = app.error("Write", json!({"path": 1, "contents": "x"})).await;
    assert_eq!(code, "InputInvalid");
    assert!(
        content.contains("/path: ") && content.contains("contents") && content.contains("\"content\""),
        "{content}"
    );
    let result = app.tools().call("Read", "{\"path\": ", CallContext::default()).await;
    assert_eq!(result.error.expect("error").code, "InputInvalid");
}

/// A-7.1: `allowed-tools` narrows what there is.
#[tokio::test]
async fn a_list_narrows_tools_and_calls() {
    let app = App::new();
    app.write("docs/a.md", "x").write("src/a.rs", "x");
    let tools = narrowed(&app, "Read(docs/**) Bash(echo *)");
    assert_eq!(names(&tools).await, ["Read", "Bash"]);
    let call = |name: &'static str, args: serde_json::Value| {
        let tools = tools.clone();
        async move { tools.call(name, &args.to_string(), CallContext::default()).await }
    };
    assert!(!call("Read", json!({"path": "docs/a.md"})).await.is_error);
    assert!(!call("Bash", json!({"command": "echo hi"})).await.is_error);
    for (name, args) in [("Read", json!({"path": "src/a.rs"})), ("Bash", json!({"command": "echo hi; touch x"}))] {
        let error = call(name, args).await.error.expect("error");
        assert_eq!(error.code, "ApprovalDenied", "{}", error.message);
    }
    assert_eq!(
        call("Write", json!({"path": "x", "content": ""})).await.error.expect("error").code,
        "ToolNotRegistered"
    );
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
