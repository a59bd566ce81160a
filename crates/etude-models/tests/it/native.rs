//! A-4.3: structured output of the providers themselves, and the fallback where it is missing.

use etude_models::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{HTTP_KINDS, ask_for, models, provider, response};

/// A schema with an optional property, a bound, and a text.
fn schema() -> Value {
    json!({
        "type": "object", "required": ["n"],
        "properties": { "n": { "type": "integer", "minimum": 1 }, "note": { "type": "string" } },
    })
}

/// A-4.3: the provider's own structured output is used if it has one, in its own dialect.
#[tokio::test]
async fn the_schema_goes_out_in_the_form_of_the_provider() {
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::ok(response(kind, r#"{"n": 1.50, "note": "x"}"#))]);
        let response = models(vec![provider(kind, &server.url())]).call(&ask_for(schema())).await.expect("an answer");
        assert_eq!(response.text, r#"{"n": 1.50, "note": "x"}"#, "an answer without nulls stays as it was written");
        let body = server.seen().remove(0).body;
        let (form, sent) = match kind {
            ProviderKind::Anthropic => {
                (&body["output_config"]["format"]["type"], &body["output_config"]["format"]["schema"])
            }
            ProviderKind::OpenAi => (&body["text"]["format"]["strict"], &body["text"]["format"]["schema"]),
            ProviderKind::Gemini => {
                (&body["generationConfig"]["responseMimeType"], &body["generationConfig"]["responseJsonSchema"])
            }
            _ => (&body["response_format"]["json_schema"]["strict"], &body["response_format"]["json_schema"]["schema"]),
        };
        let reported = body.to_string().contains("must satisfy this JSON Schema");
        match kind {
            ProviderKind::Anthropic => {
                assert_eq!((form, &sent["required"]), (&json!("json_schema"), &json!(["n"])));
                assert_eq!(sent["additionalProperties"], false);
                assert!(reported, "the bound is said in words");
            }
            ProviderKind::Gemini => assert_eq!((form, sent, reported), (&json!("application/json"), &schema(), false)),
            _ => {
                assert_eq!((form, &sent["required"], reported), (&json!(true), &json!(["n", "note"]), false));
                assert_eq!(sent["properties"]["note"]["type"], json!(["string", "null"]));
            }
        }
    }
}

/// A-4.3: the changes of the dialect are undone before the caller sees the response.
#[tokio::test]
async fn the_response_has_the_form_of_the_schema_again() {
    let kind = ProviderKind::OpenAi;
    let server = Server::new([Reply::ok(response(kind, r#"{"n": 1e2, "note": null}"#))]);
    let nulled = models(vec![provider(kind, &server.url())]).call(&ask_for(schema())).await.expect("an answer");
    assert_eq!(nulled.text, r#"{"n":1e2}"#);

    let list = json!({ "type": "array", "items": { "type": "number" } });
    let server = Server::new([Reply::ok(response(kind, r#"{"value": [1.0, 2e3]}"#))]);
    let wrapped = models(vec![provider(kind, &server.url())]).call(&ask_for(list.clone())).await.expect("an answer");
    assert_eq!(wrapped.text, "[1.0, 2e3]");
    let sent = &server.seen()[0].body["text"]["format"]["schema"];
    assert_eq!((&sent["type"], &sent["properties"]["value"]), (&json!("object"), &list));
}

/// A-4.3: a server without structured output is instructed in words, and asked for it only once.
#[tokio::test]
async fn a_server_without_structured_output_is_asked_in_words() {
    let kind = ProviderKind::OpenAiCompatible;
    let good = || Reply::ok(response(kind, r#"{"n":1}"#));
    let server = Server::new([Reply::status(400, "unknown field"), good(), good()]);
    let models = models(vec![provider(kind, &server.url())]);
    let first = models.call(&ask_for(schema())).await.expect("an answer");
    assert_eq!(first.text, r#"{"n":1}"#);
    let expected = "the provider rejected structured output, so it was turned off: status 400: unknown field";
    assert_eq!(first.transport_failures, [expected]);
    models.call(&ask_for(schema())).await.expect("an answer");
    let seen = server.seen();
    let asked: Vec<bool> = seen.iter().map(|seen| seen.body.get("response_format").is_some()).collect();
    assert_eq!(asked, [true, false, false]);
    let prompt = seen[1].body["messages"][0]["content"].as_str().unwrap_or_default();
    assert!(prompt.contains("JSON") && prompt.contains(r#""minimum":1"#), "{prompt}");
}

/// A request that is refused with and without a schema has another fault, and the schema is not given up.
#[tokio::test]
async fn a_refusal_that_is_not_about_the_schema_is_reported_as_it_came() {
    let kind = ProviderKind::OpenAiCompatible;
    let good = Reply::ok(response(kind, r#"{"n":1}"#));
    let server = Server::new([Reply::status(400, "too long"), Reply::status(400, "still too long"), good]);
    let models = models(vec![provider(kind, &server.url())]);
    let failure = models.call(&ask_for(schema())).await.expect_err("it is refused");
    assert_eq!(failure.message, "`p/m`: status 400: too long");
    models.call(&ask_for(schema())).await.expect("an answer");
    assert!(server.seen()[2].body.get("response_format").is_some());
}

#[tokio::test]
async fn a_hosted_model_that_names_the_schema_in_its_refusal_is_asked_in_words() {
    let kind = ProviderKind::Anthropic;
    let refusal = Reply::status(400, "output_config: Extra inputs are not permitted");
    let server = Server::new([refusal, Reply::ok(response(kind, r#"{"n":1}"#))]);
    models(vec![provider(kind, &server.url())]).call(&ask_for(schema())).await.expect("an answer");
    assert_eq!(server.seen()[1].body.get("output_config"), None);
}

#[tokio::test]
async fn structured_output_can_be_switched_off() {
    let kind = ProviderKind::OpenAiChat;
    let server = Server::new([Reply::ok(response(kind, r#"{"n":1}"#))]);
    let mut provider = provider(kind, &server.url());
    provider.structured_output = Some(false);
    models(vec![provider]).call(&ask_for(schema())).await.expect("an answer");
    assert_eq!(server.seen()[0].body.get("response_format"), None);
}
