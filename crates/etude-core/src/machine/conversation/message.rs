//! Messages of a conversation, and the values in a model's texts.

use crate::data::Json;
use crate::model::{Message, ModelResponse, Part, Role};
use crate::schema::Schema;
use crate::{extract, tree};

/// What a message says to a model.
pub(super) fn text_of(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) | Part::ToolResult { content: text, .. } => Some(text.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// An answer as a message of the conversation.
pub(super) fn assistant_message(answer: &ModelResponse) -> Message {
    let mut parts = Vec::new();
    if !answer.text.trim().is_empty() {
        parts.push(Part::Text(answer.text.trim_end().to_owned()));
    } else if answer.tool_calls.is_empty() {
        // Providers refuse an empty message.
        parts.push(Part::Text("(empty answer)".to_owned()));
    }
    parts.extend(answer.tool_calls.iter().map(|call| Part::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }));
    Message { role: Role::Assistant, parts }
}

/// What a call that ended a conversation is answered with when the conversation goes on after all.
pub(super) fn received(part: &Part) -> Option<Part> {
    match part {
        Part::ToolCall { id, .. } => Some(Part::ToolResult { id: id.clone(), content: "received".to_owned() }),
        _ => None,
    }
}

/// The value in a text that fits the schema: JSON in it, else the text itself; else why neither does.
pub(super) fn fitting(schema: &Schema, text: &str) -> Result<Json, String> {
    let found = extract::json(text).map(payload);
    let fault = match found {
        Some(Ok((json, value))) => match schema.faults(&value) {
            faults if faults.is_empty() => return Ok(json),
            faults => format!("it does not fit the schema:\n- {}", faults.join("\n- ")),
        },
        Some(Err(why)) => format!("it is not JSON: {why}"),
        None => "it is a text without JSON".to_owned(),
    };
    match schema.faults(&serde_json::Value::from(text)) {
        faults if faults.is_empty() && !text.is_empty() => Ok(Json::string(text)),
        _ => Err(fault),
    }
}

/// What a model passed to the channel. No text means no arguments.
pub(super) fn payload(arguments: &str) -> Result<(Json, serde_json::Value), String> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    let json = Json::parse(text).map_err(|e| e.to_string())?;
    let value = tree::of_answer(text).map_err(|e| e.to_string())?;
    Ok((json, value))
}
