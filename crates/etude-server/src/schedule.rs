//! Schedules: their state, and the routes that show and move them.

mod due;
mod tick;
mod turn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etude::clock::rfc3339;
use etude_core::digest::Digest;
use etude_runs::target::Target as RunTarget;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write, Written};
use etude_spec::Diagnostic;
use etude_spec::automation::{Automation, Schedule, Target};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::app::NotLoaded;
use crate::automation::broken;
use crate::blocking::blocking;
use crate::key;
use crate::ledger::{Page, book};
use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::{json_response, tagged};
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::Caller;

pub(crate) use turn::turns;

/// The largest number of ticks of one backfill.
const MAX_BACKFILL: usize = 1_000;

/// What the server remembers of schedules between two looks. The journal has everything that matters.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    looks: Mutex<BTreeMap<(PathBuf, String), turn::Look>>,
    /// The last look of the clock loop.
    turned: Mutex<Option<Instant>>,
}

impl Schedules {
    /// The time since the clock loop has looked at the schedules; `None` if it has not begun.
    pub(crate) fn since_turn(&self) -> Option<Duration> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner).map(|turned| turned.elapsed())
    }

    fn note_turn(&self) {
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// A schedule of a served app.
#[derive(Clone)]
struct Found {
    app: ServedApp,
    automation: Arc<Automation>,
    index: usize,
}

impl Found {
    fn schedule(&self) -> &Schedule {
        &self.automation.schedules[self.index]
    }

    /// The book of its ticks.
    fn book(&self) -> String {
        book::ticks(&self.app, &self.schedule().name)
    }
}

/// What the journal keeps of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Kept {
    /// The pattern that was seen last.
    pattern: String,
    /// When it was first seen, in milliseconds since 1970.
    since_ms: i64,
    is_paused: bool,
    reason: Option<String>,
    /// The end of the pause, in milliseconds since 1970.
    until_ms: Option<i64>,
}

impl Kept {
    fn read(server: &Server, found: &Found) -> Result<Option<Self>, Problem> {
        Ok(Self::entry(server, found)?.as_ref().map(Self::of))
    }

    fn entry(server: &Server, found: &Found) -> Result<Option<Entry>, Problem> {
        let (book, key) = (book::schedules(&found.app), Some(found.schedule().name.clone()));
        let query = EntryQuery { book, key, ..EntryQuery::default() };
        Ok(server.ledger().entries(&query)?.pop())
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

    /// Changes what is kept: `change` gets it, and gets it again if another server or request has written meanwhile.
    fn change(server: &Server, found: &Found, change: impl Fn(Option<Self>) -> Self) -> Result<Self, Problem> {
        loop {
            let entry = Self::entry(server, found)?;
            let before = entry.as_ref().map(Self::of);
            let kept = change(before.clone());
            if before.as_ref() == Some(&kept) || kept.write(server, found, entry)? {
                return Ok(kept);
            }
        }
    }

    /// Writes it in the place of `before`. False if something else is there.
    fn write(&self, server: &Server, found: &Found, before: Option<Entry>) -> Result<bool, Problem> {
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
        Ok(server.ledger().write(&write)? == Written::Done)
    }

    fn state(&self) -> String {
        if self.is_paused { "paused" } else { "active" }.to_owned()
    }

    fn is_paused_at(&self, now_ms: i64) -> bool {
        self.is_paused && self.until_ms.is_none_or(|until| until > now_ms)
    }
}

/// All schedules that the caller may see.
fn visible(server: &Server, caller: &Caller) -> Result<Vec<Found>, Problem> {
    let mut all = Vec::new();
    for app in &server.settings().apps {
        let automation = server.context().automation(app)?;
        let found = |index| Found { app: app.clone(), automation: Arc::clone(&automation), index };
        all.extend((0..automation.schedules.len()).map(found));
    }
    all.retain(|found| found.schedule().target.as_ref().is_none_or(|target| caller.covers(target.name())));
    Ok(all)
}

/// The schedule that the path names.
fn find(call: &Call) -> Result<impl FnOnce() -> Result<Found, Problem> + Send + use<>, Problem> {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (app, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    Ok(move || {
        let all = visible(&server, &caller)?;
        let found = all.into_iter().find(|found| found.app.slug == app && found.schedule().name == name);
        found.ok_or_else(|| Problem::not_found("there is no such schedule"))
    })
}

fn document(server: &Server, found: &Found) -> Result<Value, Problem> {
    let schedule = found.schedule();
    let now = server.clock().now_ms();
    let kept = Kept::read(server, found)?.unwrap_or_default();
    let is_paused = kept.is_paused_at(now);
    let faults = faults(server, found);
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

/// Why a schedule makes no runs now: the errors of its entry, or those of what it runs, as the files are now. Its ticks are taken all
/// the same, so that each is noted with its reason.
fn faults(server: &Server, found: &Found) -> Vec<Diagnostic> {
    let schedule = found.schedule();
    let target = match &schedule.target {
        _ if !schedule.broken.is_empty() => return schedule.broken.clone(),
        Some(Target::Pipeline(name)) => RunTarget::Pipeline(name.clone()),
        Some(Target::Machine(name)) => RunTarget::Machine(name.clone()),
        None => return Vec::new(),
    };
    match server.context().startable(&found.app.dir, &target) {
        Ok((_, definition)) => schedule.misfits(&definition.input),
        Err(NotLoaded::Invalid(found)) => found.into_iter().filter(Diagnostic::is_error).collect(),
        Err(NotLoaded::Unknown { .. }) => vec![schedule.unready("the app has no such pipeline or machine in use")],
        Err(NotLoaded::Unreadable(why) | NotLoaded::Unreachable(why)) => vec![schedule.unready(&why)],
    }
}

/// `GET /v1/schedules`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let documents = blocking(move || {
        let all = visible(&server, &caller)?;
        all.iter().map(|found| document(&server, found)).collect::<Result<Vec<Value>, Problem>>()
    });
    Ok(json_response(StatusCode::OK, &json!({"schedules": documents.await?})))
}

/// App, name and state of each schedule, for the metrics: a broken one makes no runs.
pub(crate) async fn states(call: &Call) -> Result<Vec<(String, String, &'static str)>, Problem> {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    blocking(move || {
        let now = server.clock().now_ms();
        let state = |found: Found| {
            let state = match Kept::read(&server, &found)? {
                _ if !faults(&server, &found).is_empty() => "broken",
                Some(kept) if kept.is_paused_at(now) => "paused",
                _ => "active",
            };
            Ok((found.app.slug.clone(), found.schedule().name.clone(), state))
        };
        visible(&server, &caller)?.into_iter().map(state).collect()
    })
    .await
}

/// `GET /v1/schedules/{app}/{name}`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let document = blocking(move || document(&server, &find()?)).await?;
    Ok(tagged(&call.headers, document.to_string()))
}

/// `GET /v1/schedules/{app}/{name}/next`.
pub(crate) async fn next(call: Call) -> Respond {
    let find = find(&call)?;
    let count = usize::try_from(call.query.number("count", 1, 100, 5)?).unwrap_or(5);
    let from = match call.query.get("from") {
        Some(text) => etude::clock::from_rfc3339(text).ok_or_else(|| invalid("from", "`from` is an RFC 3339 time"))?,
        None => call.server.clock().now_ms(),
    };
    let times = blocking(move || {
        let found = find()?;
        let schedule = found.schedule();
        let timing = schedule.timing.as_ref().filter(|_| schedule.broken.is_empty());
        let mut times = Vec::new();
        let mut after = from;
        while let Some(at) = timing.and_then(|timing| timing.next(after)).filter(|_| times.len() < count) {
            times.push(rfc3339(at));
            after = at;
        }
        Ok(times)
    });
    Ok(tagged(&call.headers, json!({"times": times.await?}).to_string()))
}

/// `GET /v1/schedules/{app}/{name}/ticks`.
pub(crate) async fn ticks(call: Call) -> Respond {
    let (server, find, page) = (Arc::clone(&call.server), find(&call)?, Page::of(&call.query)?);
    let document = blocking(move || {
        let (entries, next) = page.read(server.ledger(), find()?.book())?;
        let ticks: Vec<Value> = entries.iter().map(tick::document).collect();
        Ok(json!({"ticks": ticks, "next": next}))
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}

/// `POST /v1/schedules/{app}/{name}/pause`.
pub(crate) async fn pause(call: Call) -> Respond {
    let members = call.json(&["reason", "until"]).await?;
    let until = members.text("until")?;
    let time = |text: String| {
        etude::clock::from_rfc3339(&text).ok_or_else(|| members.invalid("until", "`until` is an RFC 3339 time"))
    };
    let (reason, until_ms) = (members.text("reason")?, until.map(time).transpose()?);
    moved(&call, move |kept| Kept { is_paused: true, reason: reason.clone(), until_ms, ..kept }).await
}

/// `POST /v1/schedules/{app}/{name}/unpause`.
pub(crate) async fn unpause(call: Call) -> Respond {
    reason_of(&call).await?;
    moved(&call, |kept| Kept { is_paused: false, reason: None, until_ms: None, ..kept }).await
}

/// Checks the reason for what happens once. Only a pause lasts, and is shown with its reason.
async fn reason_of(call: &Call) -> Result<Option<String>, Problem> {
    call.json(&["reason"]).await?.text("reason")
}

async fn moved(call: &Call, change: impl Fn(Kept) -> Kept + Send + 'static) -> Respond {
    let (server, find) = (Arc::clone(&call.server), find(call)?);
    let document = blocking(move || {
        let found = find()?;
        let fresh =
            || Kept { pattern: found.schedule().pattern(), since_ms: server.clock().now_ms(), ..Kept::default() };
        Kept::change(&server, &found, |kept| change(kept.unwrap_or_else(fresh)))?;
        document(&server, &found)
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// `POST /v1/schedules/{app}/{name}/fire`. The same idempotency key of the same token fires once.
pub(crate) async fn fire(call: Call) -> Respond {
    reason_of(&call).await?;
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let caller = call.caller()?.name.clone();
    let given = key::of(&call.headers)?.map(|key| Digest::of(format!("{caller} {key}").as_bytes()));
    let key = format!("fire {}", given.map_or_else(|| uuid::Uuid::new_v4().to_string(), |digest| digest.to_string()));
    let fired = blocking(move || {
        let found = sound(find()?)?;
        if given.is_some()
            && let Some(before) = fired_before(&server, &found, &key)?
        {
            return Ok((before, true));
        }
        let now = server.clock().now_ms();
        let tick = tick::Tick { key: key.clone(), kind: "fire", ..tick::Tick::nominal(now, now) };
        match tick::begin(&server, &found, &tick, false)? {
            tick::Taken::Ran(run_id) => Ok((json!({"at": rfc3339(now), "run_id": run_id}), false)),
            tick::Taken::Full(full) => Err(full.problem(&server)),
            tick::Taken::Invalid(problem) => Err(*problem),
            tick::Taken::Busy | tick::Taken::Other => match fired_before(&server, &found, &key)? {
                Some(before) => Ok((before, true)),
                None => Err(Problem::new(Code::Bug, "a tick of its own is taken")),
            },
        }
    });
    let (document, is_replayed) = fired.await?;
    let mut response = json_response(StatusCode::ACCEPTED, &document);
    if is_replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The response to the request that has fired with this key.
fn fired_before(server: &Server, found: &Found, key: &str) -> Result<Option<Value>, Problem> {
    let query = EntryQuery { book: found.book(), key: Some(key.to_owned()), ..EntryQuery::default() };
    let entry = server.ledger().entries(&query)?.pop();
    Ok(entry.map(|entry| json!({"at": rfc3339(entry.at_ms), "run_id": entry.run_id})))
}

/// `POST /v1/schedules/{app}/{name}/backfill`.
pub(crate) async fn backfill(call: Call) -> Respond {
    let members = call.json(&["from", "to"]).await?;
    let time = |name: &str| {
        let detail = format!("`{name}` is an RFC 3339 time");
        let text = members.text(name)?;
        text.and_then(|text| etude::clock::from_rfc3339(&text)).ok_or_else(|| members.invalid(name, detail))
    };
    let (from, to) = (time("from")?, time("to")?);
    if from >= to {
        return Err(members.invalid("to", "`to` is later than `from`"));
    }
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let times = blocking(move || {
        let found = sound(find()?)?;
        let timing = found.schedule().timing.clone();
        let last = (to - 1).min(server.clock().now_ms());
        let ticks = timing.map(|timing| timing.between(from - 1, last, MAX_BACKFILL + 1)).unwrap_or_default();
        if ticks.len() > MAX_BACKFILL {
            return Err(Problem::invalid("/to", format!("there are more than {MAX_BACKFILL} ticks in between")));
        }
        let mut times = Vec::new();
        for at_ms in ticks {
            if tick::backfill(&server, &found, at_ms)? {
                times.push(rfc3339(at_ms));
            }
        }
        Ok(times)
    });
    Ok(json_response(StatusCode::ACCEPTED, &json!({"ticks": times.await?})))
}

/// A schedule without errors.
fn sound(found: Found) -> Result<Found, Problem> {
    if found.schedule().broken.is_empty() {
        return Ok(found);
    }
    let diagnostics = broken(&found.schedule().broken);
    Err(Problem::new(Code::DefinitionInvalid, "the schedule has errors").with("diagnostics", diagnostics))
}

#[cfg(test)]
mod tests;
