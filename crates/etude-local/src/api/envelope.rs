//! Responses in the format of OpenAI's API.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use etude_core::model::{ModelResponse, Stop, Usage};
use serde_json::{Value, json};

/// Fields that all chunks of one response share.
#[derive(Clone)]
pub(crate) struct Envelope {
    id: String,
    created: u64,
    model: String,
}

impl Envelope {
    pub(crate) fn new(model: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { id: format!("chatcmpl-{}-{number}", std::process::id()), created, model: model.to_owned() }
    }

    /// The body of a complete response.
    pub(crate) fn completion(&self, response: &ModelResponse) -> Value {
        let calls = calls(response);
        let content = if response.text.is_empty() && !calls.is_empty() { Value::Null } else { json!(response.text) };
        let mut message = json!({"role": "assistant", "content": content});
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": finish(&response.stop), "logprobs": null});
        self.wrap("chat.completion", json!([choice]), Some(usage(&response.usage)))
    }

    /// The event that begins a stream.
    pub(crate) fn begin(&self) -> String {
        self.event(json!({"role": "assistant", "content": ""}), Value::Null)
    }

    /// An event with more text.
    pub(crate) fn delta(&self, text: &str) -> String {
        self.event(json!({"content": text}), Value::Null)
    }

    /// The events after the last text: tool calls, the finish reason, and the usage if the client wants it.
    pub(crate) fn end(&self, response: &ModelResponse, include_usage: bool) -> String {
        let mut calls = calls(response);
        for (index, call) in calls.iter_mut().enumerate() {
            call["index"] = json!(index);
        }
        let mut events = String::new();
        if !calls.is_empty() {
            events = self.event(json!({"tool_calls": calls}), Value::Null);
        }
        events.push_str(&self.event(json!({}), json!(finish(&response.stop))));
        if include_usage {
            let usage = self.wrap("chat.completion.chunk", json!([]), Some(usage(&response.usage)));
            events.push_str(&format!("data: {usage}\n\n"));
        }
        events + "data: [DONE]\n\n"
    }

    fn event(&self, delta: Value, finish_reason: Value) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null});
        format!("data: {}\n\n", self.wrap("chat.completion.chunk", json!([choice]), None))
    }

    fn wrap(&self, object: &str, choices: Value, usage: Option<Value>) -> Value {
        let Self { id, created, model } = self;
        let mut body = json!({"id": id, "object": object, "created": created, "model": model, "choices": choices});
        if let Some(usage) = usage {
            body["usage"] = usage;
        }
        body
    }
}

fn calls(response: &ModelResponse) -> Vec<Value> {
    let calls = response.tool_calls.iter().map(|call| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"id": call.id, "type": "function", "function": function})
    });
    calls.collect()
}

const fn finish(stop: &Stop) -> &'static str {
    match stop {
        Stop::End => "stop",
        Stop::ToolCalls => "tool_calls",
        Stop::Length => "length",
        Stop::Refusal(_) => "content_filter",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

/// The body of an error response.
pub(crate) fn error(status: u16, code: &str, message: &str) -> Value {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
