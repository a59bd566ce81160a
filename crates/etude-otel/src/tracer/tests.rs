use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use etude_core::effect::EffectId;
use etude_core::failure::{Phase, RejectedBy};
use serde_json::Value as Json;

use super::*;

/// A collector that answers each request with `status` and passes on its head and body.
fn collector(status: &'static str) -> (String, mpsc::Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            let (head, length, start) = loop {
                let got = stream.read(&mut piece).unwrap();
                bytes.extend_from_slice(&piece[..got]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some(end) = text.find("\r\n\r\n") {
                    let head = text[..end].to_lowercase();
                    let length =
                        head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse::<usize>();
                    break (head, length.unwrap(), end + 4);
                }
            };
            while bytes.len() < start + length {
                let got = stream.read(&mut piece).unwrap();
                bytes.extend_from_slice(&piece[..got]);
            }
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
            let body = serde_json::from_slice(&bytes[start..start + length]).unwrap();
            if to.send((head, body)).is_err() {
                return;
            }
        }
    });
    (address, from)
}

fn settings(endpoint: &str, more: &[(&str, &str)]) -> Settings {
    let usual = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_TIMEOUT", "120000")];
    let lookup = |name: &str| {
        let mut all = more.iter().chain(&usual);
        all.find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    Settings::read(&lookup).unwrap()
}

fn row(name: &str, kind: &'static str, calls: u64) -> StepRow {
    let usage = Usage { calls, input_tokens: 10 * calls, output_tokens: calls, ..Usage::default() };
    StepRow {
        phase: Phase::Business,
        name: name.to_owned(),
        kind,
        status: StepStatus::Succeeded,
        attempts: 1,
        retries: 0,
        duration_ms: 1,
        cached: false,
        items: None,
        usage,
        model: (calls > 0).then(|| "openai/gpt".to_owned()),
        effects: Vec::new(),
    }
}

/// A code step, then an agent with two completions and a tool call between them.
fn emit(tracer: &mut Tracer) {
    let mut reported = |event: Event, calls: u64| {
        let rows = [row("fetch", "code", 0), row("answer", "skill", calls)];
        tracer.observe(&Progress::Machine { event: &event, rows: &rows, is_replay: false });
    };
    reported(Event::StepStarted { row: 0, item: None }, 0);
    reported(Event::StepEnded { row: 0, item: None, status: StepStatus::Succeeded, duration_ms: 1 }, 0);
    reported(Event::StepStarted { row: 1, item: None }, 0);
    reported(Event::AgentText { row: 1, turn: 1, text: "the secret plan".to_owned() }, 1);
    let (effect, name) = (EffectId::new("main/answer/1#1"), "Read".to_owned());
    let arguments = "{\"path\": \"secret.txt\"}".to_owned();
    reported(Event::ToolStarted { row: 1, effect: effect.clone(), name: name.clone(), arguments }, 1);
    let error = Some("terminal/PathOutside: secret.txt is outside".to_owned());
    reported(Event::ToolEnded { row: 1, effect, name, error, elapsed_ms: 1 }, 1);
    reported(Event::StepEnded { row: 1, item: None, status: StepStatus::Succeeded, duration_ms: 1 }, 3);
}

fn run() -> Run {
    Run { id: "abc".into(), status: "succeeded".into(), error: None }
}

fn attribute<'j>(span: &'j Json, key: &str) -> &'j Json {
    let found = span["attributes"].as_array().unwrap().iter().find(|one| one["key"] == key);
    found.map_or(&Json::Null, |one| one["value"].as_object().unwrap().values().next().unwrap())
}

/// A collector gets a span for the run and for each step, agent, completion and tool. The names are those of the GenAI
/// conventions; no span holds a text of a prompt, a completion or an argument.
#[tokio::test]
async fn a_collector_gets_what_a_run_does() {
    let (address, requests) = collector("200 OK");
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k"), ("OTEL_SERVICE_NAME", "mine")];
    let mut tracer = Tracer::new(settings(&address, &headers), "pipeline", "review");
    emit(&mut tracer);
    assert_eq!(tracer.finish(&run()).await, Ok(()));
    let (head, body) = requests.recv().unwrap();
    assert!(head.starts_with("post /v1/traces") && head.contains("api-key: k"), "{head}");
    assert!(!body.to_string().contains("secret"), "{body}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "mine");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let by_name = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let (root, agent) = (by_name("run review")[0], by_name("invoke_agent answer")[0]);
    assert_eq!((&root["parentSpanId"], attribute(root, "etude.run.id")), (&"".into(), &"abc".into()));
    assert_eq!((&by_name("step fetch")[0]["parentSpanId"], &agent["parentSpanId"]), (&root["spanId"], &root["spanId"]));
    assert_eq!(attribute(root, "gen_ai.usage.output_tokens"), "3");
    let chats = by_name("chat gpt");
    let tokens: Vec<&Json> = chats.iter().map(|chat| attribute(chat, "gen_ai.usage.input_tokens")).collect();
    assert_eq!(tokens, ["10", "20"]);
    assert_eq!((attribute(chats[0], "gen_ai.provider.name"), &chats[0]["kind"]), (&"openai".into(), &3.into()));
    let tool = by_name("execute_tool Read")[0];
    assert_eq!((&tool["parentSpanId"], &chats[0]["parentSpanId"]), (&agent["spanId"], &agent["spanId"]));
    assert_eq!((attribute(tool, "error.type"), &tool["status"]["code"]), (&"terminal/PathOutside".into(), &2.into()));
    assert!(
        spans.iter().all(|span| span["traceId"] == root["traceId"] && span["spanId"].as_str().unwrap().len() == 16)
    );
}

/// Texts are sent if the environment asks for them; a run belongs to the trace that its environment names.
#[tokio::test]
async fn texts_and_a_parent_are_taken_where_they_are_named() {
    let (address, requests) = collector("200 OK");
    let more = [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let mut tracer = Tracer::new(settings(&address, &more), "pipeline", "review");
    emit(&mut tracer);
    tracer.finish(&run()).await.unwrap();
    let (_, body) = requests.recv().unwrap();
    assert!(body.to_string().contains("the secret plan") && body.to_string().contains("secret.txt"), "{body}");
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let root = spans.iter().find(|span| span["name"] == "run review").unwrap();
    assert_eq!(
        (&root["traceId"], &root["parentSpanId"]),
        (&"0af7651916cd43dd8448eb211c80319c".into(), &"b7ad6b7169203331".into())
    );
}

/// Steps of an earlier process get no second span. A step that it began keeps its usage apart from that of this
/// process.
#[tokio::test]
async fn what_is_replayed_is_not_sent_again() {
    let (address, requests) = collector("200 OK");
    let mut tracer = Tracer::new(settings(&address, &[]), "pipeline", "review");
    let mut reported = |event: Event, calls: u64, is_replay: bool| {
        let rows = [row("fetch", "llm", 3), row("answer", "llm", calls), row("last", "code", 0)];
        tracer.observe(&Progress::Machine { event: &event, rows: &rows, is_replay });
    };
    reported(Event::StepStarted { row: 0, item: None }, 0, true);
    reported(Event::StepEnded { row: 0, item: None, status: StepStatus::Succeeded, duration_ms: 1 }, 0, true);
    reported(Event::StepStarted { row: 1, item: None }, 0, true);
    reported(
        Event::AttemptRejected {
            row: 1,
            item: None,
            attempt: 1,
            max_attempts: 3,
            rejected_by: RejectedBy::Schema,
            reasons: Vec::new(),
        },
        1,
        true,
    );
    // A completion that no event reported, before an event of another step.
    reported(Event::StepStarted { row: 2, item: None }, 2, true);
    reported(Event::StepEnded { row: 2, item: None, status: StepStatus::Succeeded, duration_ms: 1 }, 2, true);
    reported(Event::StepEnded { row: 1, item: None, status: StepStatus::Succeeded, duration_ms: 1 }, 3, false);
    tracer.finish(&run()).await.unwrap();
    let (_, body) = requests.recv().unwrap();
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["chat gpt", "step answer", "run review"]);
    assert_eq!(attribute(&spans[0], "gen_ai.usage.input_tokens"), "10");
    assert_eq!(attribute(&spans[2], "gen_ai.usage.input_tokens"), "60");
}

/// A collector that refuses or is unreachable is reported briefly, without its address, and the run goes on.
#[tokio::test]
async fn a_collector_that_is_not_there_harms_nothing() {
    let (address, _requests) = collector("400 Bad Request");
    let mut tracer = Tracer::new(settings(&address, &[]), "skill", "x");
    emit(&mut tracer);
    assert_eq!(tracer.finish(&run()).await, Err("it answers 400 Bad Request".to_owned()));
    let tracer = Tracer::new(settings("http://127.0.0.1:9", &[]), "skill", "x");
    let unconnected = "no connection: the collector does not respond, or its certificate is not trusted";
    assert_eq!(tracer.finish(&run()).await, Err(unconnected.to_owned()));
    let malformed = "`OTEL_EXPORTER_OTLP_ENDPOINT` must be like `http://localhost:4318`, headers like `name=value`";
    for (endpoint, header) in [("localhost:4318", "a=b"), ("http://127.0.0.1:9", "a b=c")] {
        let tracer = Tracer::new(settings(endpoint, &[("OTEL_EXPORTER_OTLP_HEADERS", header)]), "skill", "x");
        assert_eq!(tracer.finish(&run()).await, Err(malformed.to_owned()), "{endpoint} {header}");
    }
}
