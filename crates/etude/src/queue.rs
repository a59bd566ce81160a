//! Queued runs: accepted now, and begun later by this process or another one.

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::{ABI, Machine};
use etude_core::report::{Remains, RunResult, Status, duration};
use etude_process::blob::BlobStore;
use etude_runtime::engine::{
    self, DEFAULT_TENANT, Engine, Enqueued, Error, NewRun, Placement, Query, Refusal, RunRow, RunState, Session,
    Submission, UniqueKey,
};
use etude_spec::input::InputProblem;
use etude_spec::source::Sources;

use crate::crash;
use crate::definition::Definition;
use crate::resume_plan::Facts;
use crate::runner::{self, Request, Resume};
use etude_runs::document::Document;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_runtime::run_id;

/// Conditions of a queued run.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Tenant, queue and origin of the run, and the time from which it may begin.
    pub placement: Placement,
    /// Keys that at most one run may have.
    pub keys: Vec<UniqueKey>,
    /// Maximum length of the queue; a full queue refuses the run.
    pub max_queued: Option<u64>,
    /// Refuses the run while its limit group is full.
    pub needs_room: bool,
    /// Nominal time of the tick that starts the run, RFC 3339.
    pub tick: Option<String>,
}

/// Reason why a run was not accepted. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The input does not fit the definition.
    #[error("the input is not valid: {}", .0.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; "))]
    Input(Vec<InputProblem>),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

/// Accepts a run of `definition` at `now_ms` (milliseconds since 1970), after the same input checks as on the command line.
/// Nothing starts. The returned run id is valid only if the run was accepted.
///
/// # Errors
/// The input does not fit, or the journal fails.
pub async fn enqueue(
    engine: &dyn Engine,
    definition: &Definition,
    request: Request,
    terms: Terms,
    now_ms: i64,
) -> Result<(String, Enqueued), Refused> {
    let spent = spent(engine, &terms.placement, now_ms)?;
    let mut submission = submission(engine, definition, request, terms, now_ms)?;
    if spent.is_some() {
        // With a limit of 0, a run that has one of the keys is still found.
        submission.max_queued = Some(0);
    }
    let enqueued = engine.enqueue(&submission).await?;
    Ok((
        submission.run.id,
        match (enqueued, spent) {
            (Enqueued::Full, Some(refusal)) => Enqueued::Refused(refusal),
            (enqueued, _) => enqueued,
        },
    ))
}

const DAY_MS: i64 = 86_400_000;

/// The refusal of a run whose tenant has used up its daily cost limit (K-57). Runs submitted within the last 24 hours count,
/// with the cost that is known when they end or wait. A run that was continued keeps the cost of its earlier attempts.
///
/// # Errors
/// The journal fails.
pub fn spent(engine: &dyn Engine, placement: &Placement, now_ms: i64) -> Result<Option<Refusal>, Error> {
    let own = engine.tenant();
    let tenant = own.as_deref().or(placement.tenant.as_deref()).unwrap_or(DEFAULT_TENANT);
    let limit = engine.rules()?.tenants.get(tenant).and_then(|tenant| tenant.cost_usd_per_day);
    let Some(limit) = limit else { return Ok(None) };
    let since_ms = now_ms.saturating_sub(DAY_MS);
    let cost = match engine.cost_since(tenant, since_ms)? {
        Some(cost) => cost,
        None => {
            let (tenant, created_since_ms) = (Some(tenant.to_owned()), Some(since_ms));
            let of_day = engine.list(&Query { tenant, created_since_ms, ..Query::default() })?;
            let costs = of_day.into_iter().map(|row| etude_runs::listing::listed(engine, row, now_ms));
            costs.map(|listed| Ok(listed?.cost_usd.unwrap_or(0.0))).sum::<Result<f64, Error>>()?
        }
    };
    Ok((cost >= limit).then(|| Refusal::Quota {
        tenant: tenant.to_owned(),
        quota: "cost_usd_per_day",
        found: format!("{cost:.2} USD for runs of the last 24 hours"),
        limit: format!("{limit:.2} USD"),
    }))
}

/// A run of `definition` that an engine can accept, after the checks of its input. Nothing is queued.
///
/// # Errors
/// The input does not fit, or it cannot be stored.
pub fn submission(
    engine: &dyn Engine,
    definition: &Definition,
    request: Request,
    terms: Terms,
    now_ms: i64,
) -> Result<Submission, Refused> {
    let blobs = engine.blobs();
    let store = |why: String| Error::Store { path: "input".to_owned(), why };
    let input = checked(definition, &request.input).map_err(|fault| match fault {
        Fault::Problems(problems) => Refused::Input(problems),
        Fault::Unreadable(why) => Refused::Engine(store(why)),
    })?;
    let Terms { mut placement, keys, max_queued, needs_room, tick } = terms;
    placement.again_of = placement.again_of.or_else(|| request.again_of.clone());
    let header = Header { request: Request { input, ..request }, tick, learned: definition.learned_now(engine) };
    let run = NewRun {
        id: run_id::new(),
        app: definition.app.display().to_string(),
        target: definition.target.to_string(),
        abi: ABI,
        created_at_ms: now_ms,
        header: header.to_text(&*blobs).map_err(store)?,
        placement,
    };
    Ok(Submission { run, keys, max_queued, needs_room })
}

enum Fault {
    Problems(Vec<InputProblem>),
    Unreadable(String),
}

fn checked(definition: &Definition, input: &Json) -> Result<Json, Fault> {
    // Skill mode declares no parameters: its input is the request.
    if matches!(definition.target, Target::Skill(_)) {
        return Ok(input.clone());
    }
    let text = input.text().map_err(|error| Fault::Unreadable(error.to_string()))?;
    definition.input.coerce(&[], Some(&text)).map_err(Fault::Problems)
}

/// Cancels a queued run: neither the run nor its destructor starts. Returns false if the run is not queued; it may have begun
/// meanwhile, and then takes a signal.
///
/// # Errors
/// The run does not exist, or the journal fails.
pub async fn cancel(
    engine: &dyn Engine,
    definition: Option<&Definition>,
    run_id: &str,
    reason: &str,
) -> Result<bool, Error> {
    let has_begun = |row: &RunRow| row.state != RunState::Queued || row.started_at_ms.is_some();
    if has_begun(&engine.row(run_id)?) {
        return Ok(false);
    }
    let session = match engine.claim(run_id) {
        Err(Error::Busy { .. }) => return Ok(false),
        claimed => claimed?,
    };
    // The run may have begun since its row was read, in a process that then died.
    if has_begun(&engine.row(run_id)?) {
        return Ok(false);
    }
    end(engine, &*session, definition, Failure::new(FailureKind::Cancelled, reason.to_owned())).await?;
    Ok(true)
}

/// Fails the runs whose time in the queue is over, as `queue_expired`. `definition` loads the definition of a run, for the
/// steps in its result. A run that was queued again keeps the outcomes of its earlier attempts. Returns the ids of the runs.
///
/// # Errors
/// The journal fails, or a run cannot be ended; the other runs have ended nevertheless, unless the database is unreachable.
pub async fn expire(
    engine: &Arc<dyn Engine>,
    definition: impl Fn(&NewRun) -> Option<Definition>,
    now_ms: i64,
) -> Result<Vec<String>, Error> {
    let (mut ids, mut failed) = (Vec::new(), None);
    for session in engine.expired(now_ms)? {
        match expire_one(engine, &*session, &definition).await {
            Ok(()) => ids.push(session.run_id().to_owned()),
            Err(error) if engine.health().is_disconnected => return Err(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(ids), Err)
}

async fn expire_one(
    engine: &Arc<dyn Engine>,
    session: &dyn Session,
    definition: impl Fn(&NewRun) -> Option<Definition>,
) -> Result<(), Error> {
    let run = session.run();
    let limit = duration(run.placement.queue_timeout_ms.unwrap_or_default());
    let has_begun = !session.records()?.is_empty();
    let verb = if has_begun { "continue" } else { "start" };
    let failure = Failure::new(
        FailureKind::QueueExpired,
        format!("the run did not {verb}: it was queued for more than its `queue_timeout` of {limit}"),
    );
    let definition = definition(run);
    if has_begun {
        let view = engine.view(session.run_id())?;
        return crash::end(engine, session, &view, definition.as_ref(), failure).await;
    }
    end(&**engine, session, definition.as_ref(), failure).await.map(drop)
}

/// Queues a run again that has ended or was interrupted, and releases it. The process that takes it continues it as
/// `resume` says: the accepted changes and the next attempt are written now. `definition` must be the current one.
///
/// # Errors
/// Another process has the run, its definition has changed without acceptance, or the journal fails.
pub async fn requeue(
    engine: &dyn Engine,
    session: Box<dyn Session>,
    definition: &Definition,
    sources: &dyn Sources,
    resume: Resume,
    now_ms: i64,
) -> Result<(), runner::Error> {
    let run = session.run().clone();
    let facts = Facts::gather(&run, definition, sources, session.records()?, engine)?;
    for record in facts.decide(resume, true)?.new {
        session.append(record).await?;
    }
    drop(session);
    Ok(engine.requeue(&run.id, now_ms).await?)
}

/// Ends a run that never began. Returns its result document.
///
/// # Errors
/// The journal fails.
pub(crate) async fn end(
    engine: &dyn Engine,
    session: &dyn Session,
    definition: Option<&Definition>,
    failure: Failure,
) -> Result<Document, Error> {
    let (run, is_cancelled) = (session.run(), failure.kind == FailureKind::Cancelled);
    let (state, status) = match is_cancelled {
        true => (RunState::Cancelled, Status::Cancelled),
        false => (RunState::Failed, Status::Failed),
    };
    // A later attempt begins with the constructor.
    let remains = Remains { unfinished: Vec::new(), is_scope_over: true };
    let so_far = definition.and_then(|definition| untouched(run, definition, &*engine.blobs()));
    let (errors, target) = (vec![failure], Target::parse(&run.target));
    let document = match so_far {
        Some(so_far) => {
            let result = RunResult { status, errors, remains, ..so_far };
            let mut document = Document::of(&run.id, &target, &result, &[], 0);
            document.again_of.clone_from(&run.placement.again_of);
            document
        }
        None => {
            let mut document = Document::not_started(Some(&target), &errors, &Default::default());
            document.members.insert("status".into(), state.word().into());
            let (run_id, again_of) = (Some(run.id.clone()), run.placement.again_of.clone());
            Document { run_id, again_of, attempt: Some(1), remains: Some(remains), ..document }
        }
    };
    session.set_state(state, Some(&document.to_journal())).await?;
    Ok(document)
}

/// The result of a run that has not begun, with a row for each step; `None` if its input cannot be read.
#[doc(hidden)]
pub fn untouched(run: &NewRun, definition: &Definition, blobs: &dyn BlobStore) -> Option<RunResult> {
    let header = Header::parse(&run.header, blobs).ok()?;
    Some(Machine::new(&definition.plan, header.start(run, &definition.app, &[], blobs)).snapshot())
}

#[cfg(test)]
mod tests;
