//! Providers of the kind `local`: Chat Completions over a Unix socket.

use etude_models::{LocalServer, Models, ProviderKind, ProviderSettings, Starting};

use crate::setup::settings;

/// A server that cannot be started.
#[derive(Debug)]
struct Absent;

impl LocalServer for Absent {
    fn start(&self, _name: &str) -> Starting {
        Box::pin(async { Err("no weights".to_owned()) })
    }
}

#[test]
fn a_build_without_the_local_model_says_so() {
    let bare = ProviderSettings::new("p", ProviderKind::Local);
    let error = Models::new(settings(vec![bare])).err().expect("refused").to_string();
    assert!(error.starts_with("provider `p` is of kind `local`, and this program was built without"), "{error}");
}

mod over_a_socket {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use etude_core::model::{CallFailureKind, Request, ResponseSchema};
    use serde_json::{Value, json};

    use super::*;
    use crate::server::{Reply, Server};
    use crate::setup::{ask, models, provider, response};

    #[derive(Debug)]
    struct At(PathBuf);

    impl LocalServer for At {
        fn start(&self, name: &str) -> Starting {
            let path = self.0.join(name);
            Box::pin(async { Ok(path) })
        }
    }

    fn local(server: impl LocalServer + 'static) -> ProviderSettings {
        let mut provider = ProviderSettings::new("p", ProviderKind::Local);
        provider.local = Some(Arc::new(server));
        provider
    }

    /// A server of the model `m` that sends `status` and `body` to each request, and the bodies that it receives.
    fn serving(status: u16, body: &Value) -> (tempfile::TempDir, Receiver<Value>) {
        serving_after(0, status, body)
    }

    /// A server like [`serving`] that closes its first connections without a response.
    fn serving_after(crashes: usize, status: u16, body: &Value) -> (tempfile::TempDir, Receiver<Value>) {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("m")).expect("a socket");
        let (sender, received) = channel();
        let body = body.to_string();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let mut reader = BufReader::new(stream.expect("a connection"));
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("a header");
                    let line = line.trim_end().to_ascii_lowercase();
                    if let Some(given) = line.strip_prefix("content-length: ") {
                        length = given.parse().expect("a length");
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                let mut request = vec![0; length];
                reader.read_exact(&mut request).expect("a body");
                drop(sender.send(serde_json::from_slice(&request).expect("JSON")));
                if connection < crashes {
                    continue;
                }
                let head =
                    format!("HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                reader.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("sent");
            }
        });
        (dir, received)
    }

    /// the server gets the schema as written; a response has its tokens counted, and costs nothing.
    #[tokio::test]
    async fn a_local_response_is_counted_and_costs_nothing() {
        let body = json!({
            "choices": [{"message": {"content": "7"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
        });
        let (dir, received) = serving(200, &body);
        let schema = json!({"type": "integer", "multipleOf": 7});
        let schema = ResponseSchema { name: "n".into(), schema: Arc::new(schema.clone()) };
        let request = Request { schema: Some(schema.clone()), ..ask("hi") };
        let response = models(vec![local(At(dir.path().into()))]).call(&request).await.expect("a response");
        assert_eq!((response.text.as_str(), response.model.as_str()), ("7", "p/m"));
        assert_eq!((response.usage.calls, response.usage.input_tokens, response.usage.cached_tokens), (1, 10, 4));
        assert_eq!(response.usage.cost_usd, Some(0.0));
        let sent = received.recv().expect("a request");
        assert_eq!(sent["response_format"]["json_schema"]["schema"], *schema.schema);
        assert_eq!(sent["model"], "m");
    }

    /// a process that dies is replaced once; a second death is a failure that says what happened.
    #[tokio::test]
    async fn a_process_that_dies_is_replaced_once() {
        let body = json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]});
        let (dir, _received) = serving_after(1, 200, &body);
        let response = models(vec![local(At(dir.path().into()))]).call(&ask("hi")).await.expect("a response");
        let lost = "the connection to the local model's process was lost";
        assert_eq!((response.text.as_str(), response.transport_failures.len()), ("ok", 1));
        assert!(response.transport_failures[0].contains(lost), "{:?}", response.transport_failures);
        let (dir, received) = serving_after(9, 200, &body);
        let failure = models(vec![local(At(dir.path().into()))]).call(&ask("hi")).await.expect_err("a failure");
        assert_eq!((failure.kind, received.try_iter().count()), (CallFailureKind::Model, 2));
        assert!(failure.message.contains(lost), "{}", failure.message);
    }

    /// missing weights are the environment's fault, and the next model of the tier is called.
    #[tokio::test]
    async fn without_weights_the_next_model_responds() {
        let failure = models(vec![local(Absent)]).call(&ask("hi")).await.expect_err("no weights");
        assert_eq!((failure.kind, failure.message.as_str()), (CallFailureKind::Environment, "`p/m`: no weights"));
        let server = Server::new([Reply::ok(response(ProviderKind::OpenAiCompatible, "four"))]);
        let mut next = provider(ProviderKind::OpenAiCompatible, &server.url());
        next.name = "q".into();
        let response = models(vec![local(Absent), next]).call(&ask("hi")).await.expect("a response");
        assert_eq!(response.transport_failures, ["`p/m`: no weights"]);
    }

    /// weights that cannot be loaded are the environment's fault; a request at fault is the model's.
    #[tokio::test]
    async fn a_status_decides_whose_fault_a_failure_is() {
        for (status, kind) in [(404, CallFailureKind::Environment), (400, CallFailureKind::Model)] {
            let (dir, _received) = serving(status, &json!({"error": {"message": "m.gguf is no model"}}));
            let failure = models(vec![local(At(dir.path().into()))]).call(&ask("hi")).await.expect_err("a failure");
            assert_eq!(failure.kind, kind);
            assert!(failure.message.contains("m.gguf is no model"), "{}", failure.message);
        }
    }
}
