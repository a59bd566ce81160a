//! One tick: its entry in the ledger, and its run.

use std::sync::Arc;
use std::time::Duration;

use etude::runner::Request;
use etude_core::data::Json;
use etude_runs::listing;
use etude_runs::target::Target as RunTarget;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Cause, Entry, EntryQuery, Error, Expected, Placement, Write, Written};
use etude_spec::automation::{CatchUp, Overlap, Target, template};
use serde_json::{Value, json};

use super::{Found, Schedules};
use crate::admission::{self, Admission, Candidate, Full};
use crate::app::{NotLoaded, not_loaded};
use crate::notice::{self, Skipped};
use crate::problem::{Code, Problem, engine_failed};
use crate::work;

/// Maximum number of skipped ticks that are checked for a missing notice.
const MAX_REPORTED: u32 = 200;

/// The state of a tick that waits for the end of an earlier run.
const WAITING: &str = "waiting";

/// The state of a tick with a run.
const RAN: &str = "ran";

/// The kind of a tick that a backfill has requested.
const BACKFILL: &str = "backfill";

/// A tick that a server takes.
#[derive(Debug, Clone)]
pub(super) struct Tick {
    pub(super) key: String,
    /// The nominal time of the tick.
    pub(super) at_ms: i64,
    pub(super) due_ms: i64,
    /// The delay after the due time, if no server looked at that time (K-44).
    pub(super) late_ms: Option<i64>,
    pub(super) kind: &'static str,
    pub(super) expected: Expected,
    /// True for one of several ticks that run one after another: of a backfill, or missed ones.
    pub(super) is_in_turn: bool,
}

/// Outcome of an attempt to take a tick.
#[derive(Debug)]
pub(super) enum Taken {
    Ran(String),
    /// Earlier runs have not ended.
    Busy,
    /// Another server or an earlier process has taken the tick.
    Other,
    Full(Full),
    Invalid(Box<Problem>),
}

impl Tick {
    /// A tick of the pattern. Its key does not depend on the definition.
    pub(super) fn nominal(at_ms: i64, due_ms: i64) -> Self {
        let (key, late_ms, expected) = (at_ms.to_string(), None, Expected::Nothing);
        Self { key, at_ms, due_ms, late_ms, kind: "tick", expected, is_in_turn: false }
    }

    fn entry(&self, found: &Found, state: &str, reason: Option<&str>) -> Entry {
        let body = json!({"kind": self.kind, "reason": reason, "due_ms": self.due_ms, "late_ms": self.late_ms});
        let (book, key) = (found.book(), self.key.clone());
        // With this time, ticks that wait for their turn are found, however old they are, and so are ticks whose earlier runs
        // are not cancelled yet.
        let has_more = match state {
            WAITING => self.is_in_turn,
            RAN => self.kind == "tick" && found.schedule().overlap == Overlap::Cancel,
            _ => false,
        };
        let due_ms = has_more.then_some(self.at_ms);
        Entry { book, key, at_ms: self.at_ms, state: state.to_owned(), due_ms, body: body.to_string(), run_id: None }
    }
}

/// The document of a tick.
pub(crate) fn document(entry: &Entry) -> Value {
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    let due = body["due_ms"].as_i64().unwrap_or(entry.at_ms);
    json!({
        "at": rfc3339(entry.at_ms), "kind": body["kind"], "outcome": entry.state, "reason": body["reason"],
        "run_id": entry.run_id, "due_at": rfc3339(due), "late_ms": body["late_ms"],
    })
}

/// Takes a tick according to `overlap`.
pub(super) fn take(schedules: &Arc<Schedules>, found: &Found, tick: &Tick) -> Result<(), Problem> {
    let overlap = found.schedule().overlap;
    let is_alone = matches!(overlap, Overlap::Skip | Overlap::Queue);
    match begin(schedules, found, tick, is_alone)? {
        Taken::Ran(_) if overlap == Overlap::Cancel => cancel_earlier(schedules, found),
        Taken::Ran(_) | Taken::Other => Ok(()),
        Taken::Busy if overlap == Overlap::Queue && !has_waiting(schedules, found)? => {
            note(schedules, found, tick, WAITING, None).map(drop)
        }
        Taken::Busy => skip(schedules, found, tick, "overlap"),
        Taken::Full(full) => skip(schedules, found, tick, full.reason()),
        Taken::Invalid(_) => skip(schedules, found, tick, "definition_invalid"),
    }
}

/// True if this number of missed ticks run one after another: with `catch_up: all`, each has a run, and at its time the earlier
/// ones would have ended. With `overlap: skip`, a run from before them skips them all.
pub(super) fn run_in_turn(schedules: &Schedules, found: &Found, missed: usize, now_ms: i64) -> Result<bool, Problem> {
    let overlap = found.schedule().overlap;
    let is_alone = matches!(overlap, Overlap::Skip | Overlap::Queue);
    if found.schedule().catch_up != CatchUp::All || !is_alone || missed == 0 {
        return Ok(false);
    }
    // A process that was killed may have noted the first of them.
    if !in_turn(schedules, found, now_ms)?.is_empty() {
        return Ok(true);
    }
    Ok(missed > 1 && (overlap == Overlap::Queue || !is_busy(schedules, found)?))
}

/// Notes a tick that begins after the waiting ones before it.
pub(super) fn wait_in_turn(schedules: &Schedules, found: &Found, tick: &Tick) -> Result<(), Problem> {
    note(schedules, found, &Tick { is_in_turn: true, ..tick.clone() }, WAITING, None).map(drop)
}

/// Notes a tick that starts no run, and reports it.
pub(super) fn skip(schedules: &Arc<Schedules>, found: &Found, tick: &Tick, reason: &str) -> Result<(), Problem> {
    if note(schedules, found, tick, "skipped", Some(reason))? != Written::Done {
        return Ok(());
    }
    let skipped = Skipped { schedule: found.schedule(), at_ms: tick.at_ms, reason, is_old: false };
    notice::skipped(&schedules.notices, &found.app, skipped)
}

/// Reports skipped ticks that a killed process has not reported.
pub(super) fn report_skipped(schedules: &Arc<Schedules>, found: &Found) -> Result<(), Problem> {
    let (state, limit) = (Some("skipped".to_owned()), Some(MAX_REPORTED));
    let query = EntryQuery { book: found.book(), state, limit, ..EntryQuery::default() };
    for entry in schedules.ledger.entries(&query)? {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        let reason = body["reason"].as_str().unwrap_or_default();
        let skipped = Skipped { schedule: found.schedule(), at_ms: entry.at_ms, reason, is_old: true };
        notice::skipped(&schedules.notices, &found.app, skipped)?;
    }
    Ok(())
}

fn note(
    schedules: &Schedules,
    found: &Found,
    tick: &Tick,
    state: &'static str,
    reason: Option<&str>,
) -> Result<Written, Problem> {
    let (entry, expected) = (tick.entry(found, state, reason), tick.expected.clone());
    let written = schedules.ledger.write(&Write { entry, expected, submission: None, is_alone: false })?;
    if written == Written::Done {
        schedules.metrics.tick(label(schedules, found), state, None);
    }
    Ok(written)
}

/// The name of a schedule in the metrics.
fn label(schedules: &Schedules, found: &Found) -> String {
    let name = &found.schedule().name;
    if schedules.context.settings().apps.len() > 1 { format!("{}/{name}", found.app.slug) } else { name.clone() }
}

/// The tick of the pattern that waits for the end of an earlier run.
pub(super) fn waiting(schedules: &Schedules, found: &Found) -> Result<Option<Entry>, Problem> {
    let query = EntryQuery { book: found.book(), state: Some(WAITING.to_owned()), ..EntryQuery::default() };
    Ok(schedules.ledger.entries(&query)?.into_iter().rfind(|entry| entry.due_ms.is_none()))
}

/// The ticks that wait for their turn, newest first: of a backfill, or missed ones.
pub(super) fn in_turn(schedules: &Schedules, found: &Found, now_ms: i64) -> Result<Vec<Entry>, Problem> {
    let (state, due_ms) = (Some(WAITING.to_owned()), Some(now_ms));
    schedules.ledger.entries(&EntryQuery { book: found.book(), state, due_ms, ..EntryQuery::default() })
}

/// True if a backfill has requested the tick.
pub(super) fn is_backfilled(entry: &Entry) -> bool {
    serde_json::from_str::<Value>(&entry.body).is_ok_and(|body| body["kind"] == BACKFILL)
}

fn has_waiting(schedules: &Schedules, found: &Found) -> Result<bool, Problem> {
    waiting(schedules, found).map(|entry| entry.is_some())
}

/// Starts the run of a waiting tick if the earlier runs have ended. True if it still waits.
pub(super) fn promote(schedules: &Arc<Schedules>, found: &Found, entry: &Entry) -> Result<bool, Problem> {
    // This runs four times a second: a read of the journal costs less than preparing a run for nothing.
    if is_busy(schedules, found)? {
        return Ok(true);
    }
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    let tick = Tick {
        key: entry.key.clone(),
        kind: if is_backfilled(entry) { BACKFILL } else { "tick" },
        expected: Expected::Entry { state: entry.state.clone(), due_ms: entry.due_ms },
        late_ms: body["late_ms"].as_i64(),
        ..Tick::nominal(entry.at_ms, body["due_ms"].as_i64().unwrap_or(entry.at_ms))
    };
    match begin(schedules, found, &tick, true)? {
        Taken::Busy | Taken::Full(_) => Ok(true),
        Taken::Invalid(_) => skip(schedules, found, &tick, "definition_invalid").map(|()| false),
        Taken::Ran(_) | Taken::Other => Ok(false),
    }
}

/// Outcome of a requested tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backfilled {
    Ran,
    /// The tick waits for the end of an earlier run.
    Waits,
    /// The tick has a run, or waits for one already.
    Other,
}

/// Starts the run of a tick that has none. With `overlap: queue`, the tick waits behind waiting ticks of the same backfill, and
/// for a run that has not ended.
pub(super) fn backfill(
    schedules: &Arc<Schedules>,
    found: &Found,
    at_ms: i64,
    has_waiting: bool,
) -> Result<Backfilled, Problem> {
    let query = EntryQuery { book: found.book(), key: Some(at_ms.to_string()), ..EntryQuery::default() };
    let entry = schedules.ledger.entries(&query)?.pop();
    let expected = match entry {
        None => Expected::Nothing,
        Some(entry) if entry.state == "skipped" => Expected::Entry { state: entry.state, due_ms: entry.due_ms },
        Some(_) => return Ok(Backfilled::Other),
    };
    let tick = Tick { kind: BACKFILL, expected, is_in_turn: true, ..Tick::nominal(at_ms, at_ms) };
    let is_alone = found.schedule().overlap == Overlap::Queue;
    match if has_waiting { Taken::Busy } else { begin(schedules, found, &tick, is_alone)? } {
        Taken::Ran(_) => Ok(Backfilled::Ran),
        Taken::Busy if note(schedules, found, &tick, WAITING, None)? == Written::Done => Ok(Backfilled::Waits),
        Taken::Busy | Taken::Other => Ok(Backfilled::Other),
        Taken::Full(full) => Err(full.problem(&schedules.admissions)),
        Taken::Invalid(problem) => Err(*problem),
    }
}

/// Writes a tick with its run, in one transaction.
pub(super) fn begin(schedules: &Arc<Schedules>, found: &Found, tick: &Tick, is_alone: bool) -> Result<Taken, Problem> {
    let admission = match admit(schedules, found, tick) {
        Ok(admission) => admission,
        Err(problem) if problem.code() == Code::JournalUnavailable => return Err(problem),
        Err(problem) => return Ok(Taken::Invalid(Box::new(problem))),
    };
    let submission = admission.submission.clone();
    let id = submission.run.id.clone();
    let (entry, expected) = (tick.entry(found, RAN, None), tick.expected.clone());
    let mut write = Write { entry, expected, submission: Some(submission), is_alone };
    let mut written = schedules.ledger.write(&write)?;
    if let Written::Busy(runs) = &written
        && are_left_alone(schedules, runs)?
    {
        // Runs that no server continues do not count as overlap.
        write.is_alone = false;
        written = schedules.ledger.write(&write)?;
    }
    Ok(match written {
        Written::Done => {
            let lag = u64::try_from(schedules.context.clock().now_ms().saturating_sub(tick.due_ms)).unwrap_or(0);
            let lag = (tick.kind == "tick").then_some(Duration::from_millis(lag));
            schedules.metrics.tick(label(schedules, found), "ran", lag);
            admission.accepted(&schedules.admissions)?;
            Taken::Ran(id)
        }
        Written::Busy(_) => Taken::Busy,
        Written::Full => Taken::Full(admission.full),
        Written::Held { run_id } => Taken::Full(Full::Pipeline(run_id)),
        Written::Other(_) | Written::Repeated { .. } => Taken::Other,
    })
}

/// True if a run of the schedule has not ended, and a server continues it.
fn is_busy(schedules: &Schedules, found: &Found) -> Result<bool, Problem> {
    let query = EntryQuery { book: found.book(), is_unfinished: true, ..EntryQuery::default() };
    let runs: Vec<String> = schedules.ledger.entries(&query)?.into_iter().filter_map(|entry| entry.run_id).collect();
    Ok(!runs.is_empty() && !are_left_alone(schedules, &runs)?)
}

/// True if no server continues any of these runs by itself.
fn are_left_alone(schedules: &Schedules, runs: &[String]) -> Result<bool, Problem> {
    let engine = schedules.context.engine();
    for id in runs {
        let row = engine.row(id).map_err(|e| engine_failed(&e))?;
        if listing::left_alone(&**engine, &row).map_err(|e| engine_failed(&e))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn admit(schedules: &Schedules, found: &Found, tick: &Tick) -> Result<Admission, Problem> {
    let schedule = found.schedule();
    let no_target = || Problem::new(Code::DefinitionInvalid, "the schedule runs nothing");
    let target = match schedule.target.as_ref().ok_or_else(no_target)? {
        Target::Pipeline(name) => RunTarget::Pipeline(name.clone()),
        Target::Machine(name) => RunTarget::Machine(name.clone()),
    };
    let loaded = schedules.context.startable(&found.app.dir, &target);
    let (_, definition) = loaded.map_err(|error| match error {
        // A tick does not wait for a file. It is skipped, with a notice.
        NotLoaded::Unreadable(why) => Problem::new(Code::DefinitionInvalid, why),
        error => not_loaded(error, "", &target.to_string()),
    })?;
    let at = rfc3339(tick.at_ms);
    let lookup = |reference: &str| match reference {
        "tick.at" => Some(Value::from(at.as_str()).to_string()),
        "tick.date" => schedule.timing.as_ref().map(|timing| Value::from(timing.date(tick.at_ms)).to_string()),
        _ => None,
    };
    let unknown = |reference| Problem::new(Code::DefinitionInvalid, format!("`{reference}` has no value"));
    let input = template::fill(&schedule.input, &lookup).map_err(unknown)?;
    let input = Json::parse(&input).map_err(|e| Problem::new(Code::Bug, e.to_string()))?;
    let request = Request::new(input, definition.app.display().to_string());
    let placement = Placement { cause: Cause::Schedule, ..Placement::default() };
    let candidate = Candidate { request, placement, has_priority: false, keys: Vec::new(), tick: Some(at.clone()) };
    admission::admit(&schedules.admissions, &found.app, &definition, candidate)
}

/// Cancels the runs that began before the ticks of `overlap: cancel`. A tick is noted as done only then, so that the next look
/// of any server completes the work of a process that was killed.
pub(super) fn cancel_earlier(schedules: &Arc<Schedules>, found: &Found) -> Result<(), Problem> {
    let (state, due_ms) = (Some(RAN.to_owned()), Some(i64::MAX));
    let query = EntryQuery { book: found.book(), state, due_ms, ..EntryQuery::default() };
    for entry in schedules.ledger.entries(&query)? {
        if let Some(run_id) = &entry.run_id {
            cancel_before(schedules, found, run_id)?;
        }
        let expected = Expected::Entry { state: entry.state.clone(), due_ms: entry.due_ms };
        let entry = Entry { due_ms: None, ..entry };
        // Another server may have noted it already.
        schedules.ledger.write(&Write { entry, expected, submission: None, is_alone: false })?;
    }
    Ok(())
}

/// Cancels the unfinished runs of a schedule that were accepted before this one.
fn cancel_before(schedules: &Arc<Schedules>, found: &Found, run_id: &str) -> Result<(), Problem> {
    let engine = schedules.context.engine();
    let row_of = |id: &str| match engine.row(id) {
        Ok(row) => Ok(Some(row)),
        Err(Error::Unknown(_)) => Ok(None),
        Err(error) => Err(engine_failed(&error)),
    };
    // Only an ended run can be removed. A later tick has cancelled the earlier ones then.
    let Some(number) = row_of(run_id)?.map(|row| row.number) else { return Ok(()) };
    let query = EntryQuery { book: found.book(), is_unfinished: true, ..EntryQuery::default() };
    let reason = format!("the schedule `{}` ticked again", found.schedule().name);
    for id in schedules.ledger.entries(&query)?.into_iter().filter_map(|entry| entry.run_id) {
        if let Some(row) = row_of(&id)?.filter(|row| row.number < number) {
            work::cancel_run(&schedules.works, &row, &reason, false)?;
        }
    }
    Ok(())
}
