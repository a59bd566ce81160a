//! Comparison of texts (2.1): without case, at word boundaries, with `_`, `#` and blanks as one blank. Numbers and days are
//! compared in every notation.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::data::bare;
use etude_core::verbatim::{holds, normal};
use serde_json::Value;

use crate::notation::{self, Day};

/// Minimum length of a text or number that proves something, in characters; two capitals suffice.
const MIN_CHARS: usize = 3;

/// True if a value is long enough to prove its origin (2.1).
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
pub struct Said(Arc<Words>);

#[derive(Debug, Default)]
struct Words {
    text: String,
    /// The numbers in it, in any notation.
    numbers: BTreeSet<String>,
    days: Vec<Day>,
}

impl Said {
    /// Words of these texts, in order.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let text = texts.into_iter().map(normal).collect::<Vec<_>>().join("\n");
        let (numbers, days) = (notation::numbers(&text), notation::days(&text));
        Self(Arc::new(Words { text, numbers, days }))
    }

    /// Normalized texts, joined by line feeds.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// True if the user said the value outright; for a list, every element.
    pub fn has(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => proves(value) && holds(self.as_str(), &normal(text)),
            Value::Number(number) => {
                proves(value) && (holds(self.as_str(), &number.to_string()) || self.has_number(value))
            }
            Value::Array(items) => !items.is_empty() && items.iter().all(|item| self.has(item)),
            _ => false,
        }
    }

    /// True if the texts have the number in another notation.
    fn has_number(&self, value: &Value) -> bool {
        let amount = notation::amount(&value.to_string());
        amount.is_some_and(|amount| amount.len() >= MIN_CHARS && self.0.numbers.contains(&amount))
    }

    /// True if the user may have meant the value. Unlike `has`, it accepts a short value, a number that is a text, the same
    /// day, and any element of a list. It proves nothing, and so only keeps a value from being filled in without the user's
    /// words.
    pub fn may_have(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(|item| self.may_have(item)),
            Value::Object(members) => members.values().any(|inner| self.may_have(inner)),
            Value::Null => false,
            scalar => {
                let text = normal(&bare(scalar));
                !text.trim().is_empty()
                    && (holds(self.as_str(), &text) || self.may_have_in_other_notation(scalar, &text))
            }
        }
    }

    fn may_have_in_other_notation(&self, value: &Value, text: &str) -> bool {
        let Words { numbers, days, .. } = &*self.0;
        match value {
            Value::Number(number) => {
                notation::amount(&number.to_string()).is_some_and(|amount| numbers.contains(&amount))
            }
            Value::String(_) => {
                let is_day = || notation::day(text).into_iter().any(|own| days.iter().any(|day| own.may_be(*day)));
                !numbers.is_disjoint(&notation::number(text)) || !days.is_empty() && is_day()
            }
            _ => false,
        }
    }
}
