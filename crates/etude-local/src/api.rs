//! OpenAI's chat API: parsing of requests and writing of responses.

mod embedding;
mod envelope;
mod wire;

use std::sync::Arc;

use etude_core::model::{Message, Part, Request, ResponseSchema, Role, Tool};
use serde_json::{Value, json};

use crate::generate::Options;
use wire::{Body, WireDeclaration, WireMessage};

pub(crate) use embedding::{EmbeddingRequest, Vectors, decode_embedding, embeddings};
pub(crate) use envelope::{Envelope, error};

/// Maximum number of texts in `stop`, as in OpenAI's API.
const MAX_STOPS: usize = 4;

/// A parsed request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) request: Request,
    pub(crate) options: Options,
    /// True if the client wants the text as it grows.
    pub(crate) is_stream: bool,
    /// True if the client wants a last event with the usage.
    pub(crate) include_usage: bool,
}

/// Parses the body of a request. The error is the reason for status 400.
pub(crate) fn decode(body: &[u8]) -> Result<ChatRequest, String> {
    let body: Body =
        serde_json::from_slice(body).map_err(|error| format!("the body is not a valid chat request: {error}"))?;
    if body.n.is_some_and(|n| n != 1) {
        return Err("`n` must be 1".into());
    }
    if body.logprobs == Some(true) {
        return Err("`logprobs` is not supported".into());
    }
    let mut request = Request {
        temperature: body.temperature,
        max_tokens: body.max_completion_tokens.or(body.max_tokens),
        schema: schema(&body.response_format)?,
        ..Request::default()
    };
    for tool in body.tools.unwrap_or_default() {
        let WireDeclaration { name, description, parameters } = tool.function;
        let parameters = Arc::new(parameters.unwrap_or_else(|| json!({"type": "object"})));
        request.tools.push(Tool { name, description: description.unwrap_or_default(), parameters });
    }
    choose_tool(&mut request, &body.tool_choice)?;
    for message in body.messages {
        read_message(&mut request, message)?;
    }
    if request.messages.is_empty() {
        return Err("`messages` has no user message".into());
    }
    Ok(ChatRequest {
        request,
        options: Options { stop: stops(&body.stop)?, seed: body.seed.map(i64::cast_unsigned) },
        is_stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    })
}

fn stops(stop: &Value) -> Result<Vec<String>, String> {
    let invalid = || format!("`stop` must be a text or a list of at most {MAX_STOPS} texts");
    let texts = match stop {
        Value::Null => Vec::new(),
        Value::Array(texts) if texts.len() <= MAX_STOPS => texts.iter().collect(),
        text => vec![text],
    };
    let texts = texts.into_iter().map(|text| text.as_str().filter(|text| !text.is_empty()).map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(invalid)
}

fn schema(format: &Value) -> Result<Option<ResponseSchema>, String> {
    let (name, schema) = match format.get("type").and_then(Value::as_str) {
        None | Some("text") => return Ok(None),
        Some("json_object") => ("object", json!({"type": "object"})),
        Some("json_schema") => {
            let given = format.get("json_schema").unwrap_or(&Value::Null);
            let schema = given.get("schema").ok_or("`response_format` has no `json_schema.schema`")?;
            (given.get("name").and_then(Value::as_str).unwrap_or("answer"), schema.clone())
        }
        Some(other) => return Err(format!("`response_format.type` must not be `{other}`")),
    };
    Ok(Some(ResponseSchema { name: name.to_owned(), schema: Arc::new(schema) }))
}

fn choose_tool(request: &mut Request, choice: &Value) -> Result<(), String> {
    let named = choice.pointer("/function/name").and_then(Value::as_str);
    match (named, choice.as_str(), request.tools.as_slice()) {
        (Some(name), _, tools) if tools.iter().any(|tool| tool.name == name) => request.must_call = Some(name.into()),
        (Some(name), ..) => return Err(format!("`tool_choice` names `{name}`, which `tools` lacks")),
        (None, Some("none"), _) => request.tools.clear(),
        (None, Some("required"), [tool]) => request.must_call = Some(tool.name.clone()),
        (None, Some("required"), _) => return Err("`tool_choice` `required` needs exactly one tool".into()),
        _ => {}
    }
    Ok(())
}

fn read_message(request: &mut Request, message: WireMessage) -> Result<(), String> {
    let text = text(&message.content)?;
    let (role, parts) = match message.role.as_str() {
        "system" | "developer" => {
            let system = request.system.get_or_insert_default();
            if !system.is_empty() {
                system.push_str("\n\n");
            }
            system.push_str(&text);
            return Ok(());
        }
        "user" => (Role::User, vec![Part::Text(text)]),
        "assistant" => {
            let calls = message.tool_calls.unwrap_or_default().into_iter().map(|call| Part::ToolCall {
                id: call.id,
                name: call.function.name,
                arguments: call.function.arguments,
            });
            let text = (!text.is_empty()).then_some(Part::Text(text));
            (Role::Assistant, text.into_iter().chain(calls).collect())
        }
        "tool" => {
            let id = message.tool_call_id.unwrap_or_default();
            (Role::Tool, vec![Part::ToolResult { id, content: text }])
        }
        other => return Err(format!("a message has the unknown role `{other}`")),
    };
    request.messages.push(Message { role, parts });
    Ok(())
}

fn text(content: &Value) -> Result<String, String> {
    let part = |part: &Value| match part.get("text").and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err("the local model reads text only; map the tier to a model that reads images".to_owned()),
    };
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => Ok(parts.iter().map(part).collect::<Result<Vec<_>, _>>()?.join("\n")),
        _ => Err("`content` must be a text or a list of parts".into()),
    }
}

#[cfg(test)]
mod tests;
