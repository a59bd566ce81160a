//! Messages through a buffer.

use std::io::Cursor;
use std::sync::Arc;

use etude_core::model::{Message, Part, ResponseSchema, Role, Stop, Tier, Tool, ToolCall, Usage};
use serde_json::json;

use super::*;

fn request() -> Request {
    Request {
        tier: Tier::Lite,
        system: Some("s".into()),
        messages: vec![
            Message { role: Role::User, parts: vec![Part::Text("t".into()), Part::Image { path: "i.png".into() }] },
            Message {
                role: Role::Assistant,
                parts: vec![Part::ToolCall { id: "1".into(), name: "f".into(), arguments: "{\"n\": 1.50}".into() }],
            },
            Message { role: Role::Tool, parts: vec![Part::ToolResult { id: "1".into(), content: "r".into() }] },
        ],
        schema: Some(ResponseSchema { name: "n".into(), schema: Arc::new(json!({"z": 1, "a": 2})) }),
        tools: vec![Tool { name: "f".into(), description: "d".into(), parameters: Arc::new(json!({})) }],
        must_call: Some("f".into()),
        temperature: Some(0.5),
        max_tokens: Some(7),
        cache_prompt: false,
    }
}

#[test]
fn a_request_arrives_as_it_was_sent() {
    let mut buffer = Vec::new();
    send(&mut buffer, &Call::generate("me", &request())).expect("sent");
    let Some(Call::Generate { client, request: wire }) = receive(&mut Cursor::new(buffer)).expect("received") else {
        panic!("another call");
    };
    assert_eq!((client.as_str(), Request::from(*wire)), ("me", request()));
}

#[test]
fn an_answer_arrives_as_it_was_sent() {
    let answer = ModelResponse {
        text: "t".into(),
        tool_calls: vec![ToolCall { id: "1".into(), name: "f".into(), arguments: "{}".into() }],
        stop: Stop::Refusal("no".into()),
        usage: Usage { calls: 1, input_tokens: 2, output_tokens: 3, cost_usd: Some(0.0), ..Usage::default() },
        model: "local/m".into(),
        transport_failures: vec![],
    };
    let mut buffer = Vec::new();
    send(&mut buffer, &Reply::of(Ok(answer.clone()))).expect("sent");
    let Some(Reply::Answer { answer: wire }) = receive(&mut Cursor::new(buffer)).expect("received") else {
        panic!("another reply");
    };
    assert_eq!(ModelResponse::from(wire), answer);
}

#[test]
fn what_is_cut_off_or_far_too_long_is_an_error_and_an_end_is_none() {
    assert!(receive::<Call>(&mut Cursor::new([])).expect("an end").is_none());
    assert!(receive::<Call>(&mut Cursor::new([9, 0, 0, 0, b'{'])).is_err());
    assert!(receive::<Call>(&mut Cursor::new([1, 0])).is_err());
    let error = receive::<Call>(&mut Cursor::new([0xff; 8])).expect_err("an error");
    assert_eq!(error.to_string(), "a message of 4294967295 bytes is announced");
}

#[test]
fn a_request_that_is_at_fault_is_distinguished_from_a_model_that_is() {
    let Reply::Failed { kind, message } = Reply::of(Err(GenerateError::TooLong { prompt: 9000, context: 8192 })) else {
        panic!("another reply");
    };
    assert_eq!(kind, FailureKind::Request);
    assert!(message.contains("9000 tokens") && message.contains("8192"), "{message}");
    let Reply::Failed { kind, .. } = Reply::of(Err(GenerateError::Engine("x".into()))) else {
        panic!("another reply");
    };
    assert_eq!(kind, FailureKind::Engine);
}
