//! Wire formats of results and run documents.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of a run's document that results need. Values keep their digits.
#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) run_id: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) app: Option<String>,
    pub(crate) cause: String,
    pub(crate) by: Option<String>,
    pub(crate) created_at: String,
    pub(crate) started_at: Option<String>,
    pub(crate) changed_at: String,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) output: Box<RawValue>,
    pub(crate) errors: Vec<Value>,
    pub(crate) usage: Value,
    #[serde(default)]
    pub(crate) waiting: Vec<Value>,
    pub(crate) links: Value,
}

/// The members of a command's envelope (C-1.13) that results need.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope {
    pub(crate) status: String,
    pub(crate) command: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) output: Box<RawValue>,
    #[serde(default)]
    pub(crate) stderr: String,
    #[serde(default)]
    pub(crate) diagnostics: Vec<Value>,
}

/// `structuredContent` of the result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Structured<'a> {
    pub(super) run_id: Option<&'a str>,
    pub(super) status: &'a str,
    pub(super) output: &'a RawValue,
    pub(super) errors: &'a [Value],
    pub(super) usage: &'a Value,
    pub(super) url: Option<String>,
    /// The reason of a failure, or the reason why the run has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// The open questions, with the places where a person answers them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<Value>,
    /// The start of an output that is too long, with its size and its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_cut: Option<Value>,
}

impl<'a> Structured<'a> {
    /// The result with the members that every result has.
    pub(super) const fn new(
        run_id: Option<&'a str>,
        status: &'a str,
        output: &'a RawValue,
        errors: &'a [Value],
        usage: &'a Value,
        url: Option<String>,
    ) -> Self {
        Self { run_id, status, output, errors, usage, url, message: None, waiting: Vec::new(), output_cut: None }
    }
}

/// The `result` of `tools/call`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolResult {
    pub(super) content: Vec<Value>,
    pub(super) structured_content: Box<RawValue>,
    pub(super) is_error: bool,
}

/// The members of an object in order. Values keep their digits.
pub(super) struct Members(pub(super) Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}
