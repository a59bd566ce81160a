//! Assembler for Anthropic Messages: the message begins, its blocks begin and grow, and its last event gives the stop reason.

use std::collections::BTreeMap;

use etude_core::tree;
use serde_json::{Value, json};

use super::super::{DecodeError, text_at};
use super::{Assembler, Emit, Room, lay_over};

#[derive(Debug, Default)]
pub(super) struct Message {
    message: Value,
    blocks: BTreeMap<u64, Block>,
    room: Room,
}

#[derive(Debug, Default)]
struct Block {
    block: Value,
    text: String,
    signature: String,
    /// Arguments of a tool call so far.
    input: String,
}

impl Assembler for Message {
    fn take(&mut self, name: &str, data: Value, emit: Emit<'_>) -> Result<bool, DecodeError> {
        let index = data.get("index").and_then(Value::as_u64).unwrap_or(0);
        match text_at(&data, "/type").unwrap_or(name) {
            "message_start" => lay_over(&mut self.message, &data["message"], &mut self.room)?,
            "content_block_start" => {
                self.room.block()?;
                self.room.value(&data["content_block"])?;
                let begun = |name: &str| text_at(&data, name).unwrap_or_default().to_owned();
                let mut text = begun("/content_block/text");
                emit(&text);
                text.push_str(&begun("/content_block/thinking"));
                let signature = begun("/content_block/signature");
                let block = data["content_block"].clone();
                self.blocks.insert(index, Block { block, text, signature, input: String::new() });
            }
            "content_block_delta" => {
                if !self.blocks.contains_key(&index) {
                    self.room.block()?;
                }
                let block = self.blocks.entry(index).or_default();
                match text_at(&data, "/delta/type") {
                    Some("text_delta") => {
                        let text = text_at(&data, "/delta/text").unwrap_or_default();
                        emit(text);
                        self.room.text(text)?;
                        block.text.push_str(text);
                    }
                    Some("thinking_delta") => {
                        let thought = text_at(&data, "/delta/thinking").unwrap_or_default();
                        self.room.text(thought)?;
                        block.text.push_str(thought);
                    }
                    Some("signature_delta") => {
                        let signature = text_at(&data, "/delta/signature").unwrap_or_default();
                        self.room.text(signature)?;
                        block.signature.push_str(signature);
                    }
                    Some("input_json_delta") => {
                        let input = text_at(&data, "/delta/partial_json").unwrap_or_default();
                        self.room.text(input)?;
                        block.input.push_str(input);
                    }
                    _ => {}
                }
            }
            "message_delta" => {
                lay_over(&mut self.message, &data["delta"], &mut self.room)?;
                // Counts are those of the whole message so far, and must not be added up.
                lay_over(&mut self.message["usage"], &data["usage"], &mut self.room)?;
            }
            "message_stop" => return Ok(true),
            "error" => return Err(failure(&data["error"])),
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>, _is_done: bool) -> Option<Value> {
        let mut message = self.message;
        text_at(&message, "/stop_reason")?;
        message["content"] = self.blocks.into_values().map(Block::finish).collect();
        Some(message)
    }
}

impl Block {
    fn finish(self) -> Value {
        let mut block = if self.block.is_object() { self.block } else { json!({ "type": "text" }) };
        match text_at(&block, "/type") {
            Some("text") => block["text"] = Value::from(self.text),
            Some("thinking") => {
                block["thinking"] = Value::from(self.text);
                block["signature"] = Value::from(self.signature);
            }
            // A call that was cut off inside its arguments keeps them as text.
            Some("tool_use") if !self.input.trim().is_empty() => {
                block["input"] = tree::parse_response(&self.input).unwrap_or(Value::String(self.input));
            }
            _ => {}
        }
        block
    }
}

/// The failure in an event, with the status that it would have had before the stream began.
fn failure(error: &Value) -> DecodeError {
    let kind = text_at(error, "/type").unwrap_or("api_error");
    let status = match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    };
    let message = text_at(error, "/message").unwrap_or("no message");
    DecodeError::Failed { status, message: format!("{kind}: {message}") }
}
