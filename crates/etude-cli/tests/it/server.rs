//! A scripted model server on loopback. It supports the part of each API that `etude` reads.

use std::io::Read;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::loopback::{Loopback, send};
pub(crate) use crate::loopback::{Seen, unreachable_url};

/// The reaction of the server to a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A completion, in the form of the requested API.
    Says { text: String, input: u64, output: u64, finish: &'static str },
    /// A completion with tool calls, in the form of the requested API: names and arguments.
    Calls { text: String, calls: Vec<(String, Value)> },
    /// A refusal by the model.
    Refuses(&'static str),
    /// Another status.
    Status { status: u16, headers: Vec<(&'static str, String)>, message: String },
    /// A literal body.
    Body(String),
    /// Silence until the client closes its side.
    Hang,
    /// The end of the connection, without a response.
    Drop,
}

impl Reply {
    /// A completion of 10 tokens for a prompt of 100.
    pub(crate) fn says(text: &str) -> Self {
        Self::Says { text: text.to_owned(), input: 100, output: 10, finish: "stop" }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::says(&value.to_string())
    }

    /// A completion with these tool calls, of 10 tokens for a prompt of 100.
    pub(crate) fn calls<const N: usize>(calls: [(&str, Value); N]) -> Self {
        let calls = calls.map(|(name, arguments)| (name.to_owned(), arguments)).to_vec();
        Self::Calls { text: String::new(), calls }
    }

    /// A completion with one tool call.
    pub(crate) fn call(name: &str, arguments: Value) -> Self {
        Self::calls([(name, arguments)])
    }

    /// A completion that requests a command line.
    pub(crate) fn bash(command: &str) -> Self {
        Self::call("Bash", json!({ "command": command }))
    }

    /// The same reply with other numbers of tokens.
    pub(crate) fn tokens(self, read: u64, written: u64) -> Self {
        match self {
            Self::Says { text, finish, .. } => Self::Says { text, finish, input: read, output: written },
            other => other,
        }
    }

    /// A completion that was cut off.
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

impl Seen {
    /// The conversation, as `role: text`.
    pub(crate) fn conversation(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages.map(|message| format!("{}: {}", text(&message["role"]), text(&message["content"]))).collect()
    }
}

/// Members that only conversations with tools have, in the form of OpenAI's chat API.
impl Seen {
    /// The names of the listed tools, in order.
    pub(crate) fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap_or("-").to_owned()).collect()
    }

    /// The results of all calls so far, in order.
    pub(crate) fn results(&self) -> Vec<String> {
        self.of_role("tool")
    }

    /// The instructions.
    pub(crate) fn system(&self) -> String {
        self.of_role("system").concat()
    }

    /// The first message of the user.
    pub(crate) fn request(&self) -> String {
        self.of_role("user").first().cloned().unwrap_or_default()
    }

    /// The number of earlier completions.
    pub(crate) fn turn(&self) -> usize {
        self.of_role("assistant").len()
    }

    fn of_role(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        let of_role = messages.filter(|message| message["role"] == role);
        of_role.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A running server.
pub(crate) struct Server(Loopback);

impl Server {
    /// A server that gives `replies` in order and repeats the last one.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self::by(move |_, number| replies[number.min(replies.len() - 1)].clone())
    }

    /// A model that gives these completions, one per turn, and then "done".
    pub(crate) fn agent(turns: impl IntoIterator<Item = Reply>) -> Self {
        let turns: Vec<Reply> = turns.into_iter().collect();
        Self::by(move |seen, _| turns.get(seen.turn()).cloned().unwrap_or_else(|| Reply::says("done")))
    }

    /// A server that decides by the request and its number, from 0.
    pub(crate) fn by(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self(Loopback::by(move |stream, request, number| serve(stream, request, number, script(request, number))))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.seen()
    }

    /// The number of requests to a model.
    pub(crate) fn calls(&self) -> usize {
        self.seen().len()
    }
}

fn serve(stream: &mut TcpStream, request: &Seen, number: usize, reply: Reply) {
    let whole = |stream: &mut TcpStream, body: &str| send(stream, 200, &[], body, body.len());
    // A client that has disconnected is part of some scripts.
    let _ = match reply {
        Reply::Says { text, input, output, finish } => {
            whole(stream, &answer(&request.path, &text, [input, output], finish).to_string())
        }
        Reply::Calls { text, calls } => whole(stream, &wants(&request.path, &text, &calls, number).to_string()),
        Reply::Refuses(why) => whole(stream, &refusal(why).to_string()),
        Reply::Status { status, headers, message } => {
            let body = json!({ "error": { "message": message } }).to_string();
            send(stream, status, &headers, &body, body.len())
        }
        Reply::Body(body) => whole(stream, &body),
        // Reading ends when the client closes its side.
        Reply::Hang => stream.read(&mut [0; 1]).map(drop),
        Reply::Drop => Ok(()),
    };
}

/// A completion in the form of the API at `path`.
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

/// A completion with tool calls, in the form of the API at `path`. Ids name the number of the request.
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
