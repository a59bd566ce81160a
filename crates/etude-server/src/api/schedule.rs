//! Schedules: their state, their ticks, and the actions on them.

use std::sync::Arc;

use etude_core::digest::Digest;
use etude_runtime::clock::rfc3339;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::key;
use crate::ledger::Page;
use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::{json_response, tagged};
use crate::schedule::{self, Found, Kept};

/// The schedule that the path names.
fn find(call: &Call) -> Result<impl FnOnce() -> Result<Found, Problem> + Send + use<>, Problem> {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (app, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    Ok(move || schedule::find(server.schedules(), &caller, &app, &name))
}

/// `GET /v1/schedules`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let documents = blocking(move || {
        let all = schedule::visible(server.schedules(), &caller);
        all.iter().map(|found| schedule::document(server.schedules(), found)).collect::<Result<Vec<Value>, Problem>>()
    });
    Ok(json_response(StatusCode::OK, &json!({"schedules": documents.await?})))
}

/// `GET /v1/schedules/{app}/{name}`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let document = blocking(move || schedule::document(server.schedules(), &find()?)).await?;
    Ok(tagged(&call.headers, document.to_string()))
}

/// `GET /v1/schedules/{app}/{name}/next`.
pub(crate) async fn next(call: Call) -> Respond {
    let find = find(&call)?;
    let count = usize::try_from(call.query.number("count", 1, 100, 5)?).unwrap_or(5);
    let from = match call.query.get("from") {
        Some(text) => etude_runtime::clock::from_rfc3339(text)
            .ok_or_else(|| invalid("from", "`from` must be an RFC 3339 time"))?,
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
    let (server, find, page) = (Arc::clone(&call.server), find(&call)?, Page::parse(&call.query, &[])?);
    let document = blocking(move || {
        let (entries, next) = page.read(server.ledger(), find()?.book())?;
        let ticks: Vec<Value> = entries.iter().map(schedule::tick_document).collect();
        Ok(json!({"ticks": ticks, "next": next}))
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}

/// `POST /v1/schedules/{app}/{name}/pause`.
pub(crate) async fn pause(call: Call) -> Respond {
    let members = call.json(&["reason", "until"]).await?;
    let until = members.text("until")?;
    let time = |text: String| {
        etude_runtime::clock::from_rfc3339(&text)
            .ok_or_else(|| members.invalid("until", "`until` must be an RFC 3339 time"))
    };
    let (reason, until_ms) = (members.text("reason")?, until.map(time).transpose()?);
    if until_ms.is_some_and(|until_ms| until_ms <= call.server.clock().now_ms()) {
        return Err(members.invalid("until", "`until` is in the past; a pause must end in the future"));
    }
    moved(&call, move |kept| kept.paused(reason.clone(), until_ms)).await
}

/// `POST /v1/schedules/{app}/{name}/unpause`.
pub(crate) async fn unpause(call: Call) -> Respond {
    reason_of(&call).await?;
    moved(&call, Kept::active).await
}

/// Checks the reason of a one-time action. Only a pause lasts, and is shown with its reason.
async fn reason_of(call: &Call) -> Result<Option<String>, Problem> {
    call.json(&["reason"]).await?.text("reason")
}

async fn moved(call: &Call, change: impl Fn(Kept) -> Kept + Send + 'static) -> Respond {
    let (server, find) = (Arc::clone(&call.server), find(call)?);
    let document = blocking(move || schedule::moved(server.schedules(), &find()?, change));
    Ok(json_response(StatusCode::OK, &document.await?))
}

/// `POST /v1/schedules/{app}/{name}/fire`. An idempotency key of a token fires only once.
pub(crate) async fn fire(call: Call) -> Respond {
    reason_of(&call).await?;
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let caller = call.caller()?.name.clone();
    let given = key::parse(&call.headers)?.map(|key| Digest::of(format!("{caller} {key}").as_bytes()));
    let fired = blocking(move || schedule::fire(server.schedules(), find()?, given));
    let (document, is_replayed) = fired.await?;
    let mut response = json_response(StatusCode::ACCEPTED, &document);
    if is_replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// `POST /v1/schedules/{app}/{name}/backfill`.
pub(crate) async fn backfill(call: Call) -> Respond {
    let members = call.json(&["from", "to"]).await?;
    let time = |name: &str| {
        let detail = format!("`{name}` must be an RFC 3339 time");
        let text = members.text(name)?;
        text.and_then(|text| etude_runtime::clock::from_rfc3339(&text)).ok_or_else(|| members.invalid(name, detail))
    };
    let (from, to) = (time("from")?, time("to")?);
    if from >= to {
        return Err(members.invalid("to", "`to` must be later than `from`"));
    }
    let (server, find) = (Arc::clone(&call.server), find(&call)?);
    let times = blocking(move || schedule::backfill(server.schedules(), find()?, from, to));
    Ok(json_response(StatusCode::ACCEPTED, &json!({"ticks": times.await?})))
}
