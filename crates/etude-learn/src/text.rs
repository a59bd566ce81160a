//! Texts as they are compared (2.1): without case, at the bounds of words, with `_`, `#` and blanks as one blank.

use etude_core::verbatim::{holds, normal};
use serde_json::Value;

/// A text shorter than this proves nothing, unless it is two capitals.
const MIN_CHARS: usize = 3;

/// Whether a value is long enough to prove where it comes from (2.1).
pub fn proves(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let text = text.trim();
            let is_code = || text.chars().count() == 2 && text.chars().all(char::is_uppercase);
            text.chars().count() >= MIN_CHARS || is_code()
        }
        Value::Number(number) => number.to_string().len() >= MIN_CHARS,
        _ => false,
    }
}

/// The words of a user, in the form in which they are compared.
#[derive(Debug, Clone, Default)]
pub struct Said(String);

impl Said {
    /// Of texts in order.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self(texts.into_iter().map(normal).collect::<Vec<_>>().join("\n"))
    }

    /// The texts as they are compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the user said the value outright; of a list every element.
    pub fn has(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => proves(value) && holds(&self.0, &normal(text)),
            Value::Number(number) => proves(value) && holds(&self.0, &number.to_string()),
            Value::Array(items) => !items.is_empty() && items.iter().all(|item| self.has(item)),
            _ => false,
        }
    }
}

impl Said {
    /// Whether the user may have meant the value: as `has`, but also a short value, and of a list any element. It proves nothing, and
    /// so only keeps a value from being filled in without the user's words.
    pub fn may_have(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(|item| self.may_have(item)),
            Value::Object(members) => members.values().any(|inner| self.may_have(inner)),
            Value::Null => false,
            scalar => {
                let text = normal(&plain(scalar));
                !text.trim().is_empty() && holds(&self.0, &text)
            }
        }
    }
}

/// A value as text: a string as it is, every other one as compact JSON.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
