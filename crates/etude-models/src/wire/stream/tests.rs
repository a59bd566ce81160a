//! Streams as the services write them, with the equivalent whole response of each.

mod samples;

use serde_json::json;

use self::samples::{Sample, all};
use super::*;
use crate::wire::{Decoded, anthropic, gemini, openai_chat, openai_responses};
use etude_core::model::{Request, Stop};

fn decode(kind: ProviderKind, body: &Value) -> Result<Decoded, DecodeError> {
    match kind {
        ProviderKind::Anthropic => anthropic::decode(body),
        ProviderKind::OpenAi => openai_responses::decode(body),
        ProviderKind::Gemini => gemini::decode(body, &Request::default()),
        _ => openai_chat::decode(body),
    }
}

/// The result of bytes that arrive in `pieces`, and the emitted text.
fn read(kind: ProviderKind, pieces: &[&[u8]]) -> (Result<Body, Broken>, String) {
    let mut reported = String::new();
    let mut emit = |text: &str| reported.push_str(text);
    let mut reader = Reader::new(assembler(kind));
    let pushed = pieces.iter().try_for_each(|piece| reader.push(piece, &mut emit).map(drop));
    let body = pushed.and_then(|()| reader.end(&mut emit));
    (body, reported)
}

fn assembled(kind: ProviderKind, stream: &str) -> Decoded {
    let (body, _) = read(kind, &[stream.as_bytes()]);
    let Ok(Body::Assembled(body)) = body else { panic!("{kind}: {body:?}") };
    decode(kind, &body).expect("an answer")
}

/// Positions for cuts, from a generator that is the same everywhere.
fn cuts(seed: u64, length: usize) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % (length + 1)
    };
    let count = next() % 40;
    let mut cuts: Vec<usize> = (0..count).map(|_| next()).collect();
    cuts.sort_unstable();
    cuts
}

/// A-4.5, A-4.9: text, tool calls, stop reason and usage are those of the whole response.
#[test]
fn a_stream_gives_the_response_that_would_have_come_whole() {
    for Sample { kind, name, stream, whole, reported } in all() {
        let (body, deltas) = read(kind, &[stream.as_bytes()]);
        let Ok(Body::Assembled(body)) = body else { panic!("{kind} {name}: {body:?}") };
        let expected = decode(kind, &whole).expect("an answer");
        assert_eq!(decode(kind, &body), Ok(expected), "{kind} {name}");
        assert_eq!(deltas, reported, "{kind} {name}");
    }
}

/// The response and its deltas are the same, wherever the network cuts the bytes.
#[test]
fn responses_do_not_depend_on_where_the_bytes_are_cut() {
    for Sample { kind, name, stream, reported, .. } in all() {
        for text in [stream.clone(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r")] {
            let bytes = text.as_bytes();
            let (expected, _) = read(kind, &[bytes]);
            for seed in 0..60 {
                let mut pieces = Vec::new();
                let mut start = 0;
                for cut in cuts(seed, bytes.len()) {
                    pieces.push(&bytes[start..cut]);
                    start = cut;
                }
                pieces.push(&bytes[start..]);
                assert_eq!(read(kind, &pieces), (read(kind, &[bytes]).0, reported.to_owned()), "{kind} {name} {seed}");
            }
            assert!(expected.is_ok(), "{kind} {name}");
        }
    }
}

/// A-4.5: a stream that breaks off before the end of its response gives no response, and never a shorter one.
#[test]
fn a_stream_that_breaks_off_is_no_response() {
    for Sample { kind, name, stream, whole, .. } in all() {
        let expected = decode(kind, &whole).expect("an answer");
        let bytes = stream.as_bytes();
        for cut in 0..bytes.len() {
            match read(kind, &[&bytes[..cut]]).0 {
                Err(broken) => assert_eq!(broken, Broken::Off, "{kind} {name} {cut}"),
                Ok(Body::Assembled(body)) => {
                    // After the end of the response, only its usage may be missing.
                    let decoded = decode(kind, &body).expect("an answer");
                    assert_eq!(
                        (decoded.text, decoded.tool_calls, decoded.stop),
                        (expected.text.clone(), expected.tool_calls.clone(), expected.stop.clone()),
                        "{kind} {name} {cut}"
                    );
                }
                Ok(Body::Whole(_)) => panic!("{kind} {name} {cut}: events are not JSON"),
            }
        }
    }
}

/// Reasoning in the text is not shown while it comes; the body keeps it unchanged.
#[test]
fn thoughts_in_the_text_are_not_shown() {
    let piece = |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let stream = [piece("<"), piece("think>4?</think>"), piece("\n5"), "data: [DONE]\n\n".to_owned()].concat();
    let (body, reported) = read(ProviderKind::OpenAiCompatible, &[stream.as_bytes()]);
    let Ok(Body::Assembled(body)) = body else { panic!("{body:?}") };
    assert_eq!((reported.as_str(), &body["choices"][0]["message"]["content"]), ("5", &json!("<think>4?</think>\n5")));
    assert_eq!(read(ProviderKind::OpenAiChat, &[stream.as_bytes()]).1, "<think>4?</think>\n5");
}

/// Reasoning that comes in pieces beside the text is combined as a whole response has it.
#[test]
fn thoughts_are_put_together() {
    let detail = |more: Value| {
        let mut detail = json!({"type": "reasoning.text", "index": 0});
        for (name, value) in more.as_object().expect("an object") {
            detail[name] = value.clone();
        }
        detail
    };
    let deltas = [
        json!({"reasoning_content": "h", "reasoning_details": [detail(json!({"text": "h"}))]}),
        json!({"reasoning_content": "m", "reasoning_details": [detail(json!({"text": "m", "signature": "S"}))]}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "D", "index": 1}]}),
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"x": 1}}]}),
    ];
    let events = deltas.map(|delta| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]})));
    let decoded = assembled(ProviderKind::OpenAiChat, &format!("{}data: [DONE]\n\n", events.concat()));
    let details = json!([
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "S"},
        {"type": "reasoning.encrypted", "data": "D", "index": 1},
    ]);
    let expected = json!({"reasoning_content": "hm", "reasoning_details": details, "calls": [{"x": 1}]});
    assert_eq!(decoded.reasoning, Some(expected));
}

/// A-4.5: a failure in a stream is reported with its message, in each form in which servers of chat completions write it.
#[test]
fn failures_in_a_stream_are_read_in_each_form() {
    let error = json!({"code": 503, "message": "full", "type": "unavailable"});
    for stream in [
        format!("data: {}\n\n", json!({ "error": error })),
        format!("event: error\ndata: {}\n\n", json!({ "error": error })),
        format!("event: error\ndata: {error}\n\n"),
        format!("error: {error}\n\n"),
    ] {
        let (body, _) = read(ProviderKind::OpenAiCompatible, &[stream.as_bytes()]);
        let Err(Broken::Event(failed, _)) = body else { panic!("{stream}: {body:?}") };
        assert_eq!(failed, DecodeError::Failed { status: 503, message: "full".to_owned() }, "{stream}");
    }
}

/// Data after the end of a response may be cut off anywhere: the response is complete. An empty finish reason does not end
/// one.
#[test]
fn a_response_that_has_ended_needs_no_end_of_its_stream() {
    let piece = |reason: Value| {
        format!("data: {}\n\n", json!({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]}))
    };
    let gemini = |rest: &str| {
        format!("data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"a\"}}]}}{rest}}}]}}\n\n")
    };
    for (kind, open, ended) in [
        (ProviderKind::OpenAiCompatible, piece("".into()), piece("stop".into())),
        (ProviderKind::Gemini, gemini(""), gemini(", \"finishReason\": \"STOP\"")),
    ] {
        let mut reader = Reader::new(assembler(kind));
        for (event, is_answered) in [(&open, false), (&ended, true)] {
            reader.push(event.as_bytes(), &mut |_| {}).expect("it is taken");
            assert_eq!(reader.answered().is_some(), is_answered, "{kind} {event}");
        }
        assert_eq!(read(kind, &[open.as_bytes()]).0, Err(Broken::Off), "{kind}");
        let (body, _) = read(kind, &[ended.as_bytes(), b"data: {\"usage\": {"]);
        assert!(matches!(body, Ok(Body::Assembled(_))), "{kind}: {body:?}");
    }
}

/// The response of a server that does not support streams is read as usual.
#[test]
fn a_whole_response_is_taken_as_it_is() {
    for text in ["{\"choices\":[]}", " \n[1]", "{"] {
        for cut in 0..text.len() {
            let (body, reported) =
                read(ProviderKind::OpenAiCompatible, &[&text.as_bytes()[..cut], &text.as_bytes()[cut..]]);
            let Ok(Body::Whole(body)) = body else { panic!("{body:?}") };
            assert_eq!((String::from_utf8_lossy(&body).trim(), reported.as_str()), (text.trim(), ""));
        }
    }
    assert_eq!(read(ProviderKind::OpenAiCompatible, &[b"", b" \n"]).0, Err(Broken::Off));
}

/// Leading blanks have no effect, in one piece or in many.
#[test]
fn what_is_received_does_not_depend_on_how_blanks_come() {
    let text = b" \x0c\t\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"He\"}}]}\n\n";
    let pieces: Vec<&[u8]> = text.chunks(1).collect();
    let (whole, single) =
        (read(ProviderKind::OpenAiCompatible, &[text]), read(ProviderKind::OpenAiCompatible, &pieces));
    assert_eq!((whole.1.as_str(), single.1.as_str()), ("He", "He"));
    assert_eq!(whole.0, single.0);
}

/// A-4.5: a failure inside a stream has the status that it would have had before it, so that it is retried alike.
#[test]
fn failures_inside_a_stream_are_distinguished_from_responses() {
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    for (kind, stream, status, message) in [
        (
            ProviderKind::Anthropic,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            529,
            "overloaded_error: Overloaded",
        ),
        (
            ProviderKind::OpenAi,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\",\"param\":null}\n\n",
            429,
            "rate_limit_exceeded: slow down",
        ),
        (
            ProviderKind::OpenAi,
            "data: {\"type\":\"error\",\"error\":{\"code\":\"server_error\",\"message\":\"oops\"}}\n\n",
            500,
            "server_error: oops",
        ),
        (
            ProviderKind::OpenAiChat,
            &format!("{begun}data: {{\"error\":{{\"code\":503,\"message\":\"no capacity\"}},\"choices\":[]}}\n\n"),
            503,
            "no capacity",
        ),
        (ProviderKind::OpenAiCompatible, "data: {\"error\":\"out of memory\"}\n\n", 502, "out of memory"),
        (
            ProviderKind::Gemini,
            "data: {\"error\":{\"code\":429,\"message\":\"quota\",\"status\":\"RESOURCE_EXHAUSTED\"}}\r\n\r\n",
            429,
            "quota",
        ),
    ] {
        let Err(Broken::Event(error, _)) = read(kind, &[stream.as_bytes()]).0 else { panic!("{kind}: {stream}") };
        assert_eq!(error, DecodeError::Failed { status, message: message.to_owned() }, "{kind}");
    }
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"output\":[],\
                  \"error\":{\"code\":\"server_error\",\"message\":\"oops\"}}}\n\n";
    let (body, _) = read(ProviderKind::OpenAi, &[failed.as_bytes()]);
    let Ok(Body::Assembled(body)) = body else { panic!("{body:?}") };
    assert_eq!(
        decode(ProviderKind::OpenAi, &body),
        Err(DecodeError::Failed { status: 500, message: "server_error: oops".to_owned() })
    );
}

#[test]
fn events_that_are_no_objects_are_unreadable() {
    for kind in [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::Gemini, ProviderKind::OpenAiChat] {
        for data in ["[1]", "7", "\"x\"", "{nonsense"] {
            let stream = format!("event: response.completed\ndata: {data}\n\n");
            let (body, _) = read(kind, &[stream.as_bytes()]);
            assert!(matches!(body, Err(Broken::Event(DecodeError::Unreadable(_), _))), "{kind} {data}: {body:?}");
        }
    }
}

/// Tool calls of inexact servers are distinguished. Some give all calls the same number, some none at all, some repeat the id
/// with every piece, and some make up another id for every piece.
#[test]
fn calls_of_inexact_servers_are_distinguished() {
    let piece = |call: Value| format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}));
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let alike = [
        piece(json!({"index": 0, "id": "a", "function": function("f", "{\"x\":1}")})),
        piece(json!({"index": 0, "id": "b", "function": function("f", "{\"x\":2}")})),
    ];
    let none = [
        piece(json!({"id": "a", "function": function("f", "{\"x\"")})),
        piece(json!({"function": {"arguments": ":1}"}})),
        piece(json!({"id": "b", "function": function("f", "{\"x\":2}")})),
    ];
    let repeated = [
        piece(json!({"index": 0, "id": "a", "function": function("f", "{\"x\"")})),
        piece(json!({"index": 1, "id": "b", "function": function("f", "{\"x\":2}")})),
        piece(json!({"index": 0, "id": "a", "function": function("f", ":1}")})),
    ];
    let nameless = [
        piece(json!({"function": {"name": "f", "arguments": {"x": 1}}})),
        piece(json!({"function": {"name": "f", "arguments": {"x": 2}}})),
    ];
    let made_up = [
        piece(json!({"index": 0, "id": "t-1", "function": function("f", "")})),
        piece(json!({"index": 0, "id": "t-2", "function": {"arguments": "{\"x\""}})),
        piece(json!({"index": 0, "id": "t-3", "function": function("", ":1}")})),
        piece(json!({"index": 1, "id": "t-4", "function": function("f", "{\"x\"")})),
        piece(json!({"index": 1, "id": "t-5", "function": {"arguments": ":2}"}})),
    ];
    for pieces in [&alike[..], &none, &repeated, &nameless, &made_up] {
        let decoded = assembled(ProviderKind::OpenAiCompatible, &format!("{}{end}", pieces.concat()));
        let calls: Vec<_> = decoded.tool_calls.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(calls, [("f", "{\"x\":1}"), ("f", "{\"x\":2}")], "{pieces:?}");
    }
}

/// A call that was cut off at the token limit keeps its arguments so far.
#[test]
fn arguments_that_were_cut_off_are_kept_as_they_came() {
    let stream = [
        r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\": \"b"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let stream: String = stream.iter().map(|data| format!("data: {data}\n\n")).collect();
    let decoded = assembled(ProviderKind::Anthropic, &stream);
    assert_eq!((decoded.tool_calls[0].arguments.as_str(), decoded.stop), ("{\"a\": \"b", Stop::Length));
}

#[test]
fn a_stream_is_asked_for_in_the_words_of_each_api() {
    let url = |text: &str| Url::parse(text).expect("a URL");
    let asked = |kind, at: &str| {
        let (url, body) = ask(kind, url(at), json!({"model": "m"}));
        (url.to_string(), body.to_string())
    };
    let own = |at: &str| (at.to_owned(), r#"{"model":"m","stream":true}"#.to_owned());
    let at = "http://h/v1/x";
    assert_eq!(asked(ProviderKind::Anthropic, at), own(at));
    assert_eq!(asked(ProviderKind::OpenAi, at), own(at));
    let usage = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(asked(ProviderKind::OpenAiChat, at).1, usage);
    assert_eq!(asked(ProviderKind::OpenAiCompatible, at).1, usage);
    let (url, body) = asked(ProviderKind::Gemini, "http://h/v1beta/models/m:generateContent?x=1");
    assert_eq!(url, "http://h/v1beta/models/m:streamGenerateContent?x=1&alt=sse");
    assert_eq!(body, r#"{"model":"m"}"#);
}

/// The kept part of a stream has the same limit as a whole response, in whatever pieces it comes; each piece alone is small.
#[test]
fn a_stream_without_end_is_not_kept() {
    let piece = "x".repeat(1 << 20);
    let block =
        |index: usize| json!({"type": "content_block_start", "index": index, "content_block": {"type": "text"}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}});
    let part = json!({"candidates": [{"content": {"parts": vec![json!({}); 100_000]}}]});
    let named = |n: usize| json!({ format!("x{n}"): vec![json!({}); 100_000] });
    let item = |index: usize| json!({"type": "response.output_item.done", "output_index": index, "item": vec![json!({}); 100_000]});
    let call = |index: usize| json!({"choices": [{"delta": {"tool_calls": [{"index": index}]}}]});
    let arguments = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}}]});
    let cases: [(ProviderKind, &dyn Fn(usize) -> Value); 7] = [
        (ProviderKind::Anthropic, &block),
        (ProviderKind::Anthropic, &|_| delta.clone()),
        (ProviderKind::Gemini, &|_| part.clone()),
        (ProviderKind::Gemini, &named),
        (ProviderKind::OpenAi, &item),
        (ProviderKind::OpenAiCompatible, &call),
        (ProviderKind::OpenAiCompatible, &|_| arguments.clone()),
    ];
    for (at, (kind, event)) in cases.into_iter().enumerate() {
        let mut reader = Reader::new(assembler(kind));
        let end = (0..2_000).find_map(|n| reader.push(format!("data: {}\n\n", event(n)).as_bytes(), &mut |_| {}).err());
        assert!(matches!(end, Some(Broken::Event(DecodeError::TooMuch(_), _))), "case {at}: {end:?}");
    }
}

/// Everything that is kept of a call counts, not only arguments that come as text.
#[test]
fn calls_of_any_form_are_bounded() {
    let piece = "x".repeat(1 << 20);
    for call in
        [json!({"id": piece}), json!({"function": {"name": piece}}), json!({"function": {"arguments": {"a": piece}}})]
    {
        let mut reader = Reader::new(assembler(ProviderKind::OpenAiCompatible));
        let end = (0..70).find_map(|index| {
            let mut call = call.clone();
            call["index"] = index.into();
            let event = json!({"choices": [{"delta": {"tool_calls": [call]}}]});
            reader.push(format!("data: {event}\n\n").as_bytes(), &mut |_| {}).err()
        });
        assert!(matches!(end, Some(Broken::Event(DecodeError::TooMuch(_), _))), "{end:?}");
    }
}

/// Values that later events repeat are not counted twice: usage comes with every event of some services.
#[test]
fn what_is_replaced_is_kept_once() {
    let event =
        json!({"candidates": [{"content": {"parts": []}, "x": vec![json!({}); 100_000]}], "usageMetadata": {"a": 1}});
    let mut reader = Reader::new(assembler(ProviderKind::Gemini));
    for _ in 0..20 {
        reader.push(format!("data: {event}\n\n").as_bytes(), &mut |_| {}).expect("it is taken");
    }
}

/// Reasoning grows from piece to piece, whatever a server puts beside it.
#[test]
fn details_of_reasoning_of_any_form_are_put_together() {
    let details = |pieces: &[Value]| {
        let events = pieces.iter().map(|piece| json!({"choices": [{"delta": {"reasoning_details": [piece]}}]}));
        let end = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]});
        let stream: String = events.chain([end]).map(|event| format!("data: {event}\n\n")).collect();
        let decoded = assembled(ProviderKind::OpenAiCompatible, &stream);
        decoded.reasoning.expect("reasoning")["reasoning_details"].clone()
    };
    let piece = |text: &str| json!({"type": "reasoning.text", "index": 0, "text": text});
    assert_eq!(
        details(&[piece("a"), json!({"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"})]),
        json!([{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}])
    );
    for other in [json!("a"), json!([1]), json!(7), json!(true), json!({"text": 7})] {
        let text = json!({"text": "b"});
        let expected = if other.is_object() { json!([text]) } else { json!([other, text]) };
        assert_eq!(details(&[other, text]), expected);
    }
}
