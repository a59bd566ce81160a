//! Codec of OpenAI Chat Completions, also as other servers implement it.

use etude_core::model::{Message, Part, Role, Stop, ToolCall};
use serde_json::{Map, Value, json};

use super::{
    Ask, DecodeError, Decoded, TokenCount, arguments_text, array_at, count_at, has_own_content, plain_id, plain_name,
    prompt_cache_key, reasoning, results_of, set, text_at, text_of, thoughts, value_at, written_arguments,
};
use crate::image::Images;

/// Vendor of the server. Newer fields are sent only to OpenAI's own service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavor {
    OpenAi,
    Compatible,
}

/// Members of a message that hold reasoning, by the names of different servers.
pub(crate) const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];

/// Encodes the body of `POST …/chat/completions`.
pub(crate) fn encode(ask: Ask<'_>, flavor: Flavor) -> Value {
    let request = ask.request;
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = &request.system {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for message in &request.messages {
        encode_message(message, ask, &mut messages);
    }
    let mut body = Map::new();
    set(&mut body, "model", Some(ask.model));
    set(&mut body, "messages", Some(messages));
    set(&mut body, "temperature", request.temperature);
    match flavor {
        Flavor::OpenAi => {
            set(&mut body, "max_completion_tokens", request.max_tokens);
            set(&mut body, "prompt_cache_key", prompt_cache_key(request));
        }
        Flavor::Compatible => set(&mut body, "max_tokens", request.max_tokens),
    }
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            let function =
                json!({ "name": tool.name, "description": tool.description, "parameters": *tool.parameters });
            json!({ "type": "function", "function": function })
        })
        .collect();
    set(&mut body, "tools", (!tools.is_empty()).then_some(tools));
    let forced = request.must_call.as_ref();
    let choice = forced.map(|name| json!({ "type": "function", "function": { "name": name } }));
    set(&mut body, "tool_choice", choice);
    let format = ask.provider_schema.map(|provider_schema| {
        let schema =
            json!({ "name": provider_schema.name, "strict": provider_schema.strict, "schema": provider_schema.schema });
        json!({ "type": "json_schema", "json_schema": schema })
    });
    set(&mut body, "response_format", format);
    Value::Object(body)
}

fn encode_message(message: &Message, ask: Ask<'_>, out: &mut Vec<Value>) {
    // Results come first: they must follow the calls at once, before any other text of the user.
    for (id, content) in results_of(message) {
        out.push(json!({ "role": "tool", "tool_call_id": plain_id(id), "content": content }));
    }
    if !has_own_content(message) {
        return;
    }
    match message.role {
        Role::User | Role::Tool => out.push(json!({ "role": "user", "content": user_content(message, ask.images) })),
        Role::Assistant => {
            let thought = reasoning::of(message, ask).unwrap_or_default();
            let mut calls: Vec<Value> = message.parts.iter().filter_map(tool_call).collect();
            for (call, extra) in calls.iter_mut().zip(array_at(&thought, "calls")) {
                if !extra.is_null() {
                    call["extra_content"] = extra.clone();
                }
            }
            let text = format!("{}{}", text_at(&thought, "/content").unwrap_or_default(), text_of(message));
            let mut object = Map::new();
            set(&mut object, "role", Some("assistant"));
            let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { Value::from(text) };
            set(&mut object, "content", Some(content));
            set(&mut object, "tool_calls", (!calls.is_empty()).then_some(calls));
            for name in THOUGHTS {
                set(&mut object, name, thought.get(name).cloned());
            }
            out.push(Value::Object(object));
        }
    }
}

fn tool_call(part: &Part) -> Option<Value> {
    let Part::ToolCall { id, name, arguments } = part else {
        return None;
    };
    let function = json!({ "name": plain_name(name), "arguments": arguments_text(arguments) });
    Some(json!({ "id": plain_id(id), "type": "function", "function": function }))
}

fn user_content(message: &Message, images: &Images) -> Value {
    if !message.parts.iter().any(|part| matches!(part, Part::Image { .. })) {
        return Value::from(text_of(message));
    }
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(json!({ "type": "text", "text": text })),
        Part::Image { path } => {
            let url = images.get(path)?.data_url();
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        _ => None,
    });
    Value::Array(parts.collect())
}

/// Decodes the body of a successful response.
pub(crate) fn decode(body: &Value) -> Result<Decoded, DecodeError> {
    let Some(choice) = array_at(body, "choices").first() else {
        return Err(failure_of(body).unwrap_or_else(|| DecodeError::missing("choices")));
    };
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or_else(|| DecodeError::missing("choices[0].message"))?;
    if let Some(failure) = failure_of(choice) {
        return Err(failure);
    }
    let calls = array_at(message, "tool_calls");
    let tool_calls: Vec<ToolCall> = calls.iter().filter_map(read_call).collect();
    let refusal = text_at(message, "/refusal").filter(|refusal| !refusal.is_empty());
    let stop = match (refusal, ending(text_at(choice, "/finish_reason"))?) {
        (Some(refusal), _) => Stop::Refusal(refusal.to_owned()),
        (None, Stop::End) if !tool_calls.is_empty() => Stop::ToolCalls,
        (None, stop) => stop,
    };
    // At the token limit, a call that was cut off before its name is lost with the end of the response. Otherwise it was lost
    // on the way.
    if tool_calls.len() < calls.len() && stop != Stop::Length {
        return Err(DecodeError::Unreadable("a tool call has no name".to_owned()));
    }
    let tokens = TokenCount {
        input: count_at(body, "/usage/prompt_tokens"),
        output: count_at(body, "/usage/completion_tokens"),
        cached: count_at(body, "/usage/prompt_tokens_details/cached_tokens"),
        cache_written: 0,
        reasoning: count_at(body, "/usage/completion_tokens_details/reasoning_tokens"),
        // Gateways such as OpenRouter state it.
        cost_usd: value_at(body, "/usage/cost").and_then(Value::as_f64).filter(|cost| *cost >= 0.0),
    };
    let text = content_text(message.get("content"));
    Ok(Decoded { text, tool_calls, reasoning: thoughts_of(message, calls), stop, tokens })
}

/// The reasoning in a message, from all members in which servers put it: beside the content, and beside the calls.
fn thoughts_of(message: &Value, calls: &[Value]) -> Option<Value> {
    let has = |name: &str| {
        message.get(name).filter(|value| !value.is_null() && value.as_array().is_none_or(|all| !all.is_empty()))
    };
    let mut kept = Map::new();
    for name in THOUGHTS {
        // Some servers repeat the details as text in `reasoning`.
        if name != "reasoning" || has("reasoning_details").is_none() {
            set(&mut kept, name, has(name).cloned());
        }
    }
    let extras: Vec<Value> = calls.iter().map(|call| call.get("extra_content").cloned().unwrap_or_default()).collect();
    set(&mut kept, "calls", extras.iter().any(|extra| !extra.is_null()).then_some(extras));
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// Moves reasoning out of the text. It is still sent back, because servers that have it in the text read it there.
pub(super) fn cut_thoughts(decoded: &mut Decoded) {
    let (thoughts, response) = thoughts::split(&decoded.text);
    if thoughts.is_empty() {
        return;
    }
    let kept = decoded.reasoning.get_or_insert_with(|| json!({}));
    kept["content"] = Value::from(&decoded.text[..decoded.text.len() - response.len()]);
    decoded.text = response.to_owned();
}

/// The stop reason. The finish reasons of a complete response are a closed list: an aborted one must not be taken for one.
fn ending(finish_reason: Option<&str>) -> Result<Stop, DecodeError> {
    let reason = finish_reason.unwrap_or_default().to_lowercase();
    let broken = |why: &str| {
        let message = format!("the provider aborted the response{why} (`finish_reason` is `{reason}`)");
        Err(DecodeError::Failed { status: 502, message })
    };
    match reason.as_str() {
        "" | "stop" | "tool_calls" | "tool_call" | "tool_use" | "function_call" | "eos" | "eos_token" | "end"
        | "end_turn" | "stop_sequence" | "stop_token" | "complete" | "completed" | "normal" => Ok(Stop::End),
        "length" | "max_tokens" | "model_length" | "max_length" | "model_context_window_exceeded" => Ok(Stop::Length),
        "content_filter" | "sensitive" | "safety" | "refusal" => Ok(Stop::Refusal(reason)),
        "insufficient_system_resource" => broken(" because of a lack of resources"),
        "error" | "abort" | "aborted" | "cancelled" | "canceled" | "network_error" | "timeout" => broken(""),
        other => Err(DecodeError::Unreadable(format!("the response ended with an unknown reason: `{other}`"))),
    }
}

/// The failure in a body. Gateways report failures of the service behind them with status 200 and an `error` object.
pub(super) fn failure_of(body: &Value) -> Option<DecodeError> {
    let error = body.get("error").filter(|error| !error.is_null())?;
    let message = text_at(error, "/message").or(error.as_str()).unwrap_or("no message").to_owned();
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    Some(DecodeError::Failed { status: code.filter(|code| (400..600).contains(code)).unwrap_or(502), message })
}

fn read_call(call: &Value) -> Option<ToolCall> {
    let arguments = written_arguments(value_at(call, "/function/arguments"));
    let name = text_at(call, "/function/name").filter(|name| !name.is_empty())?.to_owned();
    Some(ToolCall { id: text_at(call, "/id").unwrap_or_default().to_owned(), name, arguments })
}

pub(super) fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| text_at(part, "/text")).collect(),
        _ => String::new(),
    }
}
