//! Decoding of each provider's responses.

use etude_core::model::{Message, Part, Request, Role, Stop, Tool, ToolCall};
use etude_models::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{HTTP_KINDS, ask, models, provider, response};

async fn stop_of(kind: ProviderKind, body: Value) -> Stop {
    let server = Server::new([Reply::ok(body)]);
    models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect("an answer").stop
}

/// A-4.9: usage means the same in every provider.
#[tokio::test]
async fn usage_is_counted_alike_for_all_providers() {
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::ok(response(kind, "four"))]);
        let response = models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect("an answer");
        let usage = response.usage;
        assert_eq!(response.text, "four", "{kind}");
        assert_eq!(
            (usage.calls, usage.input_tokens, usage.output_tokens, usage.cached_tokens),
            (1, 16, 7, 4),
            "{kind}"
        );
        assert_eq!(usage.reasoning_tokens, if kind == ProviderKind::Anthropic { 0 } else { 3 }, "{kind}");
        assert_eq!(usage.cost_usd, None, "the price of `m` is not known");
        assert_eq!((response.model.as_str(), response.stop), ("p/m", Stop::End));
        assert!(response.transport_failures.is_empty());
    }
}

/// A-4.9: the cost that a gateway states is used.
#[tokio::test]
async fn the_cost_that_a_gateway_states_is_taken() {
    for kind in [ProviderKind::OpenAiCompatible, ProviderKind::OpenAiChat] {
        let mut body = response(kind, "four");
        body["usage"]["cost"] = json!(0.0125);
        let server = Server::new([Reply::ok(body)]);
        let response = models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect("an answer");
        assert_eq!(response.usage.cost_usd, Some(0.0125), "{kind}");
    }
}

/// A-4.9: cost follows from the price, if that is known.
#[tokio::test]
async fn cost_follows_from_the_price_of_the_model() {
    let kind = ProviderKind::Anthropic;
    let server = Server::new([Reply::ok(response(kind, "four"))]);
    let mut settings = crate::setup::settings(vec![provider(kind, &server.url())]);
    let price = etude_models::Price { input: 1e6, output: 1e5, cached_input: Some(1e4), cache_write: Some(1e3) };
    settings.prices.set("p/m", price);
    let models = etude_models::Models::new(settings).expect("the settings hold");
    let response = models.call(&ask("hi")).await.expect("an answer");
    assert_eq!(response.usage.cost_usd, Some(10.0 + 0.7 + 0.04 + 0.002));
    assert_eq!(models.price(Default::default()), Some(price));
}

/// A-4.9: a cost limit applies to a model with a known price, with stated cost, or that calls no one.
#[tokio::test]
async fn models_whose_cost_no_one_will_know_are_named() {
    let unpriced = |change: &dyn Fn(&mut etude_models::Settings)| {
        let mut settings =
            crate::setup::settings(vec![provider(ProviderKind::OpenAiCompatible, "http://models.example/v1")]);
        change(&mut settings);
        etude_models::Models::new(settings).expect("the settings hold").unpriced(Default::default())
    };
    let free = etude_models::Price { input: 0.0, output: 0.0, cached_input: None, cache_write: None };
    let recorded = |record_from: Option<&str>| {
        let mut recorded = etude_models::ProviderSettings::new("tape", ProviderKind::Recorded);
        recorded.path = Some("recordings".into());
        recorded.record_from = record_from.and_then(etude_models::ModelId::parse);
        recorded
    };
    let asks_tape = |settings: &mut etude_models::Settings, from: Option<&str>| {
        settings.providers.push(recorded(from));
        settings.mapping.insert(Default::default(), vec![etude_models::ModelId::parse("tape/m").expect("an id")]);
    };
    assert_eq!(unpriced(&|_| ()), ["p/m"]);
    assert_eq!(unpriced(&|settings| settings.prices.set("m", free)), [""; 0]);
    assert_eq!(unpriced(&|settings| settings.providers[0].states_cost = Some(true)), [""; 0]);
    for known in ["https://openrouter.ai/api/v1", "http://127.0.0.1:9/v1", "http://localhost:9/v1"] {
        assert_eq!(unpriced(&|settings| settings.providers[0].base_url = Some(known.into())), [""; 0]);
    }
    let gateway = |settings: &mut etude_models::Settings| {
        settings.providers[0].base_url = Some("http://127.0.0.1:9/v1".into());
        settings.providers[0].states_cost = Some(false);
    };
    assert_eq!(unpriced(&gateway), ["p/m"]);
    assert_eq!(unpriced(&|settings| settings.providers[0].kind = ProviderKind::OpenAi), ["p/m"]);
    assert_eq!(unpriced(&|settings| asks_tape(settings, None)), [""; 0]);
    assert_eq!(unpriced(&|settings| asks_tape(settings, Some("p/m"))), ["tape/m"]);
}

/// A-4.5: a refusal is distinguished from a response.
#[tokio::test]
async fn refusals_are_distinguished_from_responses() {
    let chat =
        json!({ "choices": [{ "message": { "content": null, "refusal": "I will not" }, "finish_reason": "stop" }] });
    let filtered = json!({ "choices": [{ "message": { "content": "" }, "finish_reason": "content_filter" }] });
    let responses = json!({
        "status": "completed",
        "output": [{ "type": "message", "content": [{ "type": "refusal", "refusal": "I will not" }] }],
    });
    let responses_filtered =
        json!({ "status": "incomplete", "incomplete_details": { "reason": "content_filter" }, "output": [] });
    let anthropic = json!({ "content": [{ "type": "text", "text": "I will not" }], "stop_reason": "refusal" });
    let explained = json!({ "content": [], "stop_reason": "refusal", "stop_details": { "explanation": "a policy" } });
    let safety = json!({ "candidates": [{ "finishReason": "SAFETY" }] });
    let blocked = json!({ "promptFeedback": { "blockReason": "OTHER", "blockReasonMessage": "no" } });
    for (kind, body, reason) in [
        (ProviderKind::OpenAiChat, chat.clone(), "I will not"),
        (ProviderKind::OpenAiCompatible, chat, "I will not"),
        (ProviderKind::OpenAiChat, filtered, "content_filter"),
        (ProviderKind::OpenAi, responses, "I will not"),
        (ProviderKind::OpenAi, responses_filtered, "content_filter"),
        (ProviderKind::Anthropic, anthropic, "I will not"),
        (ProviderKind::Anthropic, explained, "a policy"),
        (ProviderKind::Gemini, safety, "SAFETY"),
        (ProviderKind::Gemini, blocked, "OTHER: no"),
    ] {
        assert_eq!(stop_of(kind, body).await, Stop::Refusal(reason.to_owned()), "{kind}");
    }
}

/// A-4.5: a truncated response is reported as such.
#[tokio::test]
async fn truncation_is_distinguished_from_responses() {
    let part = json!([{ "type": "text", "text": "{\"a\":" }]);
    for (kind, body) in [
        (
            ProviderKind::OpenAiChat,
            json!({ "choices": [{ "message": { "content": "{" }, "finish_reason": "length" }] }),
        ),
        (
            ProviderKind::OpenAi,
            json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" }, "output": [] }),
        ),
        (ProviderKind::Anthropic, json!({ "content": part, "stop_reason": "max_tokens" })),
        (ProviderKind::Anthropic, json!({ "content": part, "stop_reason": "model_context_window_exceeded" })),
        (
            ProviderKind::Gemini,
            json!({ "candidates": [{ "content": { "parts": [{ "text": "{" }] }, "finishReason": "MAX_TOKENS" }] }),
        ),
    ] {
        assert_eq!(stop_of(kind, body).await, Stop::Length, "{kind}");
    }
}

fn conversation_with_tools() -> Request {
    let parts = |role, parts| Message { role, parts };
    let call =
        |id: &str, arguments: &str| Part::ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() };
    let result = |id: &str, content: &str| Part::ToolResult { id: id.into(), content: content.into() };
    let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    Request {
        system: Some("be brief".into()),
        messages: vec![
            Message::user("look twice"),
            parts(Role::Assistant, vec![call("call_0~SIGN+/=", r#"{"at":"x"}"#), call("b", "")]),
            parts(Role::Tool, vec![result("call_0~SIGN+/=", "1")]),
            parts(Role::Tool, vec![result("b", r#"{"n":2}"#)]),
        ],
        tools: vec![Tool { name: "look".into(), description: "looks".into(), parameters: schema.into() }],
        temperature: Some(0.5),
        max_tokens: Some(99),
        cache_prompt: true,
        ..Request::default()
    }
}

/// Issue 2, item 5: each provider accepts the next call of a tool conversation.
#[tokio::test]
async fn results_follow_their_calls_in_every_wire_format() {
    let mut sent = Vec::new();
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::ok(response(kind, "done"))]);
        models(vec![provider(kind, &server.url())]).call(&conversation_with_tools()).await.expect("an answer");
        sent.push(server.seen().remove(0));
    }
    let [anthropic, responses, chat, gemini, compatible] = sent.as_slice() else { panic!("five kinds") };

    assert_eq!(anthropic.path, "/v1/messages");
    assert_eq!(anthropic.body["max_tokens"], 99);
    assert_eq!(anthropic.body["system"][0]["cache_control"]["type"], "ephemeral");
    let results = &anthropic.body["messages"][2]["content"];
    assert_eq!(results[0]["tool_use_id"], anthropic.body["messages"][1]["content"][0]["id"]);
    assert_eq!((&results[1]["tool_use_id"], &results[1]["content"]), (&json!("b"), &json!(r#"{"n":2}"#)));
    assert_eq!(anthropic.body["messages"][1]["content"][1]["input"], json!({}));
    assert_eq!(anthropic.body["messages"].as_array().map(Vec::len), Some(3));

    assert_eq!((responses.path.as_str(), &responses.body["store"]), ("/v1/responses", &json!(false)));
    assert_eq!(responses.body["instructions"], "be brief");
    assert_eq!(responses.body["input"][1]["call_id"], responses.body["input"][3]["call_id"]);
    assert_eq!(responses.body["max_output_tokens"], 99);

    assert_eq!(chat.path, "/v1/chat/completions");
    assert_eq!(chat.body["messages"][2]["tool_calls"][0]["id"], chat.body["messages"][3]["tool_call_id"]);
    assert_eq!((&chat.body["max_completion_tokens"], &compatible.body["max_tokens"]), (&json!(99), &json!(99)));
    assert_eq!(compatible.body.get("prompt_cache_key"), None);

    assert_eq!(gemini.path, "/v1beta/models/m:generateContent");
    assert_eq!(gemini.body["contents"][1]["parts"][0]["thoughtSignature"], "SIGN+/=");
    let results = &gemini.body["contents"][2]["parts"];
    assert_eq!(results[0]["functionResponse"], json!({ "name": "look", "response": { "result": "1" } }));
    assert_eq!(results[1]["functionResponse"]["response"], json!({ "n": 2 }));
}

/// X-3: each provider receives a forced tool call in its own form, and only if one is forced.
#[tokio::test]
async fn a_call_is_forced_in_every_wire_format() {
    let named = json!({ "type": "function", "function": { "name": "look" } });
    let expected = [
        (ProviderKind::Anthropic, "/tool_choice", json!({ "type": "tool", "name": "look" })),
        (ProviderKind::OpenAi, "/tool_choice", json!({ "type": "function", "name": "look" })),
        (ProviderKind::OpenAiChat, "/tool_choice", named.clone()),
        (
            ProviderKind::Gemini,
            "/toolConfig/functionCallingConfig",
            json!({ "mode": "ANY", "allowedFunctionNames": ["look"] }),
        ),
        (ProviderKind::OpenAiCompatible, "/tool_choice", named),
    ];
    for (kind, at, choice) in expected {
        let server = Server::new([Reply::ok(response(kind, "done")), Reply::ok(response(kind, "done"))]);
        let models = models(vec![provider(kind, &server.url())]);
        let forced = Request { must_call: Some("look".into()), ..conversation_with_tools() };
        for request in [&forced, &conversation_with_tools()] {
            models.call(request).await.expect("an answer");
        }
        let seen = server.seen();
        assert_eq!(seen[0].body.pointer(at), Some(&choice), "{kind}");
        assert_eq!(seen[1].body.pointer(at), None, "{kind}");
    }
}

/// X-3: a server that cannot force a call is called again without that.
#[tokio::test]
async fn a_server_that_cannot_force_a_call_is_asked_without() {
    let kind = ProviderKind::OpenAiCompatible;
    let server = Server::new([Reply::status(400, "no tool_choice here"), Reply::ok(response(kind, "done"))]);
    let forced = Request { must_call: Some("look".into()), ..conversation_with_tools() };
    let response = models(vec![provider(kind, &server.url())]).call(&forced).await.expect("an answer");
    assert_eq!((response.text.as_str(), server.seen()[1].body.get("tool_choice")), ("done", None));
}

#[tokio::test]
async fn tool_calls_come_with_their_arguments_as_written() {
    let call = |id: &str, arguments: &str| ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() };
    let function =
        json!({ "id": "a", "type": "function", "function": { "name": "look", "arguments": "{\"n\": 1.0}" } });
    let item = json!({ "type": "function_call", "call_id": "a", "name": "look", "arguments": "{\"n\": 1.0}" });
    let block = json!({ "type": "tool_use", "id": "a", "name": "look", "input": { "n": 1 } });
    let part = json!({ "functionCall": { "name": "look", "args": { "n": 1 } }, "thoughtSignature": "S" });
    for (kind, body, expected) in [
        (
            ProviderKind::OpenAiChat,
            json!({ "choices": [{ "message": { "tool_calls": [function] } }] }),
            call("a", "{\"n\": 1.0}"),
        ),
        (ProviderKind::OpenAi, json!({ "status": "completed", "output": [item] }), call("a", "{\"n\": 1.0}")),
        (ProviderKind::Anthropic, json!({ "content": [block], "stop_reason": "tool_use" }), call("a", "{\"n\":1}")),
        (
            ProviderKind::Gemini,
            json!({ "candidates": [{ "content": { "parts": [part] } }] }),
            call("call_2~S", "{\"n\":1}"),
        ),
    ] {
        let server = Server::new([Reply::ok(body)]);
        let response =
            models(vec![provider(kind, &server.url())]).call(&conversation_with_tools()).await.expect("an answer");
        assert_eq!((response.stop, response.tool_calls), (Stop::ToolCalls, vec![expected]), "{kind}");
    }
}

#[tokio::test]
async fn images_travel_in_each_providers_own_form() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a.txt"), b"\x89PNG and more").expect("it is writable");
    let data = "iVBORyBhbmQgbW9yZQ==";
    for (kind, pointer, expected) in [
        (ProviderKind::Anthropic, "/messages/0/content/0/source/data", data.to_owned()),
        (ProviderKind::OpenAi, "/input/0/content/0/image_url", format!("data:image/png;base64,{data}")),
        (ProviderKind::OpenAiChat, "/messages/0/content/0/image_url/url", format!("data:image/png;base64,{data}")),
        (ProviderKind::Gemini, "/contents/0/parts/0/inlineData/data", data.to_owned()),
    ] {
        let server = Server::new([Reply::ok(response(kind, "a cat"))]);
        let mut settings = crate::setup::settings(vec![provider(kind, &server.url())]);
        settings.app_dir = dir.path().to_owned();
        let models = etude_models::Models::new(settings).expect("the settings hold");
        let image = |path: &str| Message {
            role: Role::User,
            parts: vec![Part::Image { path: path.into() }, Part::Text("?".into())],
        };
        let mut request = Request { messages: vec![image("a.txt")], ..Request::default() };
        models.call(&request).await.expect("an answer");
        assert_eq!(server.seen()[0].body.pointer(pointer).and_then(Value::as_str), Some(expected.as_str()), "{kind}");
        request.messages = vec![image("../a.txt")];
        let failure = models.call(&request).await.expect_err("outside of the app");
        assert!(failure.message.contains("is not inside the app"), "{}", failure.message);
    }
}

#[tokio::test]
async fn blank_texts_do_not_reach_providers_that_refuse_them() {
    let request = Request {
        messages: vec![Message::user("hi"), Message::assistant("  \n"), Message::user("that was empty")],
        ..Request::default()
    };
    let server = Server::new([Reply::ok(response(ProviderKind::Anthropic, "ok"))]);
    models(vec![provider(ProviderKind::Anthropic, &server.url())]).call(&request).await.expect("an answer");
    let body = &server.seen()[0].body;
    assert_eq!(body["messages"][1]["content"][0]["text"], "(empty)");
    assert_eq!(body["max_tokens"], 8192, "this provider wants a limit with every request");
}

/// A limit of the provider holds where the request names none.
#[tokio::test]
async fn a_provider_may_limit_its_responses() {
    let server = Server::new([Reply::ok(response(ProviderKind::Anthropic, "ok"))]);
    let mut limited = provider(ProviderKind::Anthropic, &server.url());
    limited.max_tokens = Some(64_000);
    let models = models(vec![limited]);
    models.call(&ask("hi")).await.expect("an answer");
    models.call(&Request { max_tokens: Some(9), ..ask("hi") }).await.expect("an answer");
    let limits: Vec<Value> = server.seen().iter().map(|seen| seen.body["max_tokens"].clone()).collect();
    assert_eq!(limits, [64_000, 9]);
}
