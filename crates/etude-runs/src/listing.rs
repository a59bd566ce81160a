//! Lists of runs: resolution of ids, rows of listings, comparisons and statistics.

pub mod active;
mod diff;
mod stats;

use std::collections::BTreeMap;

use etude_core::effect::EffectId;
use etude_core::outcome::Decision;
use etude_process::blob::BlobStore;
use etude_runtime::clock;
use etude_runtime::engine::{
    DEFAULT_TENANT, Engine, Entry, EntryQuery, Error, Query, RunRow, RunState, RunView, Signal,
};
use etude_runtime::record;
use serde_json::{Value, json};

use crate::document::Document;
use crate::target::Target;

pub use diff::{Side, diff, is_same};
pub use stats::{Group, Stats, stats};

/// The word that stands for the newest run wherever a run's id is expected.
pub const LATEST: &str = "latest";

/// The ledger book of users' verdicts on runs: `good` or `bad`, by the run's id.
pub const JUDGED: &str = "judged";

/// The ledger book of the actions of server tokens.
pub const ACTIONS: &str = "actions";

/// The status of a run that is `running` although no process executes it.
pub const INTERRUPTED: &str = "interrupted";

/// The id that `text` stands for: the newest run of `app` for [`LATEST`], else `text` itself. `None` if there is no run yet.
///
/// # Errors
/// The store fails.
pub fn resolve(engine: &dyn Engine, app: Option<&str>, text: &str) -> Result<Option<String>, Error> {
    if text != LATEST {
        return Ok(Some(text.to_owned()));
    }
    let newest = engine.list(&Query {
        apps: app.map(str::to_owned).into_iter().collect(),
        limit: Some(1),
        ..Query::default()
    })?;
    Ok(newest.into_iter().next().map(|row| row.id))
}

/// Actions of server tokens on a run, oldest first: `{"at", "by", "action"}`.
///
/// # Errors
/// The store fails.
pub fn actions(engine: &dyn Engine, run_id: &str) -> Result<Vec<Value>, Error> {
    let (book, run_id) = (ACTIONS.to_owned(), Some(run_id.to_owned()));
    let entries = engine.entries(&EntryQuery { book, run_id, ..EntryQuery::default() })?;
    let brief = |entry: &Entry| {
        let action = action_json(entry);
        json!({"at": action["at"], "by": action["by"], "action": action["action"]})
    };
    Ok(entries.iter().rev().map(brief).collect())
}

/// An entry of [`ACTIONS`] as a document. `about` has the parameters of the called path.
pub fn action_json(entry: &Entry) -> Value {
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    json!({
        "at": clock::rfc3339(entry.at_ms), "by": body["by"], "action": body["action"], "run_id": entry.run_id,
        "about": body["about"],
    })
}

/// The status of a run in listings.
pub fn status(row: &RunRow) -> &'static str {
    if row.state == RunState::Running && !row.is_live { INTERRUPTED } else { row.state.word() }
}

/// True if an entry of `waiting` in a result document needs a decision: a suspended stage is only resumed (B-G3).
pub fn is_question(waiting: &Value) -> bool {
    waiting["kind"] != SUSPENDED
}

/// Kind of the entries of `waiting` that need no decision.
const SUSPENDED: &str = "parked";

/// The decision about a question in `waiting` of a result document, given after the run began to wait.
pub fn decision(signals: &[Signal], waiting: &Value) -> Option<Decision> {
    let (_, effect) = waiting["id"].as_str()?.split_once(':')?;
    let key = record::decision_key(effect, waiting["payload"]["question"].as_str()?);
    signals.iter().find(|signal| signal.key == key).and_then(record::to_decision)
}

/// Deadline of an effect's question, in milliseconds since 1970: the first deadline of its step or of any enclosing part.
pub fn deadline(view: &RunView, effect: &str) -> Option<i64> {
    let is_around = |id: &str| {
        let rest = id.split('!').next().and_then(|path| effect.strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '#']))
    };
    let records = || record::counting(&view.records).map(|(_, record)| record);
    let is_over = |id: &str| records().any(|record| record.key == id);
    // The time budget may end later than at an earlier wait.
    let deadlines: BTreeMap<EffectId, i64> = records().filter_map(record::to_deadline).collect();
    let around = deadlines.iter().filter(|(id, _)| is_around(id.as_str()) && !is_over(id.as_str()));
    around.map(|(_, at_ms)| *at_ms).min()
}

/// The effect of an entry of `waiting` in a result document.
pub fn effect_of(waiting: &Value) -> &str {
    waiting["id"].as_str().and_then(|id| id.split_once(':')).map_or("", |(_, effect)| effect)
}

/// Row of a listing, with facts from the run's result document.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The run as its engine lists it.
    pub row: RunRow,
    /// `pipeline`, `skill` or `machine`; `skill` also after a deviation from a pipeline.
    pub mode: &'static str,
    /// Active time, without waits and interruptions, until the run's end, its wait, or now, in milliseconds.
    pub duration_ms: u64,
    /// Cost in US dollars; `None` if no price is known or no model was called.
    pub cost_usd: Option<f64>,
    /// Sum of input and output tokens.
    pub tokens: u64,
    /// The kind of the first failure, such as `step_failed`.
    pub kind: Option<String>,
    /// Reason of a failure or a wait, in one line.
    pub reason: Option<String>,
    /// The steps, as in the result document.
    pub steps: Value,
}

/// The text of a run's result. `Err` inside has the reason why it cannot be read: a damaged run holds up no other in a list.
///
/// # Errors
/// The store fails.
pub fn readable_result(engine: &dyn Engine, run_id: &str) -> Result<Result<Option<String>, String>, Error> {
    match engine.result(run_id) {
        Ok(text) => Ok(Ok(text)),
        // Removed since the list was read.
        Err(Error::Unknown(_)) => Ok(Ok(None)),
        Err(error @ Error::Damaged { .. }) => Ok(Err(format!("its result cannot be read: {error}"))),
        // The value of a large result is missing. A shared store that fails may be away.
        Err(error @ Error::Store { .. }) if !engine.is_shared() => {
            Ok(Err(format!("its result cannot be read: {error}")))
        }
        Err(error) => Err(error),
    }
}

/// Reads the facts of a listing about a run. An unreadable result document contributes none but the reason.
///
/// # Errors
/// The store fails.
pub fn listed(engine: &dyn Engine, row: RunRow, now_ms: i64) -> Result<Listed, Error> {
    let (document, unread) = match row.state {
        RunState::Queued | RunState::Running | RunState::Moved => (None, None),
        _ => match readable_result(engine, &row.id)? {
            Ok(text) => (text.and_then(|text| parsed(&text, &*engine.blobs())), None),
            Err(why) => (None, Some(why)),
        },
    };
    let mut listed = Listed {
        duration_ms: 0,
        mode: Target::parse(&row.target).mode(),
        row,
        cost_usd: None,
        tokens: 0,
        kind: None,
        reason: None,
        steps: Value::Null,
    };
    let Some(document) = document else {
        listed.duration_ms = active::so_far(engine, &listed.row, now_ms)?;
        listed.reason = left_alone(engine, &listed.row)?.or(unread);
        return Ok(listed);
    };
    let member = |name: &str| document.members.get(name).cloned().unwrap_or_default();
    let usage = member("usage");
    let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
    listed.mode = document.mode;
    listed.duration_ms = document.duration_ms;
    listed.cost_usd = usage["cost_usd"].as_f64();
    listed.tokens = tokens("input_tokens") + tokens("output_tokens");
    listed.kind = kind(&document);
    listed.reason = reason(&document);
    if listed.row.state == RunState::Waiting && !document.waiting.is_empty() {
        let signals = engine.view(&listed.row.id)?.signals;
        let decisions: Option<Vec<Decision>> =
            document.waiting.iter().map(|waiting| decision(&signals, waiting)).collect();
        if let Some(decisions) = decisions {
            let word = if decisions.iter().all(|decision| decision.approved) { "approved" } else { "decided" };
            listed.reason = Some(format!("{word}; continue with `etude runs resume {}`", listed.row.id));
        }
    }
    listed.steps = member("steps");
    Ok(listed)
}

/// Number of processes that may die with a run since its last record, before servers leave it alone.
pub const MAX_DEATHS: u32 = 3;

/// Reason why no server continues an interrupted run by itself; `None` if one may.
///
/// # Errors
/// The store fails.
pub fn left_alone(engine: &dyn Engine, row: &RunRow) -> Result<Option<String>, Error> {
    // Workers end a run that has a bundle.
    if row.state != RunState::Running || row.is_live || row.placement.bundle.is_some() {
        return Ok(None);
    }
    let deaths = engine.deaths(&row.id)?;
    let why = || {
        format!(
            "{deaths} processes in a row died while they executed it, without a new record: servers no longer continue it"
        )
    };
    Ok((deaths >= MAX_DEATHS).then(why))
}

/// The kind of the first failure of a run, such as `step_failed`.
pub fn kind(document: &Document) -> Option<String> {
    document.members.get("errors")?[0]["kind"].as_str().map(str::to_owned)
}

/// Reason of a failure or a wait, in one line.
pub fn reason(document: &Document) -> Option<String> {
    let error = document.members.get("errors").and_then(|errors| errors[0]["message"].as_str());
    let message = error.or_else(|| document.waiting.first()?["payload"]["message"].as_str());
    message.and_then(|message| message.lines().next()).map(str::to_owned)
}

fn parsed(text: &str, blobs: &dyn BlobStore) -> Option<Document> {
    Document::from_journal(text, blobs).ok()
}

/// Document of a run in listings.
pub fn row_json(row: &RunRow) -> Value {
    let target = Target::parse(&row.target);
    json!({
        "run_id": row.id,
        "status": status(row),
        "mode": target.mode(),
        "pipeline": target.pipeline(),
        "machine": target.machine(),
        "app": row.app,
        "started_at": row.started_at_ms.map(clock::rfc3339),
        "changed_at": clock::rfc3339(row.changed_at_ms),
    })
}

/// Members of listings and documents about the run's placement on a fleet.
pub fn placement_json(row: &RunRow) -> Value {
    let placement = &row.placement;
    json!({
        "queue": placement.queue(),
        "priority": placement.priority,
        "labels": placement.labels,
        "tenant": placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT),
        "bundle": placement.bundle.map(|bundle| bundle.to_string()),
        "worker": row.worker,
    })
}

impl Listed {
    /// The run as a document.
    pub fn to_json(&self) -> Value {
        let mut out = row_json(&self.row);
        out["mode"] = self.mode.into();
        out["duration_ms"] = self.duration_ms.into();
        out["tokens"] = self.tokens.into();
        out["cost_usd"] = self.cost_usd.into();
        out["kind"] = self.kind.as_deref().into();
        out["reason"] = self.reason.as_deref().into();
        out
    }
}
