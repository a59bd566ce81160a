//! The protocol over a real socket, with something in the model's place that takes its time on purpose.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use etude_core::model::{CallFailureKind, Message, Stop, Usage};

use super::*;
use crate::client::{Client, ClientError};

/// Says what it is asked, and does what the text of the request tells it to.
struct Parrot {
    events: Sender<String>,
    proceed: Arc<Mutex<Receiver<()>>>,
}

impl Generator for Parrot {
    fn generate(&mut self, request: &Request, is_cancelled: &dyn Fn() -> bool) -> Result<ModelResponse, GenerateError> {
        let text = request.system.clone().unwrap_or_default();
        drop(self.events.send(format!("begin {text}")));
        match text.as_str() {
            "panic" => panic!("told to"),
            "endless" => {
                while !is_cancelled() {
                    thread::yield_now();
                }
                drop(self.events.send("cancelled".into()));
                return Err(GenerateError::Cancelled);
            }
            "wait" => self.proceed.lock().expect("the receiver").recv().expect("a sign"),
            "long" => return Err(GenerateError::TooLong { prompt: 2, context: 1 }),
            _ => {}
        }
        Ok(ModelResponse {
            text,
            tool_calls: vec![],
            stop: Stop::End,
            usage: Usage { calls: 1, cost_usd: Some(0.0), ..Usage::default() },
            model: "local/parrot".into(),
            transport_failures: vec![],
        })
    }
}

struct Served {
    settings: Settings,
    events: Receiver<String>,
    proceed: Sender<()>,
    process: JoinHandle<io::Result<Ended>>,
    loads: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new(idle: Duration) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = Settings { idle, ..Settings::new("parrot", Path::new("parrot.gguf"), &dir.path().join("run")) };
        let (sender, events) = channel();
        let (proceed, signs) = channel();
        let signs = Arc::new(Mutex::new(signs));
        let loads = Arc::new(AtomicUsize::new(0));
        let process = {
            let (settings, loads) = (settings.clone(), Arc::clone(&loads));
            thread::spawn(move || {
                serve_with(&settings, move || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    Ok(Parrot { events: sender.clone(), proceed: Arc::clone(&signs) })
                })
            })
        };
        Self { settings, events, proceed, process, loads, _dir: dir }
    }

    fn client(&self) -> Client {
        Client::connect_or_start(&self.settings, &|| Ok(())).expect("a process that listens")
    }

    fn asked(&self, who: &str, text: &str) -> JoinHandle<Result<ModelResponse, ClientError>> {
        let (client, request, who) = (self.client(), request(text), who.to_owned());
        thread::spawn(move || client.generate(&who, &request))
    }

    fn event(&self) -> String {
        self.events.recv_timeout(Duration::from_secs(60)).expect("an event")
    }

    fn wait_for_calls(&self, calls: usize) {
        while self.client().status().expect("a status").calls != calls {
            thread::yield_now();
        }
    }

    fn ended(self) -> io::Result<Ended> {
        self.process.join().expect("no panic")
    }
}

fn request(text: &str) -> Request {
    Request { system: Some(text.into()), messages: vec![Message::user("?")], ..Request::default() }
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn the_model_is_loaded_at_the_first_call_and_only_then() {
    let served = Served::new(LONG);
    assert!(!served.client().status().expect("a status").is_loaded);
    assert_eq!(served.loads.load(Ordering::SeqCst), 0);
    for text in ["a", "b"] {
        assert_eq!(served.client().generate("me", &request(text)).expect("an answer").text, text);
    }
    assert!(served.client().status().expect("a status").is_loaded);
    assert_eq!(served.loads.load(Ordering::SeqCst), 1);
    served.client().stop().expect("told");
    assert_eq!(served.ended().expect("an end"), Ended::Stopped);
}

#[test]
fn a_call_is_given_up_when_the_client_disconnects() {
    let served = Served::new(LONG);
    let client = served.client();
    let canceller = client.canceller().expect("a canceller");
    let call = thread::spawn(move || client.generate("me", &request("endless")));
    assert_eq!(served.event(), "begin endless");
    canceller.cancel();
    assert_eq!(served.event(), "cancelled");
    assert!(matches!(call.join().expect("no panic"), Err(ClientError::Gone)));
    assert_eq!(served.client().generate("me", &request("next")).expect("an answer").text, "next");
}

#[test]
fn a_call_that_waits_and_is_given_up_never_begins() {
    let served = Served::new(LONG);
    let first = served.asked("a", "wait");
    assert_eq!(served.event(), "begin wait");
    let client = served.client();
    let canceller = client.canceller().expect("a canceller");
    let waiting = thread::spawn(move || client.generate("b", &request("never")));
    served.wait_for_calls(2);
    canceller.cancel();
    waiting.join().expect("no panic").expect_err("given up");
    served.wait_for_calls(1);
    served.proceed.send(()).expect("a sign");
    first.join().expect("no panic").expect("an answer");
    served.asked("c", "last").join().expect("no panic").expect("an answer");
    assert_eq!(served.event(), "begin last");
}

#[test]
fn one_call_at_a_time_and_clients_take_turns() {
    let served = Served::new(LONG);
    let first = served.asked("a", "wait");
    assert_eq!(served.event(), "begin wait");
    let mut calls = Vec::new();
    for (at, (who, text)) in [("a", "a2"), ("a", "a3"), ("b", "b1")].into_iter().enumerate() {
        calls.push(served.asked(who, text));
        served.wait_for_calls(at + 2);
    }
    served.proceed.send(()).expect("a sign");
    for call in std::iter::once(first).chain(calls) {
        call.join().expect("no panic").expect("an answer");
    }
    assert_eq!([served.event(), served.event(), served.event()], ["begin a2", "begin b1", "begin a3"]);
}

#[test]
fn a_crash_is_a_clear_failure_and_ends_the_process() {
    let served = Served::new(LONG);
    let error = served.client().generate("me", &request("panic")).expect_err("a failure");
    assert!(error.to_string().contains("ended while it was asked"), "{error}");
    assert_eq!(error.failure("local/parrot").kind, CallFailureKind::Model);
    let settings = served.settings.clone();
    served.ended().expect_err("an unhappy end");
    assert!(Client::connect(&settings).expect("a look").is_none());
}

#[test]
fn a_request_that_is_at_fault_leaves_the_process_as_it_is() {
    let served = Served::new(LONG);
    let error = served.client().generate("me", &request("long")).expect_err("a failure");
    assert!(matches!(&error, ClientError::Request(why) if why.contains("2 tokens")), "{error}");
    assert!(served.client().status().is_ok());
}

#[test]
fn an_idle_process_ends_and_leaves_no_socket() {
    let served = Served::new(Duration::from_millis(50));
    let settings = served.settings.clone();
    assert_eq!(served.ended().expect("an end"), Ended::Idle);
    assert!(!settings.socket().exists());
}

#[test]
fn a_second_process_for_the_same_settings_leaves_at_once() {
    let served = Served::new(LONG);
    drop(served.client());
    let second = serve_with(&served.settings, || -> Result<Parrot, OpenError> { unreachable!("never asked") });
    assert_eq!(second.expect("an end"), Ended::AlreadyServed);
    assert!(served.client().status().is_ok());
}

#[test]
fn weights_that_cannot_be_loaded_are_an_environment_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("m", &dir.path().join("none.gguf"), &dir.path().join("run"));
    let start = || {
        let settings = settings.clone();
        thread::spawn(move || serve(&settings));
        Ok(())
    };
    let error = Client::ask(&settings, "me", &request("?"), &start).expect_err("a failure");
    assert_eq!(error.failure("local/m").kind, CallFailureKind::Environment);
    assert!(error.to_string().contains("none.gguf cannot be read"), "{error}");
}

#[test]
fn a_process_that_cannot_be_started_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings::new("m", Path::new("m.gguf"), dir.path());
    let error = Client::ask(&settings, "me", &request("?"), &|| Err(io::Error::other("no such program")));
    assert_eq!(
        error.expect_err("a failure").to_string(),
        "the local model's process cannot be started: no such program"
    );
}
