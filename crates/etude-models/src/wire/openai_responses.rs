//! Codec of OpenAI Responses, used without any state on the service's side.

use etude_core::model::{Message, Part, Role, Stop, ToolCall};
use serde_json::{Map, Value, json};

use super::{
    Ask, DecodeError, Decoded, TokenCount, arguments_text, array_at, count_at, plain_id, plain_name, prompt_cache_key,
    reasoning, set, text_at, written_arguments,
};

/// Encodes the body of `POST …/responses`.
pub(crate) fn encode(ask: Ask<'_>) -> Value {
    let request = ask.request;
    let mut input = Vec::new();
    for message in &request.messages {
        encode_message(message, ask, &mut input);
    }
    let mut body = Map::new();
    set(&mut body, "model", Some(ask.model));
    set(&mut body, "instructions", request.system.as_deref());
    set(&mut body, "input", Some(input));
    // Every request has the whole conversation, and the service must not store it.
    set(&mut body, "store", Some(false));
    set(&mut body, "temperature", request.temperature);
    set(&mut body, "max_output_tokens", request.max_tokens);
    set(&mut body, "prompt_cache_key", prompt_cache_key(request));
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": *tool.parameters, "strict": false,
            })
        })
        .collect();
    // Reasoning between calls comes encrypted, and goes back so.
    set(&mut body, "include", (!tools.is_empty()).then(|| json!(["reasoning.encrypted_content"])));
    set(&mut body, "tools", (!tools.is_empty()).then_some(tools));
    let choice = request.must_call.as_ref().map(|name| json!({ "type": "function", "name": name }));
    set(&mut body, "tool_choice", choice);
    let text = ask.provider_schema.map(|provider_schema| {
        let format =
            json!({ "type": "json_schema", "name": provider_schema.name, "strict": provider_schema.strict, "schema": provider_schema.schema });
        json!({ "format": format })
    });
    set(&mut body, "text", text);
    Value::Object(body)
}

fn encode_message(message: &Message, ask: Ask<'_>, out: &mut Vec<Value>) {
    let mut content = Vec::new();
    let mut items = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => {
                let kind = if message.role == Role::Assistant { "output_text" } else { "input_text" };
                content.push(json!({ "type": kind, "text": text }));
            }
            Part::Image { path } => {
                if let Some(image) = ask.images.get(path) {
                    content.push(json!({ "type": "input_image", "image_url": image.data_url() }));
                }
            }
            Part::ToolCall { id, name, arguments } => items.push(json!({
                "type": "function_call", "call_id": plain_id(id), "name": plain_name(name), "arguments": arguments_text(arguments),
            })),
            Part::Reasoning(_) => {}
            Part::ToolResult { id, content } => {
                items.push(json!({ "type": "function_call_output", "call_id": plain_id(id), "output": content }));
            }
        }
    }
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    let said = (!content.is_empty()).then(|| json!({ "type": "message", "role": role, "content": content }));
    if let Some(order) = reasoning::of(message, ask) {
        out.extend(reasoning::in_order(&order, said.into_iter().collect(), items));
        return;
    }
    // A model writes text before its calls; a user writes text after the results.
    if message.role == Role::Assistant {
        out.extend(said);
        out.append(&mut items);
    } else {
        out.append(&mut items);
        out.extend(said);
    }
}

/// Decodes the body of a successful response.
pub(crate) fn decode(body: &Value) -> Result<Decoded, DecodeError> {
    if let Some(failure) = failure_of(body) {
        return Err(failure);
    }
    if body.get("output").and_then(Value::as_array).is_none() {
        return Err(DecodeError::missing("output"));
    }
    if text_at(body, "/status") == Some("cancelled") {
        return Err(DecodeError::Failed { status: 502, message: "the provider aborted the response".to_owned() });
    }
    let mut text = String::new();
    let mut refusal = None;
    let mut tool_calls = Vec::new();
    let mut order = Vec::new();
    let items = array_at(body, "output");
    let has_one_message = items.iter().filter(|item| item["type"] == "message").count() == 1;
    for item in items {
        match text_at(item, "/type") {
            Some("function_call") => {
                tool_calls.extend(read_call(item));
                order.push(reasoning::CALL.into());
            }
            // Without its encrypted content, the service does not recognize the item.
            Some("reasoning") if text_at(item, "/encrypted_content").is_some_and(|sealed| !sealed.is_empty()) => {
                let members = ["type", "id", "summary", "encrypted_content"];
                let kept = members.iter().filter_map(|name| Some(((*name).to_owned(), item.get(*name)?.clone())));
                order.push(Value::Object(kept.collect()));
            }
            Some("message") => {
                order.push(if has_one_message && item.get("phase").is_none_or(Value::is_null) {
                    reasoning::TEXT.into()
                } else {
                    said_again(item)
                });
                for part in array_at(item, "content") {
                    text.push_str(text_at(part, "/text").unwrap_or_default());
                    if let Some(reason) = text_at(part, "/refusal") {
                        refusal = Some(reason.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    let cut = (text_at(body, "/status") == Some("incomplete"))
        .then(|| text_at(body, "/incomplete_details/reason").unwrap_or("max_output_tokens"));
    let stop = match (refusal, cut) {
        (Some(reason), _) => Stop::Refusal(reason),
        (None, Some("content_filter")) => Stop::Refusal("content_filter".to_owned()),
        (None, Some(_)) => Stop::Length,
        (None, None) if !tool_calls.is_empty() => Stop::ToolCalls,
        (None, None) => Stop::End,
    };
    let tokens = TokenCount {
        input: count_at(body, "/usage/input_tokens"),
        output: count_at(body, "/usage/output_tokens"),
        cached: count_at(body, "/usage/input_tokens_details/cached_tokens"),
        cache_written: 0,
        reasoning: count_at(body, "/usage/output_tokens_details/reasoning_tokens"),
        cost_usd: None,
    };
    let has_thought = order.iter().any(|part| part["type"] == "reasoning");
    let reasoning = reasoning::order(order).filter(|_| has_thought);
    Ok(Decoded { text, tool_calls, reasoning, stop, tokens })
}

/// A message of a response as a message of a request.
fn said_again(item: &Value) -> Value {
    let texts = array_at(item, "content").iter().filter_map(|part| text_at(part, "/text"));
    let content: Vec<Value> = texts.map(|text| json!({ "type": "output_text", "text": text })).collect();
    let mut message = json!({ "type": "message", "role": "assistant", "content": content });
    if let Some(phase) = item.get("phase").filter(|phase| !phase.is_null()) {
        message["phase"] = phase.clone();
    }
    message
}

/// The failure in a body: a response can fail after its HTTP status was sent.
pub(super) fn failure_of(body: &Value) -> Option<DecodeError> {
    let error = body.get("error").filter(|error| error.is_object());
    if error.is_none() && text_at(body, "/status") != Some("failed") {
        return None;
    }
    let error = error.unwrap_or(&Value::Null);
    let (code, kind) = (text_at(error, "/code"), text_at(error, "/type"));
    let status = code.and_then(status_of).or_else(|| kind.and_then(status_of)).unwrap_or(500);
    let message = text_at(error, "/message").unwrap_or("no message");
    let name = code.or(kind.filter(|kind| *kind != "error")).unwrap_or("server_error");
    Some(DecodeError::Failed { status, message: format!("{name}: {message}") })
}

/// The HTTP status equivalent to a code or a type of an error; `None` if it is unknown.
fn status_of(name: &str) -> Option<u16> {
    Some(match name {
        "rate_limit_exceeded" | "rate_limit_error" | "too_many_requests" | "slow_down" => 429,
        "server_is_overloaded" | "service_unavailable_error" | "overloaded_error" => 503,
        "server_error" | "vector_store_timeout" | "timeout" => 500,
        "insufficient_quota" => 402,
        "authentication_error" | "invalid_api_key" => 401,
        "permission_error" => 403,
        "model_not_found" | "not_found_error" => 404,
        "context_length_exceeded" | "invalid_request_error" => 400,
        _ if name.starts_with("invalid_") || name.contains("image") => 400,
        _ => return None,
    })
}

fn read_call(item: &Value) -> Option<ToolCall> {
    Some(ToolCall {
        id: text_at(item, "/call_id").unwrap_or_default().to_owned(),
        name: text_at(item, "/name")?.to_owned(),
        arguments: written_arguments(item.get("arguments")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a temporary failure is retried, as its code or else its type says.
    #[test]
    fn a_failure_inside_of_a_response_has_the_status_that_it_amounts_to() {
        let of = |error: Value| match failure_of(&json!({ "status": "failed", "error": error })) {
            Some(DecodeError::Failed { status, message }) => (status, message),
            other => panic!("{other:?}"),
        };
        let overloaded = json!({ "type": "service_unavailable_error", "code": "server_is_overloaded", "message": "m" });
        assert_eq!(of(overloaded), (503, "server_is_overloaded: m".to_owned()));
        assert_eq!(of(json!({ "type": "service_unavailable_error", "code": null })).0, 503);
        assert_eq!(of(json!({ "type": "error", "code": "slow_down" })).0, 429);
        assert_eq!(of(json!({ "type": "error", "code": "never_heard_of" })).0, 500);
        assert_eq!(of(json!({ "code": "insufficient_quota" })).0, 402);
        for code in ["invalid_prompt", "context_length_exceeded", "image_too_large"] {
            assert_eq!(of(json!({ "code": code })).0, 400, "{code}");
        }
        assert_eq!(of(json!({ "type": "invalid_request_error", "code": "string_above_max_length" })).0, 400);
    }
}
