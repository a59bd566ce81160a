//! Reasoning between calls goes back to its model.

use etude_core::model::{Message, ModelResponse, Part, Request, Role, Tool};
use etude_models::{ProviderKind, ProviderSettings};
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{KEY, ask, models, provider, response};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

fn with_tools() -> Request {
    let parameters = std::sync::Arc::new(json!({ "type": "object" }));
    Request { tools: vec![Tool { name: "look".into(), description: "looks".into(), parameters }], ..ask("hi") }
}

/// The request of the turn after `answer`.
fn next(response: &ModelResponse) -> Request {
    let mut request = with_tools();
    let calls = response.tool_calls.iter().map(|call| Part::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    });
    let parts = response.reasoning.iter().cloned().map(Part::Reasoning).chain(calls).collect();
    let results = response.tool_calls.iter().map(|call| Part::ToolResult { id: call.id.clone(), content: "1".into() });
    request.messages.push(Message { role: Role::Assistant, parts });
    request.messages.push(Message { role: Role::Tool, parts: results.collect() });
    request
}

fn call(thought: &str) -> Reply {
    let call = json!({ "id": "a", "type": "function", "function": { "name": "look", "arguments": "{}" } });
    let message = json!({ "content": null, "reasoning_content": thought, "tool_calls": [call] });
    Reply::ok(json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] }))
}

fn asked(server: &Server, number: usize) -> Value {
    server.seen()[number].body["messages"][1].clone()
}

/// A server that requires the reasoning of its model gets it back, and another model does not.
#[tokio::test]
async fn thoughts_go_back_to_the_model_that_had_them() {
    let server = Server::new([call("hm"), Reply::ok(response(KIND, "done"))]);
    let own = models(vec![provider(KIND, &server.url())]);
    let first = own.call(&with_tools()).await.expect("an answer");
    own.call(&next(&first)).await.expect("an answer");
    assert_eq!(asked(&server, 1)["reasoning_content"], "hm");
    let other = Server::new([Reply::ok(response(KIND, "done"))]);
    let settings = ProviderSettings { name: "q".to_owned(), ..provider(KIND, &other.url()) };
    models(vec![settings]).call(&next(&first)).await.expect("an answer");
    assert_eq!(asked(&other, 0).get("reasoning_content"), None);
    let without_tools = Server::new([call("hm")]);
    let response = models(vec![provider(KIND, &without_tools.url())]).call(&ask("hi")).await.expect("an answer");
    assert_eq!(response.reasoning, None, "no turn follows");
}

/// A conversation of another model continues with a server that requires reasoning in every message.
#[tokio::test]
async fn messages_without_thoughts_say_so_where_they_must() {
    let missing = "Missing `reasoning_content` field in the assistant message at message index 1.";
    let server = Server::new([call("hm"), Reply::status(400, missing), Reply::ok(response(KIND, "done"))]);
    let models = models(vec![provider(KIND, &server.url())]);
    let mut first = models.call(&with_tools()).await.expect("an answer");
    first.reasoning = None;
    models.call(&next(&first)).await.expect("an answer");
    assert_eq!(asked(&server, 2)["reasoning_content"], "");
}

/// A-4.9: reasoning contains no key. Signed reasoning with a key is dropped as a whole.
#[tokio::test]
async fn thoughts_hold_no_key() {
    let server = Server::new([call(&format!("the key is {KEY}"))]);
    let response = models(vec![provider(KIND, &server.url())]).call(&with_tools()).await.expect("an answer");
    assert_eq!(&*response.reasoning.expect("thoughts").json, r#"{"reasoning_content":"the key is ***"}"#);
    for (thought, is_kept) in [("hm", true), (KEY, false)] {
        let block = json!({ "type": "thinking", "thinking": thought, "signature": "S" });
        let server = Server::new([Reply::ok(json!({ "content": [block], "stop_reason": "end_turn" }))]);
        let models = models(vec![provider(ProviderKind::Anthropic, &server.url())]);
        assert_eq!(models.call(&with_tools()).await.expect("an answer").reasoning.is_some(), is_kept);
    }
}

/// Reasoning is not recorded: a conversation with reasoning is found by its texts.
#[tokio::test]
async fn recordings_have_no_thoughts() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::new([call("hm"), Reply::ok(response(KIND, "done"))]);
    let tape = |from: Option<&str>| {
        let mut tape = ProviderSettings::new("p", ProviderKind::Recorded);
        tape.path = Some(dir.path().join("tape.json"));
        tape.record_from = from.and_then(etude_models::ModelId::parse);
        tape
    };
    let real = ProviderSettings { name: "real".to_owned(), ..provider(KIND, &server.url()) };
    let recording = models(vec![tape(Some("real/m")), real]);
    let first = recording.call(&with_tools()).await.expect("an answer");
    recording.call(&next(&first)).await.expect("an answer");
    assert_eq!(asked(&server, 1)["reasoning_content"], "hm");
    let replayed = models(vec![tape(None)]);
    let first = replayed.call(&with_tools()).await.expect("an answer");
    assert_eq!(
        (first.reasoning.is_none(), replayed.call(&next(&first)).await.expect("an answer").text),
        (true, "done".into())
    );
}
