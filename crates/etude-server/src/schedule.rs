//! Schedules: their state, and their ticks.

mod due;
mod tick;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_runs::target::Target as RunTarget;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write, Written};
use etude_spec::Diagnostic;
use etude_spec::automation::{Automation, Schedule, Target};
use serde_json::{Value, json};

use crate::admission::Admissions;
use crate::app::NotLoaded;
use crate::automation::broken;
use crate::context::Context;
use crate::ledger::{Ledger, book};
use crate::metrics::Metrics;
use crate::notice::Notices;
use crate::problem::{Code, Problem};
use crate::settings::ServedApp;
use crate::token::Caller;
use crate::work::Works;

pub(crate) use tick::document as tick_document;
pub(crate) use turn::turns;

/// Maximum number of ticks of one backfill.
const MAX_BACKFILL: usize = 1_000;

/// The schedules of the served apps. Their whole state is in the journal.
pub(crate) struct Schedules {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    notices: Arc<Notices>,
    works: Arc<Works>,
    admissions: Arc<Admissions>,
    looks: Mutex<BTreeMap<(PathBuf, String), turn::Look>>,
    /// Schedules with waiting ticks of a new backfill, which the clock loop has not seen yet.
    backfilled: Mutex<BTreeSet<(PathBuf, String)>>,
    /// The time of the clock loop's last complete turn.
    turned: Mutex<Option<Instant>>,
}

impl Schedules {
    /// The schedules of the apps of `context`.
    pub(crate) fn new(
        context: &Arc<Context>,
        ledger: &Arc<Ledger>,
        metrics: &Arc<Metrics>,
        notices: &Arc<Notices>,
        works: &Arc<Works>,
        admissions: &Arc<Admissions>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            ledger: Arc::clone(ledger),
            metrics: Arc::clone(metrics),
            notices: Arc::clone(notices),
            works: Arc::clone(works),
            admissions: Arc::clone(admissions),
            looks: Mutex::default(),
            backfilled: Mutex::default(),
            turned: Mutex::default(),
        }
    }

    /// The time since the clock loop last looked at all schedules; `None` before its first turn.
    pub(crate) fn since_turn(&self) -> Option<Duration> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner).map(|turned| turned.elapsed())
    }

    fn note_turn(&self) {
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// A schedule of a served app.
#[derive(Clone)]
pub(crate) struct Found {
    app: ServedApp,
    automation: Arc<Automation>,
    index: usize,
}

impl Found {
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.automation.schedules[self.index]
    }

    /// The book of the schedule's ticks.
    pub(crate) fn book(&self) -> String {
        book::ticks(&self.app, &self.schedule().name)
    }
}

/// The state of a schedule in the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The last seen pattern.
    pattern: String,
    /// The time at which the pattern was first seen, in milliseconds since 1970.
    since_ms: i64,
    is_paused: bool,
    reason: Option<String>,
    /// The end of the pause, in milliseconds since 1970; `None`: it has no end.
    until_ms: Option<i64>,
}

impl Kept {
    fn read(schedules: &Schedules, found: &Found) -> Result<Option<Self>, Problem> {
        Ok(Self::entry(schedules, found)?.as_ref().map(Self::of))
    }

    fn entry(schedules: &Schedules, found: &Found) -> Result<Option<Entry>, Problem> {
        let (book, key) = (book::schedules(&found.app), Some(found.schedule().name.clone()));
        let query = EntryQuery { book, key, ..EntryQuery::default() };
        Ok(schedules.ledger.entries(&query)?.pop())
    }

    fn of(entry: &Entry) -> Self {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        Self {
            pattern: body["pattern"].as_str().unwrap_or_default().to_owned(),
            since_ms: entry.at_ms,
            is_paused: entry.state == "paused",
            reason: body["reason"].as_str().map(str::to_owned),
            until_ms: body["until_ms"].as_i64(),
        }
    }

    /// Changes the state in the journal. `change` receives the current state, and is called again if another server or request
    /// has written meanwhile.
    fn change(schedules: &Schedules, found: &Found, change: impl Fn(Option<Self>) -> Self) -> Result<Self, Problem> {
        loop {
            let entry = Self::entry(schedules, found)?;
            let before = entry.as_ref().map(Self::of);
            let kept = change(before.clone());
            if before.as_ref() == Some(&kept) || kept.write(schedules, found, entry)? {
                return Ok(kept);
            }
        }
    }

    /// Writes the state in place of `before`. False if `before` is outdated.
    fn write(&self, schedules: &Schedules, found: &Found, before: Option<Entry>) -> Result<bool, Problem> {
        let body = json!({"pattern": self.pattern, "reason": self.reason, "until_ms": self.until_ms});
        let entry = Entry {
            book: book::schedules(&found.app),
            key: found.schedule().name.clone(),
            at_ms: self.since_ms,
            state: self.state(),
            body: body.to_string(),
            ..Entry::default()
        };
        let expected = before.map_or(Expected::Nothing, |before| Expected::Exactly(Box::new(before)));
        let write = Write { entry, expected, submission: None, is_alone: false };
        Ok(schedules.ledger.write(&write)? == Written::Done)
    }

    fn state(&self) -> String {
        if self.is_paused { "paused" } else { "active" }.to_owned()
    }

    /// The paused state: no runs until `until_ms`, or without an end.
    pub(crate) fn paused(self, reason: Option<String>, until_ms: Option<i64>) -> Self {
        Self { is_paused: true, reason, until_ms, ..self }
    }

    /// The state without a pause.
    pub(crate) fn active(self) -> Self {
        Self { is_paused: false, reason: None, until_ms: None, ..self }
    }

    fn is_paused_at(&self, now_ms: i64) -> bool {
        self.is_paused && self.until_ms.is_none_or(|until| until > now_ms)
    }
}

/// All schedules that the caller may see. An app that cannot be read has none, and hides none of the others.
pub(crate) fn visible(schedules: &Schedules, caller: &Caller) -> Vec<Found> {
    let mut all = Vec::new();
    for (app, automation) in schedules.context.automations() {
        let found = |index| Found { app: app.clone(), automation: Arc::clone(&automation), index };
        all.extend((0..automation.schedules.len()).map(found));
    }
    all.retain(|found| found.schedule().target.as_ref().is_none_or(|target| caller.covers(target.name())));
    all
}

pub(crate) fn document(schedules: &Schedules, found: &Found) -> Result<Value, Problem> {
    let schedule = found.schedule();
    let now = schedules.context.clock().now_ms();
    let kept = Kept::read(schedules, found)?.unwrap_or_default();
    let is_paused = kept.is_paused_at(now);
    let faults = faults(schedules, found);
    let is_broken = !schedule.broken.is_empty();
    let (pipeline, machine) = Target::names(schedule.target.as_ref());
    let next = schedule.timing.as_ref().filter(|_| faults.is_empty()).and_then(|timing| timing.next(now));
    let description = match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => (!is_broken).then(|| etude_spec::schedule::words(cron)),
        (None, every) => every.map(etude_spec::schedule::interval),
    };
    Ok(json!({
        "app": found.app.slug, "name": schedule.name, "pipeline": pipeline, "machine": machine, "cron": schedule.cron,
        "every": schedule.every_ms.map(etude_spec::duration::text), "timezone": schedule.timezone,
        "description": description,
        "overlap": schedule.overlap.word(), "catch_up": schedule.catch_up.word(),
        "catch_up_within_ms": schedule.catch_up_within_ms, "jitter_ms": schedule.jitter_ms, "paused": is_paused,
        "reason": kept.reason.filter(|_| is_paused), "broken": broken(&faults), "next_at": next.map(rfc3339),
    }))
}

/// The faults because of which a schedule starts no runs: the errors of its entry, or those of its target, as the files are now.
/// Its ticks are taken anyway, so that each is noted with its reason.
fn faults(schedules: &Schedules, found: &Found) -> Vec<Diagnostic> {
    let schedule = found.schedule();
    let target = match &schedule.target {
        _ if !schedule.broken.is_empty() => return schedule.broken.clone(),
        Some(Target::Pipeline(name)) => RunTarget::Pipeline(name.clone()),
        Some(Target::Machine(name)) => RunTarget::Machine(name.clone()),
        None => return Vec::new(),
    };
    match schedules.context.startable(&found.app.dir, &target) {
        Ok((_, definition)) => schedule.misfits(&definition.input),
        Err(NotLoaded::Invalid(found)) => found.into_iter().filter(Diagnostic::is_error).collect(),
        Err(NotLoaded::Unknown { .. }) => vec![schedule.unready("the app has no such pipeline or machine in use")],
        Err(NotLoaded::Unreadable(why) | NotLoaded::Unreachable(why)) => vec![schedule.unready(&why)],
    }
}

/// The response to the earlier request that fired with this key.
fn fired_before(schedules: &Schedules, found: &Found, key: &str) -> Result<Option<Value>, Problem> {
    let query = EntryQuery { book: found.book(), key: Some(key.to_owned()), ..EntryQuery::default() };
    let entry = schedules.ledger.entries(&query)?.pop();
    Ok(entry.map(|entry| json!({"at": rfc3339(entry.at_ms), "run_id": entry.run_id})))
}

/// App, name and state of each schedule that the caller may see, for the metrics. A broken schedule starts no runs.
pub(crate) fn states(schedules: &Schedules, caller: &Caller) -> Result<Vec<(String, String, &'static str)>, Problem> {
    let now = schedules.context.clock().now_ms();
    let state = |found: Found| {
        let state = match Kept::read(schedules, &found)? {
            _ if !faults(schedules, &found).is_empty() => "broken",
            Some(kept) if kept.is_paused_at(now) => "paused",
            _ => "active",
        };
        Ok((found.app.slug.clone(), found.schedule().name.clone(), state))
    };
    visible(schedules, caller).into_iter().map(state).collect()
}

/// The schedule of this app and name, if the caller may see it.
pub(crate) fn find(schedules: &Schedules, caller: &Caller, app: &str, name: &str) -> Result<Found, Problem> {
    let all = visible(schedules, caller);
    let found = all.into_iter().find(|found| found.app.slug == app && found.schedule().name == name);
    found.ok_or_else(|| Problem::not_found("there is no such schedule"))
}

/// Pauses or continues a schedule, and returns its document.
pub(crate) fn moved(schedules: &Schedules, found: &Found, change: impl Fn(Kept) -> Kept) -> Result<Value, Problem> {
    let fresh = || Kept {
        pattern: found.schedule().pattern(),
        since_ms: schedules.context.clock().now_ms(),
        ..Kept::default()
    };
    Kept::change(schedules, found, |kept| change(kept.unwrap_or_else(fresh)))?;
    document(schedules, found)
}

/// Starts a run of a schedule now. `given` is the digest of the idempotency key of a request: a key fires only once. The flag is
/// true if it has fired before.
pub(crate) fn fire(schedules: &Arc<Schedules>, found: Found, given: Option<Digest>) -> Result<(Value, bool), Problem> {
    let key = format!("fire {}", given.map_or_else(|| uuid::Uuid::new_v4().to_string(), |digest| digest.to_string()));
    let found = sound(found)?;
    if given.is_some()
        && let Some(before) = fired_before(schedules, &found, &key)?
    {
        return Ok((before, true));
    }
    let now = schedules.context.clock().now_ms();
    let tick = tick::Tick { key: key.clone(), kind: "fire", ..tick::Tick::nominal(now, now) };
    match tick::begin(schedules, &found, &tick, false)? {
        tick::Taken::Ran(run_id) => Ok((json!({"at": rfc3339(now), "run_id": run_id}), false)),
        tick::Taken::Full(full) => Err(full.problem(&schedules.admissions)),
        tick::Taken::Invalid(problem) => Err(*problem),
        tick::Taken::Busy | tick::Taken::Other => match fired_before(schedules, &found, &key)? {
            Some(before) => Ok((before, true)),
            None => Err(Problem::new(Code::Bug, "internal error: the tick was already recorded")),
        },
    }
}

/// Takes the ticks from `from` to before `to` that have no run, and returns their times. Each was requested, so `overlap` neither
/// skips nor cancels one. With `overlap: queue`, a tick waits until the run of the previous one has ended.
pub(crate) fn backfill(schedules: &Arc<Schedules>, found: Found, from: i64, to: i64) -> Result<Vec<String>, Problem> {
    let found = sound(found)?;
    let timing = found.schedule().timing.clone();
    let last = (to - 1).min(schedules.context.clock().now_ms());
    let ticks = timing.map(|timing| timing.between(from - 1, last, MAX_BACKFILL + 1)).unwrap_or_default();
    if ticks.len() > MAX_BACKFILL {
        return Err(Problem::invalid("/to", format!("the range has more than {MAX_BACKFILL} ticks")));
    }
    let (mut times, mut has_waiting) = (Vec::new(), false);
    for at_ms in ticks {
        let taken = tick::backfill(schedules, &found, at_ms, has_waiting)?;
        has_waiting |= taken == tick::Backfilled::Waits;
        if taken != tick::Backfilled::Other {
            times.push(rfc3339(at_ms));
        }
    }
    if has_waiting {
        let key = (found.app.dir.clone(), found.schedule().name.clone());
        schedules.backfilled.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }
    Ok(times)
}

/// The schedule, or the problem of its errors.
fn sound(found: Found) -> Result<Found, Problem> {
    if found.schedule().broken.is_empty() {
        return Ok(found);
    }
    let diagnostics = broken(&found.schedule().broken);
    Err(Problem::new(Code::DefinitionInvalid, "the schedule has errors").with("diagnostics", diagnostics))
}

#[cfg(test)]
mod tests;
