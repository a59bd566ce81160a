//! JSON texts of others as trees of bounded size.
//!
//! A tree takes up to 65 times its text in memory, so a limit of bytes alone is not enough.

use serde_json::Value;
use serde_json::value::RawValue;

/// Maximum number of values in a text that becomes a tree. An array of a million rows of eight columns is below it; the
/// worst text of that number of values takes 2.3 GiB.
pub const MAX_VALUES: usize = 10_000_000;

/// Maximum number of values in a response of a model or its provider, which is never a database table.
pub const MAX_RESPONSE_VALUES: usize = 1_000_000;

/// Reason why a text does not become a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The text has too many values.
    #[error("it has more than {} million values; at most as many are looked into", .0 / 1_000_000)]
    TooMany(usize),
    /// The text is not JSON, is nested deeper than 127 levels, or has text that is not Unicode.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The tree of a JSON text. Integers beyond 64 bits and floats lose precision: the tree is for decisions, not for
/// passing on.
///
/// # Errors
/// `text` has more than [`MAX_VALUES`] values, or is not JSON that can be looked into.
pub fn parse(text: &str) -> Result<Value, TreeError> {
    parse_bytes(text.as_bytes(), MAX_VALUES)
}

/// The tree of a response of a model or its provider.
///
/// # Errors
/// `text` has more than [`MAX_RESPONSE_VALUES`] values, or is not JSON that can be looked into.
pub fn parse_response(text: impl AsRef<[u8]>) -> Result<Value, TreeError> {
    parse_bytes(text.as_ref(), MAX_RESPONSE_VALUES)
}

/// The value of a text that is one JSON object or array; every other text as it is.
pub fn composed(text: &str) -> Value {
    let is_composed = text.trim_start().starts_with(['{', '[']);
    let value = if is_composed { parse(text).ok() } else { None };
    value.unwrap_or_else(|| text.into())
}

/// True if `text` is JSON. It may still be too large or too deep for a tree.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Checks the number of values in `text`.
///
/// # Errors
/// `text` has more than [`MAX_VALUES`].
pub(crate) fn check_size(text: &str) -> Result<(), TreeError> {
    if exceeds(text.as_bytes(), MAX_VALUES) { Err(TreeError::TooMany(MAX_VALUES)) } else { Ok(()) }
}

fn parse_bytes(text: &[u8], most: usize) -> Result<Value, TreeError> {
    if exceeds(text, most) {
        return Err(TreeError::TooMany(most));
    }
    Ok(serde_json::from_slice(text)?)
}

/// True if the JSON in `text` has more than `most` values: strings, numbers, literals, arrays and objects, and all
/// values inside them. In a text that is not JSON everything that looks like a value counts, also after the first
/// fault.
pub fn exceeds(text: &[u8], most: usize) -> bool {
    // In JSON every value but the first takes at least two bytes, so nearly every text is decided here.
    if text.len() / 2 < most {
        return false;
    }
    let mut values = 1;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(text, at),
            b',' => values += 1,
            b'[' | b'{' => {
                let next = text[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                values += usize::from(!matches!(next, Some(b']' | b'}')));
            }
            _ => {}
        }
        if values > most {
            return true;
        }
    }
    false
}

/// The offset after the end of the string whose first character is at `at`.
pub(crate) fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
