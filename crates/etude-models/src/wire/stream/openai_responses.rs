//! Assembler for OpenAI Responses: the last event has the whole response, and earlier ones only give its text.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::openai_responses::failure_of;
use super::super::{DecodeError, array_at, text_at};
use super::{Assembler, Emit, Room};

#[derive(Debug, Default)]
pub(super) struct Response {
    /// Complete items. Some servers leave them out of the last event.
    items: BTreeMap<u64, Value>,
    response: Option<Value>,
    room: Room,
}

impl Assembler for Response {
    fn take(&mut self, name: &str, mut data: Value, emit: Emit<'_>) -> Result<bool, DecodeError> {
        match text_at(&data, "/type").unwrap_or(name) {
            "response.output_text.delta" => emit(text_at(&data, "/delta").unwrap_or_default()),
            "response.output_item.done" => {
                let index = data.get("output_index").and_then(Value::as_u64).unwrap_or(self.items.len() as u64);
                self.room.value(&data["item"])?;
                self.items.insert(index, data["item"].take());
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = Some(data["response"].take());
                return Ok(true);
            }
            "error" => {
                let error = if data["error"].is_object() { data["error"].take() } else { data };
                let failed = json!({ "status": "failed", "error": error });
                return Err(failure_of(&failed).unwrap_or_else(|| DecodeError::missing("output")));
            }
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>, _is_done: bool) -> Option<Value> {
        let mut response = self.response.filter(Value::is_object)?;
        if array_at(&response, "output").is_empty() && !self.items.is_empty() {
            response["output"] = self.items.into_values().collect();
        }
        Some(response)
    }
}
