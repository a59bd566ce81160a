//! Texts of others as trees, but not as trees of any size: a value that is looked into takes up to 65 times its
//! text in memory, so that a limit of bytes alone is none.

use serde_json::Value;
use serde_json::value::RawValue;

/// Most values of a text of which a tree is made. An array of a million rows of eight columns is below it; the worst that
/// can be said with as many takes 2.3 GiB.
pub const MAX_VALUES: usize = 10_000_000;

/// Most values of what a model or its provider says, which is never a table of a database.
pub const MAX_RESPONSE_VALUES: usize = 1_000_000;

/// Why a text is not made a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It has too many values.
    #[error("it has more than {} million values; at most as many are looked into", .0 / 1_000_000)]
    TooMany(usize),
    /// It is no JSON, is nested deeper than 127 levels, or has text that is no Unicode.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The tree of a JSON text. Integers beyond 64 bits and floats lose precision: use it to decide, not to pass on.
///
/// # Errors
/// `text` has more than [`MAX_VALUES`] values, or is not JSON that can be looked into.
pub fn of(text: &str) -> Result<Value, TreeError> {
    of_bytes(text.as_bytes(), MAX_VALUES)
}

/// The tree of what a model or its provider says.
///
/// # Errors
/// `text` has more than [`MAX_RESPONSE_VALUES`] values, or is not JSON that can be looked into.
pub fn of_answer(text: impl AsRef<[u8]>) -> Result<Value, TreeError> {
    of_bytes(text.as_ref(), MAX_RESPONSE_VALUES)
}

/// Whether `text` is JSON, of which a tree can perhaps not be made all the same.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Whether `text` has as many values as are looked into.
///
/// # Errors
/// It has more than [`MAX_VALUES`].
pub(crate) fn check_size(text: &str) -> Result<(), TreeError> {
    if exceeds(text.as_bytes(), MAX_VALUES) { Err(TreeError::TooMany(MAX_VALUES)) } else { Ok(()) }
}

fn of_bytes(text: &[u8], most: usize) -> Result<Value, TreeError> {
    if exceeds(text, most) {
        return Err(TreeError::TooMany(most));
    }
    Ok(serde_json::from_slice(text)?)
}

/// Whether the JSON in `text` has more than `most` values: texts, numbers, words, arrays and objects, each with all that
/// is in it. In what is no JSON, whatever looks like a value counts, after the first fault as well.
pub fn exceeds(text: &[u8], most: usize) -> bool {
    // Between two values lies at least one byte, so that nearly every text is done with here.
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

/// Where the string ends whose first character is at `at`.
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
