//! Tests of the API over real sockets, with a scripted generator in place of the model.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use etude_core::model::{Stop, Usage};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use super::*;
use crate::launch::ensure_running;

/// A generator that repeats the system prompt, and follows its commands.
struct Parrot {
    events: Sender<String>,
    proceed: Arc<Mutex<Receiver<()>>>,
}

impl Generator for Parrot {
    fn generate(
        &mut self,
        chat: &ChatRequest,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<ModelResponse, GenerateError> {
        let text = chat.request.system.clone().unwrap_or_default();
        drop(self.events.send(format!("begin {text}")));
        match text.as_str() {
            "panic" => panic!("as scripted"),
            "endless" => {
                on_delta("end");
                while !is_cancelled() {
                    thread::yield_now();
                }
                drop(self.events.send("cancelled".into()));
                return Err(GenerateError::Cancelled);
            }
            "wait" => self.proceed.lock().expect("the receiver").recv().expect("a sign"),
            "long" => return Err(GenerateError::TooLong { prompt: 2, context: 1 }),
            "two words" => on_delta("two"),
            _ => {}
        }
        Ok(ModelResponse {
            text,
            tool_calls: vec![],
            stop: Stop::End,
            usage: Usage { calls: 1, input_tokens: 3, output_tokens: 2, ..Usage::default() },
            model: String::new(),
            reasoning: None,
            transport_failures: vec![],
        })
    }
}

struct Served {
    settings: Settings,
    address: Option<SocketAddr>,
    client: Client,
    events: Receiver<String>,
    proceed: Sender<()>,
    process: JoinHandle<io::Result<Ended>>,
    loads: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

fn client() -> reqwest::ClientBuilder {
    etude_http::init_tls();
    Client::builder().no_proxy().tls_certs_only([])
}

impl Served {
    async fn new(idle: Duration) -> Self {
        Self::listening(idle, None).await
    }

    async fn listening(idle: Duration, listen: Option<Listen>) -> Self {
        let when_idle = if listen.is_some() { WhenIdle::Unload } else { WhenIdle::End };
        Self::with(idle, Serving { listen, when_idle, embedding: None }).await
    }

    async fn with(idle: Duration, serving: Serving) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = Settings { idle, ..Settings::new("parrot", Path::new("parrot.gguf"), &dir.path().join("run")) };
        let (sender, events) = channel();
        let (proceed, signs) = channel();
        let signs = Arc::new(Mutex::new(signs));
        let loads = Arc::new(AtomicUsize::new(0));
        let (bound, addresses) = channel();
        let process = {
            let (settings, loads) = (settings.clone(), Arc::clone(&loads));
            thread::spawn(move || {
                serve_with(&settings, &serving, &|ready| bound.send(ready.address).expect("sent"), move || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    Ok(Parrot { events: sender.clone(), proceed: Arc::clone(&signs) })
                })
            })
        };
        let address = addresses.recv().expect("ready");
        let client = client().unix_socket(settings.socket()).build().expect("a client");
        Self { settings, address, client, events, proceed, process, loads, _dir: dir }
    }

    fn post(&self, body: &Value) -> RequestBuilder {
        self.client.post("http://localhost/v1/chat/completions").json(body)
    }

    async fn text(&self, text: &str) -> Value {
        let response = self.post(&asked(text)).send().await.expect("a response");
        response.json::<Value>().await.expect("JSON")["choices"][0]["message"]["content"].clone()
    }

    async fn health(&self) -> Value {
        let response = self.client.get("http://localhost/health").send().await.expect("a response");
        response.json().await.expect("JSON")
    }

    fn event(&self) -> String {
        self.events.recv_timeout(Duration::from_secs(60)).expect("an event")
    }
}

fn asked(text: &str) -> Value {
    json!({"model": "parrot", "messages": [{"role": "system", "content": text}, {"role": "user", "content": "?"}]})
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_loaded_at_the_first_request_and_only_then() {
    let served = Served::new(LONG).await;
    assert_eq!(served.health().await, json!({"status": "ok", "model": "parrot", "loaded": false}));
    let models = served.client.get("http://localhost/v1/models").send().await.expect("a response");
    assert!(models.content_length().is_some());
    assert_eq!(models.json::<Value>().await.expect("JSON")["data"][0]["id"], "parrot");
    assert_eq!(served.loads.load(Ordering::SeqCst), 0);
    for text in ["a", "b"] {
        assert_eq!(served.text(text).await, text);
    }
    assert_eq!(served.health().await["loaded"], true);
    assert_eq!(served.loads.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_deltas_the_rest_and_the_usage() {
    let served = Served::new(LONG).await;
    for text in ["two words", "whole"] {
        let mut body = asked(text);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let response = served.post(&body).send().await.expect("a response");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = response.text().await.expect("events");
        let data: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (last, chunks) = data.split_last().expect("events");
        let chunks: Vec<Value> = chunks.iter().map(|data| serde_json::from_str(data).expect("JSON")).collect();
        let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        assert_eq!((deltas.collect::<String>().as_str(), *last), (text, "[DONE]"));
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(chunks[chunks.len() - 1]["usage"]["total_tokens"], 5);
        // A client that does not ask for the usage reads `choices[0]` of every chunk.
        body["stream_options"] = Value::Null;
        let events = served.post(&body).send().await.expect("a response").text().await.expect("events");
        assert!(!events.contains("\"choices\":[]") && events.ends_with("data: [DONE]\n\n"), "{events}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_cancelled_when_the_client_disconnects() {
    let served = Served::new(LONG).await;
    for is_stream in [false, true] {
        let mut body = asked("endless");
        body["stream"] = json!(is_stream);
        let call = tokio::spawn(served.post(&body).send());
        assert_eq!(served.event(), "begin endless");
        if is_stream {
            drop(call.await.expect("no panic").expect("the head of a response"));
        } else {
            call.abort();
        }
        assert_eq!(served.event(), "cancelled");
    }
    assert_eq!(served.text("next").await, "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_run_one_at_a_time_in_the_order_of_their_arrival() {
    let served = Served::new(LONG).await;
    let first = tokio::spawn(served.post(&asked("wait")).send());
    assert_eq!(served.event(), "begin wait");
    let second = tokio::spawn(served.post(&asked("second")).send());
    served.proceed.send(()).expect("a sign");
    for call in [first, second] {
        assert_eq!(call.await.expect("no panic").expect("a response").status(), 200);
    }
    assert_eq!(served.event(), "begin second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_fault_leaves_the_process_running() {
    let served = Served::new(LONG).await;
    for (body, code) in [(asked("long"), "context_length_exceeded"), (json!({"messages": []}), "invalid_request")] {
        let response = served.post(&body).send().await.expect("a response");
        assert_eq!(response.status(), 400);
        assert_eq!(response.json::<Value>().await.expect("JSON")["error"]["code"], code);
    }
    assert_eq!(served.text("next").await, "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_ends_the_process_and_its_socket() {
    let served = Served::new(LONG).await;
    drop(served.post(&asked("panic")).send().await);
    served.process.join().expect("no panic").expect_err("an unhappy end");
    assert!(!served.settings.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_exits_and_leaves_no_socket() {
    let served = Served::new(Duration::from_millis(50)).await;
    assert_eq!(served.process.join().expect("no panic").expect("an end"), Ended::Idle);
    assert!(!served.settings.socket().exists());
}

/// A server on TCP, for other clients, stays and frees the weights.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_on_tcp_unloads_the_model_and_loads_it_again() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let served = Served::listening(Duration::ZERO, Some(Listen { address, token: None })).await;
    for load in 1..=2 {
        assert_eq!(served.text("a").await, "a");
        assert_eq!(served.loads.load(Ordering::SeqCst), load);
        while served.health().await["loaded"] == true {
            tokio::task::yield_now().await;
        }
    }
    assert!(!served.process.is_finished());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_for_the_same_settings_exits_at_once() {
    let served = Served::new(LONG).await;
    let load = || -> Result<Parrot, OpenError> { unreachable!("no request") };
    let second = serve_with(&served.settings, &Serving::default(), &|_| (), load);
    assert_eq!(second.expect("an end"), Ended::AlreadyServed);
    assert_eq!(served.text("still").await, "still");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tcp_listener_refuses_web_pages_foreign_hosts_and_wrong_tokens() {
    let address = "127.0.0.1:0".parse().expect("an address");
    for token in [None, Some("secret".to_owned())] {
        let served = Served::listening(LONG, Some(Listen { address, token: token.clone() })).await;
        let url = format!("http://{}/v1/models", served.address.expect("an address"));
        let client = client().build().expect("a client");
        let get = || match &token {
            None => client.get(&url),
            Some(token) => client.get(&url).bearer_auth(token),
        };
        let status = async |request: RequestBuilder| request.send().await.expect("a response").status().as_u16();
        assert_eq!(status(get()).await, 200);
        assert_eq!(status(get().header("origin", "http://localhost")).await, 403);
        match token {
            None => assert_eq!(status(get().header("host", "attacker.example")).await, 403),
            Some(_) => {
                assert_eq!(status(client.get(&url)).await, 401);
                assert_eq!(status(client.get(&url).bearer_auth("guess")).await, 401);
            }
        }
    }
}

#[test]
fn an_address_beyond_loopback_needs_a_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("m", Path::new("m.gguf"), &dir.path().join("run"));
    let listen = Some(Listen { address: "0.0.0.0:0".parse().expect("an address"), token: None });
    let error = serve(&settings, &Serving { listen, ..Serving::default() }, &|_| ()).expect_err("refused");
    assert!(error.to_string().contains("a token is required"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_that_cannot_be_loaded_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("m", &dir.path().join("none.gguf"), &dir.path().join("run"));
    let start = || {
        let settings = settings.clone();
        thread::spawn(move || serve(&settings, &Serving::default(), &|_| ()));
        Ok(())
    };
    let socket = ensure_running(&settings, &start).await.expect("a socket");
    let client = client().unix_socket(socket).build().expect("a client");
    let sent = client.post("http://localhost/v1/chat/completions").json(&asked("?")).send().await;
    let response = sent.expect("a response");
    assert_eq!(response.status(), 404);
    assert!(response.text().await.expect("a text").contains("none.gguf cannot be read"));
}

#[tokio::test]
async fn a_process_that_cannot_be_started_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("m", Path::new("m.gguf"), dir.path());
    let error = ensure_running(&settings, &|| Err(io::Error::other("no such program"))).await;
    assert_eq!(error.expect_err("a failure").to_string(), "no such program");
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_without_their_model_are_refused_with_the_remedy() {
    let broken = tempfile::tempdir().expect("a directory");
    for (embedding, models, why) in
        [(None, 1, "etude model pull"), (Some(broken.path().to_owned()), 2, "config.json of the embedding model")]
    {
        let served = Served::with(LONG, Serving { embedding, ..Serving::default() }).await;
        let listed = served.client.get("http://localhost/v1/models").send().await.expect("a response");
        assert_eq!(listed.json::<Value>().await.expect("JSON")["data"].as_array().map(Vec::len), Some(models));
        let request = served.client.post("http://localhost/v1/embeddings").json(&json!({"input": "a"}));
        let response = request.send().await.expect("a response");
        assert_eq!(response.status(), 404);
        let body: Value = response.json().await.expect("JSON");
        assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains(why)), "{body}");
        assert_eq!(served.text("next").await, "next");
    }
}
