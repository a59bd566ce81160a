//! Codec of Gemini `generateContent`.
//!
//! Tool calls have no ids here, and a reasoning model requires the signature of each call back with it. Both are stored in the
//! id that the caller keeps: `call_2~SIGNATURE`.

use std::collections::BTreeMap;

use etude_core::model::{Message, Part, Request, Role, Stop, ToolCall};
use etude_core::tree;
use serde_json::{Map, Value, json};

use super::{
    Ask, DecodeError, Decoded, TokenCount, arguments_object, array_at, count_at, plain_name, reasoning, set, text_at,
    value_at,
};
use crate::image::Images;

/// Placeholder for an empty message, which the service refuses.
const NOTHING: &str = "(empty)";

/// Placeholder for the signature of a call that another model made.
const NOT_SIGNED: &str = "skip_thought_signature_validator";

/// Finish reasons that mean the provider withheld the response.
const DECLINED: &[&str] = &[
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];

/// Encodes the body of `POST …/models/MODEL:generateContent`.
pub(crate) fn encode(ask: Ask<'_>) -> Value {
    let request = ask.request;
    let mut body = Map::new();
    let system = request.system.as_deref().filter(|text| !text.is_empty());
    set(&mut body, "systemInstruction", system.map(|text| json!({ "parts": [{ "text": text }] })));
    set(&mut body, "contents", Some(encode_contents(&request.messages, ask)));
    let functions: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "parametersJsonSchema": *tool.parameters })
        })
        .collect();
    set(&mut body, "tools", (!functions.is_empty()).then(|| json!([{ "functionDeclarations": functions }])));
    let choice = request
        .must_call
        .as_ref()
        .map(|name| json!({ "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": [name] } }));
    set(&mut body, "toolConfig", choice);
    let mut config = Map::new();
    set(&mut config, "temperature", request.temperature);
    set(&mut config, "maxOutputTokens", request.max_tokens);
    if let Some(provider_schema) = ask.provider_schema {
        set(&mut config, "responseMimeType", Some("application/json"));
        set(&mut config, "responseJsonSchema", Some(provider_schema.schema.clone()));
    }
    set(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    Value::Object(body)
}

fn encode_contents(messages: &[Message], ask: Ask<'_>) -> Vec<Value> {
    let mut names = BTreeMap::new();
    let mut merged: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let role = if message.role == Role::Assistant { "model" } else { "user" };
        let mut parts = Vec::new();
        for part in &message.parts {
            if let Part::ToolCall { id, name, .. } = part {
                names.insert(id.as_str(), name.as_str());
            }
            parts.extend(encode_part(part, ask.images, &names));
        }
        if reasoning::is_foreign(message, ask) {
            unsign(&mut parts);
        }
        if let Some(signature) = reasoning::of(message, ask).as_ref().and_then(|own| text_at(own, "/text"))
            && let Some(text) = parts.iter_mut().find(|part| part.get("text").is_some())
        {
            text["thoughtSignature"] = Value::from(signature);
        }
        if wants_signatures(ask.model) {
            sign(&mut parts);
        }
        if parts.is_empty() {
            parts.push(json!({ "text": NOTHING }));
        }
        match merged.last_mut() {
            Some((last, content)) if *last == role => content.append(&mut parts),
            _ => merged.push((role, parts)),
        }
    }
    if merged.first().is_some_and(|(role, _)| *role == "model") {
        merged.insert(0, ("user", vec![json!({ "text": NOTHING })]));
    }
    merged.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

/// True for models from the third generation on, which refuse a turn whose first call has no signature.
fn wants_signatures(model: &str) -> bool {
    let name = model.trim_start_matches("models/");
    name.starts_with("gemini-") && !["gemini-1", "gemini-2"].iter().any(|early| name.starts_with(early))
}

/// Marks calls that another model has made, as the service requires when a conversation is taken over.
fn sign(parts: &mut [Value]) {
    let mut calls = parts.iter_mut().filter(|part| part.get("functionCall").is_some());
    if let Some(first) = calls.next()
        && first.get("thoughtSignature").is_none()
        && calls.all(|call| call.get("thoughtSignature").is_none())
    {
        first["thoughtSignature"] = Value::from(NOT_SIGNED);
    }
}

/// Removes the signatures of another model.
fn unsign(parts: &mut [Value]) {
    for part in parts.iter_mut().filter_map(Value::as_object_mut) {
        part.shift_remove("thoughtSignature");
    }
}

fn encode_part(part: &Part, images: &Images, names: &BTreeMap<&str, &str>) -> Option<Value> {
    match part {
        Part::Text(text) => (!text.is_empty()).then(|| json!({ "text": text })),
        Part::Image { path } => {
            let image = images.get(path)?;
            Some(json!({ "inlineData": { "mimeType": image.media_type, "data": image.base64 } }))
        }
        Part::ToolCall { id, name, arguments } => {
            let mut object = Map::new();
            let call = json!({ "name": plain_name(name), "args": arguments_object(arguments) });
            set(&mut object, "functionCall", Some(call));
            set(&mut object, "thoughtSignature", id.split_once('~').map(|(_, signature)| signature));
            Some(Value::Object(object))
        }
        Part::Reasoning(_) => None,
        Part::ToolResult { id, content } => {
            let response = match tree::parse_response(content) {
                Ok(value @ Value::Object(_)) => value,
                _ => json!({ "result": content }),
            };
            let name = names.get(id.as_str()).copied().unwrap_or(id.as_str());
            Some(json!({ "functionResponse": { "name": plain_name(name), "response": response } }))
        }
    }
}

/// Decodes the body of a successful response to `request`. The number of earlier calls in `request` is the first number of new
/// ids.
pub(crate) fn decode(body: &Value, request: &Request) -> Result<Decoded, DecodeError> {
    let tokens = tokens(body);
    let Some(candidate) = array_at(body, "candidates").first() else {
        let Some(reason) = text_at(body, "/promptFeedback/blockReason") else {
            return Err(DecodeError::missing("candidates"));
        };
        let reason = with_message(reason, text_at(body, "/promptFeedback/blockReasonMessage"));
        return Ok(Decoded {
            text: String::new(),
            tool_calls: Vec::new(),
            reasoning: None,
            stop: Stop::Refusal(reason),
            tokens,
        });
    };
    let mut text = String::new();
    let mut tool_calls = Vec::new();
    let earlier = earlier_calls(request);
    let mut reasoning = None;
    for part in value_at(candidate, "/content/parts").and_then(Value::as_array).into_iter().flatten() {
        // Ids contain the signatures of calls; their presence here shows which model signed.
        if let Some(signature) = text_at(part, "/thoughtSignature") {
            let kept = reasoning.get_or_insert_with(|| json!({}));
            if part.get("text").is_some() {
                kept["text"] = Value::from(signature);
            }
        }
        if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
            tool_calls.push(read_call(part, call, earlier + tool_calls.len()));
        } else if part.get("thought").and_then(Value::as_bool) != Some(true) {
            text.push_str(text_at(part, "/text").unwrap_or_default());
        }
    }
    let stop = match text_at(candidate, "/finishReason") {
        Some("MAX_TOKENS") => Stop::Length,
        Some(reason) if DECLINED.contains(&reason) => {
            Stop::Refusal(with_message(reason, text_at(candidate, "/finishMessage")))
        }
        Some("MALFORMED_FUNCTION_CALL") => {
            return Err(DecodeError::Unreadable(
                "the model wrote a tool call that the provider could not parse".into(),
            ));
        }
        // The finish reasons of a complete response are a closed list: an aborted one must not be taken for one.
        None | Some("STOP" | "FINISH_REASON_UNSPECIFIED" | "") => {
            if tool_calls.is_empty() {
                Stop::End
            } else {
                Stop::ToolCalls
            }
        }
        Some(reason) => {
            let reason = with_message(reason, text_at(candidate, "/finishMessage"));
            return Err(DecodeError::Unreadable(format!("the provider aborted the response: {reason}")));
        }
    };
    Ok(Decoded { text, tool_calls, reasoning, stop, tokens })
}

fn with_message(reason: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

fn earlier_calls(request: &Request) -> usize {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    parts.filter(|part| matches!(part, Part::ToolCall { .. })).count()
}

fn read_call(part: &Value, call: &Value, index: usize) -> ToolCall {
    let id = match text_at(part, "/thoughtSignature") {
        Some(signature) => format!("call_{index}~{signature}"),
        None => format!("call_{index}"),
    };
    let arguments = call.get("args").map_or_else(|| "{}".to_owned(), Value::to_string);
    ToolCall { id, name: text_at(call, "/name").unwrap_or_default().to_owned(), arguments }
}

/// The token counts. The service counts reasoning apart from the response; here it is part of the output.
fn tokens(body: &Value) -> TokenCount {
    let reasoning = count_at(body, "/usageMetadata/thoughtsTokenCount");
    TokenCount {
        input: count_at(body, "/usageMetadata/promptTokenCount")
            + count_at(body, "/usageMetadata/toolUsePromptTokenCount"),
        output: count_at(body, "/usageMetadata/candidatesTokenCount") + reasoning,
        cached: count_at(body, "/usageMetadata/cachedContentTokenCount"),
        cache_written: 0,
        reasoning,
        cost_usd: None,
    }
}
