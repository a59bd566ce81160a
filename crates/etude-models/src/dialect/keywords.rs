//! Keywords of each dialect.

use serde_json::Value;

use super::Dialect;

/// Treatment of a keyword that holds no schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The dialect supports the keyword.
    Kept,
    /// The keyword does not constrain the response.
    Silent,
    /// The keyword constrains the response, and the dialect cannot express that.
    Dropped,
}

const ANNOTATIONS: &[&str] = &[
    "$schema", "$id", "$comment", "$anchor", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "contentMediaType", "contentEncoding", "$vocabulary",
];

const OPENAI: &[&str] = &[
    "title", "description", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems",
];

const ANTHROPIC: &[&str] = &["title", "description", "enum", "const"];

const GEMINI: &[&str] = &["title", "description", "minimum", "maximum", "minItems", "maxItems"];

const OPENAI_FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

const ANTHROPIC_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

const GEMINI_FORMATS: &[&str] = &["date-time", "time", "date"];

/// The treatment of `keyword` with `value` in `dialect`.
pub(super) fn fate(dialect: Dialect, keyword: &str, value: &Value) -> Fate {
    if ANNOTATIONS.contains(&keyword) {
        return Fate::Silent;
    }
    let (kept, formats) = match dialect {
        Dialect::OpenAi => (OPENAI, OPENAI_FORMATS),
        Dialect::Anthropic => (ANTHROPIC, ANTHROPIC_FORMATS),
        Dialect::Gemini => (GEMINI, GEMINI_FORMATS),
    };
    let known = match keyword {
        "format" => value.as_str().is_some_and(|format| formats.contains(&format)),
        "pattern" => dialect == Dialect::OpenAi && value.as_str().is_some_and(is_regular),
        "minItems" if dialect == Dialect::Anthropic => value.as_u64().is_some_and(|least| least <= 1),
        _ => kept.contains(&keyword),
    };
    if known { Fate::Kept } else { Fate::Dropped }
}

/// True if a pattern has neither look-around nor back references, which no grammar supports.
fn is_regular(pattern: &str) -> bool {
    let mut bytes = pattern.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'(', Some(b'?')) => return false,
            (b'\\', Some(b'1'..=b'9' | b'k' | b'p' | b'P' | b'b' | b'B')) => return false,
            (b'\\', Some(_)) => {
                bytes.next();
            }
            _ => {}
        }
    }
    true
}
