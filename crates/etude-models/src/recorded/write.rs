//! Writer of recordings. Texts are arrays of lines, with two blanks of indentation, so that a change gives a small diff.

use std::collections::BTreeMap;

use etude_core::model::{Message, ModelResponse, Part, Request, Stop};
use serde_json::{Map, Value, json};

use super::format::FORMAT;
use super::nearest::role_word;

/// A recording as JSON.
pub(super) fn write(request: &Request, digests: &BTreeMap<String, String>, response: &ModelResponse) -> Value {
    json!({
        "format": FORMAT,
        "model": response.model,
        "request": write_request(request, digests),
        "answer": write_response(response),
    })
}

pub(super) fn write_request(request: &Request, digests: &BTreeMap<String, String>) -> Value {
    let mut out = Map::new();
    let mut add = |key: &str, value: Value| out.insert(key.to_owned(), value);
    add("tier", json!(request.tier.word()));
    if let Some(system) = &request.system {
        add("system", lines(system));
    }
    let messages: Vec<Value> = request.messages.iter().map(|message| write_message(message, digests)).collect();
    add("messages", json!(messages));
    if let Some(schema) = &request.schema {
        add("schema", (*schema.schema).clone());
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": lines(&tool.description), "parameters": *tool.parameters })
        });
        add("tools", tools.collect());
    }
    if let Some(name) = &request.must_call {
        add("must_call", json!(name));
    }
    if let Some(temperature) = request.temperature {
        add("temperature", json!(temperature));
    }
    if let Some(most) = request.max_tokens {
        add("max_tokens", json!(most));
    }
    Value::Object(out)
}

fn write_message(message: &Message, digests: &BTreeMap<String, String>) -> Value {
    let role = role_word(message.role);
    // Reasoning is not recorded: the response is, and it is not requested again.
    let parts: Vec<&Part> = message.parts.iter().filter(|part| !matches!(part, Part::Reasoning(_))).collect();
    match parts.as_slice() {
        [only] => {
            let mut object = json!({ "role": role });
            if let (Some(object), Value::Object(part)) = (object.as_object_mut(), write_part(only, digests)) {
                object.extend(part);
            }
            object
        }
        many => {
            let parts: Vec<Value> = many.iter().map(|part| write_part(part, digests)).collect();
            json!({ "role": role, "parts": parts })
        }
    }
}

fn write_part(part: &Part, digests: &BTreeMap<String, String>) -> Value {
    match part {
        Part::Text(text) => json!({ "text": lines(text) }),
        Part::Image { path } => match digests.get(path) {
            Some(digest) => json!({ "image": path, "blake3": digest }),
            None => json!({ "image": path }),
        },
        Part::ToolCall { id, name, arguments } => {
            json!({ "tool_call": { "id": id, "name": name, "arguments": arguments } })
        }
        Part::Reasoning(_) => Value::Null,
        Part::ToolResult { id, content } => json!({ "tool_result": { "id": id, "content": lines(content) } }),
    }
}

fn write_response(response: &ModelResponse) -> Value {
    let mut out = Map::new();
    let mut add = |key: &str, value: Value| out.insert(key.to_owned(), value);
    add("text", lines(&response.text));
    if !response.tool_calls.is_empty() {
        let calls = response.tool_calls.iter();
        let calls = calls.map(|call| json!({ "id": call.id, "name": call.name, "arguments": call.arguments }));
        add("tool_calls", calls.collect());
    }
    match &response.stop {
        Stop::End => add("stop", json!("end")),
        Stop::ToolCalls => add("stop", json!("tool_calls")),
        Stop::Length => add("stop", json!("length")),
        Stop::Refusal(reason) => {
            add("stop", json!("refusal"));
            add("refusal", json!(reason))
        }
    };
    let usage = &response.usage;
    let mut counts = json!({
        "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens, "reasoning_tokens": usage.reasoning_tokens,
    });
    if let Some(cost) = usage.cost_usd {
        counts["cost_usd"] = json!(cost);
    }
    add("usage", counts);
    Value::Object(out)
}

/// A text of several lines as an array of them.
fn lines(text: &str) -> Value {
    if text.contains('\n') { text.split('\n').collect() } else { json!(text) }
}
