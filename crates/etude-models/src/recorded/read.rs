//! Reader of recordings. It allows a person to leave members out, and is exact about everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::model::{Message, Part, ResponseSchema, Role, Stop, Tier, Tool, ToolCall, Usage};
use etude_core::tree::{self, TreeError};
use serde_json::{Map, Value};

use super::format::{FORMAT, ReadRequest, RecordedResponse, Recording};
use super::nearest::fields;
use crate::wire;

type Object = Map<String, Value>;

/// Every recording in the text of a file. The error is a sentence about the first fault.
pub(super) fn read(text: &str, source: &str) -> Result<Vec<Recording>, String> {
    let value = tree::parse(text).map_err(|error| match error {
        TreeError::Json(error) => format!("it is not JSON: {error}"),
        error @ TreeError::TooMany(_) => error.to_string(),
    })?;
    let object = value.as_object().ok_or("it is not an object")?;
    match object.get("format").and_then(Value::as_str) {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("its `format` is `{other}`; this version reads `{FORMAT}`")),
        None => return Err(format!("its `format` is missing; it must be `{FORMAT}`")),
    }
    match object.get("recordings") {
        Some(many) => {
            let many = many.as_array().ok_or("its `recordings` is not an array")?;
            let one = |(index, value): (usize, &Value)| {
                let object = value.as_object().ok_or_else(|| format!("recordings[{index}] is not an object"))?;
                recording(object, &format!("{source}#{index}")).map_err(|why| format!("recordings[{index}]: {why}"))
            };
            many.iter().enumerate().map(one).collect()
        }
        None => Ok(vec![recording(object, source)?]),
    }
}

fn recording(object: &Object, source: &str) -> Result<Recording, String> {
    refuse_unknown(object, &["format", "model", "request", "answer", "answers", "comment"])?;
    let ReadRequest { request, digests } = request(part(object, "request")?)?;
    let digests: BTreeMap<String, String> = digests.into_iter().collect();
    let responses = match object.get("answers") {
        Some(Value::Array(all)) => all.iter().map(response).collect::<Result<Vec<_>, _>>()?,
        Some(_) => return Err("`answers` is not an array".to_owned()),
        None => vec![response(object.get("answer").ok_or("`answer` is missing")?)?],
    };
    if responses.is_empty() {
        return Err("`answers` is empty".to_owned());
    }
    Ok(Recording { source: source.to_owned(), fields: Arc::new(fields(&request, &digests)), responses })
}

fn part<'a>(object: &'a Object, key: &str) -> Result<&'a Object, String> {
    object.get(key).and_then(Value::as_object).ok_or_else(|| format!("`{key}` is missing or not an object"))
}

/// Refuses unknown fields. Else a recording with a misspelled field would never match, or match too much.
fn refuse_unknown(object: &Object, fields: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !fields.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown field `{key}`; fields are {}", fields.join(", "))),
        None => Ok(()),
    }
}

fn request(object: &Object) -> Result<ReadRequest, String> {
    refuse_unknown(
        object,
        &["tier", "system", "messages", "schema", "tools", "must_call", "temperature", "max_tokens"],
    )?;
    let mut read = ReadRequest::default();
    if let Some(tier) = object.get("tier") {
        let found = tier.as_str().and_then(Tier::from_word);
        read.request.tier = found.ok_or_else(|| format!("`tier` is {tier}; tiers are lite, standard, reasoning"))?;
    }
    read.request.system = object.get("system").map(|system| lines(system, "system")).transpose()?;
    for value in object.get("messages").and_then(Value::as_array).ok_or("`messages` is missing or not an array")? {
        let message = message(value, &mut read.digests)?;
        read.request.messages.push(message);
    }
    // The name of a schema is not compared.
    read.request.schema = object
        .get("schema")
        .map(|schema| ResponseSchema { name: "answer".to_owned(), schema: Arc::new(schema.clone()) });
    for tool in object.get("tools").and_then(Value::as_array).into_iter().flatten() {
        read.request.tools.push(Tool {
            name: text(tool, "name")?,
            description: lines(tool.get("description").unwrap_or(&Value::Null), "description").unwrap_or_default(),
            parameters: Arc::new(tool.get("parameters").cloned().unwrap_or_default()),
        });
    }
    read.request.must_call = object.get("must_call").and_then(Value::as_str).map(str::to_owned);
    read.request.temperature = object.get("temperature").and_then(Value::as_f64);
    let most = object.get("max_tokens").and_then(Value::as_u64);
    read.request.max_tokens = most.and_then(|most| u32::try_from(most).ok());
    Ok(read)
}

fn message(value: &Value, digests: &mut Vec<(String, String)>) -> Result<Message, String> {
    let role = match value.get("role").and_then(Value::as_str) {
        Some("user") | None => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => return Err(format!("`role` is `{other}`; roles are user, assistant, tool")),
    };
    let parts = match value.get("parts").and_then(Value::as_array) {
        Some(parts) => parts.iter().map(|value| message_part(value, digests)).collect::<Result<_, _>>()?,
        None => vec![message_part(value, digests)?],
    };
    Ok(Message { role, parts })
}

fn message_part(value: &Value, digests: &mut Vec<(String, String)>) -> Result<Part, String> {
    if let Some(said) = value.get("text") {
        Ok(Part::Text(lines(said, "text")?))
    } else if value.get("image").is_some() {
        let path = text(value, "image")?;
        if let Ok(digest) = text(value, "blake3") {
            digests.push((path.clone(), digest));
        }
        Ok(Part::Image { path })
    } else if let Some(call) = value.get("tool_call") {
        let ToolCall { id, name, arguments } = tool_call(call)?;
        Ok(Part::ToolCall { id, name, arguments })
    } else if let Some(result) = value.get("tool_result") {
        let content = lines(result.get("content").unwrap_or(&Value::Null), "content")?;
        Ok(Part::ToolResult { id: text(result, "id")?, content })
    } else {
        Err("a message has none of `text`, `parts`, `image`, `tool_call`, `tool_result`".to_owned())
    }
}

fn tool_call(value: &Value) -> Result<ToolCall, String> {
    Ok(ToolCall {
        id: text(value, "id")?,
        name: text(value, "name")?,
        arguments: lines(value.get("arguments").unwrap_or(&Value::Null), "arguments")?,
    })
}

fn response(value: &Value) -> Result<RecordedResponse, String> {
    let object = value.as_object().ok_or("an answer is not an object")?;
    refuse_unknown(object, &["text", "json", "tool_calls", "stop", "refusal", "usage"])?;
    let said = match (object.get("text"), object.get("json")) {
        (Some(said), _) => lines(said, "text")?,
        (None, Some(json)) => json.to_string(),
        (None, None) => String::new(),
    };
    let calls = object.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let tool_calls = calls.map(tool_call).collect::<Result<Vec<_>, _>>()?;
    let refusal = object.get("refusal").and_then(Value::as_str);
    let stop = match (object.get("stop").and_then(Value::as_str), refusal) {
        (Some("refusal") | None, Some(reason)) => Stop::Refusal(reason.to_owned()),
        (Some("refusal"), None) => Stop::Refusal(String::new()),
        (Some("length"), _) => Stop::Length,
        (Some("tool_calls"), _) => Stop::ToolCalls,
        (None, _) if !tool_calls.is_empty() => Stop::ToolCalls,
        (Some("end") | None, _) => Stop::End,
        (Some(other), _) => return Err(format!("`stop` is `{other}`; it must be end, tool_calls, length or refusal")),
    };
    Ok(RecordedResponse { text: said, tool_calls, stop, usage: usage(object.get("usage").unwrap_or(&Value::Null)) })
}

fn usage(value: &Value) -> Usage {
    let count = |name: &str| wire::count(value.get(name));
    Usage {
        calls: 1,
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        cached_tokens: count("cached_tokens"),
        reasoning_tokens: count("reasoning_tokens"),
        cost_usd: value.get("cost_usd").and_then(Value::as_f64).filter(|cost| *cost >= 0.0),
    }
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    value
        .get(key)
        .and_then(Value::as_str)
        .map(ToOwned::to_owned)
        .ok_or_else(|| format!("`{key}` is missing or not a string"))
}

/// Text, given as one string or as the array of its lines.
fn lines(value: &Value, key: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(all) => {
            let lines = all.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
            Ok(lines.ok_or_else(|| format!("a line of `{key}` is not a string"))?.join("\n"))
        }
        _ => Err(format!("`{key}` is neither a string nor an array of lines")),
    }
}
