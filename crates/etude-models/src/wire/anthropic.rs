//! Codec of Anthropic Messages.

use etude_core::model::{Message, Part, Role, Stop, ToolCall};
use serde_json::{Map, Value, json};

use super::{
    Ask, DecodeError, Decoded, TokenCount, arguments_object, array_at, count_at, plain_id, plain_name, reasoning, set,
    text_at,
};
use crate::image::Images;

/// API version that the requests are written for.
pub(crate) const VERSION: &str = "2023-06-01";

/// Placeholder for an empty text, which the service refuses.
const NOTHING: &str = "(empty)";

/// Encodes the body of `POST …/messages`.
pub(crate) fn encode(ask: Ask<'_>) -> Value {
    let request = ask.request;
    let mut messages = encode_messages(&request.messages, ask);
    let mut system = request
        .system
        .as_deref()
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!([{ "type": "text", "text": text }]));
    if request.cache_prompt {
        match &mut system {
            Some(system) => mark(system),
            None => mark_first(&mut messages),
        }
        // If the conversation continues, the service reads it again up to this point.
        if messages.len() > 1
            && let Some(last) = messages.last_mut()
        {
            mark(&mut last["content"]);
        }
    }
    let mut body = Map::new();
    set(&mut body, "model", Some(ask.model));
    set(&mut body, "max_tokens", Some(request.max_tokens.unwrap_or_else(|| default_max_tokens(ask.model))));
    set(&mut body, "system", system);
    set(&mut body, "messages", Some(messages));
    set(&mut body, "temperature", request.temperature);
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": *tool.parameters }))
        .collect();
    set(&mut body, "tools", (!tools.is_empty()).then_some(tools));
    let choice = request.must_call.as_ref().map(|name| json!({ "type": "tool", "name": name }));
    set(&mut body, "tool_choice", choice);
    let format = ask
        .provider_schema
        .map(|provider_schema| json!({ "format": { "type": "json_schema", "schema": provider_schema.schema } }));
    set(&mut body, "output_config", format);
    Value::Object(body)
}

/// The default token limit, since the service requires one in every request. Claude 4.5 and later allow 64000 and more, and
/// end a response by themselves where it meets the window; reasoning counts as well. More than half of that takes longer than
/// a request waits. The first models of the third generation allow no more than 4096.
fn default_max_tokens(model: &str) -> u32 {
    let early = ["claude-3-opus", "claude-3-sonnet", "claude-3-haiku"];
    match version(model) {
        Some(version) if version >= (4, 5) => 32_000,
        _ if early.iter().any(|name| model.starts_with(name)) => 4096,
        _ => 8192,
    }
}

/// The version in a name such as `claude-opus-4-6` or `claude-haiku-4-5-20251001`. `None` for names of the third generation,
/// which begin with it.
pub(crate) fn version(model: &str) -> Option<(u32, u32)> {
    let mut words = model.split_once("claude-")?.1.split(['-', '.', '@', ':']);
    words.next().filter(|family| !family.starts_with(|c: char| c.is_ascii_digit()))?;
    let major = words.next()?.parse().ok()?;
    // A date is not a version.
    let minor = words.next().and_then(|word| word.parse().ok()).filter(|minor| *minor < 100);
    Some((major, minor.unwrap_or(0)))
}

/// Marks the last block of `content` as the end of the cached part.
fn mark(content: &mut Value) {
    if let Some(Value::Object(block)) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
        block.insert("cache_control".to_owned(), json!({ "type": "ephemeral" }));
    }
}

fn mark_first(messages: &mut [Value]) {
    if let Some(first) = messages.first_mut() {
        mark(&mut first["content"]);
    }
}

/// Encodes messages. Consecutive messages of one side become one: the results of tools that were called together must be in
/// the very next message.
fn encode_messages(messages: &[Message], ask: Ask<'_>) -> Vec<Value> {
    let mut merged: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        let mut blocks: Vec<Value> = message.parts.iter().filter_map(|part| block(part, ask.images)).collect();
        if let Some(order) = reasoning::of(message, ask) {
            let (calls, texts) = blocks.into_iter().partition(|block| block["type"] == "tool_use");
            blocks = reasoning::in_order(&order, texts, calls);
        }
        if blocks.is_empty() {
            blocks.push(json!({ "type": "text", "text": NOTHING }));
        }
        match merged.last_mut() {
            Some((last, content)) if *last == role => content.append(&mut blocks),
            _ => merged.push((role, blocks)),
        }
    }
    if merged.first().is_some_and(|(role, _)| *role == "assistant") {
        merged.insert(0, ("user", vec![json!({ "type": "text", "text": NOTHING })]));
    }
    for (_, blocks) in &mut merged {
        // Results stand before anything else in their message.
        blocks.sort_by_key(|block| block["type"] != "tool_result");
    }
    merged.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn block(part: &Part, images: &Images) -> Option<Value> {
    match part {
        Part::Text(text) => (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text })),
        Part::Image { path } => {
            let image = images.get(path)?;
            let source = json!({ "type": "base64", "media_type": image.media_type, "data": image.base64 });
            Some(json!({ "type": "image", "source": source }))
        }
        Part::ToolCall { id, name, arguments } => {
            let input = arguments_object(arguments);
            Some(json!({ "type": "tool_use", "id": plain_id(id), "name": plain_name(name), "input": input }))
        }
        Part::Reasoning(_) => None,
        Part::ToolResult { id, content } => {
            Some(json!({ "type": "tool_result", "tool_use_id": plain_id(id), "content": content }))
        }
    }
}

/// Decodes the body of a successful response.
pub(crate) fn decode(body: &Value) -> Result<Decoded, DecodeError> {
    if body.get("content").and_then(Value::as_array).is_none() {
        return Err(DecodeError::missing("content"));
    }
    let mut text = String::new();
    let mut has_thought = false;
    let mut tool_calls = Vec::new();
    let mut order = Vec::new();
    let blocks = array_at(body, "content");
    let has_one_text = blocks.iter().filter(|block| block["type"] == "text").count() == 1;
    for block in blocks {
        match text_at(block, "/type") {
            Some("text") => {
                let said = text_at(block, "/text").unwrap_or_default();
                text.push_str(said);
                if has_one_text {
                    order.push(reasoning::TEXT.into());
                } else if !said.trim().is_empty() {
                    order.push(json!({ "type": "text", "text": said }));
                }
            }
            Some("tool_use") => {
                tool_calls.push(read_call(block));
                order.push(reasoning::CALL.into());
            }
            // Reasoning that was cut off has no signature, and the service does not accept it back.
            Some("thinking") if text_at(block, "/signature").is_none_or(str::is_empty) => {}
            Some("thinking" | "redacted_thinking") => {
                has_thought = true;
                order.push(block.clone());
            }
            _ => {}
        }
    }
    let stop = match text_at(body, "/stop_reason") {
        Some("refusal") => {
            let reason = text_at(body, "/stop_details/explanation").filter(|reason| !reason.is_empty());
            Stop::Refusal(reason.unwrap_or(&text).to_owned())
        }
        Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
        _ if !tool_calls.is_empty() => Stop::ToolCalls,
        _ => Stop::End,
    };
    let reasoning = reasoning::order(order).filter(|_| has_thought);
    Ok(Decoded { text, tool_calls, reasoning, stop, tokens: tokens(body) })
}

fn read_call(block: &Value) -> ToolCall {
    ToolCall {
        id: text_at(block, "/id").unwrap_or_default().to_owned(),
        name: text_at(block, "/name").unwrap_or_default().to_owned(),
        arguments: match block.get("input") {
            // A stream that was cut off inside the arguments leaves them as they came.
            Some(Value::String(cut)) => cut.clone(),
            Some(input) => input.to_string(),
            None => "{}".to_owned(),
        },
    }
}

/// The token counts. The service counts tokens read from and written to its cache apart from the input; here they are part of
/// it.
fn tokens(body: &Value) -> TokenCount {
    let cached = count_at(body, "/usage/cache_read_input_tokens");
    let cache_written = count_at(body, "/usage/cache_creation_input_tokens");
    TokenCount {
        input: count_at(body, "/usage/input_tokens") + cached + cache_written,
        output: count_at(body, "/usage/output_tokens"),
        cached,
        cache_written,
        reasoning: count_at(body, "/usage/output_tokens_details/reasoning_tokens"),
        cost_usd: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_limit_of_a_response_depends_on_the_model() {
        for (model, expected) in [
            ("claude-3-opus-20240229", 4096),
            ("claude-3-5-haiku-latest", 8192),
            ("claude-opus-4-1-20250805", 8192),
            ("claude-sonnet-4-20250514", 8192),
            ("claude-haiku-4-5-20251001", 32_000),
            ("claude-opus-4-6", 32_000),
            ("claude-sonnet-5", 32_000),
            ("anthropic/claude-opus-5.5", 32_000),
            ("claude-fable", 8192),
            ("another-model", 8192),
        ] {
            assert_eq!(default_max_tokens(model), expected, "{model}");
        }
    }
}
