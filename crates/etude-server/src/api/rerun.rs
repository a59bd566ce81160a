//! Running a run again: `POST /v1/runs/{id}/again`.

use std::sync::Arc;

use etude::runner::Request;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_runtime::engine::{Placement, RunRow, UniqueKey};
use serde_json::{Map, Value, json};

use super::start::{Started, check_prices, enqueue, limits, or_accepted, placement, responded, traceparent, wait};
use crate::admission::Candidate;
use crate::app::not_loaded;
use crate::blocking::blocking;
use crate::key;
use crate::problem::{Code, Problem, engine_failed};
use crate::request::{Call, Members, Respond};
use crate::run::row_at_acceptance;
use crate::server::Server;
use crate::token::{Caller, Scope};

/// `POST /v1/runs/{id}/again`.
pub(crate) async fn rerun(call: Call) -> Respond {
    let key = key::parse(&call.headers)?;
    let bytes = call.bytes().await?;
    let digest = Digest::of(&bytes);
    let members = Members::parse(bytes, &["input", "limits", "priority", "labels", "not_before"])?;
    let limits = members.raw("limits").map(|_| limits(&members)).transpose()?;
    let terms = placement(&members, &call.caller()?.name)?;
    let [has_priority, has_labels] = ["priority", "labels"].map(|name| members.raw(name).is_some());
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let wait = wait(&call.headers);
    let key = key.map(|key| UniqueKey { key: format!("http again {id} {} {key}", caller.name), digest: Some(digest) });
    if let Some(key) = &key
        && let Some(id) = key::run_of(call.server.context(), &caller, key).await?
    {
        return answered(&call, Started::before(id), wait, members.raw("input").is_some()).await;
    }
    let given = members.raw("input").map(str::to_owned);
    let (again_of, has_input) = (id.clone(), given.is_some());
    let traceparent = traceparent(&call.headers);
    let prepared = blocking(move || {
        let row = server.context().visible(&caller, &id)?;
        if matches!(Target::parse(&row.target), Target::Skill(_)) {
            let problem = Problem::new(
                Code::InputInvalid,
                "the run followed `SKILL.md`; the server can only rerun pipelines and machines",
            );
            return Err(problem.hint("start another run with its request: `etude run REQUEST`"));
        }
        let app = server.context().app_of(&row).cloned().ok_or_else(|| Problem::not_found("the app is not served"))?;
        let view = server.engine().view(&id).map_err(|e| engine_failed(&e))?;
        let header = Header::parse(&view.run.header, &*server.engine().blobs())
            .map_err(|why| Problem::new(Code::JournalUnavailable, why))?;
        // The result is a new run, so a pipeline that is out of use refuses it.
        let loaded = server.context().startable(&app.dir, &Target::parse(&row.target));
        let (_, definition) = loaded.map_err(|error| not_loaded(error.seen_by(&caller), "", &row.target))?;
        let input = match given {
            Some(text) => Json::parse(&text).map_err(|_| Problem::invalid("/input", "`input` must be an object"))?,
            None => header.request.input,
        };
        if let Some(limits) = &limits {
            check_prices(&server, &definition, limits)?;
        }
        let request = Request {
            limits: limits.unwrap_or(header.request.limits),
            again_of: Some(again_of.clone()),
            asked: header.request.asked,
            traceparent,
            ..Request::new(input, header.request.caller_dir)
        };
        let placement = Placement {
            labels: if has_labels { terms.labels.clone() } else { row.placement.labels.clone() },
            priority: if has_priority { terms.priority } else { row.placement.priority },
            again_of: Some(again_of),
            ..terms
        };
        Ok((app, definition, request, placement))
    });
    let (app, definition, request, placement) = prepared.await?;
    let candidate = Candidate { request, placement, has_priority: true, keys: key.into_iter().collect(), tick: None };
    let started = enqueue(&call, app, definition, candidate).await?;
    answered(&call, started, wait, has_input).await
}

/// The response with the run: the whole document if the caller may see its input; otherwise its row.
async fn answered(call: &Call, started: Started, wait: Option<u64>, has_input: bool) -> Respond {
    let caller = call.caller()?.clone();
    let document = move |server: &Server, started: &Started| {
        let shows_input = has_input || is_own(server, &caller, &started.id);
        let found = match shows_input {
            true => server.runs().document(&started.id),
            false => {
                server.engine().row(&started.id).map_err(|e| engine_failed(&e)).and_then(|row| brief(server, &row))
            }
        };
        or_accepted(found, started.accepted.as_ref(), |run| match shows_input {
            true => server.runs().accepted(run),
            false => brief(server, &row_at_acceptance(run)),
        })
    };
    responded(&call.server, started, wait, document).await
}

/// True if the caller may see the input of a run: it reads all runs, or has started this one and every run that this one repeats.
fn is_own(server: &Server, caller: &Caller, id: &str) -> bool {
    if caller.may(Scope::Read) {
        return true;
    }
    let mut next = Some(id.to_owned());
    while let Some(id) = next {
        // The starter of a deleted run is unknown.
        let Ok(row) = server.engine().row(&id) else { return false };
        if row.placement.by.as_deref() != Some(caller.name.as_str()) {
            return false;
        }
        next = row.placement.again_of;
    }
    true
}

/// The document of a run with only the row's members filled in.
fn brief(server: &Server, row: &RunRow) -> Result<String, Problem> {
    let text = server.runs().row_text(row)?;
    let document = serde_json::from_str::<Map<String, Value>>(text.get());
    let mut document = document.map_err(|e| Problem::new(Code::Bug, e.to_string()))?;
    let stages = Target::parse(&row.target).machine().map(|_| "stages");
    for list in ["errors", "steps", "waiting"].into_iter().chain(stages) {
        document.insert(list.to_owned(), json!([]));
    }
    document.insert("limits".to_owned(), json!({"max_cost_usd": null, "max_tokens": null, "timeout_ms": null}));
    for member in ["fell_back", "queue", "output", "input"] {
        document.entry(member).or_insert(Value::Null);
    }
    Ok(Value::from(document).to_string())
}
