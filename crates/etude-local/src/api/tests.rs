use etude_core::model::{ModelResponse, Stop, ToolCall, Usage};

use super::*;

#[test]
fn a_conversation_with_tools_and_a_schema_is_read() {
    let body = json!({
        "model": "m", "temperature": 0.5, "max_tokens": 9, "stop": "\n", "seed": 7,
        "stream": true, "stream_options": {"include_usage": true},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "In French."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1.50}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": {"enum": [1]}}},
    });
    let ChatRequest { request, options, is_stream, include_usage } =
        decode(body.to_string().as_bytes()).expect("a request");
    assert_eq!((is_stream, include_usage), (true, true));
    assert_eq!(options, Options { stop: vec!["\n".into()], seed: Some(7) });
    assert_eq!(request.system.as_deref(), Some("Be brief.\n\nIn French."));
    assert_eq!(request.messages[0], Message::user("a\nb"));
    let call = Part::ToolCall { id: "c1".into(), name: "f".into(), arguments: "{\"n\": 1.50}".into() };
    assert_eq!(request.messages[1], Message { role: Role::Assistant, parts: vec![call] });
    assert_eq!(request.messages[2].parts, [Part::ToolResult { id: "c1".into(), content: "ok".into() }]);
    assert_eq!(
        (request.must_call.as_deref(), request.max_tokens, request.temperature),
        (Some("f"), Some(9), Some(0.5))
    );
    assert_eq!(*request.schema.expect("a schema").schema, json!({"enum": [1]}));
}

#[test]
fn a_request_that_cannot_be_served_is_refused_with_its_reason() {
    let user = json!([{"role": "user", "content": "?"}]);
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]);
    for (body, why) in [
        (json!({"messages": []}), "`messages` has no user message"),
        (json!({"messages": image}), "reads text only"),
        (json!({"messages": user, "n": 2}), "`n` must be 1"),
        (json!({"messages": user, "stop": 1}), "`stop` must be a text"),
        (json!({"messages": user, "stop": ["a", ""]}), "`stop` must be a text"),
        (json!({"messages": user, "stop": ["a", "b", "c", "d", "e"]}), "at most 4 texts"),
        (json!({"messages": user, "logprobs": true}), "`logprobs` is not supported"),
        (json!({"messages": user, "response_format": {"type": "json_schema"}}), "json_schema.schema"),
        (json!({"messages": user, "tool_choice": {"function": {"name": "g"}}}), "`tools` lacks"),
        (json!({"messages": [{"role": "narrator", "content": "?"}]}), "the unknown role `narrator`"),
        (json!("?"), "not a valid chat request"),
    ] {
        let error = decode(body.to_string().as_bytes()).expect_err("refused");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_response_keeps_its_calls_and_its_counts() {
    let call = ToolCall { id: "c1".into(), name: "f".into(), arguments: "{\"n\": 1.50}".into() };
    let response = ModelResponse {
        text: String::new(),
        tool_calls: vec![call],
        stop: Stop::ToolCalls,
        usage: Usage { input_tokens: 5, output_tokens: 2, cached_tokens: 3, ..Usage::default() },
        model: String::new(),
        reasoning: None,
        transport_failures: vec![],
    };
    let envelope = Envelope::new("m");
    let body = envelope.completion(&response);
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(body["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"n\": 1.50}");
    assert_eq!(body["usage"]["total_tokens"], 7);
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    let events = envelope.end(&response, true);
    assert!(events.contains("\"index\":0") && events.ends_with("data: [DONE]\n\n"), "{events}");
    assert!(events.contains("\"total_tokens\":7") && !envelope.end(&response, false).contains("usage"), "{events}");
}

#[test]
fn vectors_are_written_as_lists_and_as_base64() {
    let body = json!({"model": "m", "input": "a", "encoding_format": "base64"});
    let request = decode_embedding(body.to_string().as_bytes()).expect("a request");
    assert_eq!(request, EmbeddingRequest { texts: vec!["a".into()], is_base64: true });
    let vectors = Vectors { rows: vec![vec![1.0, -0.5]], tokens: 3 };
    assert_eq!(embeddings("m", &vectors, true)["data"][0]["embedding"], "AACAPwAAAL8=");
    let body = embeddings("m", &vectors, false);
    assert_eq!((&body["data"][0]["embedding"], &body["usage"]["total_tokens"]), (&json!([1.0, -0.5]), &json!(3)));
    for (body, why) in [
        (json!({"input": []}), "1 to 2048 texts"),
        (json!({"input": ["a", ""]}), "none of them empty"),
        (json!({"input": [1, 2]}), "a text or a list of texts"),
        (json!({"input": "a", "dimensions": 8}), "`dimensions` is not supported"),
        (json!({"input": "a", "encoding_format": "hex"}), "must not be `hex`"),
    ] {
        let error = decode_embedding(body.to_string().as_bytes()).expect_err("refused");
        assert!(error.contains(why), "{error}");
    }
}
