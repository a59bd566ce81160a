//! Assembler for Gemini: every event is a response of its own form with more parts. Only the finish reason marks the end of
//! the response, and the stream just ends.

use serde_json::{Value, json};

use super::super::{DecodeError, array_at, count_at, text_at, value_at};
use super::{Assembler, Emit, Room, lay_over};

#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// The body without its parts.
    body: Value,
    candidate: Value,
    parts: Vec<Value>,
    room: Room,
}

impl Assembler for Candidate {
    fn take(&mut self, _name: &str, mut data: Value, emit: Emit<'_>) -> Result<bool, DecodeError> {
        if let Some(error) = data.get("error").filter(|error| !error.is_null()) {
            let status = u16::try_from(count_at(error, "/code")).ok().filter(|code| (400..600).contains(code));
            let message = text_at(error, "/message").unwrap_or("no message").to_owned();
            return Err(DecodeError::Failed { status: status.unwrap_or(500), message });
        }
        for candidate in array_at(&data, "candidates") {
            // Only the first of several candidates is read.
            if count_at(candidate, "/index") != 0 {
                continue;
            }
            for part in value_at(candidate, "/content/parts").and_then(Value::as_array).into_iter().flatten() {
                if part.get("thought").and_then(Value::as_bool) != Some(true) {
                    emit(text_at(part, "/text").unwrap_or_default());
                }
                self.room.value(part)?;
                self.parts.push(part.clone());
            }
            lay_over(&mut self.candidate, candidate, &mut self.room)?;
        }
        // Counts grow from event to event, and not every event has all of them.
        let usage = data["usageMetadata"].take();
        lay_over(&mut self.body, &data, &mut self.room)?;
        lay_over(&mut self.body["usageMetadata"], &usage, &mut self.room)?;
        Ok(false)
    }

    fn is_answered(&self) -> bool {
        text_at(&self.candidate, "/finishReason").is_some()
    }

    fn finish(self: Box<Self>, _is_done: bool) -> Option<Value> {
        let Self { mut body, mut candidate, parts, room: _ } = *self;
        let is_finished = text_at(&candidate, "/finishReason").is_some();
        let is_blocked = text_at(&body, "/promptFeedback/blockReason").is_some();
        if !is_finished && !is_blocked {
            return None;
        }
        if candidate.is_object() {
            candidate["content"] = json!({ "role": "model", "parts": parts });
            body["candidates"] = json!([candidate]);
        }
        Some(body)
    }
}
