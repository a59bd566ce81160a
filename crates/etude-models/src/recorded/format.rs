//! The file format of recordings, version 1.

use std::sync::Arc;

use etude_core::model::{Request, Stop, ToolCall, Usage};
use serde_json::Value;

use super::nearest::Fields;

/// Value of `format`.
pub(super) const FORMAT: &str = "etude-recording/1";

/// One recorded request and its responses.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// Name of the file, for messages.
    pub(crate) source: String,
    /// The request as a list of fields, for comparison.
    pub(crate) fields: Arc<Fields>,
    /// The responses; never empty.
    pub(crate) responses: Vec<RecordedResponse>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedResponse {
    pub(crate) text: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) stop: Stop,
    pub(crate) usage: Usage,
}

/// A request as read. `digests` are those of its images, if they were recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadRequest {
    pub(super) request: Request,
    pub(super) digests: Vec<(String, String)>,
}

/// JSON with sorted keys: two schemas that differ only in the order of their keys are equal.
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
