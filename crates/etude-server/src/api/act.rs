//! Actions on runs: cancel, resume, retry, delete.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use etude::Disk;
use etude::attempts::{self, Next};
use etude::definition::Definition;
use etude::runner::Resume;
use etude_core::machine::Limits;
use etude_runs::pins::Change;
use etude_runtime::engine::{Query, RunRow, RunState, RunView};
use etude_runtime::record::Continuation;
use http::StatusCode;
use serde_json::{Value, json};

use super::start::{check_prices, limits};
use crate::admission;
use crate::app::not_loaded;
use crate::blocking::blocking;
use crate::notice;
use crate::problem::{Code, Problem, engine_failed};
use crate::request::{Call, Respond};
use crate::response::text_response;
use crate::server::Server;
use crate::token::Caller;
use crate::work;

fn over(row: &RunRow) -> Problem {
    let detail = format!("run `{}` has ended: {}", row.id, row.state.word());
    Problem::new(Code::RunIsOver, detail).with("run_id", row.id.as_str())
}

/// The row of a run, as the response of an accepted action.
async fn accepted(server: &Arc<Server>, id: String) -> Respond {
    let of = Arc::clone(server);
    let document = blocking(move || {
        let row = of.engine().row(&id).map_err(|e| engine_failed(&e))?;
        of.runs().row_text(&row)
    });
    Ok(text_response(StatusCode::ACCEPTED, document.await?.get().to_owned()))
}

/// `POST /v1/runs/{id}/cancel`.
pub(crate) async fn cancel(call: Call) -> Respond {
    let members = call.json(&["reason", "mode"]).await?;
    let caller = call.caller()?.clone();
    let reason = members.text("reason")?.unwrap_or_else(|| format!("cancelled by {}", caller.name));
    let kills = match members.text("mode")?.as_deref() {
        None | Some("cancel") => false,
        Some("kill") => true,
        Some(_) => return Err(members.invalid("mode", "`mode` must be `cancel` or `kill`")),
    };
    let (server, id) = (Arc::clone(&call.server), call.param("id").to_owned());
    let of = id.clone();
    let cancelled = blocking(move || {
        let row = server.context().visible(&caller, &of)?;
        if row.state.is_final() {
            return Err(over(&row));
        }
        match work::cancel_run(server.works(), &row, &reason, kills)? {
            true => Ok(()),
            // The run has ended since it was read.
            false => Err(over(&server.context().visible(&caller, &of)?)),
        }
    });
    cancelled.await?;
    accepted(&call.server, id).await
}

/// `POST /v1/runs/{id}/resume`.
pub(crate) async fn resume(call: Call) -> Respond {
    let members = call.json(&["accept_changes", "limits"]).await?;
    let (accepts, limits) = (members.flag("accept_changes")?.unwrap_or(false), limits(&members)?);
    continued(&call, accepts, limits, None).await
}

/// `POST /v1/runs/{id}/retry`.
pub(crate) async fn retry(call: Call) -> Respond {
    let members = call.json(&["from", "accept_changes", "limits"]).await?;
    let from = members.text("from")?.ok_or_else(|| members.invalid("from", "`from` must be the name of a step"))?;
    let (accepts, limits) = (members.flag("accept_changes")?.unwrap_or(false), limits(&members)?);
    continued(&call, accepts, limits, Some(from)).await
}

async fn continued(call: &Call, accept_changes: bool, limits: Limits, from: Option<String>) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let of = id.clone();
    let resumed = blocking(move || {
        let row = server.context().visible(&caller, &of)?;
        if row.state == RunState::Succeeded && from.is_none() {
            return Err(over(&row));
        }
        if row.state == RunState::Queued {
            return Ok(());
        }
        let engine = server.engine();
        if !server.works().drives(&row.placement) {
            // The run has its own files (K-50), which only workers unpack.
            if row.state.is_final() || accept_changes || limits != Limits::default() || from.is_some() {
                let problem =
                    Problem::new(Code::RunIsBusy, "the run has its own app bundle, and only workers can execute it");
                return Err(problem.with("run_id", of.as_str()).hint("continue it with `etude runs resume`"));
            }
            let queued = engine.requeue(&of, server.clock().now_ms());
            let queued = tokio::runtime::Handle::current().block_on(queued);
            return queued.map_err(|e| engine_failed(&e));
        }
        notice::report_before(server.notices(), &row)?;
        // This step comes first, so that its refusal can name a process that holds the run. The run counts like one from the
        // queue (S-91, S-92).
        let session =
            engine.take(&of, &server.context().limits(), server.clock().now_ms()).map_err(|e| engine_failed(&e))?;
        let view = engine.view(&of).map_err(|e| engine_failed(&e))?;
        let (disk, definition, changes) = definition_now(&server, &caller, &view)?;
        check_prices(&server, &definition, &limits)?;
        if !accept_changes && !changes.is_empty() {
            return Err(definition_changed(&of, &changes));
        }
        let attempt = |view: &RunView| next_attempt(&server, view, &definition, limits, from.as_deref());
        if let Some(session) = session {
            let attempt = attempt(&view)?;
            return work::drive(server.works(), session, Resume { accept_changes, attempt });
        }
        if view.row.state == RunState::Waiting {
            let asks_more = !changes.is_empty() || limits != Limits::default() || from.is_some();
            return match !asks_more && work::keeps_waiting(server.works(), &view.row)? {
                true => Ok(()),
                false => Err(without_room(&of)),
            };
        }
        admission::check_room(server.admissions(), &view.row, &definition)?;
        let session = engine.claim(&of).map_err(|e| engine_failed(&e))?;
        // Another process may have continued the run meanwhile.
        let view = engine.view(&of).map_err(|e| engine_failed(&e))?;
        let resume = Resume { accept_changes, attempt: attempt(&view)? };
        let now_ms = server.clock().now_ms();
        let queued = etude::queue::requeue(&**engine, session, &definition, &disk, resume, now_ms);
        let queued = tokio::runtime::Handle::current().block_on(queued).map_err(|error| match error.of_engine() {
            Some(error) => engine_failed(error),
            None => Problem::new(Code::JournalUnavailable, error.to_string()),
        });
        server.works().wake.notify_one();
        queued
    });
    resumed.await?;
    accepted(&call.server, id).await
}

/// The attempt with which a run continues; `None` if the current one goes on.
fn next_attempt(
    server: &Server,
    view: &RunView,
    definition: &Definition,
    limits: Limits,
    from: Option<&str>,
) -> Result<Option<Continuation>, Problem> {
    match next_of(server, view, definition, limits, from) {
        Ok(Next::Over) => Err(over(&view.row)),
        Ok(Next::Continues) => Ok(None),
        Ok(Next::Attempt(attempt)) => Ok(Some(attempt)),
        Err(attempts::Refused::UnknownStep(unknown)) => {
            Err(Problem::invalid("/from", unknown.to_string()).hint(unknown.hint()))
        }
        Err(attempts::Refused::Exhausted(exhausted)) => Err(Problem::invalid("/limits", exhausted.to_string())),
        Err(attempts::Refused::Moved(run)) => Err(engine_failed(&etude_runtime::engine::Error::Moved(run))),
        Err(error @ attempts::Refused::Damaged { .. }) => {
            Err(Problem::new(Code::JournalUnavailable, error.to_string()))
        }
    }
}

/// The run's definition as it is now, and the files that have changed since the run began.
fn definition_now(
    server: &Server,
    caller: &Caller,
    view: &RunView,
) -> Result<(Disk, Definition, Vec<Change>), Problem> {
    let row = &view.row;
    let loaded = server.context().definition(&row.app, &row.target);
    let (disk, definition) = loaded.map_err(|error| not_loaded(error.seen_by(caller), "", &row.target))?;
    let changes = etude::changes(view, &definition, &disk, &*server.engine().blobs());
    let changes = changes.map_err(|e| Problem::new(Code::DefinitionInvalid, e.to_string()))?;
    Ok((disk, definition, changes))
}

fn definition_changed(run_id: &str, changes: &[Change]) -> Problem {
    let changes: Vec<Value> = changes.iter().map(change_json).collect();
    let detail = format!("the definition of run `{run_id}` has changed since it began");
    let problem = Problem::new(Code::DefinitionChanged, detail).with("run_id", run_id);
    problem.with("changes", changes).hint("resume it with `accept_changes`")
}

/// The problem of a waiting run that cannot continue now, and that nothing continues later.
fn without_room(run_id: &str) -> Problem {
    let detail = "the server or the pipeline has reached its limit of runs in progress (`max_runs`)";
    Problem::new(Code::RunIsBusy, detail).with("run_id", run_id).hint("resume it after another run has ended")
}

fn change_json(change: &Change) -> Value {
    json!({"path": change.path, "what": change.what, "diff": change.diff})
}

/// `DELETE /v1/runs/{id}`.
pub(crate) async fn delete(call: Call) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let deleted = blocking(move || {
        let row = server.context().visible(&caller, &id)?;
        let busy = || Problem::new(Code::RunIsBusy, format!("run `{id}` has not ended: {}", row.state.word()));
        if !row.state.is_final() {
            return Err(match server.engine().claim(&id) {
                Err(error @ etude_runtime::engine::Error::Busy { .. }) => engine_failed(&error),
                _ => busy().with("run_id", row.id.as_str()),
            });
        }
        let query = Query { id: Some(id.clone()), ..Query::default() };
        match server.engine().prune(&query).map_err(|e| engine_failed(&e))? {
            0 => Err(busy()),
            _ => Ok(()),
        }
    });
    deleted.await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// The next attempt of a resumed run, or the reason why it cannot be resumed.
fn next_of(
    server: &Server,
    view: &RunView,
    definition: &Definition,
    limits: Limits,
    from: Option<&str>,
) -> Result<attempts::Next, attempts::Refused> {
    let engine = server.engine();
    let ended = attempts::Ended { view, definition, blobs: &engine.blobs(), limits };
    match from {
        None => ended.resume(),
        Some(step) => ended.retry(step).map(attempts::Next::Attempt),
    }
}
