use super::*;
use etude_core::model::Reasoning;

#[test]
fn ids_of_other_providers_are_made_acceptable_and_stay_distinct() {
    assert_eq!(plain_id("toolu_01-a"), "toolu_01-a");
    for odd in ["call_0~sig+/=", "", &"x".repeat(65)] {
        let plain = plain_id(odd);
        assert!(plain.len() <= 64 && plain.starts_with("call_") && !plain.contains('~'), "{plain}");
    }
    assert_ne!(plain_id("call_0~a"), plain_id("call_0~b"));
    assert_eq!(plain_id("call_0~a"), plain_id("call_0~a"), "a result must find its call");
}

#[test]
fn arguments_that_are_no_object_are_kept_as_text() {
    for (written, expected) in [
        (r#"{"a":1}"#, json!({ "a": 1 })),
        ("", json!({})),
        ("[1]", json!({ "arguments": "[1]" })),
        ("{broken", json!({ "arguments": "{broken" })),
    ] {
        assert_eq!(arguments_object(written), expected);
    }
    assert_eq!(arguments_text(r#"{"a": 1.0}"#), r#"{"a": 1.0}"#, "an object is sent as it was written");
}

/// Arguments in the history are always objects: some servers parse them, and a text that is not an object would end the
/// conversation for good.
#[test]
fn arguments_in_the_history_are_always_objects() {
    let call = |arguments: &str| Part::ToolCall { id: "a".into(), name: "f".into(), arguments: arguments.into() };
    let images = Images::default();
    for written in ["{\"path\": \"notes", "", "[1]", "\"x\""] {
        let messages = vec![Message::user("hi"), Message { role: Role::Assistant, parts: vec![call(written)] }];
        let request = Request { messages, ..Request::default() };
        let ask = Ask { model: "m", id: "p/m", request: &request, images: &images, provider_schema: None };
        let chat = openai_chat::encode(ask, openai_chat::Flavor::Compatible);
        let responses = openai_responses::encode(ask);
        for sent in
            [&chat["messages"][1]["tool_calls"][0]["function"]["arguments"], &responses["input"][1]["arguments"]]
        {
            let sent = tree::parse_response(sent.as_str().expect("a text"));
            assert!(matches!(sent, Ok(Value::Object(_))), "{written}: {sent:?}");
        }
    }
}

/// A model that calls a tool by a name that no provider accepts can correct itself.
#[test]
fn names_in_the_history_are_those_that_every_provider_takes() {
    let call = Part::ToolCall { id: "a".into(), name: "functions.Read ä".into(), arguments: "{}".into() };
    let result = Part::ToolResult { id: "a".into(), content: "no tool of that name".into() };
    let said = |role, part| Message { role, parts: vec![part] };
    let messages = vec![Message::user("hi"), said(Role::Assistant, call), said(Role::Tool, result)];
    let request = Request { messages, ..Request::default() };
    let images = Images::default();
    let ask = Ask { model: "m", id: "p/m", request: &request, images: &images, provider_schema: None };
    for (body, at) in [
        (openai_chat::encode(ask, openai_chat::Flavor::OpenAi), "/messages/1/tool_calls/0/function/name"),
        (openai_responses::encode(ask), "/input/1/name"),
        (anthropic::encode(ask), "/messages/1/content/0/name"),
        (gemini::encode(ask), "/contents/1/parts/0/functionCall/name"),
        (gemini::encode(ask), "/contents/2/parts/0/functionResponse/name"),
    ] {
        assert_eq!(body.pointer(at), Some(&json!("functions_Read__")), "{at}");
    }
    assert_eq!((plain_name("").as_str(), plain_name(&"x".repeat(70)).len()), ("unknown", 64));
}

/// A model that requires signed calls can take over a conversation of another one.
#[test]
fn calls_of_other_models_are_marked_for_gemini() {
    let call = |id: &str| Part::ToolCall { id: id.into(), name: "f".into(), arguments: "{}".into() };
    let said = |calls: &[&str]| Message { role: Role::Assistant, parts: calls.iter().map(|id| call(id)).collect() };
    let hi = || Message::user("hi");
    let messages = vec![hi(), said(&["toolu_1", "toolu_2"]), hi(), said(&["call_2~S", "call_3"])];
    let request = Request { messages, ..Request::default() };
    let images = Images::default();
    let signatures = |model| {
        let body = gemini::encode(Ask { model, id: "p/m", request: &request, images: &images, provider_schema: None });
        let at = |turn: usize, part: usize| body["contents"][turn]["parts"][part].get("thoughtSignature").cloned();
        [at(1, 0), at(1, 1), at(3, 0), at(3, 1)]
    };
    let own = Some(json!("S"));
    let marked = Some(json!("skip_thought_signature_validator"));
    for model in ["gemini-3.5-flash", "models/gemini-pro-latest"] {
        assert_eq!(signatures(model), [marked.clone(), None, own.clone(), None], "{model}");
    }
    assert_eq!(signatures("gemini-2.5-pro"), [None, None, own, None]);
}

/// Missing, empty and repeated ids are replaced, because a result refers to its call by id.
#[test]
fn every_call_of_a_conversation_has_an_id_of_its_own() {
    let call = |id: Value| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    let earlier = Part::ToolCall { id: "call_1".into(), name: "f".into(), arguments: "{}".into() };
    let messages = vec![Message::user("hi"), Message { role: Role::Assistant, parts: vec![earlier] }];
    let request = Request { messages, ..Request::default() };
    let calls = json!([call(Value::Null), call("".into()), call("a".into()), call("a".into()), call("call_1".into())]);
    let body = json!({"choices": [{"message": {"tool_calls": calls}}]});
    let decoded = decode(ProviderKind::OpenAiCompatible, &body, &request).expect("an answer");
    let ids: Vec<&str> = decoded.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_2", "call_3", "a", "call_4", "call_5"]);
    let items = json!([{"type": "function_call", "name": "f", "arguments": "{}"}]);
    let decoded = decode(ProviderKind::OpenAi, &json!({"output": items}), &request).expect("an answer");
    assert_eq!(decoded.tool_calls[0].id, "call_2");
}

/// A-4.9: some gateways write counts as floats.
#[test]
fn counts_are_read_as_integers_or_floats() {
    for (written, expected) in [
        (json!(12), 12),
        (json!(12.0), 12),
        (json!(-3), 0),
        (json!(-3.5), 0),
        (json!("12"), 0),
        (json!(null), 0),
        (json!(1e30), MAX_COUNT),
    ] {
        assert_eq!(count(Some(&written)), expected, "{written}");
    }
}

/// Arguments are read as text, or as the object that inexact servers write.
#[test]
fn arguments_are_read_as_a_text_or_as_an_object() {
    for arguments in [json!("{\"n\":1}"), json!({"n": 1})] {
        let item = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments});
        let call = json!({"id": "a", "function": {"name": "f", "arguments": arguments}});
        let chat = json!({"choices": [{"message": {"tool_calls": [call]}}]});
        for decoded in [openai_responses::decode(&json!({"output": [item]})), openai_chat::decode(&chat)] {
            assert_eq!(decoded.expect("an answer").tool_calls[0].arguments, "{\"n\":1}");
        }
    }
}

/// Reasoning that servers of open models pass on as text is not part of the response.
#[test]
fn thoughts_in_the_text_are_no_response() {
    let body = json!({"choices": [{"message": {"content": "<think>Maybe {\"a\": 1}</think>\n{\"a\": 2}"}}]});
    let text = |kind| decode(kind, &body, &Request::default()).expect("an answer").text;
    for kind in [ProviderKind::OpenAiCompatible, ProviderKind::Local] {
        assert_eq!(text(kind), "{\"a\": 2}");
    }
    assert!(text(ProviderKind::OpenAiChat).starts_with("<think>"), "this service has them apart");
}

/// A decoded response, encoded again for the model `to`.
fn sent_back(kind: ProviderKind, body: &Value, to: &str) -> Value {
    let decoded = decode(kind, body, &Request::default()).expect("an answer");
    let mut parts = vec![Part::Text(decoded.text)];
    parts.extend(decoded.tool_calls.into_iter().map(|call| Part::ToolCall {
        id: call.id,
        name: call.name,
        arguments: call.arguments,
    }));
    let json = decoded.reasoning.expect("thoughts").to_string().into();
    parts.insert(0, Part::Reasoning(Reasoning { model: "p/m".into(), json }));
    let messages = vec![Message::user("hi"), Message { role: Role::Assistant, parts }];
    let request = Request { messages, ..Request::default() };
    let images = Images::default();
    let ask = Ask { model: "m", id: to, request: &request, images: &images, provider_schema: None };
    match kind {
        ProviderKind::Anthropic => anthropic::encode(ask)["messages"][1]["content"].take(),
        ProviderKind::OpenAi => openai_responses::encode(ask)["input"].take(),
        ProviderKind::Gemini => gemini::encode(ask)["contents"][1]["parts"].take(),
        _ => openai_chat::encode(ask, openai_chat::Flavor::Compatible)["messages"][1].take(),
    }
}

/// Reasoning goes back in its place, unchanged, and only to the model that wrote it, as services require.
#[test]
fn thoughts_go_back_in_their_place_to_the_model_that_had_them() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let thinking = |n: u32| json!({"type": "thinking", "thinking": format!("hm {n}"), "signature": "S"});
    let tool = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let sealed = json!({"type": "redacted_thinking", "data": "D"});
    let content = json!([thinking(1), text("I look"), thinking(2), tool, sealed, tool]);
    let mut twice = content.clone();
    twice[5]["id"] = json!("b");
    let kind = ProviderKind::Anthropic;
    assert_eq!(sent_back(kind, &json!({"content": twice}), "p/m"), twice);
    assert_eq!(sent_back(kind, &json!({"content": twice}), "q/m"), json!([text("I look"), tool, twice[5]]));
    let texts = json!([thinking(1), text("a"), thinking(2), text("b"), tool]);
    assert_eq!(sent_back(kind, &json!({"content": texts}), "p/m"), texts);

    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"});
    let said = json!({"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look"}]});
    let output = json!([reasoning, said, call]);
    let input = sent_back(ProviderKind::OpenAi, &json!({"output": output}), "p/m");
    assert_eq!(input.as_array().map(|items| &items[1..]), output.as_array().map(|items| &items[..]));
    let input = sent_back(ProviderKind::OpenAi, &json!({"output": output}), "q/m");
    assert_eq!((input.as_array().map(Vec::len), &input[2]), (Some(3), &call));

    let details = json!([{"type": "reasoning.encrypted", "data": "D", "index": 0}]);
    let extra = json!({"google": {"thought_signature": "S"}});
    let call =
        json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra});
    for (name, thought) in
        [("reasoning_content", json!("hm")), ("reasoning", json!("hm")), ("reasoning_details", details)]
    {
        let message =
            json!({"role": "assistant", "content": "<think>a</think>\nI look", "tool_calls": [call], name: thought});
        let body = json!({"choices": [{"message": message}]});
        assert_eq!(sent_back(ProviderKind::OpenAiCompatible, &body, "p/m"), message);
        let other = sent_back(ProviderKind::OpenAiCompatible, &body, "q/m");
        assert_eq!((other.get(name), &other["content"]), (None, &json!("I look")));
        assert_eq!(other["tool_calls"][0].get("extra_content"), None);
    }

    let parts = json!([
        {"text": "I look", "thoughtSignature": "T"}, {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "S"},
    ]);
    let body = json!({"candidates": [{"content": {"parts": parts}}]});
    assert_eq!(sent_back(ProviderKind::Gemini, &body, "p/m"), parts);
    let other = sent_back(ProviderKind::Gemini, &body, "q/m");
    assert!(!other.to_string().contains("thoughtSignature"), "{other}");
}

/// Reasoning without encryption or signature is not kept, because the service that wrote it would not accept it.
#[test]
fn thoughts_that_no_service_takes_back_are_not_kept() {
    let thinking = json!({"content": [{"type": "thinking", "thinking": "cut"}], "stop_reason": "max_tokens"});
    let reasoning = json!({"output": [{"type": "reasoning", "id": "rs_1", "summary": []}]});
    let chat = json!({"choices": [{"message": {"content": "a", "reasoning_content": null, "reasoning_details": []}}]});
    for (kind, body) in
        [(ProviderKind::Anthropic, thinking), (ProviderKind::OpenAi, reasoning), (ProviderKind::OpenAiChat, chat)]
    {
        assert_eq!(decode(kind, &body, &Request::default()).map(|found| found.reasoning), Ok(None), "{kind}");
    }
}

/// A call without a name makes a response unreadable: the response is incomplete without it.
#[test]
fn a_call_without_a_name_makes_a_response_unreadable() {
    let body = |reason: &str| {
        let message = json!({"content": "I look", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]});
        json!({"choices": [{"message": message, "finish_reason": reason}]})
    };
    assert!(matches!(openai_chat::decode(&body("tool_calls")), Err(DecodeError::Unreadable(_))));
    assert_eq!(openai_chat::decode(&body("length")).map(|found| found.stop), Ok(Stop::Length));
}

/// A-4.5: an aborted response is reported as a failure, however long it is.
#[test]
fn responses_that_were_broken_off_are_no_responses() {
    let chat = |reason: Value, error: Value| json!({"choices": [{"message": {"content": "The first half"}, "finish_reason": reason, "error": error}]});
    let failed = |body: &Value| openai_chat::decode(body).expect_err("no answer");
    let error = json!({"code": 503, "message": "gone"});
    let gone = DecodeError::Failed { status: 503, message: "gone".into() };
    assert_eq!(failed(&chat("error".into(), error.clone())), gone);
    assert_eq!(failed(&chat("stop".into(), error)), gone);
    for reason in ["error", "abort", "insufficient_system_resource"] {
        let failure = failed(&chat(reason.into(), Value::Null));
        assert!(matches!(failure, DecodeError::Failed { status: 502, .. }), "{reason}: {failure:?}");
    }
    assert!(
        matches!(failed(&chat("a new reason".into(), Value::Null)), DecodeError::Unreadable(why) if why.contains("a new reason"))
    );
    for reason in [Value::Null, "stop".into(), "STOP".into(), "eos".into(), "tool_calls".into(), "end_turn".into()] {
        assert_eq!(
            openai_chat::decode(&chat(reason.clone(), Value::Null)).map(|found| found.stop),
            Ok(Stop::End),
            "{reason}"
        );
    }
    let gemini = |reason: Value| {
        let parts = json!([{"text": "The first half"}]);
        gemini::decode(
            &json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}]}),
            &Request::default(),
        )
    };
    for reason in
        ["OTHER", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"]
    {
        assert!(matches!(gemini(reason.into()), Err(DecodeError::Unreadable(why)) if why.contains(reason)), "{reason}");
    }
    for reason in [Value::Null, "STOP".into(), "FINISH_REASON_UNSPECIFIED".into()] {
        assert_eq!(gemini(reason).map(|found| found.stop), Ok(Stop::End));
    }
    let cancelled = openai_responses::decode(&json!({"status": "cancelled", "output": []}));
    assert!(matches!(cancelled, Err(DecodeError::Failed { .. })), "{cancelled:?}");
}

#[test]
fn the_key_of_a_prompt_cache_follows_what_does_not_change() {
    let key = |system: &str, text: &str| {
        let messages = vec![Message::user(text)];
        prompt_cache_key(&Request { system: Some(system.into()), messages, cache_prompt: true, ..Request::default() })
    };
    assert_eq!(key("s", "a"), key("s", "b"));
    assert_ne!(key("s", "a"), key("t", "a"));
    assert_eq!(prompt_cache_key(&Request::default()), None);
}

/// A-4.9: a count that no response can have overflows no sum.
#[test]
fn huge_counts_overflow_no_sum() {
    let huge = u64::MAX;
    for (kind, body) in [
        (
            ProviderKind::Anthropic,
            json!({"content": [], "stop_reason": "end_turn", "usage": {"input_tokens": huge, "cache_read_input_tokens": huge}}),
        ),
        (
            ProviderKind::Gemini,
            json!({
                "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": huge, "toolUsePromptTokenCount": huge},
            }),
        ),
    ] {
        let tokens = decode(kind, &body, &Request::default()).expect("a response").tokens;
        assert!(tokens.input >= 1 << 40 && tokens.input.checked_mul(1 << 20).is_some(), "{kind}: {tokens:?}");
    }
}
