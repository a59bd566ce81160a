//! Selection of the traces that count (2.1), with the reason for each that does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Event, Trace};
use crate::value::is_same_call;
use crate::world::{Class, World};

/// Time after the end of a run in which the same request counts as a repetition, in milliseconds.
const REPEATED_WITHIN_MS: u64 = 10 * 60 * 1000;

/// A trace that nothing is learned from, except as contrast.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unusable {
    /// The id of the run that the trace is of.
    pub run: String,
    /// `missing_tool`, `unknown_event`, `failed`, `judged_bad`, `denied` or `repeated`.
    pub reason: &'static str,
    /// Tools of the trace that the app does not have.
    pub tools: Vec<String>,
}

/// Traces by their use for learning.
pub(crate) struct Selected<'t> {
    pub(crate) usable: Vec<&'t Trace>,
    /// Runs that did not go well: guards are found by their differences (2.6).
    pub(crate) contrast: Vec<&'t Trace>,
    pub(crate) unusable: Vec<Unusable>,
}

/// Sorts traces into usable ones and others; the order of `traces` does not matter.
pub(crate) fn select<'t>(traces: &'t [Trace], world: &dyn World) -> Selected<'t> {
    let mut all: Vec<&Trace> = traces.iter().collect();
    all.sort_by_cached_key(|trace| trace.order());
    let mut by_request: BTreeMap<String, Vec<&Trace>> = BTreeMap::new();
    all.iter().for_each(|trace| by_request.entry(trace.digest()).or_default().push(trace));
    // Only runs of the same request can repeat each other.
    let mut same: BTreeMap<*const Trace, &[&Trace]> = BTreeMap::new();
    for traces in by_request.values() {
        same.extend(traces.iter().map(|trace| (std::ptr::from_ref::<Trace>(trace), &traces[..])));
    }
    let mut selected = Selected { usable: Vec::new(), contrast: Vec::new(), unusable: Vec::new() };
    for trace in &all {
        let missing: BTreeSet<&str> =
            trace.calls().map(|call| call.tool.as_str()).filter(|tool| world.tool(tool).is_none()).collect();
        let same = same.get(&std::ptr::from_ref::<Trace>(trace)).copied().unwrap_or_default();
        let reason = reason(trace, !missing.is_empty(), same, world);
        let Some(reason) = reason else {
            selected.usable.push(trace);
            continue;
        };
        if !matches!(reason, "missing_tool" | "unknown_event") {
            selected.contrast.push(trace);
        }
        let tools = missing.into_iter().map(str::to_owned).collect();
        selected.unusable.push(Unusable { run: trace.run.clone(), reason, tools });
    }
    selected.unusable.sort();
    selected
}

/// Reason for not learning from a trace; `None` if it is usable. `same` are all traces of its request.
fn reason(trace: &Trace, misses_tools: bool, same: &[&Trace], world: &dyn World) -> Option<&'static str> {
    if trace.events.contains(&Event::Unknown) {
        return Some("unknown_event");
    }
    if misses_tools {
        return Some("missing_tool");
    }
    if trace.judged == "bad" {
        return Some("judged_bad");
    }
    if trace.calls().any(|call| call.is_denied) {
        return Some("denied");
    }
    if trace.status != "succeeded" {
        return Some("failed");
    }
    same.iter().any(|later| is_repeated(trace, later, world)).then_some("repeated")
}

/// True if the user repeated the request within `REPEATED_WITHIN_MS`, and the later run made other writes.
fn is_repeated(trace: &Trace, later: &Trace, world: &dyn World) -> bool {
    let (Some((_, end)), Some((start, _))) = (trace.span_ms, later.span_ms) else { return false };
    let writes = |trace: &Trace| -> Vec<(String, serde_json::Value)> {
        let is_write = |tool: &str| world.tool(tool).is_some_and(|tool| tool.class == Class::Writes);
        let calls = trace.calls().filter(|call| is_write(&call.tool) && call.is_good());
        calls.map(|call| (call.tool.clone(), call.arguments.clone())).collect()
    };
    let is_same = || {
        let (one, other) = (writes(trace), writes(later));
        one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a.0 == b.0 && is_same_call(&a.1, &b.1))
    };
    trace.run != later.run && (end..=end.saturating_add(REPEATED_WITHIN_MS)).contains(&start) && !is_same()
}
