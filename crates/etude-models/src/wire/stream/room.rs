//! Limit on the kept part of a stream: a stream may be long, but its body must not exceed the limit of a whole response.

use serde_json::Value;

use crate::wire::{DecodeError, MAX_BODY_BYTES};

/// Assumed size of a value besides its text, in bytes.
const VALUE_BYTES: usize = 64;

/// Maximum number of blocks and calls in one response. Each piece of one is searched among all of them.
const MAX_BLOCKS: usize = 1_000;

/// Size of the kept part of a response.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    blocks: usize,
}

impl Room {
    /// Counts a text. Fails beyond the limit.
    pub(super) fn text(&mut self, text: &str) -> Result<(), DecodeError> {
        self.bytes += text.len();
        if self.bytes > MAX_BODY_BYTES {
            return Err(DecodeError::TooMuch(format!("the stream has more than {MAX_BODY_BYTES} bytes")));
        }
        Ok(())
    }

    /// Counts a value with its content. Fails beyond the limit.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), DecodeError> {
        self.bytes += weight(value);
        self.text("")
    }

    /// Discounts a value that is replaced.
    pub(super) fn give_back(&mut self, value: &Value) {
        self.bytes = self.bytes.saturating_sub(weight(value));
    }

    /// Counts one more block or call. Fails beyond the limit.
    pub(super) fn block(&mut self) -> Result<(), DecodeError> {
        self.blocks += 1;
        if self.blocks > MAX_BLOCKS {
            return Err(DecodeError::TooMuch(format!("it has more than {MAX_BLOCKS} blocks or tool calls")));
        }
        Ok(())
    }
}

fn weight(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(members) => members.iter().map(|(key, value)| key.len() + weight(value)).sum(),
            _ => 0,
        }
}
