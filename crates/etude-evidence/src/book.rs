//! Entries of the ledger about learned pipelines.
//!
//! | book | key | entry |
//! |---|---|---|
//! | `learned:CONTENT` | `run/ID`, `shadow/ID` | a run of the pipeline, a comparison with an agent |
//! | `learned:CONTENT` | `tested`, `risk`, `demoted` | the cases passed, a risk was accepted, the program demoted it |
//! | `run:learned:CONTENT` | `shadow/ID` | the writes of a comparison, which go with the run |
//! | `learned-names:APP` | `BASE/NAME` | the last demotion of that name, until a promotion |
//! | `learned-promotions:APP` | CONTENT | a promotion has begun and not ended: its states before and after |
//! | `learned-tools:APP` | `BASE/NAME` | tools of that pipeline when it was last inspected, each with its hash |
//! | `learned-servers:APP` | TOOL | that tool of an MCP server as it was last seen, with its hash |
//! | `learned-runs:APP` | ID | the run has been noted |
//! | `learned-forgotten` | ID | nothing is learned from the run |

use std::collections::BTreeMap;
use std::path::Path;

use etude_runtime::engine::{Engine, Entry, EntryQuery, Error, Expected, OF_RUN, Write};
use etude_spec::discover::PIPELINES;
use etude_spec::learned::{self, LearnedState, Located};
use etude_tools::disk::Disk;
use serde_json::{Value, json};

use super::{Verdict, app_key};

/// State of an entry that has ended.
const CLEARED: &str = "cleared";

etude_core::words! {
    /// Origin of a row: a run of the pipeline, or a comparison with an agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RowKind {
        /// The pipeline ran.
        Run = "run",
        /// The pipeline ran beside an agent.
        Shadow = "shadow",
    }
}

/// One run of a pipeline, or one comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Kind of the row: a run of the pipeline, or a comparison with it.
    pub kind: RowKind,
    /// The id of the run.
    pub run: String,
    /// Creation time of the run, in milliseconds since 1970.
    pub at_ms: i64,
    /// End of the run, in milliseconds since 1970. Decisions of people in the run are earlier.
    pub ended_at_ms: i64,
    /// The outcome as evidence for or against the pipeline.
    pub verdict: Verdict,
    /// The step at which it deviated or failed.
    pub step: Option<String>,
    /// Reason why it deviated or failed.
    pub reason: Option<String>,
    /// The digest of the request.
    pub digest: String,
    /// True if a call that changes something was made, or would have been.
    pub writes: bool,
    /// Writes of the agent and of the pipeline in a comparison, while its run exists.
    pub calls: Value,
    /// Usage of models in a comparison.
    pub usage: Value,
}

impl Row {
    fn read(entry: &Entry, calls: Value) -> Option<Self> {
        let (kind, run) = match entry.key.split_once('/')? {
            ("run", run) => (RowKind::Run, run),
            ("shadow", run) => (RowKind::Shadow, run),
            _ => return None,
        };
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        let text = |member: &str| body[member].as_str().map(str::to_owned);
        Some(Self {
            kind,
            run: run.to_owned(),
            at_ms: entry.at_ms,
            ended_at_ms: body["ended_at_ms"].as_i64().unwrap_or(entry.at_ms),
            verdict: Verdict::from_word(&entry.state)?,
            step: text("step"),
            reason: text("reason"),
            digest: text("digest").unwrap_or_default(),
            writes: body["writes"].as_bool().unwrap_or(false),
            calls,
            usage: body["usage"].clone(),
        })
    }

    fn body(&self) -> Value {
        let Self { step, reason, digest, writes, usage, ended_at_ms, .. } = self;
        json!({
            "step": step, "reason": reason, "digest": digest, "writes": writes, "usage": usage,
            "ended_at_ms": ended_at_ms,
        })
    }
}

/// Demotion of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demotion {
    /// State after the demotion: `demoted`, or `proposed` from `shadow`.
    pub to: LearnedState,
    /// The run that led to it, if one did.
    pub run: Option<String>,
    /// The reason: a word, or the text of a person.
    pub reason: String,
    /// Time of the demotion, in milliseconds since 1970.
    pub at_ms: i64,
    /// Hash of the content that was demoted.
    pub content: String,
}

/// A risk that a person has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Name of the person, as the front end has it.
    pub by: String,
    /// Time of the acceptance, in milliseconds since 1970.
    pub at_ms: i64,
}

fn book_of(content: &str) -> String {
    format!("learned:{content}")
}

/// Book with values of runs.
fn values_of(content: &str) -> String {
    format!("{OF_RUN}learned:{content}")
}

fn names_of(app: &Path) -> String {
    format!("learned-names:{}", app_key(app))
}

fn tools_of(app: &Path) -> String {
    format!("learned-tools:{}", app_key(app))
}

fn servers_of(app: &Path) -> String {
    format!("learned-servers:{}", app_key(app))
}

fn hash_in(entry: &Entry) -> Option<String> {
    let body: Value = serde_json::from_str(&entry.body).ok()?;
    body["hash"].as_str().map(str::to_owned)
}

/// Hashes of the tools of MCP servers as they were last seen, by name.
pub(super) fn server_tools(engine: &dyn Engine, app: &Path) -> Result<BTreeMap<String, String>, Error> {
    let entries = engine.entries(&EntryQuery { book: servers_of(app), ..EntryQuery::default() })?;
    Ok(entries.into_iter().filter_map(|entry| Some((entry.key.clone(), hash_in(&entry)?))).collect())
}

/// Notes a tool of an MCP server, unless it was seen after `at_ms`.
pub(super) async fn note_server_tool(
    engine: &dyn Engine,
    app: &Path,
    (name, hash): (&str, &str),
    at_ms: i64,
) -> Result<(), Error> {
    match one(engine, servers_of(app), name)? {
        Some(entry) if entry.at_ms > at_ms || hash_in(&entry).as_deref() == Some(hash) => Ok(()),
        _ => write(engine, servers_of(app), name.to_owned(), (at_ms, "seen"), &json!({"hash": hash})).await,
    }
}

/// Hashes of a pipeline's tools when it was last inspected, by name.
pub(super) fn tools(engine: &dyn Engine, app: &Path, dir: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
    let hash = |(name, hash): (&String, &Value)| Some((name.clone(), hash.as_str()?.to_owned()));
    let of_body = |body: Value| body.as_object().map(|all| all.iter().filter_map(hash).collect());
    let entry = one(engine, tools_of(app), dir)?;
    Ok(entry.and_then(|entry| serde_json::from_str(&entry.body).ok()).and_then(of_body))
}

/// Notes the tools of a pipeline.
pub(super) async fn note_tools(
    engine: &dyn Engine,
    app: &Path,
    dir: &str,
    tools: &BTreeMap<String, String>,
    at_ms: i64,
) -> Result<(), Error> {
    write(engine, tools_of(app), dir.to_owned(), (at_ms, "seen"), &json!(tools)).await
}

fn runs_of(app: &Path) -> String {
    format!("learned-runs:{}", app_key(app))
}

async fn write(
    engine: &dyn Engine,
    book: String,
    key: String,
    (at_ms, state): (i64, &str),
    body: &Value,
) -> Result<(), Error> {
    put(engine, Entry { book, key, at_ms, state: state.to_owned(), body: body.to_string(), ..Entry::default() }).await
}

async fn put(engine: &dyn Engine, entry: Entry) -> Result<(), Error> {
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    engine.write(&write).await.map(|_| ())
}

fn one(engine: &dyn Engine, book: String, key: &str) -> Result<Option<Entry>, Error> {
    let query = EntryQuery { book, key: Some(key.to_owned()), ..EntryQuery::default() };
    Ok(engine.entries(&query)?.into_iter().next().filter(|entry| entry.state != CLEARED))
}

/// Rows of a content, newest first, without forgotten ones.
pub(super) fn rows(engine: &dyn Engine, content: &str) -> Result<Vec<Row>, Error> {
    let of = |book: String| engine.entries(&EntryQuery { book, ..EntryQuery::default() });
    let values = of(values_of(content))?.into_iter();
    let mut values: BTreeMap<String, String> = values.map(|entry| (entry.key, entry.body)).collect();
    let mut calls =
        |key: &str| values.remove(key).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut rows: Vec<Row> =
        of(book_of(content))?.iter().filter_map(|entry| Row::read(entry, calls(&entry.key))).collect();
    rows.retain(|row| row.verdict != Verdict::Forgotten);
    Ok(rows)
}

/// Stores a row.
pub(super) async fn add_row(engine: &dyn Engine, content: &str, row: &Row) -> Result<(), Error> {
    let key = format!("{}/{}", row.kind.word(), row.run);
    if row.kind == RowKind::Shadow {
        let entry = Entry {
            book: values_of(content),
            key: key.clone(),
            at_ms: row.at_ms,
            state: "kept".to_owned(),
            run_id: Some(row.run.clone()),
            body: row.calls.to_string(),
            ..Entry::default()
        };
        put(engine, entry).await?;
    }
    write(engine, book_of(content), key, (row.at_ms, row.verdict.word()), &row.body()).await
}

/// Ids of the runs that have been noted.
pub(super) fn noted(engine: &dyn Engine, app: &Path) -> Result<Vec<String>, Error> {
    let entries = engine.entries(&EntryQuery { book: runs_of(app), ..EntryQuery::default() })?;
    Ok(entries.into_iter().map(|entry| entry.key).collect())
}

/// Notes that a run has been read.
pub(super) async fn note(engine: &dyn Engine, app: &Path, run: &str, at_ms: i64) -> Result<(), Error> {
    write(engine, runs_of(app), run.to_owned(), (at_ms, "noted"), &json!({})).await
}

/// Current demotion of a pipeline: of its name in this app, or of its content in any app. For a candidate that was not
/// promoted yet, also the demotion of the pipeline that it would replace.
pub(super) fn demotion(
    engine: &dyn Engine,
    (app, disk): (&Path, &Disk),
    located: &Located,
    content: &str,
) -> Result<Option<Demotion>, Error> {
    let of_name = |dir: &str| one(engine, names_of(app), dir);
    let mut entry = of_name(&located.dir())?;
    if entry.is_none() {
        entry = one(engine, book_of(content), "demoted")?;
    }
    let is_successor = located.is_candidate() && located.state() == Some(LearnedState::Proposed);
    if entry.is_none() && is_successor && learned::find(disk, PIPELINES, &located.name).is_some() {
        let replaced = of_name(&format!("{PIPELINES}/{}", located.name))?;
        entry = replaced.filter(|entry| entry.state == LearnedState::Demoted.word());
    }
    Ok(entry.and_then(|entry| {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        Some(Demotion {
            to: LearnedState::from_word(&entry.state)?,
            run: body["run"].as_str().map(str::to_owned),
            reason: body["reason"].as_str().unwrap_or_default().to_owned(),
            at_ms: entry.at_ms,
            content: body["content"].as_str().unwrap_or_default().to_owned(),
        })
    }))
}

/// Time at which the last promotion ended a demotion. Earlier decisions and verdicts do not count towards another one.
pub(super) fn cleared_at(engine: &dyn Engine, app: &Path, located: &Located) -> Result<i64, Error> {
    let query = EntryQuery {
        book: names_of(app),
        key: Some(located.dir()),
        state: Some(CLEARED.to_owned()),
        ..EntryQuery::default()
    };
    Ok(engine.entries(&query)?.first().map_or(i64::MIN, |entry| entry.at_ms))
}

/// Stores a demotion.
pub(super) async fn demote(engine: &dyn Engine, app: &Path, dir: &str, demotion: &Demotion) -> Result<(), Error> {
    let body = json!({"run": demotion.run, "reason": demotion.reason, "content": demotion.content});
    let when = (demotion.at_ms, demotion.to.word());
    write(engine, book_of(&demotion.content), "demoted".to_owned(), when, &body).await?;
    write(engine, names_of(app), dir.to_owned(), when, &body).await
}

/// Ends the demotion of a name, if there is one, after a person has promoted the pipeline.
pub(super) async fn clear_name(engine: &dyn Engine, app: &Path, dir: &str, at_ms: i64) -> Result<(), Error> {
    clear(engine, names_of(app), dir, at_ms).await
}

/// Ends an entry, if there is one.
async fn clear(engine: &dyn Engine, book: String, key: &str, at_ms: i64) -> Result<(), Error> {
    match one(engine, book.clone(), key)? {
        Some(_) => write(engine, book, key.to_owned(), (at_ms, CLEARED), &json!({})).await,
        None => Ok(()),
    }
}

/// Ends the demotion of a content.
pub(super) async fn clear_content(engine: &dyn Engine, content: &str, at_ms: i64) -> Result<(), Error> {
    write(engine, book_of(content), "demoted".to_owned(), (at_ms, CLEARED), &json!({})).await
}

fn promotions_of(app: &Path) -> String {
    format!("learned-promotions:{}", app_key(app))
}

/// Notes that a promotion begins, with its states before and after.
///
/// # Errors
/// The journal cannot be written.
pub async fn begin_promotion(
    engine: &dyn Engine,
    app: &Path,
    content: &str,
    (from, to): (LearnedState, LearnedState),
    at_ms: i64,
) -> Result<(), Error> {
    let body = json!({"from": from.word(), "to": to.word()});
    write(engine, promotions_of(app), content.to_owned(), (at_ms, "begun"), &body).await
}

/// States before and after a promotion that has begun and not ended: its process died, perhaps before it reported the result.
///
/// # Errors
/// The journal cannot be read.
pub fn begun_promotion(
    engine: &dyn Engine,
    app: &Path,
    content: &str,
) -> Result<Option<(LearnedState, LearnedState)>, Error> {
    Ok(one(engine, promotions_of(app), content)?.and_then(|entry| {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        let state = |member: &str| body[member].as_str().and_then(LearnedState::from_word);
        Some((state("from")?, state("to")?))
    }))
}

/// Notes that a promotion has ended, and its result was reported.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn end_promotion(engine: &dyn Engine, app: &Path, content: &str, at_ms: i64) -> Result<(), Error> {
    clear(engine, promotions_of(app), content, at_ms).await
}

/// Latest accepted risk of a content.
pub(super) fn accepted(engine: &dyn Engine, content: &str) -> Result<Option<Accepted>, Error> {
    Ok(one(engine, book_of(content), "risk")?.map(|entry| {
        let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
        Accepted { by: body["by"].as_str().unwrap_or_default().to_owned(), at_ms: entry.at_ms }
    }))
}

/// Stores the person who accepted a risk, and the time (L-59).
///
/// # Errors
/// The journal cannot be written.
pub async fn accept(engine: &dyn Engine, content: &str, accepted: &Accepted) -> Result<(), Error> {
    write(engine, book_of(content), "risk".to_owned(), (accepted.at_ms, "accepted"), &json!({"by": accepted.by})).await
}

/// True if the cases of a content have passed.
pub(super) fn is_tested(engine: &dyn Engine, content: &str) -> Result<bool, Error> {
    Ok(one(engine, book_of(content), "tested")?.is_some())
}

/// Stores that the cases of a content have passed.
///
/// # Errors
/// The journal cannot be written.
pub async fn tested(engine: &dyn Engine, content: &str, at_ms: i64) -> Result<(), Error> {
    write(engine, book_of(content), "tested".to_owned(), (at_ms, "passed"), &json!({})).await
}

/// Book of forgotten runs.
const FORGOTTEN: &str = "learned-forgotten";

/// Notes that a run is forgotten.
pub(super) async fn forget(engine: &dyn Engine, run: &str, at_ms: i64) -> Result<(), Error> {
    write(engine, FORGOTTEN.to_owned(), run.to_owned(), (at_ms, "forgotten"), &json!({})).await
}

/// True if a person has had a run forgotten: nothing is learned from it.
///
/// # Errors
/// The journal cannot be read.
pub fn is_forgotten(engine: &dyn Engine, run: &str) -> Result<bool, Error> {
    Ok(one(engine, FORGOTTEN.to_owned(), run)?.is_some())
}
