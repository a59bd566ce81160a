//! Demotions by the program (`learn.md` 2.10, 2.11).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Engine, EntryQuery, Error};
use etude_spec::config::learn::Learning;
use etude_spec::learned::{self, LearnedState};
use etude_spec::tool::{AppTool, MCP_PREFIX};

use super::book::{self, Demotion, Row, RowKind};
use super::standing::Standing;
use super::{Verdict, bounds};

/// Minimum number of runs before a pipeline can be demoted as useless.
const MIN_RUNS: u64 = 20;

/// Reason of a demotion after a tool has changed.
const TOOL_CHANGED: &str = "tool_changed";

/// Lower bound of the hit rate below which a pipeline is useless.
const MIN_HIT_RATE: f64 = 0.2;

/// Demotion that has just been noted.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The name of the pipeline.
    pub name: String,
    /// State before the demotion.
    pub from: LearnedState,
    /// Reason, with the run that led to it.
    pub demotion: Demotion,
}

/// Demotes the pipeline if its rows require it.
pub(super) async fn settle(
    engine: &dyn Engine,
    app: &Path,
    standing: &Standing,
    learning: &Learning,
) -> Result<Option<Settled>, Error> {
    let from = match standing.state {
        Some(state @ (LearnedState::Shadow | LearnedState::Assisted | LearnedState::Active)) => state,
        _ => return Ok(None),
    };
    let since = book::cleared_at(engine, app, &standing.located)?;
    let bad: BTreeSet<String> =
        bad_runs(engine, &standing.rows)?.into_iter().filter(|(_, at_ms)| *at_ms > since).map(|(run, _)| run).collect();
    let judged = standing.rows.iter().find(|row| row.kind == RowKind::Run && row.writes && bad.contains(&row.run));
    let rows: Vec<&Row> = standing.rows.iter().filter(|row| row.ended_at_ms > since).collect();
    let Some((run, reason)) = reason(from, &rows, judged, learning) else { return Ok(None) };
    let to = if from == LearnedState::Shadow { LearnedState::Proposed } else { LearnedState::Demoted };
    let demotion = Demotion { to, run, reason: reason.to_owned(), at_ms: now_ms(), content: standing.content.clone() };
    book::demote(engine, app, &standing.located.dir(), &demotion).await?;
    Ok(Some(Settled { name: standing.located.name.clone(), from, demotion }))
}

/// Demotes a pipeline from `active` to `assisted` if the description or the schema of one of its tools has changed since the
/// last inspection: the calls that it was trusted with may have another meaning now. In the other states, its evidence ends
/// with its content (L-65).
pub(super) async fn settle_tools(
    engine: &dyn Engine,
    app: &Path,
    standing: &Standing,
    tools: &[AppTool],
) -> Result<Option<Settled>, Error> {
    let (located, called) = (&standing.located, &standing.called);
    if located.is_candidate() {
        return Ok(None);
    }
    let mut now = tools_now(engine, app, called, tools)?;
    let before = book::tools(engine, app, &located.dir())?;
    // A removed tool stays noted while the pipeline calls it: it may return as another one.
    for (name, hash) in before.iter().flatten().filter(|(name, _)| called.contains(*name)) {
        now.entry(name.clone()).or_insert_with(|| hash.clone());
    }
    if before.as_ref() == Some(&now) {
        return Ok(None);
    }
    let is_other = |(name, hash): (&String, &String)| now.get(name).is_some_and(|own| own != hash);
    let is_changed = before.iter().flatten().any(is_other);
    let is_active = standing.learned().is_some_and(|learned| learned.state == LearnedState::Active);
    // Another demotion takes precedence.
    let is_in_use = standing.state.is_some_and(LearnedState::is_routed);
    let mut settled = None;
    if is_changed && is_active && is_in_use {
        let (to, reason) = (LearnedState::Assisted, TOOL_CHANGED.to_owned());
        let demotion = Demotion { to, run: None, reason, at_ms: now_ms(), content: standing.content.clone() };
        book::demote(engine, app, &located.dir(), &demotion).await?;
        settled = Some(Settled { name: located.name.clone(), from: LearnedState::Active, demotion });
    }
    // Last, so that a crash does not lose a change.
    book::note_tools(engine, app, &located.dir(), &now, now_ms()).await?;
    Ok(settled)
}

/// Current tools of a pipeline that calls tools of these names, each with its hash.
pub(super) fn tools_now(
    engine: &dyn Engine,
    app: &Path,
    called: &BTreeSet<String>,
    tools: &[AppTool],
) -> Result<BTreeMap<String, String>, Error> {
    let mut now = learned::tools_of(called, tools);
    if called.iter().any(|name| name.starts_with(MCP_PREFIX)) {
        now.extend(book::server_tools(engine, app)?.into_iter().filter(|(name, _)| called.contains(name)));
    }
    Ok(now)
}

/// Runs that were judged bad, each with the time of the verdict in milliseconds since 1970.
pub(super) fn bad_runs(engine: &dyn Engine, rows: &[Row]) -> Result<BTreeMap<String, i64>, Error> {
    if rows.is_empty() {
        return Ok(BTreeMap::new());
    }
    let query = EntryQuery {
        book: etude_runs::listing::JUDGED.to_owned(),
        state: Some("bad".to_owned()),
        ..EntryQuery::default()
    };
    Ok(engine.entries(&query)?.into_iter().map(|entry| (entry.key, entry.at_ms)).collect())
}

/// Run and reason for demoting a pipeline in the state `from`; `None` if there is no reason. `rows` are newest first;
/// `judged` is a run with a write that was judged bad.
fn reason(
    from: LearnedState,
    rows: &[&Row],
    judged: Option<&Row>,
    learning: &Learning,
) -> Option<(Option<String>, &'static str)> {
    let run_of = |row: &&&Row| Some(row.run.clone());
    if from == LearnedState::Shadow {
        let other = rows.iter().find(|row| row.verdict == Verdict::Disagreed && row.writes);
        return other.map(|row| (run_of(&row), "disagreed")).or_else(|| useless(rows, learning));
    }
    let runs: Vec<&Row> = rows.iter().filter(|row| row.kind == RowKind::Run).copied().collect();
    if let Some(denied) = runs.iter().find(|row| row.verdict == Verdict::Disagreed) {
        return Some((run_of(&denied), "denied"));
    }
    if let Some(judged) = judged {
        return Some((Some(judged.run.clone()), "judged_bad"));
    }
    let window = &runs[..runs.len().min(learning.demote_window)];
    let kind = |row: &&Row| {
        matches!(row.verdict, Verdict::FellBack | Verdict::Failed).then(|| (row.step.clone(), row.reason.clone()))
    };
    let is_too_many = |row: &&&Row| {
        kind(row).is_some_and(|own| {
            window.iter().filter(|other| kind(other).as_ref() == Some(&own)).count() >= learning.demote_after
        })
    };
    if let Some(last) = window.iter().find(is_too_many) {
        return Some((run_of(&last), "deviations"));
    }
    useless(rows, learning)
}

/// Latest run and reason, if the pipeline mostly falls back (L-82).
fn useless(rows: &[&Row], learning: &Learning) -> Option<(Option<String>, &'static str)> {
    let is_hit = |row: &&&Row| matches!(row.verdict, Verdict::Agreed | Verdict::Done | Verdict::Disagreed);
    let (all, hits) = (rows.len() as u64, rows.iter().filter(is_hit).count() as u64);
    let is_useless = all >= MIN_RUNS && bounds::lower_hit_rate(all, hits, learning.confidence) < MIN_HIT_RATE;
    is_useless.then(|| (rows.first().map(|row| row.run.clone()), "useless"))
}
