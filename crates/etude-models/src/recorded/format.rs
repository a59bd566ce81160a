//! The file format of recordings, version 1.

use std::sync::Arc;

use etude_core::model::{Request, Stop, ToolCall, Usage};
use serde_json::Value;

use super::nearest::Fields;

/// What `format` says.
pub(super) const FORMAT: &str = "etude-recording/1";

/// One recorded request and its answers.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// The file that it came from, for messages.
    pub(crate) source: String,
    /// The request, taken apart for comparison.
    pub(crate) fields: Arc<Fields>,
    /// Never empty.
    pub(crate) answers: Vec<RecordedResponse>,
}

/// An answer as recorded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedResponse {
    pub(crate) text: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) stop: Stop,
    pub(crate) usage: Usage,
}

/// What the reader made of a request: the digests of images are as recorded, if they are.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadRequest {
    pub(super) request: Request,
    pub(super) digests: Vec<(String, String)>,
}

/// JSON with sorted keys: two schemas that differ in the order of their keys are one.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
