//! Requests and calls of the app's other runs: data that they share with a forgotten run stays.

use etude::Disk;
use etude_core::exact::same;
use etude_core::verbatim::request_digest;
use etude_evidence::trace::{self, Event, effect_class};
use etude_runtime::engine::{Engine, RunState};
use serde_json::Value;

use crate::command::learn::export;
use crate::problem::Problem;

/// Other runs in skill mode that are not forgotten.
pub(super) struct Others {
    /// Request of each run.
    pub(super) requests: Vec<String>,
    /// Calls of each successful run with the same request, as in its trace.
    calls: Vec<Vec<Value>>,
}

impl Others {
    /// Reads all runs of the app but `run`, whose request has this digest.
    pub(super) fn of(engine: &dyn Engine, disk: &Disk, run: &str, digest: &str) -> Result<Self, Problem> {
        let (tools, _) = etude_spec::tool::load(disk);
        let blobs = engine.blobs();
        let mut others = Self { requests: Vec::new(), calls: Vec::new() };
        for view in export::views(engine, disk, None)?.iter().filter(|view| view.row.id != run) {
            let request = trace::asked(view, &*blobs).request;
            if view.row.state == RunState::Succeeded && request_digest([request.as_str()]) == digest {
                let call = |event: Event| match event {
                    Event::Call(call) => Some(call.to_trace(effect_class(&call.tool, &tools))),
                    Event::Said(_) | Event::Unreadable(_) => None,
                };
                others.calls.push(trace::events(view, &*blobs).into_iter().filter_map(call).collect());
            }
            others.requests.push(request);
        }
        Ok(others)
    }

    /// True if another run succeeded with the same request.
    pub(super) fn has_request(&self) -> bool {
        !self.calls.is_empty()
    }

    /// True if another run of the request made all calls of a case with the same results. Nothing in the case then belongs to
    /// one run alone.
    pub(super) fn has_made(&self, case: &Value) -> bool {
        let Some(recorded) = case["tools"].as_array() else { return false };
        let is_same = |one: &Value, other: &Value| {
            one["tool"] == other["tool"]
                && ["arguments", "result"].iter().all(|member| same(&one[*member], &other[*member]))
        };
        self.calls.iter().any(|calls| recorded.iter().all(|one| calls.iter().any(|call| is_same(one, call))))
    }
}
