//! Details of a run beside its result document, as `etude runs show` and a server print them.

use etude_runs::listing::{self, JUDGED};
use etude_runs::{inspect, pins::Pins};
use etude_runtime::clock;
use etude_runtime::engine::{Engine, Entry, EntryQuery, Error, Expected, RunState, RunView, Write};
use serde_json::{Value, json};

use crate::trace;

/// Word for a missing verdict of the user.
const UNKNOWN: &str = "unknown";

/// The details of a run: decisions about its open questions, which `waiting` lists, the user's verdict, its routing, the files
/// of its definition, its tool calls and its effects.
pub fn of(engine: &dyn Engine, view: &RunView, waiting: &[Value]) -> Value {
    let blobs = engine.blobs();
    let id = &view.row.id;
    let decided = |waiting: &Value| {
        let decision = listing::decision(&view.signals, waiting)?;
        Some(json!({"id": waiting["id"], "approved": decision.approved, "by": decision.by, "at": decision.at}))
    };
    let is_waiting = view.row.state == RunState::Waiting;
    let decisions: Vec<Value> = waiting.iter().filter(|_| is_waiting).filter_map(decided).collect();
    json!({
        "decisions": decisions,
        "judged": verdict(engine, id).ok(),
        "routing": inspect::routing(view, &*blobs),
        "definition": Pins::of_records(&view.records).map(|pins| pins.to_json()),
        "calls": trace::of(view, &*blobs).iter().map(trace::TracedCall::to_json).collect::<Vec<_>>(),
        "effects": inspect::effects(view, &*blobs).iter().map(|effect| effect.to_json(id)).collect::<Vec<_>>(),
    })
}

/// The user's verdict on a run: `good`, `bad` or `unknown`.
///
/// # Errors
/// The journal cannot be read.
pub fn verdict(engine: &dyn Engine, run_id: &str) -> Result<String, Error> {
    let query = EntryQuery { book: JUDGED.to_owned(), key: Some(run_id.to_owned()), ..EntryQuery::default() };
    let found = engine.entries(&query)?;
    Ok(found.into_iter().next().map_or_else(|| UNKNOWN.to_owned(), |entry| entry.state))
}

/// The write of the verdict `good` or `bad` on a run. The last verdict counts.
pub fn judgement(run_id: &str, verdict: &str) -> Write {
    let entry = Entry {
        book: JUDGED.to_owned(),
        key: run_id.to_owned(),
        at_ms: clock::now_ms(),
        state: verdict.to_owned(),
        run_id: Some(run_id.to_owned()),
        body: "{}".to_owned(),
        ..Entry::default()
    };
    Write { entry, expected: Expected::Anything, submission: None, is_alone: false }
}
