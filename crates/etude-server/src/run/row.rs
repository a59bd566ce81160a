//! The row of a run in lists, feeds and documents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use etude_runs::document::Document;
use etude_runs::listing::{self, active};
use etude_runs::target::Target;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::RunRow;
use serde_json::Value;
use serde_json::value::RawValue;

use super::wire::{Links, Row, raw};
use crate::context::Context;
use crate::problem::{Problem, engine_failed};

/// Maximum number of cached rows, most of them shorter than a kilobyte.
const MAX_KEPT: usize = 2_000;

/// Maximum size of a cached row, in bytes.
const MAX_ROW: usize = 2_048;

/// The members of a row that come from the result document.
#[derive(Debug)]
pub(super) struct Summary {
    mode: &'static str,
    duration_ms: u64,
    usage: Box<RawValue>,
    waiting_count: usize,
    attempt: Option<u32>,
    kind: Option<String>,
    reason: Option<String>,
    /// The status of each step, in the order of the plan.
    progress: Option<Box<RawValue>>,
}

impl Summary {
    pub(super) fn of(document: &Document) -> Result<Self, Problem> {
        let steps = document.members.get("steps").and_then(Value::as_array);
        let statuses = steps.map(|steps| steps.iter().map(|step| &step["status"]).collect::<Vec<_>>());
        Ok(Self {
            mode: document.mode,
            duration_ms: document.duration_ms,
            usage: raw(&document.usage())?,
            waiting_count: document.waiting.len(),
            attempt: document.attempt,
            kind: listing::kind(document),
            reason: listing::reason(document),
            progress: statuses.as_ref().map(raw).transpose()?,
        })
    }
}

/// The serialized rows of runs with a result document, so that a list that is read again parses and writes none. Each belongs to
/// one change of its run; the next change needs another row.
#[derive(Debug, Default)]
pub(super) struct Rows(Mutex<HashMap<String, (u64, Arc<RawValue>)>>);

impl Rows {
    pub(super) fn get(&self, row: &RunRow) -> Option<Arc<RawValue>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&row.id).filter(|(change, _)| *change == row.change).map(|(_, text)| Arc::clone(text))
    }

    pub(super) fn keep(&self, row: &RunRow, text: &Arc<RawValue>) {
        if text.get().len() > MAX_ROW {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(row.id.clone(), (row.change, Arc::clone(text)));
    }
}

/// The row of a run as JSON text, with the members of `summary`, or the reason why there is none.
pub(super) fn text(
    context: &Context,
    row: &RunRow,
    summary: Option<&Summary>,
    unread: Option<&str>,
) -> Result<Box<RawValue>, Problem> {
    let (target, placement) = (Target::parse(&row.target), &row.placement);
    let so_far = match (summary, row.started_at_ms) {
        (Some(summary), _) => Some(summary.duration_ms),
        (None, None) => None,
        (None, Some(_)) => {
            let active_ms = active::so_far(&**context.engine(), row, etude_runtime::clock::now_ms());
            Some(active_ms.map_err(|e| engine_failed(&e))?)
        }
    };
    let (base, id) = (&context.settings().base_path, &row.id);
    let left_alone = listing::left_alone(&**context.engine(), row).map_err(|e| engine_failed(&e))?;
    raw(&Row {
        run_id: id,
        status: listing::status(row),
        mode: summary.map_or_else(|| target.mode(), |summary| summary.mode),
        app: context.slug(&row.app),
        pipeline: target.pipeline(),
        machine: target.machine(),
        cause: placement.cause.word(),
        by: placement.by.as_deref(),
        labels: &placement.labels,
        priority: placement.priority,
        created_at: rfc3339(row.created_at_ms),
        started_at: row.started_at_ms.map(rfc3339),
        changed_at: rfc3339(row.changed_at_ms),
        ended_at: row.state.has_ended().then(|| rfc3339(row.changed_at_ms)),
        not_before: placement.not_before_ms.map(rfc3339),
        duration_ms: so_far,
        usage: summary.map(|summary| &*summary.usage),
        waiting_count: summary.map_or(0, |summary| summary.waiting_count),
        attempt: summary.and_then(|summary| summary.attempt),
        kind: summary.and_then(|summary| summary.kind.as_deref()),
        reason: left_alone.as_deref().or_else(|| summary.and_then(|summary| summary.reason.as_deref())).or(unread),
        progress: summary.and_then(|summary| summary.progress.as_deref()),
        again_of: placement.again_of.as_deref(),
        links: Links {
            own: format!("{base}/v1/runs/{id}"),
            events: format!("{base}/v1/runs/{id}/events"),
            tree: format!("{base}/v1/runs/{id}/tree"),
            page: format!("{base}/runs/{id}"),
        },
    })
}
