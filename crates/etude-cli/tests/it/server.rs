//! A scripted model server on loopback. It speaks as much of each API as `etude` reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A model's answer, in the form of the API that was asked.
    Says { text: String, input: u64, output: u64, finish: &'static str },
    /// A model that wants tools called, in the form of the API that was asked: names and arguments.
    Calls { text: String, calls: Vec<(String, Value)> },
    /// The model declines.
    Refuses(&'static str),
    /// Another status.
    Status { status: u16, headers: Vec<(&'static str, String)>, message: String },
    /// A body as it is.
    Body(String),
    /// The connection closes without a byte.
    Drop,
    /// The head and half of the body, then nothing.
    CutOff,
    /// No answer until the client goes away.
    Hang,
}

impl Reply {
    /// An answer of 10 tokens to a prompt of 100.
    pub(crate) fn says(text: &str) -> Self {
        Self::Says { text: text.to_owned(), input: 100, output: 10, finish: "stop" }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::says(&value.to_string())
    }

    /// A model that wants these tools called; an answer of 10 tokens to a prompt of 100.
    pub(crate) fn calls<const N: usize>(calls: [(&str, Value); N]) -> Self {
        let calls = calls.map(|(name, arguments)| (name.to_owned(), arguments)).to_vec();
        Self::Calls { text: String::new(), calls }
    }

    /// A model that wants one tool called.
    pub(crate) fn call(name: &str, arguments: Value) -> Self {
        Self::calls([(name, arguments)])
    }

    /// A model that wants a command line run.
    pub(crate) fn bash(command: &str) -> Self {
        Self::call("Bash", json!({ "command": command }))
    }

    /// With other numbers of tokens.
    pub(crate) fn tokens(self, read: u64, written: u64) -> Self {
        match self {
            Self::Says { text, finish, .. } => Self::Says { text, finish, input: read, output: written },
            other => other,
        }
    }

    /// An answer that was cut off.
    pub(crate) fn truncated(text: &str) -> Self {
        Self::Says { text: text.to_owned(), input: 100, output: 10, finish: "length" }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new(), message: format!("scripted failure {status}") }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Status { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn message(mut self, text: &str) -> Self {
        if let Self::Status { message, .. } = &mut self {
            text.clone_into(message);
        }
        self
    }
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The conversation, as `role: text`.
    pub(crate) fn conversation(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages.map(|message| format!("{}: {}", text(&message["role"]), text(&message["content"]))).collect()
    }
}

/// What only conversations with tools have, in the form of OpenAI's chat API.
impl Seen {
    /// The names of the tools that are offered, in order.
    pub(crate) fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap_or("-").to_owned()).collect()
    }

    /// What all calls so far have come to, in order.
    pub(crate) fn results(&self) -> Vec<String> {
        self.of_role("tool")
    }

    /// The instructions.
    pub(crate) fn system(&self) -> String {
        self.of_role("system").concat()
    }

    /// What the user says first.
    pub(crate) fn request(&self) -> String {
        self.of_role("user").first().cloned().unwrap_or_default()
    }

    /// How often the model has answered before.
    pub(crate) fn turn(&self) -> usize {
        self.of_role("assistant").len()
    }

    fn of_role(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        let of_role = messages.filter(|message| message["role"] == role);
        of_role.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

type Script = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// A running server. Its threads end with the process.
pub(crate) struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// A server that gives `replies` in order and repeats the last one.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self::by(move |_, number| replies[number.min(replies.len() - 1)].clone())
    }

    /// A server that decides by the request and its number, from 0.
    pub(crate) fn by(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (shared, script): (_, Arc<Script>) = (Arc::clone(&seen), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&shared));
                thread::spawn(move || serve(stream, &*script, &seen));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no thread panicked").clone()
    }

    /// How often a model was asked.
    pub(crate) fn calls(&self) -> usize {
        self.seen().len()
    }
}

/// An address where nobody listens.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

fn serve(mut stream: TcpStream, script: &Script, seen: &Mutex<Vec<Seen>>) {
    let Some(request) = receive(&stream) else { return };
    let number = {
        let mut seen = seen.lock().expect("no thread panicked");
        seen.push(request.clone());
        seen.len() - 1
    };
    let whole = |stream: &mut TcpStream, body: &str| send(stream, 200, &[], body, body.len());
    // A client that has gone away is part of some scripts.
    let _ = match script(&request, number) {
        Reply::Says { text, input, output, finish } => {
            whole(&mut stream, &answer(&request.path, &text, [input, output], finish).to_string())
        }
        Reply::Calls { text, calls } => whole(&mut stream, &wants(&request.path, &text, &calls, number).to_string()),
        Reply::Refuses(why) => whole(&mut stream, &refusal(why).to_string()),
        Reply::Status { status, headers, message } => {
            let body = json!({ "error": { "message": message } }).to_string();
            send(&mut stream, status, &headers, &body, body.len())
        }
        Reply::Body(body) => whole(&mut stream, &body),
        Reply::Drop => Ok(()),
        Reply::CutOff => {
            let body = answer(&request.path, "never read", [1, 1], "stop").to_string();
            send(&mut stream, 200, &[], &body, body.len() / 2)
        }
        // Reading ends when the client closes its side.
        Reply::Hang => stream.read(&mut [0; 1]).map(drop),
    };
}

/// An answer in the form of the API at `path`.
fn answer(path: &str, text: &str, [input, output]: [u64; 2], finish: &str) -> Value {
    if path.ends_with("/messages") {
        let stop = if finish == "length" { "max_tokens" } else { "end_turn" };
        return json!({
            "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": stop,
            "usage": {"input_tokens": input, "output_tokens": output},
        });
    }
    if path.ends_with("/responses") {
        return json!({
            "status": "completed", "usage": {"input_tokens": input, "output_tokens": output},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        });
    }
    if path.contains(":generateContent") {
        return json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output},
        });
    }
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": input, "completion_tokens": output},
    })
}

/// An answer with tool calls, in the form of the API at `path`. Ids say which request they answer.
fn wants(path: &str, text: &str, calls: &[(String, Value)], number: usize) -> Value {
    let each = |form: &dyn Fn(String, &str, &Value) -> Value| -> Vec<Value> {
        let form =
            |(n, (name, arguments)): (usize, &(String, Value))| form(format!("call_{number}_{n}"), name, arguments);
        calls.iter().enumerate().map(form).collect()
    };
    let mut answer = answer(path, text, [100, 10], "tool_calls");
    if path.ends_with("/messages") {
        let calls = each(&|id, name, input| json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        answer["content"] = calls.into();
        answer["stop_reason"] = "tool_use".into();
    } else if path.ends_with("/responses") {
        let form = |id: String, name: &str, arguments: &Value| {
            let arguments = arguments.to_string();
            json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments})
        };
        answer["output"] = each(&form).into();
    } else if path.contains(":generateContent") {
        let calls = each(&|_, name, args| json!({"functionCall": {"name": name, "args": args}}));
        answer["candidates"][0]["content"]["parts"] = calls.into();
    } else {
        let form = |id: String, name: &str, arguments: &Value| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"id": id, "type": "function", "function": function})
        };
        answer["choices"][0]["message"]["tool_calls"] = each(&form).into();
    }
    answer
}

fn refusal(why: &str) -> Value {
    json!({
        "choices": [{"message": {"role": "assistant", "content": null, "refusal": why}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    })
}

fn receive(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { path, headers, body: serde_json::from_slice(&body).ok()? })
}

fn send(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    body: &str,
    bytes: usize,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body.as_bytes()[..bytes])
}
