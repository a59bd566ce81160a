//! A-4.5: retries of transport failures, their number, and their reports.

use std::io::{Read, Write};
use std::sync::Mutex;

use etude_core::model::{CallFailureKind, Piece, Stop, TransportWait};
use etude_models::{Models, ProviderKind, TransportPolicy};
use serde_json::json;

use crate::server::{Reply, Server, hang, unreachable_url};
use crate::setup::{HTTP_KINDS, ask, models, provider, response, settings};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

/// A-4.5: temporary failures are retried, and each leaves a sentence.
#[tokio::test]
async fn passing_failures_are_tried_again() {
    let good = || Reply::ok(response(KIND, "four"));
    let body = response(KIND, "four").to_string();
    for (bad, sentence) in [
        (Reply::status(408, "slow"), "attempt 1 of 3: status 408: slow"),
        (Reply::status(409, "busy"), "attempt 1 of 3: status 409: busy"),
        (Reply::status(429, "calm down"), "attempt 1 of 3: status 429: calm down"),
        (Reply::status(500, "oops"), "attempt 1 of 3: status 500: oops"),
        (Reply::status(529, "full"), "attempt 1 of 3: status 529: full"),
        (Reply::Drop, "attempt 1 of 3: the connection to http://127.0.0.1"),
        (Reply::CutOff(body.clone()), "attempt 1 of 3: the connection to http://127.0.0.1"),
        (Reply::text("<html>"), "attempt 1 of 3: the response cannot be parsed: not JSON"),
        (
            Reply::ok(json!({ "id": "x" })),
            "attempt 1 of 3: the response cannot be parsed: the response has no `choices`",
        ),
        (
            Reply::ok(json!({ "error": { "code": 502, "message": "upstream" } })),
            "attempt 1 of 3: failure 502: upstream",
        ),
    ] {
        let server = Server::new([bad, good()]);
        let response = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect(sentence);
        assert_eq!(response.text, "four");
        assert_eq!(response.transport_failures.len(), 1);
        assert!(response.transport_failures[0].starts_with(sentence), "{:?}", response.transport_failures);
        assert_eq!(server.seen().len(), 2, "{sentence}");
    }
}

/// A-4.5: 400, 401, 403 and 404 are not retried, for any provider.
#[tokio::test]
async fn final_failures_are_not_tried_again() {
    for kind in HTTP_KINDS {
        for (status, expected) in [
            (400, CallFailureKind::Model),
            (401, CallFailureKind::Environment),
            (403, CallFailureKind::Model),
            (404, CallFailureKind::Model),
        ] {
            let server = Server::new([Reply::status(status, "no")]);
            let failure = models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
            assert_eq!(failure.kind, expected, "{kind} {status}");
            assert_eq!(failure.message, format!("`p/m`: status {status}: no"));
            assert_eq!((server.seen().len(), failure.transport_failures.len()), (1, 0), "{kind} {status}");
            assert_eq!(failure.model.as_deref(), Some("p/m"));
        }
    }
}

/// A-4.5: the number of retries is bounded, and the last failure leads.
#[tokio::test]
async fn endless_failures_end() {
    let server = Server::new([Reply::status(500, "a"), Reply::status(503, "b"), Reply::status(502, "c")]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    assert_eq!(failure.kind, CallFailureKind::Model);
    assert_eq!(failure.message, "`p/m`: status 502: c (attempt 3 of 3)");
    assert_eq!(failure.transport_failures, ["attempt 1 of 3: status 500: a", "attempt 2 of 3: status 503: b"]);

    let server = Server::new([Reply::status(500, "a")]);
    let mut settings = settings(vec![provider(KIND, &server.url())]);
    settings.transport = TransportPolicy { tries: 1000, base_wait_ms: 0, max_wait_ms: 0 };
    Models::new(settings).expect("the settings hold").call(&ask("hi")).await.expect_err("it fails");
    assert_eq!(server.seen().len(), 10);
}

#[tokio::test]
async fn a_provider_can_forbid_another_attempt() {
    let server = Server::new([Reply::status(500, "broken for good").header("x-should-retry", "false")]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    assert_eq!((failure.message.as_str(), server.seen().len()), ("`p/m`: status 500: broken for good", 1));
}

/// A-4.5: `Retry-After` is honoured, up to the maximum wait.
#[tokio::test]
async fn the_wait_that_was_asked_for_is_kept_within_bounds() {
    let server = Server::new([
        Reply::status(429, "wait").header("retry-after", "3600"),
        Reply::status(429, "wait").header("retry-after-ms", "2"),
        Reply::ok(response(KIND, "four")),
    ]);
    let response = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect("an answer");
    let expected = [
        "attempt 1 of 3: status 429: wait; asked to wait 5 ms",
        "attempt 2 of 3: status 429: wait; asked to wait 2 ms",
    ];
    assert_eq!(response.transport_failures, expected);
}

/// A-4.5: a provider may have its own retries and maximum wait.
#[tokio::test]
async fn a_provider_has_retries_and_a_longest_wait_of_its_own() {
    let server = Server::new([Reply::status(429, "wait").header("retry-after", "3600")]);
    let mut provider = provider(KIND, &server.url());
    (provider.retries, provider.max_wait_ms) = (Some(1), Some(2));
    let failure = models(vec![provider]).call(&ask("hi")).await.expect_err("it fails");
    assert_eq!(failure.message, "`p/m`: status 429: wait (attempt 2 of 2)");
    assert_eq!(failure.transport_failures, ["attempt 1 of 2: status 429: wait; asked to wait 2 ms"]);
}

/// A-4.5: a wait that only the body names is honoured as well.
#[tokio::test]
async fn a_wait_that_the_body_names_is_kept() {
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.003s" }]);
    let body = json!({ "error": { "code": 429, "message": "quota", "details": details } });
    let server = Server::new([Reply::body(429, body), Reply::ok(response(ProviderKind::Gemini, "four"))]);
    let response =
        models(vec![provider(ProviderKind::Gemini, &server.url())]).call(&ask("hi")).await.expect("an answer");
    assert_eq!(response.transport_failures, ["attempt 1 of 3: status 429: quota; asked to wait 3 ms"]);
}

/// A-4.5: an account without credit is not retried, since waiting does not help.
#[tokio::test]
async fn an_account_that_has_nothing_left_is_not_asked_again() {
    let body =
        json!({ "error": { "message": "no credit", "type": "insufficient_quota", "code": "insufficient_quota" } });
    let server = Server::new([Reply::body(429, body)]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    assert_eq!((failure.message.as_str(), server.seen().len()), ("`p/m`: status 429: no credit", 1));
}

/// cli: a refused key is the environment's fault, also if the provider reports an invalid argument.
#[tokio::test]
async fn a_key_that_is_refused_with_400_is_an_environment_failure() {
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }]);
    let body = json!({ "error": { "code": 400, "message": "API key not valid", "details": details } });
    let server = Server::new([Reply::body(400, body)]);
    let failing = models(vec![provider(ProviderKind::Gemini, &server.url())]);
    let failure = failing.call(&ask("hi")).await.expect_err("it fails");
    assert_eq!(failure.kind, CallFailureKind::Environment);
    assert_eq!(failure.message, "`p/m`: status 400: API key not valid");
}

/// A-4.5: a refusal is reported as such, also if a filter sends it as an error.
#[tokio::test]
async fn a_filter_refuses_as_a_model_does() {
    let body = json!({ "error": { "message": "filtered", "type": null, "code": "content_filter" } });
    let server = Server::new([Reply::body(400, body)]);
    let response = models(vec![provider(ProviderKind::OpenAiChat, &server.url())]).call(&ask("hi")).await;
    let response = response.expect("an answer");
    assert_eq!(response.stop, Stop::Refusal("status 400: filtered".to_owned()));
    assert_eq!((server.seen().len(), response.usage.calls), (1, 1));
}

/// A-4.5: each wait is reported with the failed attempt and the number of the next. A call that is watched and does not stream
/// is sent as if it were not watched.
#[tokio::test]
async fn waits_are_reported_before_the_next_attempt() {
    for is_streaming in [false, true] {
        let busy = || Reply::status(429, "slow down").header("retry-after-ms", "3");
        let server = Server::new([busy(), Reply::Drop, Reply::ok(response(KIND, "four"))]);
        let waits = Mutex::new(Vec::new());
        let listener = |piece: Piece<'_>| {
            if let Piece::Waiting(wait) = piece {
                waits.lock().expect("no listener panicked").push(wait.clone());
            }
        };
        let models = models(vec![provider(KIND, &server.url())]);
        let request = ask("hi");
        let response = match is_streaming {
            true => models.call_streaming(&request, &listener).await,
            false => models.call_watched(&request, &listener).await,
        };
        assert_eq!(response.expect("an answer").text, "four");
        let [first, second] = &waits.into_inner().expect("no listener panicked")[..] else { panic!("two waits") };
        let reason = "status 429: slow down".to_owned();
        let expected = TransportWait { status: Some(429), reason, wait_ms: 3, attempt: 2, max_attempts: 3 };
        assert_eq!(*first, expected);
        assert_eq!((second.status, second.attempt, second.max_attempts), (None, 3, 3));
        assert!(second.reason.starts_with("the connection to http://127.0.0.1"), "{}", second.reason);
        assert_eq!(server.seen()[0].body.get("stream").is_some(), is_streaming);
    }
}

/// A wait that a provider asks of one call applies to all: the next call waits before its first attempt.
#[tokio::test]
async fn a_pause_that_was_asked_for_holds_for_all_calls() {
    let server =
        Server::new([Reply::status(429, "wait").header("retry-after", "600"), Reply::ok(response(KIND, "four"))]);
    let mut settings = settings(vec![provider(KIND, &server.url())]);
    settings.transport = TransportPolicy { tries: 1, base_wait_ms: 1, max_wait_ms: 600_000 };
    let models = Models::new(settings).expect("the settings hold");
    let request = ask("hi");
    models.call(&request).await.expect_err("the only try failed");
    let tick = tokio::time::sleep(std::time::Duration::from_millis(100));
    tokio::select! { _ = models.call(&request) => panic!("it should wait"), () = tick => {} }
    assert_eq!(server.seen().len(), 1);
}

/// A missing listener is a fault of the environment, and the message gives the URL.
#[tokio::test]
async fn a_provider_out_of_reach_is_an_environment_failure() {
    let url = unreachable_url();
    let failure = models(vec![provider(KIND, &url)]).call(&ask("hi")).await.expect_err("no one listens");
    assert_eq!(failure.kind, CallFailureKind::Environment);
    let expected = format!("`p/m`: {url}/v1/chat/completions cannot be reached: ");
    assert!(failure.message.starts_with(&expected), "{}", failure.message);
    assert_eq!(failure.transport_failures.len(), 2);
}

#[tokio::test]
async fn a_silent_provider_times_out_and_is_asked_again() {
    // On a slow machine, the response to the second attempt may come too late as well.
    for timeout_ms in [1_000, 10_000, 60_000] {
        let (silence, _gone) = hang();
        let server = Server::new([silence, Reply::ok(response(KIND, "four"))]);
        let mut provider = provider(KIND, &server.url());
        provider.timeout_ms = Some(timeout_ms);
        let Ok(response) = models(vec![provider]).call(&ask("hi")).await else { continue };
        let expected = format!("within {} s", timeout_ms / 1_000);
        assert!(response.transport_failures[0].ends_with(&expected), "{:?}", response.transport_failures);
        return;
    }
    panic!("no response came");
}

/// Dropping a call cancels it: the server sees the connection close.
#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let (silence, gone) = hang();
    let server = Server::new([silence]);
    let models = models(vec![provider(KIND, &server.url())]);
    let request = ask("hi");
    {
        let call = models.call(&request);
        tokio::pin!(call);
        while server.seen().is_empty() {
            let tick = tokio::time::sleep(std::time::Duration::from_millis(5));
            tokio::select! { _ = &mut call => panic!("no one answers"), () = tick => {} }
        }
    }
    tokio::task::spawn_blocking(move || gone.recv()).await.expect("it waits").expect("the client went away");
}

/// Redirects are refused: a key must not follow one to an arbitrary host. The message names the target without its query.
#[tokio::test]
async fn redirects_are_refused() {
    let other = Server::new([Reply::ok(response(KIND, "stolen"))]);
    let target = format!("{}/chat?key=hunter2", other.url());
    let server = Server::new([Reply::status(307, "").header("location", &target)]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    let expected = format!(" to {}/chat: redirects are not followed", other.url());
    assert!(failure.message.contains(&expected), "{}", failure.message);
    assert!(other.seen().is_empty());
}

/// A proxy that wants a password is named, with the place of the password, and not asked again.
#[tokio::test]
async fn a_proxy_that_denies_is_named() {
    let server = Server::new([Reply::status(407, "")]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    let expected = "through the proxy: proxy authorization required; set the variable of the proxy to a URL";
    assert!(failure.message.contains(expected), "{}", failure.message);
    assert_eq!((failure.kind, server.seen().len()), (CallFailureKind::Environment, 1));
}

/// cli: a proxy that opens no connection to the server is named, in sentences that replace the words of the library.
#[tokio::test]
async fn a_proxy_that_opens_no_connection_is_named() {
    for (response, expected) in [
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "the proxy answered with an error instead of a connection to the server"),
        ("", "the proxy closed the connection without an answer"),
    ] {
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", proxy.local_addr().expect("an address"));
        let answering = std::thread::spawn(move || {
            let (mut client, _) = proxy.accept().expect("a client");
            let _ = client.read(&mut [0; 4096]).expect("a request");
            client.write_all(response.as_bytes()).expect("it is sent");
        });
        let url = reqwest::Url::parse("https://far.invalid/").expect("a URL");
        let through = |client: reqwest::ClientBuilder| {
            client.tls_certs_only([]).proxy(reqwest::Proxy::all(&address).expect("a proxy"))
        };
        let client = etude_http::client(&url, through).expect("a client");
        let error = client.get(url).send().await.expect_err("no connection");
        assert_eq!(etude_http::root_cause(&error), expected);
        answering.join().expect("the proxy ends");
    }
}

/// A compressed response is refused by name: etude asks for plain ones.
#[tokio::test]
async fn a_compressed_response_is_refused_by_name() {
    for (status, expected) in [(200, "is compressed (`gzip`)"), (400, "status 400: its text is compressed (`gzip`)")] {
        let bytes = Reply::Http { status, headers: Vec::new(), body: "\u{1f}\u{8b}\u{8}".to_owned() };
        let server = Server::new([bytes.header("content-encoding", "gzip")]);
        let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
        assert!(failure.message.contains(expected) && !failure.message.contains('\u{8b}'), "{}", failure.message);
        let seen = server.seen();
        assert_eq!((seen.len(), seen[0].header("accept-encoding")), (1, Some("identity")));
    }
    let plain = Reply::ok(response(KIND, "four")).header("content-encoding", "identity");
    let server = Server::new([plain]);
    assert_eq!(models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect("an answer").text, "four");
}

/// A response in another encoding is refused by name and not asked again, whole or as a stream. Lossy decoding changed its text.
#[tokio::test]
async fn a_response_in_another_encoding_is_refused_by_name() {
    let whole = Reply::text(&format!("{}\u{0}", response(KIND, "four")))
        .header("content-type", "application/json; charset=utf-16");
    let plain = Reply::ok(response(KIND, "vier\u{fc}")).header("content-type", "application/json; charset=latin1");
    let server = Server::new([whole, plain]);
    let models = models(vec![provider(KIND, &server.url())]);
    let failure = models.call(&ask("hi")).await.expect_err("it fails");
    assert!(failure.message.contains("is text in `utf-16` instead of UTF-8"), "{}", failure.message);
    assert_eq!(models.call(&ask("hi")).await.expect("UTF-8 all the same").text, "vier\u{fc}");
}

/// A gateway's failure with status 200 is a failure of that status for every kind, and no response without content.
#[tokio::test]
async fn failures_of_gateways_are_read_for_every_kind() {
    for kind in [ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::OpenAiChat] {
        let server = Server::new([Reply::text(r#"{"error": {"message": "no credit", "code": 402}}"#)]);
        let failure = models(vec![provider(kind, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
        assert!(failure.message.contains("failure 402: no credit"), "{kind:?}: {}", failure.message);
        assert_eq!(server.seen().len(), 1);
    }
}

/// A byte order mark before a response is skipped, and a response without a body is named.
#[tokio::test]
async fn marks_before_a_response_are_skipped() {
    let server = Server::new([Reply::text(&format!("\u{feff}{}", response(KIND, "four")))]);
    assert_eq!(models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect("an answer").text, "four");
    let server = Server::new([Reply::text("")]);
    let failure = models(vec![provider(KIND, &server.url())]).call(&ask("hi")).await.expect_err("it fails");
    assert!(failure.message.contains("cannot be parsed: it is empty (attempt"), "{}", failure.message);
}
