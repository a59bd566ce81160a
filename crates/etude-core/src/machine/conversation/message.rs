//! Messages of a conversation, and the values in a model's texts.

use serde_json::Value;

use crate::data::Json;
use crate::machine::TAKES_LAST;
use crate::model::{Message, ModelResponse, Part, Role};
use crate::schema::{Schema, root};
use crate::{extract, tree};

/// The text of a message, without calls and reasoning.
pub(super) fn text_of(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) | Part::ToolResult { content: text, .. } => Some(text.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// A response as a message of the conversation.
pub(super) fn assistant_message(response: &ModelResponse) -> Message {
    let mut parts: Vec<Part> = response.reasoning.iter().cloned().map(Part::Reasoning).collect();
    if !response.text.trim().is_empty() {
        parts.push(Part::Text(response.text.trim_end().to_owned()));
    } else if response.tool_calls.is_empty() {
        // Providers refuse an empty message.
        parts.push(Part::Text("(empty answer)".to_owned()));
    }
    parts.extend(response.tool_calls.iter().map(|call| Part::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }));
    Message { role: Role::Assistant, parts }
}

/// The result of a call that ended a conversation, for a conversation that continues after all.
pub(super) fn received(part: &Part) -> Option<Part> {
    match part {
        Part::ToolCall { id, .. } => Some(Part::ToolResult { id: id.clone(), content: "received".to_owned() }),
        _ => None,
    }
}

/// The value in a text that fits the schema: JSON in the text, or the text itself as a string. The error says why
/// neither fits. `abi` is the version that began the run.
pub(super) fn fitting(schema: &Schema, is_wrapped: bool, text: &str, abi: u32) -> Result<Json, String> {
    let fits = |found: &str| payload(found).is_ok_and(|found| checked(schema, is_wrapped, found).is_ok());
    let found = if abi < TAKES_LAST { extract::json(text) } else { extract::fitting(text, fits) };
    let found = found.map(payload);
    let fault = match found {
        Some(Ok(found)) => match checked(schema, is_wrapped, found) {
            Ok(json) => return Ok(json),
            Err(faults) => format!("it does not fit the schema:\n- {}", faults.join("\n- ")),
        },
        Some(Err(why)) => format!("it is not JSON: {why}"),
        None => "it is a text without JSON".to_owned(),
    };
    match schema.faults(&Value::from(text)) {
        faults if faults.is_empty() && !text.is_empty() => Ok(Json::string(text)),
        _ => Err(fault),
    }
}

/// The value, if it fits the schema; else its faults. A value that should be wrapped may also stand alone: plain text
/// has no tool that asks for the wrapper, and journals of earlier versions have it like this.
pub(super) fn checked(schema: &Schema, is_wrapped: bool, found: (Json, Value)) -> Result<Json, Vec<String>> {
    let inner = if is_wrapped { found.0.inline().and_then(root::unwrapped) } else { None };
    let inner = inner.and_then(|raw| payload(raw.get()).ok());
    let faults = |value: &Value| Some(schema.faults(value)).filter(|faults| !faults.is_empty());
    match inner {
        None => faults(&found.1).map_or(Ok(found.0), Err),
        Some((json, value)) => match faults(&value) {
            None => Ok(json),
            Some(_) if faults(&found.1).is_none() => Ok(found.0),
            Some(inside) => Err(inside),
        },
    }
}

/// The JSON value of a channel call's arguments. An empty text means no arguments.
pub(super) fn payload(arguments: &str) -> Result<(Json, Value), String> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    let json = Json::parse(text).map_err(|e| e.to_string())?;
    let value = tree::parse_response(text).map_err(|e| e.to_string())?;
    Ok((json, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Reasoning, Stop, Usage};

    /// A model's reasoning goes back to it before its text.
    #[test]
    fn thoughts_stand_before_what_was_said() {
        let reasoning = Reasoning { model: "p/m".to_owned(), json: "[]".into() };
        let mut response = ModelResponse {
            text: "a ".to_owned(),
            tool_calls: Vec::new(),
            stop: Stop::End,
            usage: Usage::default(),
            model: "p/m".to_owned(),
            reasoning: Some(reasoning.clone()),
            transport_failures: Vec::new(),
        };
        let said = Part::Text("a".to_owned());
        assert_eq!(assistant_message(&response).parts, [Part::Reasoning(reasoning), said.clone()]);
        response.reasoning = None;
        assert_eq!(assistant_message(&response).parts, [said]);
    }
}
