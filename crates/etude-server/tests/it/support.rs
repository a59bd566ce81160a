//! A server in this process, and a client that writes HTTP itself.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etude::App;
use etude::Disk;
use etude::definition::{Definition, LoadError};
use etude::runner::Runner;
use etude_core::model::{CallFailure, ModelResponse, Request, Stop, ToolCall, Usage};
use etude_runs::target::Target;
use etude_runtime::engine::Engine;
use etude_runtime::host::{Boxed, ModelPort};
use etude_server::clock::Clock;
use etude_server::listen::{Listening, Wanted};
use etude_server::token::{NewToken, Scope, Tokens};
use etude_server::{AppCommand, Apps, Code, Move, NotLoaded, OPENAPI, Ran, ServedApp, Server, Settings, serve};
use etude_spec::automation::{self, Automation, Known};
use etude_spec::learned::LearnedState;
use etude_spec::source::SourceFile;
use etude_sqlite::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The app's files, with a model from the test.
struct Disks {
    models: Arc<dyn ModelPort>,
    engine: Arc<dyn Engine>,
    scratch: PathBuf,
}

impl Apps for Disks {
    fn check_readable(&self, app: &Path) -> Result<(), String> {
        App::open(app).map(drop).map_err(|e| e.to_string())
    }

    fn load(&self, app: &Path, target: &Target) -> Result<(Disk, Definition), NotLoaded> {
        let app = App::open(app).map_err(|e| NotLoaded::Unreadable(e.to_string()))?;
        match app.load(target) {
            Ok(definition) => Ok((app.into_disk(), definition)),
            Err(LoadError::Unknown { known }) => Err(NotLoaded::Unknown { known }),
            Err(LoadError::Invalid(found)) => Err(NotLoaded::Invalid(found)),
        }
    }

    /// The models in the file `unpriced` of the app.
    fn unpriced(&self, app: &Path, _: &Definition) -> Vec<String> {
        let names = std::fs::read_to_string(app.join("unpriced")).unwrap_or_default();
        names.lines().map(str::to_owned).collect()
    }

    fn runner(&self, _: &etude_runtime::engine::NewRun, _: &Disk, _: &Definition) -> Result<Runner, String> {
        Ok(Runner::new(Arc::clone(&self.engine), Arc::clone(&self.models), self.scratch.clone()))
    }

    fn automation(&self, app: &Path) -> Result<Automation, String> {
        let text = std::fs::read_to_string(app.join("etude.yaml")).unwrap_or_default();
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        let names = etude_spec::App::new(&disk).discovery().pipelines.clone();
        let pipelines: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = Known { pipelines: &pipelines, machines: &[] };
        Ok(automation::read(&SourceFile::new("etude.yaml", text), Some(known)))
    }

    /// A request is the name of its pipeline. The model call for it costs 12 tokens.
    fn route(&self, app: &Path, request: &str) -> Result<(Value, Usage), etude_server::Problem> {
        let is_there = app.join("pipelines").join(request).is_dir();
        let usage = Usage { calls: 1, input_tokens: 10, output_tokens: 2, ..Usage::default() };
        Ok((
            json!({"pipeline": is_there.then_some(request), "score": 1, "margin": 1, "candidates": [], "input": {}}),
            usage,
        ))
    }

    fn learned(&self, app: &Path) -> Result<Value, etude_server::Problem> {
        Ok(json!({"pipelines": learned(app)}))
    }

    fn learned_pipeline(&self, app: &Path, name: &str) -> Result<Option<Value>, etude_server::Problem> {
        Ok(learned(app).into_iter().find(|one| one["name"] == name))
    }

    fn move_learned(&self, app: &Path, name: &str, change: Move) -> Result<Option<Value>, etude_server::Problem> {
        let Some(one) = self.learned_pipeline(app, name)? else { return Ok(None) };
        let to = match change {
            Move::Demote { .. } => "demoted".to_owned(),
            Move::Promote { accepts_risk: false, .. } => {
                let problem = etude_server::Problem::new(Code::NotPromoted, "it has too few comparisons");
                return Err(problem.with("missing", one["waits_for"].clone()));
            }
            Move::Promote { to, by, .. } => format!("{} by {by}", to.map_or("one up", LearnedState::word)),
        };
        Ok(Some(json!({"name": name, "from": one["state"], "to": to, "paths": [], "missing": [], "conflicts": []})))
    }

    /// Writes a line to `ran` in the app for each command. The command runs while there is a file `hold` and it is not given up.
    fn command(&self, app: &Path, AppCommand { slug, argv, given_up, .. }: AppCommand) -> Result<Ran, String> {
        let mut ran = OpenOptions::new().create(true).append(true).open(app.join("ran")).expect("a file");
        ran.write_all(format!("{slug} {}\n", argv.join(" ")).as_bytes()).expect("written");
        while app.join("hold").exists() && !given_up.is_cancelled() {
            std::thread::yield_now();
        }
        Ok(if argv == ["unknown"] {
            Ran::Unknown("{}".to_owned())
        } else {
            Ran::Ended(json!({"status": "succeeded", "slug": slug, "command": argv[0], "argv": []}).to_string())
        })
    }

    fn list(&self, app: &Path) -> Result<Value, String> {
        let disk = Disk::open(app).map_err(|e| e.to_string())?;
        let (summaries, _) = etude_spec::App::new(&disk).summaries();
        let pipelines: Vec<Value> =
            summaries.into_iter().map(|one| json!({ "name": one.name, "valid": one.valid })).collect();
        let skills = std::fs::read_to_string(app.join("skills.json")).unwrap_or_else(|_| "[]".to_owned());
        let skills: Value = serde_json::from_str(&skills).expect("skills");
        Ok(json!({"pipelines": pipelines, "machines": [], "skills": skills, "applications": [], "diagnostics": []}))
    }
}

/// The learned pipelines of a test's app, from `learned.json`.
fn learned(app: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(app.join("learned.json")).unwrap_or_else(|_| "[]".to_owned());
    serde_json::from_str(&text).expect("documents")
}

/// A model port that never responds.
#[derive(Debug)]
struct NoModels;

impl ModelPort for NoModels {
    fn call(&self, _: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        Box::pin(std::future::pending())
    }
}

/// A model whose reply is a function of the last message: a text, or `call TOOL ARGUMENTS`.
#[derive(Debug)]
struct Scripted(fn(&str) -> Option<String>);

impl ModelPort for Scripted {
    fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        let prompt = format!("{:?} {:?}", request.system, request.messages);
        let Some(text) = (self.0)(&prompt) else { return Box::pin(std::future::pending()) };
        let input_tokens = prompt.len() as u64 / 4;
        let output_tokens = text.len() as u64 / 4;
        let usage = Usage {
            calls: 1,
            input_tokens,
            output_tokens,
            cost_usd: Some(0.000_004 * (input_tokens + 5 * output_tokens) as f64),
            ..Usage::default()
        };
        let call = text.strip_prefix("call ").and_then(|call| call.split_once(' ')).map(|(name, arguments)| ToolCall {
            id: "1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        let stop = if call.is_some() { Stop::ToolCalls } else { Stop::End };
        let response = ModelResponse {
            text: if call.is_some() { String::new() } else { text },
            tool_calls: call.into_iter().collect(),
            stop,
            usage,
            model: "demo/small".to_owned(),
            reasoning: None,
            transport_failures: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// A running server on a separate journal.
pub(crate) struct Running {
    pub(crate) server: Arc<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) owner: String,
    log: Arc<Mutex<Vec<Value>>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// The temporary directory; only the first server on a journal owns it.
    dir: Option<TempDir>,
    path: PathBuf,
}

/// A change to the default settings.
pub(crate) type Change = fn(&mut Settings);

impl Running {
    pub(crate) fn start() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::at(tempfile::tempdir().expect("a directory"), change)
    }

    /// A server on the journal in `dir`.
    pub(crate) fn at(dir: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        Self::of(dir, change, Arc::new(NoModels), 0)
    }

    /// The next server on the journal and the port of a stopped one.
    pub(crate) fn on_port(dir: TempDir, port: u16) -> Self {
        Self::of(dir, |_| (), Arc::new(NoModels), port)
    }

    /// A server whose model replies with `say`; it never responds if that is `None`.
    pub(crate) fn with_model(say: fn(&str) -> Option<String>, change: Change) -> Self {
        Self::with_model_at(tempfile::tempdir().expect("a directory"), say, change)
    }

    /// The same for the app `demo` in a directory.
    pub(crate) fn with_model_at(dir: TempDir, say: fn(&str) -> Option<String>, change: Change) -> Self {
        Self::of(dir, change, Arc::new(Scripted(say)), 0)
    }

    fn of(dir: TempDir, change: impl FnOnce(&mut Settings), models: Arc<dyn ModelPort>, port: u16) -> Self {
        Self::on_journal(dir.path().to_owned(), Some(dir), change, models, port)
    }

    fn on_journal(
        path: PathBuf,
        dir: Option<TempDir>,
        change: impl FnOnce(&mut Settings),
        models: Arc<dyn ModelPort>,
        port: u16,
    ) -> Self {
        let app = path.join("demo");
        std::fs::create_dir_all(app.join("pipelines")).expect("an app");
        let app = app.canonicalize().expect("it is there");
        let mut settings = Settings::new(&path, vec![ServedApp { slug: "demo".to_owned(), dir: app }]);
        change(&mut settings);
        let engine: Arc<dyn Engine> = Arc::new(
            Sqlite::open(etude_sqlite::Settings { dir: path.clone(), sync: etude_sqlite::Sync::Normal })
                .expect("a journal"),
        );
        let owner = Tokens::new(&path.join("serve")).owner().expect("a token");
        let apps = Disks { models, engine: Arc::clone(&engine), scratch: path.clone() };
        let (log, clock) = (Arc::new(Mutex::new(Vec::new())), Clock::default());
        let (lines, time) = (Arc::clone(&log), clock.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serve_dir = path.join("serve");
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listening = listen(port, &serve_dir).await;
                let note = Box::new(move |line: &etude_server::LogLine| {
                    lines.lock().expect("no panic").push(line.to_json());
                });
                let server = Server::new(settings, engine, Box::new(apps), listening.addresses().clone(), time, note);
                ready.send(Arc::clone(&server)).expect("the test waits");
                serve(server, listening).await;
            });
        });
        let server: Arc<Server> = is_ready.recv().expect("a server");
        let address = server.addresses().tcp[0];
        Self { server, address, clock, owner, log, thread: Some(thread), dir, path }
    }

    /// Another server on the same journal.
    pub(crate) fn another(&self) -> Self {
        Self::on_journal(self.path.clone(), None, |_| (), Arc::new(NoModels), 0)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.path
    }

    /// Writes a pipeline with one shell step per command.
    pub(crate) fn pipeline(&self, name: &str, head: &str, commands: &[&str]) {
        let dir = self.dir().join("demo/pipelines").join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut text = format!("name: {name}\ndescription: The pipeline {name}.\n{head}steps:\n");
        for (nth, command) in commands.iter().enumerate() {
            match command.strip_prefix("approval: ") {
                Some(rest) => text.push_str(&format!("  - {{name: s{nth}, type: approval, {rest}}}\n")),
                None => text.push_str(&format!("  - {{name: s{nth}, type: code, command: {}}}\n", json!(command))),
            }
        }
        std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    }

    /// Starts a run and waits for its end or its question.
    pub(crate) fn run(&self, body: &Value) -> Value {
        let bearer = format!("Bearer {}", self.owner);
        let headers = [("Authorization", &*bearer), ("Prefer", "wait=60")];
        let reply = self.raw("POST", "/v1/runs", &headers, Some(body.to_string()));
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()
    }

    /// Polls a run until its status is one of `wanted`.
    pub(crate) fn until(&self, id: &str, wanted: &[&str]) -> Value {
        loop {
            let run = self.send("GET", &format!("/v1/runs/{id}"), None).json();
            if wanted.iter().any(|status| run["status"] == *status) {
                return run;
            }
            std::thread::yield_now();
        }
    }

    /// Writes the app's configuration.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.dir().join("demo/etude.yaml"), text).expect("written");
    }

    /// Polls `path` until `is_wanted` accepts the document.
    pub(crate) fn poll(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let document = self.send("GET", path, None).json();
            if is_wanted(&document) {
                return document;
            }
            assert!(Instant::now() < deadline, "{path}: {document:#}");
            std::thread::yield_now();
        }
    }

    /// The lines of the request log so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log.lock().expect("no panic").clone()
    }

    /// Creates a token with these scopes.
    pub(crate) fn token(&self, name: &str, scopes: &[Scope], only: &[&str], expires_at_ms: Option<i64>) -> String {
        let only = only.iter().map(|glob| (*glob).to_owned()).collect();
        let new = NewToken { name: name.to_owned(), scopes: scopes.to_vec(), only, expires_at_ms };
        Tokens::new(&self.dir().join("serve")).create(&new, self.clock.now_ms()).expect("a token")
    }

    /// Sends a request with the owner's token.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let bearer = format!("Bearer {}", self.owner);
        self.raw(method, path, &[("Authorization", &bearer)], body.map(Value::to_string))
    }

    /// Sends a request with exactly these headers besides `Host` and those of the body.
    pub(crate) fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Reply {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !has("Host") {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &body {
            if !has("Content-Type") {
                text.push_str("Content-Type: application/json\r\n");
            }
            if !has("Content-Length") {
                text.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
        }
        text.push_str("\r\n");
        text.push_str(&body.unwrap_or_default());
        let reply = self.exchange(text.as_bytes());
        check(method, path, &reply);
        reply
    }

    /// Writes `bytes` to a new connection and reads it to its end.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a time limit");
        // The server may respond before everything is written.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        Reply::parse(&all)
    }

    /// Stops the server and returns its directory.
    pub(crate) fn stop(mut self) -> TempDir {
        self.server.drain();
        self.thread.take().expect("it runs").join().expect("no panic");
        self.dir.take().expect("it was the first server on its journal")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.drain();
        if let Some(thread) = self.thread.take() {
            // A panic there has failed the test already.
            let _ = thread.join();
        }
    }
}

/// Listens on `port`; 0 selects a free one. Another program may have the port of a stopped server, but not for long.
async fn listen(port: u16, serve_dir: &Path) -> Listening {
    let (number, since) = (socket_number(), Instant::now());
    loop {
        match Listening::bind(Wanted::Loopback(port), serve_dir, number).await {
            Ok(listening) => return listening,
            Err(error) => assert!(port != 0 && since.elapsed() < Duration::from_secs(60), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A number for the socket's name: several servers in this process need different names.
fn socket_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
            body = unchunked(&body);
        }
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Status and code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        let document = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(document["status"], self.status);
        assert!(document["request_id"].is_string());
        (self.status, document["code"].as_str().expect("a code").to_owned())
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(&String::from_utf8_lossy(&bytes[..end]), 16).unwrap_or(0);
        let from = end + 2;
        if size == 0 || bytes.len() < from + size {
            out.extend_from_slice(bytes.get(from..).filter(|_| size > 0).unwrap_or_default());
            break;
        }
        out.extend_from_slice(&bytes[from..from + size]);
        bytes = bytes.get(from + size + 2..).unwrap_or_default();
    }
    out
}

/// S-24, S-29: every JSON response validates against the description.
fn check(method: &str, path: &str, reply: &Reply) {
    let Some(kind) = reply.header("content-type") else { return };
    // A part of a document is not a document.
    if method == "HEAD" || matches!(reply.status, 206 | 304) || !kind.contains("json") {
        return;
    }
    let description: Value = serde_json::from_str(OPENAPI).expect("the description is JSON");
    let schema = match kind {
        "application/problem+json" => json!({"$ref": "#/components/schemas/Problem"}),
        _ => {
            let path = path.split('?').next().unwrap_or_default();
            let Some(operation) = operation(&description, method, path) else { return };
            let content = &operation["responses"][reply.status.to_string()]["content"];
            assert!(content[kind].is_object(), "{method} {path} {} is not described", reply.status);
            content[kind]["schema"].clone()
        }
    };
    let mut whole = schema;
    whole["components"] = description["components"].clone();
    let validator = jsonschema::validator_for(&whole).expect("the description has schemas");
    let document = reply.json();
    let faults: Vec<String> =
        validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(faults.is_empty(), "{method} {path}: {faults:#?}\n{document:#}");
}

fn operation<'d>(description: &'d Value, method: &str, path: &str) -> Option<&'d Value> {
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        pattern.len() == parts.len()
            && pattern.iter().zip(&parts).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
    };
    let paths = description["paths"].as_object().expect("paths");
    // A literal path wins over a pattern.
    let found = paths.get(path).or_else(|| paths.iter().find(|(pattern, _)| fits(pattern)).map(|(_, item)| item))?;
    found.get(method.to_ascii_lowercase())
}

/// Reads a stream to its end. A stream that continues, which its comments show, is a failure.
pub(crate) fn read_to_the_end(mut stream: TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let (since, mut buffer) = (Instant::now(), [0; 4096]);
    while read(&mut stream, &mut buffer).expect("the stream ends") > 0 {
        assert!(since.elapsed() < Duration::from_secs(120), "the stream goes on");
    }
}

/// Reads a piece, and retries interrupted reads: a signal to the process, such as that of an ended child, interrupts a socket
/// with a time limit.
pub(crate) fn read(stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
