//! A finished span, its attributes, and new ids.

use std::time::{SystemTime, UNIX_EPOCH};

/// A named value of a span.
pub type Attribute = (&'static str, Value);

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text, exported as `stringValue`.
    Text(String),
    /// A whole number, exported as `intValue`.
    Int(u64),
    /// Any other number, exported as `doubleValue`.
    Float(f64),
    /// A list of texts, exported as `arrayValue`.
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

/// A timed operation: a run, a step, a model call or a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The span's id: 16 hexadecimal digits.
    pub id: String,
    /// Id of the enclosing span.
    pub parent: Option<String>,
    /// `chat openai/gpt`, `execute_tool Read`.
    pub name: String,
    /// True for requests to another service: their kind is `CLIENT`.
    pub is_client: bool,
    /// Start, in nanoseconds since 1970.
    pub start_ns: u64,
    /// End, in nanoseconds since 1970.
    pub end_ns: u64,
    /// Attributes in the order of the export.
    pub attributes: Vec<Attribute>,
    /// Error message; `None` if the operation succeeded.
    pub error: Option<String>,
}

/// Current time, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A new id of `bytes` random bytes, at most 16, in hexadecimal.
pub(crate) fn new_id(bytes: usize) -> String {
    etude_core::digest::hex(&uuid::Uuid::new_v4().as_bytes()[..bytes])
}
