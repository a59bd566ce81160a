//! One span.

use std::time::{SystemTime, UNIX_EPOCH};

/// A named value of a span.
pub type Attribute = (&'static str, Value);

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text, exported as `stringValue`.
    Text(String),
    /// A whole number.
    Int(u64),
    /// Any other number.
    Float(f64),
    /// A list of texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(number)
    }
}

/// Something that began and ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its id: 16 hexadecimal digits.
    pub id: String,
    /// The span that it is a part of.
    pub parent: Option<String>,
    /// `chat openai/gpt`, `execute_tool Read`.
    pub name: String,
    /// True for requests to others: their kind is `CLIENT`.
    pub is_client: bool,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_ns: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// The time, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A new id of at most 16 random bytes.
pub(crate) fn new_id(bytes: usize) -> String {
    etude_core::digest::hex(&uuid::Uuid::new_v4().as_bytes()[..bytes])
}
