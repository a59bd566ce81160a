//! The JSON forms of runs and pages of runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::problem::{Code, Problem};

/// A page of runs.
#[derive(Default, Serialize)]
pub(crate) struct Page {
    pub(crate) runs: Vec<Arc<RawValue>>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
}

/// The JSON form of a row.
#[derive(Serialize)]
pub(super) struct Row<'r> {
    pub(super) run_id: &'r str,
    pub(super) status: &'static str,
    pub(super) mode: &'static str,
    pub(super) app: Option<&'r str>,
    pub(super) pipeline: Option<&'r str>,
    pub(super) machine: Option<&'r str>,
    pub(super) cause: &'static str,
    pub(super) by: Option<&'r str>,
    pub(super) labels: &'r BTreeMap<String, String>,
    pub(super) priority: i32,
    pub(super) created_at: String,
    pub(super) started_at: Option<String>,
    pub(super) changed_at: String,
    pub(super) ended_at: Option<String>,
    pub(super) not_before: Option<String>,
    pub(super) duration_ms: Option<u64>,
    pub(super) usage: Option<&'r RawValue>,
    pub(super) waiting_count: usize,
    pub(super) attempt: Option<u32>,
    pub(super) kind: Option<&'r str>,
    pub(super) reason: Option<&'r str>,
    pub(super) progress: Option<&'r RawValue>,
    pub(super) again_of: Option<&'r str>,
    pub(super) links: Links,
}

#[derive(Serialize)]
pub(super) struct Links {
    #[serde(rename = "self")]
    pub(super) own: String,
    pub(super) events: String,
    pub(super) tree: String,
    pub(super) page: String,
}

/// A value as raw JSON text.
pub(super) fn raw(value: &impl Serialize) -> Result<Box<RawValue>, Problem> {
    to_raw_value(value).map_err(|error| Problem::new(Code::Bug, error.to_string()))
}
