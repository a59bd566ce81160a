//! Collection of pending notices from changes of runs and skipped ticks.
//!
//! The journal numbers each change of a run. If a server dies between a change and its notice, the next one continues from the
//! stored number, so nothing is left out. It writes a notice only once, because the id is derived from the reported change.

use std::sync::Arc;

use etude_runs::listing;
use etude_runs::target::Target as RunTarget;
use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Entry, EntryQuery, Expected, RunRow, RunState, Write, name_of};
use etude_spec::automation::{Notice, Schedule, Target};
use serde_json::{Value, json};

use super::{Found, Notices};
use crate::problem::{Problem, engine_failed};
use crate::result::result_of;
use crate::settings::ServedApp;

/// Changes of runs per read.
const CHANGES: u32 = 200;

/// Number of changes without a notice after which the place is stored anyway.
const MAX_UNKEPT: u64 = 1_000;

/// Maximum age of a change that is still reported, in milliseconds.
const MAX_AGE_MS: i64 = 48 * 60 * 60 * 1_000;

/// The notice type for a run in this state.
const fn type_of(state: RunState) -> Option<&'static str> {
    match state {
        RunState::Succeeded => Some("run.succeeded"),
        RunState::Failed => Some("run.failed"),
        RunState::Cancelled => Some("run.cancelled"),
        RunState::Waiting => Some("run.waiting"),
        RunState::Queued | RunState::Running | RunState::Sleeping | RunState::Moved => None,
    }
}

/// Writes the pending notices of all changes since the last look.
pub(super) fn collect(notices: &Arc<Notices>, found: &Found) -> Result<(), Problem> {
    let mut place = super::place(notices, found)?;
    loop {
        let rows = notices.context.engine().changes(place.change, CHANGES).map_err(|e| engine_failed(&e))?;
        let Some(last) = rows.last() else { return Ok(()) };
        let mut is_noted = false;
        for row in &rows {
            is_noted |= report(notices, found, row)?;
        }
        place.change = last.change;
        if is_noted || place.change.saturating_sub(place.kept) >= MAX_UNKEPT {
            place.kept = place.change;
            super::write_place(notices, found, place)?;
        }
        super::remember(notices, found, place);
    }
}

/// Writes the pending notices of the state that a run is about to leave. Changes are read with the run's current state, so a
/// later look would not see the old one.
pub(crate) fn report_before(notices: &Arc<Notices>, row: &RunRow) -> Result<(), Problem> {
    // An unreadable file has no notices; `etude check` reports it.
    let Some((app, automation)) =
        notices.context.app_of(row).and_then(|app| Some((app, notices.context.automation(app).ok()?)))
    else {
        return Ok(());
    };
    for index in (0..automation.notices.len()).filter(|index| automation.notices[*index].broken.is_empty()) {
        let found = Found { app: app.clone(), automation: Arc::clone(&automation), index };
        // A change at or before the place was reported, or is older than the notice.
        if super::known_place(notices, &found)?.is_some_and(|place| row.change > place.change) {
            report(notices, &found, row)?;
        }
    }
    Ok(())
}

/// Writes the notice for a change. Returns true if the change makes one.
fn report(notices: &Arc<Notices>, found: &Found, row: &RunRow) -> Result<bool, Problem> {
    let notice = found.notice();
    let is_old = etude_runtime::clock::now_ms().saturating_sub(row.changed_at_ms) > MAX_AGE_MS;
    let Some(kind) = type_of(row.state).filter(|kind| notice.on.iter().any(|on| on == kind)) else { return Ok(false) };
    if is_old || row.app != found.app.dir.display().to_string() || !notice.covers(name_of(&row.target)) {
        return Ok(false);
    }
    let target = RunTarget::parse(&row.target);
    // A run whose result is lost has no error code. It holds back no later notice.
    let document = result_of(&**notices.context.engine(), row).unwrap_or_default();
    let data = json!({
        "run_id": row.id, "app": found.app.slug, "pipeline": target.pipeline(), "machine": target.machine(),
        "status": listing::status(row), "error_code": document.as_ref().and_then(listing::kind),
        "url": url(notices, &format!("/runs/{}", row.id)),
    });
    let subject = format!("{} {}", row.id, row.change);
    note(notices, found, kind, &subject, row.changed_at_ms, data)?;
    Ok(true)
}

/// A tick that started no run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Skipped<'s> {
    pub(crate) schedule: &'s Schedule,
    /// The nominal time of the tick.
    pub(crate) at_ms: i64,
    pub(crate) reason: &'s str,
    /// True if the tick is from before this process, so that it may have been reported already.
    pub(crate) is_old: bool,
}

/// Reports a tick that started no run.
pub(crate) fn skipped(notices: &Arc<Notices>, app: &ServedApp, tick: Skipped<'_>) -> Result<(), Problem> {
    let automation = notices.context.automation(app)?;
    let Skipped { schedule, at_ms, reason, is_old } = tick;
    let is_wanted = |notice: &Notice| {
        let covers = schedule.target.as_ref().is_none_or(|target| notice.covers(target.name()));
        notice.broken.is_empty() && notice.on.iter().any(|on| on == "schedule.skipped") && covers
    };
    for index in (0..automation.notices.len()).filter(|index| is_wanted(&automation.notices[*index])) {
        let found = Found { app: app.clone(), automation: Arc::clone(&automation), index };
        if super::place(notices, &found)?.since_ms > at_ms && is_old {
            continue;
        }
        let (pipeline, machine) = Target::names(schedule.target.as_ref());
        let data = json!({
            "run_id": null, "app": app.slug, "pipeline": pipeline, "machine": machine, "status": "skipped",
            "error_code": reason, "url": url(notices, "/schedules"), "schedule": schedule.name, "at": rfc3339(at_ms),
        });
        let subject = format!("{} {at_ms}", schedule.name);
        note(notices, &found, "schedule.skipped", &subject, notices.context.clock().now_ms(), data)?;
    }
    Ok(())
}

/// Writes a notice that is due at once, unless there is one with the same subject.
fn note(
    notices: &Notices,
    found: &Found,
    kind: &str,
    subject: &str,
    timestamp_ms: i64,
    data: Value,
) -> Result<(), Problem> {
    let hash = blake3::hash(format!("{} {kind} {subject}", found.book()).as_bytes()).to_hex();
    let id = format!("msg_{}", &hash[..32]);
    let now = notices.context.clock().now_ms();
    let run_id = data["run_id"].as_str().map(str::to_owned);
    let payload = json!({"type": kind, "timestamp": rfc3339(timestamp_ms), "data": data});
    let entry = Entry {
        book: found.book(),
        key: id,
        at_ms: now,
        state: "pending".to_owned(),
        due_ms: Some(now),
        run_id,
        body: json!({"payload": payload, "attempts": []}).to_string(),
    };
    // A read costs less than a write, and most existing notices are seen again.
    let query = EntryQuery { book: entry.book.clone(), key: Some(entry.key.clone()), ..EntryQuery::default() };
    if !notices.ledger.entries(&query)?.is_empty() {
        return Ok(());
    }
    let write = Write { entry, expected: Expected::Nothing, submission: None, is_alone: false };
    notices.ledger.write(&write).map(drop)
}

/// The absolute URL of a page.
fn url(notices: &Notices, path: &str) -> String {
    format!("{}{}{path}", notices.context.origin().unwrap_or_default(), notices.context.settings().base_path)
}

#[cfg(test)]
mod tests {
    use etude_runtime::conformance::new_run;
    use etude_runtime::engine::NewRun;
    use etude_spec::automation;
    use etude_spec::source::SourceFile;

    use super::*;

    /// S-123: a run whose result is lost is reported, and so are the runs after it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_result_holds_back_no_notice() {
        let dir = tempfile::tempdir().expect("a directory");
        let notice = "notices:\n  - {name: chat, url: \"https://chat.example/x\", on: [run.failed], secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}\n";
        let automation = automation::read(&SourceFile::new("etude.yaml", notice), None);
        let app = ServedApp { slug: "demo".to_owned(), dir: dir.path().to_owned() };
        let (state, server) = crate::work::tests::serving(false, vec![app.clone()]);
        let (notices, engine) = (server.notices(), server.engine());
        let found = Found { app, automation: Arc::new(automation), index: 0 };
        tokio::task::block_in_place(|| collect(notices, &found)).expect("collected");
        let fails = async |id: &str, result: &str| {
            let run = NewRun { app: dir.path().display().to_string(), ..new_run(id, 1) };
            let session = engine.create(&run).await.expect("create");
            session.set_state(RunState::Failed, Some(result)).await.expect("set_state");
        };
        fails("r-1", &"x".repeat(300_000)).await;
        std::fs::remove_dir_all(state.path().join("blobs")).expect("the result is lost");
        fails("r-2", "{}").await;
        tokio::task::block_in_place(|| collect(notices, &found)).expect("collected");
        let query = EntryQuery { book: found.book(), ..EntryQuery::default() };
        let mut reported: Vec<_> =
            notices.ledger.entries(&query).expect("entries").into_iter().map(|of| of.run_id).collect();
        reported.sort_unstable();
        assert_eq!(reported, [Some("r-1".to_owned()), Some("r-2".to_owned())]);
    }
}
