//! Keys: required, sent, never shown.

use etude_core::model::{CallFailureKind, Stop, ToolCall};
use etude_models::{Models, ProviderKind, ProviderSettings, Secret, Settings};

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{HTTP_KINDS, KEY, ask, models, provider, response, settings};

#[tokio::test]
async fn a_missing_key_names_what_to_set() {
    for (kind, variable) in [
        (ProviderKind::Anthropic, "ANTHROPIC_API_KEY"),
        (ProviderKind::OpenAi, "OPENAI_API_KEY"),
        (ProviderKind::Gemini, "GEMINI_API_KEY"),
    ] {
        let failure = models(vec![ProviderSettings::new("p", kind)]).call(&ask("hi")).await.expect_err("no key");
        assert_eq!(failure.kind, CallFailureKind::Environment);
        let expected = format!("`p/m`: provider `p` has no key; set `{variable}` or `providers.p.api_key`");
        assert_eq!(failure.message, expected);
    }
}

#[tokio::test]
async fn a_server_without_keys_is_called_without_one() {
    let kind = ProviderKind::OpenAiCompatible;
    let server = Server::new([Reply::ok(response(kind, "four"))]);
    let mut provider = provider(kind, &server.url());
    provider.api_key = None;
    models(vec![provider]).call(&ask("hi")).await.expect("an answer");
    assert_eq!(server.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn the_key_travels_in_the_header_of_its_provider_and_nowhere_else() {
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::ok(response(kind, "four"))]);
        let mut provider = provider(kind, &server.url());
        provider.headers = vec![("X-Team".to_owned(), Secret::new("blue"))];
        models(vec![provider]).call(&ask("hi")).await.expect("an answer");
        let seen = server.seen().remove(0);
        let (header, value) = match kind {
            ProviderKind::Anthropic => ("x-api-key", KEY.to_owned()),
            ProviderKind::Gemini => ("x-goog-api-key", KEY.to_owned()),
            _ => ("authorization", format!("Bearer {KEY}")),
        };
        assert_eq!(seen.header(header), Some(value.as_str()), "{kind}");
        assert_eq!(seen.header("x-team"), Some("blue"));
        assert!(!seen.path.contains(KEY) && !seen.body.to_string().contains(KEY), "{kind}");
    }
}

/// A key that a provider repeats in its error does not appear in the failure, in whichever attempt.
#[tokio::test]
async fn keys_never_show_in_failures() {
    let echo = format!("key {KEY} with {} is bad", "header-canary-11");
    for kind in HTTP_KINDS {
        for status in [400, 401, 500] {
            let server = Server::new([Reply::status(status, &echo)]);
            let mut provider = provider(kind, &format!("{}/?key={KEY}", server.url()));
            provider.headers = vec![("x-other".to_owned(), Secret::new("header-canary-11"))];
            let failure = models(vec![provider]).call(&ask("hi")).await.expect_err("it fails");
            let shown = format!("{failure:?}");
            assert!(!shown.contains("canary"), "{kind} {status}: {shown}");
            assert!(shown.contains("key *** with *** is bad"), "{shown}");
        }
        let server = Server::new([Reply::text(&echo), Reply::CutOff(echo.clone()), Reply::Drop]);
        let failure = models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
    }
}

/// A key that a provider repeats in a response does not appear in it: not in the text, not in tool calls, and not in a
/// refusal.
#[tokio::test]
async fn keys_never_show_in_responses() {
    let kind = ProviderKind::OpenAiCompatible;
    let call =
        |arguments: &str| json!({"id": KEY, "type": "function", "function": {"name": KEY, "arguments": arguments}});
    let escaped = r#"{"a": "\u0073k-canary-7f3a9"}"#;
    let message = json!({"content": format!("key is {KEY}"), "tool_calls": [call(&json!({"a": KEY}).to_string()), call(escaped)]});
    let body = |message: &Value| json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
    let server =
        Server::new([Reply::ok(body(&message)), Reply::ok(body(&json!({"refusal": format!("not to {KEY}")})))]);
    let models = models(vec![provider(kind, &server.url())]);
    let response = models.call(&ask("hi")).await.expect("an answer");
    assert_eq!(response.text, "key is ***");
    let call = |id: &str, arguments: &str| ToolCall { id: id.into(), name: "***".into(), arguments: arguments.into() };
    assert_eq!(response.tool_calls, [call("***", r#"{"a":"***"}"#), call("call_0", r#"{"a": "***"}"#)]);
    let declined = models.call(&ask("hi")).await.expect("an answer");
    assert_eq!(declined.stop, Stop::Refusal("not to ***".to_owned()));
}

/// Secrets of tools do not appear either, for any provider. Text that is too short for a secret, or that identifies the
/// caller, stays.
#[tokio::test]
async fn responses_hold_no_secret_of_tools() {
    let kind = ProviderKind::OpenAiCompatible;
    let said = format!("{KEY}, tool-canary-1, short, My App");
    let server = Server::new([Reply::ok(response(kind, &said))]);
    let mut program = ProviderSettings::new("p", ProviderKind::Command);
    program.command = vec!["echo".to_owned(), said];
    let mut hosted = provider(kind, &server.url());
    hosted.headers = vec![("x-title".to_owned(), Secret::new("My App")), ("x-team".to_owned(), Secret::new("short"))];
    let mut other = hosted.clone();
    other.name = "q".to_owned();
    for providers in [vec![hosted], vec![program, other]] {
        let secrets = vec![Secret::new("tool-canary-1")];
        let models = Models::new(Settings { secrets, ..settings(providers) }).expect("the settings hold");
        assert_eq!(models.call(&ask("hi")).await.expect("an answer").text, "***, ***, short, My App");
    }
}

/// A base URL may contain a password and gateway keys; neither is shown.
#[tokio::test]
async fn what_a_url_hides_stays_hidden() {
    let server = Server::new([Reply::status(400, "urlcanary1 and urlcanary2 are bad")]);
    let url = server.url().replace("http://", "http://me:urlcanary1@");
    let silent = crate::server::unreachable_url().replace("http://", "http://me:urlcanary1@");
    for url in [url, silent] {
        let provider = provider(ProviderKind::OpenAiCompatible, &format!("{url}/v1?access_token=urlcanary2"));
        let failure = models(vec![provider]).call(&ask("hi")).await.expect_err("it fails");
        assert!(!format!("{failure:?}").contains("urlcanary"), "{failure:?}");
    }
}

#[test]
fn settings_do_not_print_their_secrets() {
    let mut provider = provider(ProviderKind::Gemini, "http://127.0.0.1:1");
    provider.headers = vec![("x".to_owned(), Secret::new(KEY))];
    assert!(!format!("{provider:?}").contains(KEY));
    provider.api_key = Some(Secret::new(format!("{KEY}\n\u{7f}")));
    let Err(error) = Models::new(Settings { providers: vec![provider], ..Settings::default() }) else {
        panic!("a header cannot have a control character")
    };
    assert!(!format!("{error} {error:?}").contains(KEY));
}

#[test]
fn models_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    fn sendable<T: Send>(_: T) {}
    let models = models(vec![provider(ProviderKind::Gemini, "http://127.0.0.1:1")]);
    shared(&models);
    sendable(models.call(&ask("hi")));
}
