//! How much of a stream is kept: a stream may be long, and what it comes to must be no longer than a whole answer.

use serde_json::Value;

use crate::wire::{DecodeError, MAX_BODY_BYTES};

/// What a value counts for beside its text.
const VALUE_BYTES: usize = 64;

/// Blocks and calls in one answer. Each piece of one is looked for among all of them.
const MAX_BLOCKS: usize = 1_000;

/// What is kept of one answer so far.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    blocks: usize,
}

impl Room {
    /// Makes room for a text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), DecodeError> {
        self.bytes += text.len();
        if self.bytes > MAX_BODY_BYTES {
            return Err(DecodeError::TooMuch(format!("more than {MAX_BODY_BYTES} bytes of a stream would be kept")));
        }
        Ok(())
    }

    /// Makes room for a value with all that is in it.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), DecodeError> {
        self.bytes += weight(value);
        self.text("")
    }

    /// What is replaced is kept no more.
    pub(super) fn give_back(&mut self, value: &Value) {
        self.bytes = self.bytes.saturating_sub(weight(value));
    }

    /// Makes room for one more block or call.
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
