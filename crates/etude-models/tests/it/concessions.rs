//! Requests that are sent again without the members that their model refuses.

use std::sync::Mutex;

use etude_core::model::{Piece, Request};
use etude_models::ProviderKind;

use crate::server::{Reply, Server};
use crate::setup::{HTTP_KINDS, ask, ask_for, models, provider, response};

const REFUSED: &str = "Unsupported parameter: 'temperature' is not supported with this model.";

fn warm() -> Request {
    Request { temperature: Some(0.2), ..ask("hi") }
}

/// a model that refuses a temperature is called again without one, and later calls omit it at once. The response
/// reports that.
#[tokio::test]
async fn a_refused_temperature_is_left_out() {
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::status(400, REFUSED), Reply::ok(response(kind, "four"))]);
        let models = models(vec![provider(kind, &server.url())]);
        let response = models.call(&warm()).await.expect("an answer");
        let [note] = &response.transport_failures[..] else { panic!("{kind}: {:?}", response.transport_failures) };
        assert!(note.contains("the provider rejected `temperature`, so it was removed: status 400"), "{kind}: {note}");
        assert!(models.call(&warm()).await.expect("an answer").transport_failures.is_empty(), "{kind}");
        let sent: Vec<bool> = server.seen().iter().map(|seen| seen.body.to_string().contains("temperature")).collect();
        assert_eq!(sent, [true, false, false], "{kind}");
    }
}

/// Structured output and streams are not given up because of a refused temperature.
#[tokio::test]
async fn nothing_else_is_given_up_for_a_temperature() {
    let kind = ProviderKind::OpenAiCompatible;
    let schema = serde_json::json!({"type": "object"});
    let server = Server::new([Reply::status(400, REFUSED), Reply::ok(response(kind, "{}"))]);
    let request = Request { temperature: Some(0.2), ..ask_for(schema) };
    let seen = Mutex::new(String::new());
    let listener = |piece: Piece<'_>| seen.lock().expect("no listener panicked").push_str(&format!("{piece:?}"));
    let models = models(vec![provider(kind, &server.url())]);
    models.call_streaming(&request, &listener).await.expect("an answer");
    let sent = server.seen();
    assert_eq!(sent.len(), 2);
    assert_eq!((&sent[1].body["stream"], sent[1].body.get("response_format").is_some()), (&true.into(), true));
}

/// a refused value, which the user must correct, is reported.
#[tokio::test]
async fn a_refused_value_is_reported() {
    let kind = ProviderKind::Anthropic;
    let server = Server::new([Reply::status(400, "temperature: range: 0..1"), Reply::ok(response(kind, "four"))]);
    let failure = models(vec![provider(kind, &server.url())]).call(&warm()).await.expect_err("it is refused");
    assert!(failure.message.contains("range"), "{}", failure.message);
}

/// The token limit is sent as the model accepts it: by its newer name, or raised to the minimum of the Responses API.
#[tokio::test]
async fn a_limit_is_sent_as_the_model_takes_it() {
    for (kind, refused, name, sent) in [
        (
            ProviderKind::OpenAiCompatible,
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_completion_tokens",
            8,
        ),
        (
            ProviderKind::OpenAi,
            "Invalid 'max_output_tokens': Expected a value >= 16, but got 8.",
            "max_output_tokens",
            16,
        ),
    ] {
        let server = Server::new([Reply::status(400, refused), Reply::ok(response(kind, "four"))]);
        let request = Request { max_tokens: Some(8), ..ask("hi") };
        models(vec![provider(kind, &server.url())]).call(&request).await.expect("an answer");
        let body = &server.seen()[1].body;
        assert_eq!((&body[name], body.get("max_tokens")), (&sent.into(), None), "{kind}");
    }
}
