//! How much of a stream is kept: a stream may be long, and what it comes to must be no longer than a whole answer.

use serde_json::Value;

use super::super::DecodeError;

/// Bytes that are kept of one answer, as many as a whole one may have.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// What a value counts for beside its text.
const VALUE_BYTES: usize = 64;

/// Calls in one answer. Each piece of one is looked for among all of them.
const MOST_CALLS: usize = 1_000;

/// What is kept of one answer so far.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    calls: usize,
}

impl Room {
    /// Makes room for a text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), DecodeError> {
        self.bytes += text.len();
        if self.bytes > MOST_BYTES {
            return Err(DecodeError::TooMuch(format!("more than {MOST_BYTES} bytes of a stream would be kept")));
        }
        Ok(())
    }

    /// Makes room for a value with all that is in it.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), DecodeError> {
        self.bytes += weight(value);
        self.text("")
    }

    /// What is replaced is kept no more.
    pub(super) fn clear(&mut self, value: &Value) {
        self.bytes = self.bytes.saturating_sub(weight(value));
    }

    /// Makes room for one more block or call.
    pub(super) fn call(&mut self) -> Result<(), DecodeError> {
        self.calls += 1;
        if self.calls > MOST_CALLS {
            return Err(DecodeError::TooMuch(format!("it has more than {MOST_CALLS} blocks or tool calls")));
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
