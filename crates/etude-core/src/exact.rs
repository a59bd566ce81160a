//! Values that are compared to the last digit.
//!
//! A tree of `serde_json` keeps 64 bits of a whole number and a double of any other, so two ids of 20 digits can be the
//! same number there. Texts with such numbers are compared as they are written; all other values are compared as trees.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::data::{Json, ReadError};
use crate::tree::{self, TreeError};

/// Maximum nesting of a compared value, as for trees.
const MAX_DEPTH: usize = 127;

/// Maximum length in bytes of a whole number that a tree keeps exactly, with either sign.
const MAX_WHOLE: usize = 19;

/// Maximum length in bytes of a number with a fraction that a double distinguishes from all others of that length.
const MAX_FRACTION: usize = 16;

/// Limit of exact whole doubles: below it each is the number as it is written; from it on it may stand for several.
pub const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Comparand {
    /// A value that a tree keeps completely.
    Plain(Value),
    /// A value with numbers that a tree does not keep.
    Exact(Exact),
}

/// A JSON value with all digits of its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exact {
    /// The JSON value `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A JSON number, with all its digits.
    Number(Decimal),
    /// A JSON string, with its escapes resolved.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Members(BTreeMap<String, Self>),
}

/// A number of any size and precision, equal and ordered by value.
#[derive(Debug, Clone)]
pub struct Decimal {
    /// The number as it is written.
    text: String,
    is_negative: bool,
    /// The digits after `0.`, without zeros at either end; empty for zero.
    digits: String,
    /// The power of ten that the digits are multiplied with.
    exponent: i64,
}

/// A value of a definition that others are compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Literal {
    json: Json,
    tree: Value,
    exact: Option<Exact>,
}

impl Comparand {
    /// The value of a JSON text.
    ///
    /// # Errors
    /// As [`tree::parse`], except for numbers that are out of its range.
    pub fn parse(text: &str) -> Result<Self, TreeError> {
        match is_long(text) {
            false => tree::parse(text).map(Self::Plain),
            true => Exact::parse(text).map(Self::Exact),
        }
    }

    /// The value at `pointer` (RFC 6901); `None` if there is none.
    pub fn pointer(&self, pointer: &str) -> Option<Self> {
        match self {
            Self::Plain(value) => value.pointer(pointer).cloned().map(Self::Plain),
            Self::Exact(value) => value.pointer(pointer).cloned().map(Self::Exact),
        }
    }

    /// True if both are the same JSON value: numbers by value, so that `1` equals `1.0`.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(a), Self::Plain(b)) => same(a, b),
            _ => matches!((self.exact(), other.exact()), (Some(a), Some(b)) if a == b),
        }
    }

    /// The value with all digits of its numbers.
    pub(crate) fn exact(&self) -> Option<Exact> {
        match self {
            Self::Plain(value) => Exact::parse(&value.to_string()).ok(),
            Self::Exact(value) => Some(value.clone()),
        }
    }
}

impl Exact {
    /// The value of a JSON text.
    ///
    /// # Errors
    /// As [`tree::parse`], except for numbers that are out of its range.
    pub fn parse(text: &str) -> Result<Self, TreeError> {
        tree::check_size(text)?;
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self::below(raw.get(), MAX_DEPTH)?)
    }

    fn below(text: &str, depth: usize) -> Result<Self, serde_json::Error> {
        let inner = |raw: &RawValue| Self::below(raw.get(), depth - 1);
        match text.as_bytes().first() {
            Some(b'[' | b'{') if depth == 0 => Err(serde::de::Error::custom("recursion limit exceeded")),
            Some(b'[') => {
                let elements: Vec<&RawValue> = serde_json::from_str(text)?;
                Ok(Self::List(elements.into_iter().map(inner).collect::<Result<_, _>>()?))
            }
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
                let members = members.into_iter().map(|(name, raw)| Ok((name, inner(raw)?)));
                Ok(Self::Members(members.collect::<Result<_, serde_json::Error>>()?))
            }
            Some(b'"') => serde_json::from_str(text).map(Self::Text),
            Some(b't') => Ok(Self::Bool(true)),
            Some(b'f') => Ok(Self::Bool(false)),
            Some(b'n') => Ok(Self::Null),
            _ => Ok(Self::Number(Decimal::parse(text))),
        }
    }

    /// The value as a tree, with the largest double in place of a number that is out of its range.
    fn rounded(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(is) => (*is).into(),
            Self::Number(number) => number.rounded().into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(elements) => elements.iter().map(Self::rounded).collect(),
            Self::Members(members) => {
                Value::Object(members.iter().map(|(name, value)| (name.clone(), value.rounded())).collect())
            }
        }
    }

    /// The value as a tree, with the text of its digits in place of each number that a tree does not keep.
    pub fn shown(&self) -> Value {
        match self {
            Self::Number(number) => match serde_json::from_str(&number.text) {
                Ok(kept) if number.is_kept() => kept,
                _ => number.text.as_str().into(),
            },
            Self::List(elements) => elements.iter().map(Self::shown).collect(),
            Self::Members(members) => {
                Value::Object(members.iter().map(|(name, value)| (name.clone(), value.shown())).collect())
            }
            other => other.rounded(),
        }
    }

    fn rounded_whole(&self) -> Option<&Decimal> {
        match self {
            Self::Number(number) => (number.is_whole() && !number.is_kept()).then_some(number),
            Self::List(elements) => elements.iter().find_map(Self::rounded_whole),
            Self::Members(members) => members.values().find_map(Self::rounded_whole),
            Self::Null | Self::Bool(_) | Self::Text(_) => None,
        }
    }

    fn pointer(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').map(crate::pointer::unescaped).try_fold(self, |value, name| match value {
            Self::Members(members) => members.get(&name),
            Self::List(elements) if name == "0" || !name.starts_with(['0', '+']) => {
                elements.get(name.parse::<usize>().ok()?)
            }
            _ => None,
        })
    }
}

impl Decimal {
    /// The value of a JSON number. An exponent beyond 64 bits becomes the largest or smallest of 64 bits.
    fn parse(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i64 = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (is_negative, whole) = whole.strip_prefix('-').map_or((false, whole), |whole| (true, whole));
        let digits = format!("{whole}{fraction}");
        let leading = digits.len() - digits.trim_start_matches('0').len();
        let digits = digits.trim_matches('0');
        if digits.is_empty() {
            return Self { text: text.to_owned(), is_negative: false, digits: String::new(), exponent: 0 };
        }
        let point = i64::try_from(whole.len()).unwrap_or(i64::MAX);
        let exponent = exponent.saturating_add(point).saturating_sub(i64::try_from(leading).unwrap_or(i64::MAX));
        Self { text: text.to_owned(), is_negative, digits: digits.to_owned(), exponent }
    }
}

impl Decimal {
    fn is_whole(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|count| count <= self.exponent)
    }

    /// True if a tree keeps the same value.
    fn is_kept(&self) -> bool {
        serde_json::from_str::<Number>(&self.text).is_ok_and(|number| Self::parse(&number.to_string()) == *self)
    }

    fn rounded(&self) -> f64 {
        let sign = if self.is_negative { "-" } else { "" };
        let number: f64 = format!("{sign}0.{}e{}", self.digits, self.exponent).parse().unwrap_or_default();
        number.clamp(f64::MIN, f64::MAX)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let magnitude = || self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits));
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            0 => Ordering::Equal,
            1 => magnitude(),
            _ => magnitude().reverse(),
        })
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Comparand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(value) => write!(f, "{value}"),
            Self::Exact(value) => write!(f, "{value}"),
        }
    }
}

/// Compact JSON, with numbers as they are written.
impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(is) => write!(f, "{is}"),
            Self::Number(number) => f.write_str(&number.text),
            Self::Text(text) => write!(f, "{}", Value::from(text.as_str())),
            Self::List(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if at == 0 { "[" } else { "," })?;
                }
                f.write_str(if elements.is_empty() { "[]" } else { "]" })
            }
            Self::Members(members) => {
                for (at, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{}:{value}", if at == 0 { "{" } else { "," }, Value::from(name.as_str()))?;
                }
                f.write_str(if members.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

impl Literal {
    /// The literal of a JSON value in a definition.
    ///
    /// # Errors
    /// As [`Json::comparand`].
    pub fn from_json(json: &Json) -> Result<Self, ReadError> {
        let (tree, exact) = match json.comparand()? {
            Comparand::Plain(tree) => (tree, None),
            Comparand::Exact(exact) => (json.value().unwrap_or_else(|_| exact.rounded()), Some(exact)),
        };
        Ok(Self { json: json.clone(), tree, exact })
    }

    /// The value as a tree, which is all that runs of earlier versions compare with.
    pub fn tree(&self) -> &Value {
        &self.tree
    }

    /// The value with all digits of its numbers, if a tree does not keep them.
    pub(crate) fn exact(&self) -> Option<&Exact> {
        self.exact.as_ref()
    }
}

impl From<Value> for Literal {
    fn from(tree: Value) -> Self {
        Self { json: Json::of(&tree), tree, exact: None }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.json.inline() {
            Some(text) if self.exact.is_some() => f.write_str(text),
            _ => write!(f, "{}", self.tree),
        }
    }
}

/// JSON equality: numbers by value, so that `1` equals `1.0`, also within lists and objects.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => crate::condition::compare_numbers(x, y) == Some(Ordering::Equal),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(name, x)| y.get(name).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// A value in which every whole number is written as an integer: values that are the [`same`] become equal and have one
/// text.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(double) if double.fract() == 0.0 && double.abs() < MAX_EXACT => (double as i64).into(),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), canonical(value))).collect(),
        _ => value.clone(),
    }
}

/// The first whole number of a JSON text that a tree would round, as it is written. `None` if there is none, or the
/// text is not JSON.
pub fn rounded_whole(text: &str) -> Option<String> {
    if !is_long(text) {
        return None;
    }
    let value = Exact::parse(text).ok()?;
    value.rounded_whole().map(|number| number.text.clone())
}

/// A JSON text as a tree, but for a number that a double rounds to zero: it becomes the smallest double of its sign, so that
/// only zero counts as zero. `None` if the text is not JSON.
pub fn scalar(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    if value.as_f64() != Some(0.0) || crate::condition::is_zero(text) {
        return Some(value);
    }
    let smallest = f64::from_bits(1);
    Some(if text.trim_start().starts_with('-') { -smallest } else { smallest }.into())
}

/// True if a JSON text has a number that a tree may not keep. Only the length of each number is checked; numbers of
/// usual size are short.
pub(crate) fn is_long(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = tree::end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                let number = &bytes[at - 1..];
                let number = &number[..number.iter().position(|byte| !is_part(byte)).unwrap_or(number.len())];
                let is_kept = match () {
                    () if number.iter().any(|byte| matches!(byte, b'e' | b'E')) => false,
                    () if number.contains(&b'.') => number.len() <= MAX_FRACTION,
                    () => number.len() <= MAX_WHOLE,
                };
                if !is_kept {
                    return true;
                }
                at += number.len() - 1;
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
