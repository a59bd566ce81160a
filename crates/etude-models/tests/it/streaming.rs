//! Streamed responses.

use std::sync::Mutex;

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Piece, Request};
use etude_models::{Models, ProviderKind, ProviderSettings};
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::setup::{HTTP_KINDS, KEY, ask, ask_for, models, provider, response};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

/// Calls with streaming and returns the response with all deltas. `!` stands for a restart.
async fn streamed(models: &Models, request: &Request) -> (Result<ModelResponse, CallFailure>, String) {
    let reported = Mutex::new(String::new());
    let listener = |piece: Piece<'_>| {
        let mut reported = reported.lock().expect("no listener panicked");
        match piece {
            Piece::Text(text) => reported.push_str(text),
            Piece::Restarted => reported.push('!'),
            Piece::Waiting(_) => {}
        }
    };
    let response = models.call_streaming(request, &listener).await;
    (response, reported.into_inner().expect("no listener panicked"))
}

/// The response of [`answer`] as a stream.
fn events(kind: ProviderKind, text: &str) -> String {
    let whole = response(kind, text);
    let (start, end) = text.split_at(text.len() / 2);
    let events = match kind {
        ProviderKind::Anthropic => vec![
            json!({"type": "message_start", "message": {"content": [], "usage": whole["usage"]}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": start}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": end}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ],
        ProviderKind::OpenAi => vec![
            json!({"type": "response.output_text.delta", "delta": start}),
            json!({"type": "response.output_text.delta", "delta": end}),
            json!({"type": "response.completed", "response": whole}),
        ],
        ProviderKind::Gemini => {
            let part = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}}]});
            let mut last = part(end);
            last["candidates"][0]["finishReason"] = json!("STOP");
            last["usageMetadata"] = whole["usageMetadata"].clone();
            vec![part(start), last]
        }
        _ => vec![
            chat(start),
            chat(end),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": whole["usage"]}),
        ],
    };
    let end = if matches!(kind, ProviderKind::OpenAiChat | KIND) { "data: [DONE]\n\n" } else { "" };
    format!("{}{end}", events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>())
}

fn chat(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

fn half() -> String {
    format!("data: {}\n\n", chat("half"))
}

/// the response and its usage are the same whether it is streamed or not, for each provider.
#[tokio::test]
async fn a_streamed_response_is_the_whole_one() {
    for kind in HTTP_KINDS {
        let whole = Server::new([Reply::ok(response(kind, "four"))]);
        let expected = models(vec![provider(kind, &whole.url())]).call(&ask("hi")).await;
        let server = Server::new([Reply::Events(events(kind, "four"))]);
        let (response, reported) = streamed(&models(vec![provider(kind, &server.url())]), &ask("hi")).await;
        assert_eq!((response, reported.as_str()), (expected, "four"), "{kind}");
        let [asked] = &server.seen()[..] else { panic!("{kind}: one request") };
        let has_asked = asked.body["stream"] == true || asked.path.ends_with(":streamGenerateContent?alt=sse");
        assert!(has_asked, "{kind}: {asked:?}");
        assert_eq!(whole.seen()[0].body.get("stream"), None, "{kind}: no one listened");
    }
}

/// A server that responds as a whole although it was asked to stream is understood, for each provider.
#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    for kind in HTTP_KINDS {
        let server = Server::new([Reply::ok(response(kind, "four"))]);
        let (response, reported) = streamed(&models(vec![provider(kind, &server.url())]), &ask("hi")).await;
        let response = response.expect("an answer");
        assert_eq!((response.text.as_str(), reported.as_str(), server.seen().len()), ("four", "", 1), "{kind}");
    }
}

/// a connection that is lost or falls silent after the end of the response does not change it.
#[tokio::test]
async fn a_response_that_has_ended_is_not_asked_for_again() {
    let end = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    for reply in [Reply::Stalls(half() + &end), Reply::Lost(half() + &end)] {
        // On a slow machine, the beginning of the response may come too late as well.
        for timeout_ms in [300, 3_000, 60_000] {
            let server = Server::new([reply.clone()]);
            let settings = ProviderSettings { timeout_ms: Some(timeout_ms), ..provider(KIND, &server.url()) };
            let (response, reported) = streamed(&models(vec![settings]), &ask("hi")).await;
            let is_in_time = response.as_ref().is_ok_and(|response| response.transport_failures.is_empty());
            if !is_in_time && timeout_ms < 60_000 {
                continue;
            }
            let response = response.expect("an answer");
            assert_eq!((response.text.as_str(), reported.as_str(), server.seen().len()), ("half", "half", 1));
            assert!(response.transport_failures.is_empty(), "{:?}", response.transport_failures);
            break;
        }
    }
}

/// streams that break off are retried like every lost response, and their deltas are void.
#[tokio::test]
async fn streams_that_break_off_are_tried_again() {
    let good = || Reply::Events(events(KIND, "four"));
    for (bad, sentence, reported) in [
        (Reply::Events(half()), "ended before the response was complete", "half!four"),
        (Reply::CutOff(format!("{0}{0}", half())), "attempt 1 of 3: the connection to http://127.0.0.1", "half!four"),
        (
            Reply::Events(format!("{}data: {{\n\n", half())),
            "the response cannot be parsed: an event is not JSON",
            "half!four",
        ),
        (
            Reply::Events(format!("{}data: {{\"error\":{{\"code\":503,\"message\":\"full\"}}}}\n\n", half())),
            "attempt 1 of 3: failure 503: full",
            "half!four",
        ),
        (Reply::Events(String::new()), "ended before the response was complete", "four"),
        (Reply::status(500, "oops"), "attempt 1 of 3: status 500: oops", "four"),
    ] {
        let server = Server::new([bad, good()]);
        let (response, deltas) = streamed(&models(vec![provider(KIND, &server.url())]), &ask("hi")).await;
        let response = response.expect(sentence);
        assert_eq!((response.text.as_str(), deltas.as_str()), ("four", reported), "{sentence}");
        assert_eq!(response.transport_failures.len(), 1);
        assert!(response.transport_failures[0].contains(sentence), "{:?}", response.transport_failures);
    }
}

/// the time limit applies to each silence of a stream, not to all of it.
#[tokio::test]
async fn a_stream_may_take_long_but_not_be_silent() {
    let with_limit = |server: &Server, ms| ProviderSettings { timeout_ms: Some(ms), ..provider(KIND, &server.url()) };
    let events = events(KIND, "four");
    let pieces: Vec<String> = events.split_inclusive("\n\n").map(str::to_owned).collect();
    assert_eq!(pieces.len(), 5);
    let slow = Server::new([Reply::Slow(pieces, 450)]);
    let (response, _) = streamed(&models(vec![with_limit(&slow, 2000)]), &ask("hi")).await;
    response.expect("an answer");

    let silent = Server::new([Reply::Stalls(half()), Reply::Events(events)]);
    let (response, reported) = streamed(&models(vec![with_limit(&silent, 3_000)]), &ask("hi")).await;
    let failures = response.expect("an answer").transport_failures;
    assert!(failures[0].starts_with("attempt 1 of 3: no response from http://127.0.0.1"), "{failures:?}");
    assert!(reported.starts_with("half!") && reported.ends_with("four"), "{reported}");
}

/// A server that refuses to stream is called again without streaming, and never again with it.
#[tokio::test]
async fn a_refused_stream_is_given_up_for_good() {
    for (kind, message) in [(KIND, "unknown field"), (ProviderKind::OpenAi, "you may not stream this model")] {
        let server = Server::new([Reply::status(400, message), Reply::ok(response(kind, "four"))]);
        let models = models(vec![provider(kind, &server.url())]);
        let (first, reported) = streamed(&models, &ask("hi")).await;
        let note = format!("the provider rejected streaming, so it was turned off: status 400: {message}");
        assert_eq!((first.expect("an answer").transport_failures, reported.as_str()), (vec![note], ""));
        let (second, _) = streamed(&models, &ask("hi")).await;
        assert_eq!(second.expect("an answer").transport_failures, [""; 0]);
        let asked: Vec<bool> = server.seen().iter().map(|seen| seen.body.get("stream").is_some()).collect();
        assert_eq!(asked, [true, false, false], "{kind}");
    }
}

/// a request that a service refuses for another reason is not sent twice. A refusal that stays is reported as without a
/// stream.
#[tokio::test]
async fn refusals_that_are_not_about_streams_stay() {
    let server = Server::new([Reply::status(400, "too long")]);
    let (failed, _) = streamed(&models(vec![provider(ProviderKind::Anthropic, &server.url())]), &ask("hi")).await;
    let failed = failed.expect_err("it is refused");
    assert_eq!((failed.message.as_str(), server.seen().len()), ("`p/m`: status 400: too long", 1));

    let server = Server::new([Reply::status(400, "no stream"), Reply::status(400, "too long")]);
    let models = models(vec![provider(KIND, &server.url())]);
    let (failed, _) = streamed(&models, &ask("hi")).await;
    let failed = failed.expect_err("it is refused");
    assert_eq!((failed.message.as_str(), failed.kind), ("`p/m`: status 400: too long", CallFailureKind::Model));
    let _ = streamed(&models, &ask("hi")).await;
    assert_eq!(server.seen()[2].body["stream"], true, "nothing was learned about streams");
}

/// a streamed structured response is converted back to the schema's form.
#[tokio::test]
async fn structured_responses_may_come_in_pieces() {
    let server = Server::new([Reply::Events(events(KIND, "{\"value\":[1,2]}"))]);
    let request = ask_for(json!({"type": "array", "items": {"type": "integer"}}));
    let (response, reported) = streamed(&models(vec![provider(KIND, &server.url())]), &request).await;
    assert_eq!((response.expect("an answer").text.as_str(), reported.as_str()), ("[1,2]", "{\"value\":[1,2]}"));
}

/// A key that is split between two pieces is redacted too, and text that only looks like its beginning is kept.
#[tokio::test]
async fn a_key_that_is_cut_in_two_is_not_reported() {
    for kind in HTTP_KINDS {
        for (said, reported_as) in
            [(KEY, "***"), ("key sk-canary-7f3a9", "key ***"), ("sk-can sk-can", "sk-can sk-can")]
        {
            let server = Server::new([Reply::Events(events(kind, said))]);
            let (response, reported) = streamed(&models(vec![provider(kind, &server.url())]), &ask("hi")).await;
            assert_eq!(
                (response.expect("an answer").text.as_str(), reported.as_str()),
                (reported_as, reported_as),
                "{kind}"
            );
        }
    }
    let broken =
        Server::new([Reply::Events(format!("data: {}\n\n", chat("x sk-can"))), Reply::Events(events(KIND, "ary"))]);
    let (_, reported) = streamed(&models(vec![provider(KIND, &broken.url())]), &ask("hi")).await;
    assert_eq!(reported, "x !ary", "a new try does not go on with what an earlier one held back");
}

/// The next model restarts the deltas.
#[tokio::test]
async fn the_next_model_restarts() {
    let bad = Server::new([Reply::Events(half())]);
    let good = Server::new([Reply::Events(events(KIND, "four"))]);
    let mut second = provider(KIND, &good.url());
    second.name = "q".to_owned();
    let (response, reported) = streamed(&models(vec![provider(KIND, &bad.url()), second]), &ask("hi")).await;
    assert_eq!((response.expect("an answer").text.as_str(), reported.as_str()), ("four", "half!half!half!four"));
}

/// The output of a program is streamed while it prints.
#[tokio::test]
async fn what_a_program_prints_is_reported() {
    let mut program = ProviderSettings::new("p", ProviderKind::Command);
    program.command = ["sh", "-c", "cat >/dev/null; printf 'one '; printf 'two\n'"].map(str::to_owned).to_vec();
    let models = models(vec![program]);
    let of_waits = |piece: Piece<'_>| panic!("a call that does not stream reported {piece:?}");
    models.call_watched(&ask("hi"), &of_waits).await.expect("an answer");
    let (response, reported) = streamed(&models, &ask("hi")).await;
    assert_eq!((response.expect("an answer").text.as_str(), reported.as_str()), ("one two", "one two\n"));
}
