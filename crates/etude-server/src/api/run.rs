//! Runs: lists, counts, documents, input and output.

use std::sync::Arc;

use etude_core::data::Json;
use etude_runs::header::Header;
use etude_runs::inspect::Bytes;
use etude_runs::target::Target;
use etude_runtime::engine::{Cause, Counts, Cursor, Query, RunState, RunView};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::effect::Wanted;
use crate::blocking::blocking;
use crate::problem::{Code, Problem};
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::{Tagged, json_response, not_modified, tag_of, text_response};
use crate::result::result_in;
use crate::run::{Extent, Page};
use crate::server::Server;
use crate::token::Caller;

/// The query parameters that select runs.
const FILTERS: [&str; 9] = ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until"];

/// `GET /v1/runs`.
pub(crate) async fn list(call: Call) -> Respond {
    let caller = call.caller()?.clone();
    let query = filter(&call)?;
    let limit = usize::try_from(call.query.number("limit", 1, 200, 50)?).unwrap_or(50);
    let filters = filters_text(&call);
    let after = call.query.get("cursor").map(|text| from_cursor(text, &filters)).transpose()?;
    let server = Arc::clone(&call.server);
    let page = blocking(move || {
        let Some(query) = query else { return Ok(Page::default()) };
        let (rows, has_more) = server.runs().page(&caller, query, after, limit)?;
        let next = rows.last().filter(|_| has_more).map(|row| to_cursor(row.cursor(), &filters));
        let runs = rows.iter().map(|row| server.runs().row_text(row)).collect::<Result<_, _>>()?;
        Ok(Page { runs, next })
    });
    let text = serde_json::to_string(&page.await?).map_err(|error| Problem::new(Code::Bug, error.to_string()))?;
    Ok(text_response(StatusCode::OK, text))
}

/// `GET /v1/runs/counts`.
pub(crate) async fn counts(call: Call) -> Respond {
    let caller = call.caller()?.clone();
    let query = filter(&call)?;
    let server = Arc::clone(&call.server);
    let counts =
        blocking(move || query.map_or_else(|| Ok(Counts::default()), |query| server.runs().counted(&caller, query)));
    let Counts { queued, running, waiting, sleeping, interrupted, succeeded, failed, cancelled, moved: _ } =
        counts.await?;
    let mut document = json!({
        "queued": queued, "running": running, "waiting": waiting, "interrupted": interrupted, "succeeded": succeeded,
        "failed": failed, "cancelled": cancelled,
    });
    // The seven counts are always present. Only workers have sleeping runs, which `status=sleeping` lists.
    if sleeping > 0 {
        document["sleeping"] = sleeping.into();
    }
    Ok(json_response(StatusCode::OK, &document))
}

/// The query for the selected runs; `None` if no run can match.
pub(crate) fn filter(call: &Call) -> Result<Option<Query>, Problem> {
    let given = |name| call.query.get(name);
    let mut query = Query { apps: call.server.context().dirs(), ..Query::default() };
    match given("status") {
        None => {}
        Some("interrupted") => {
            query.states = vec![RunState::Running];
            query.is_interrupted = Some(true);
        }
        Some(word) => {
            let state = RunState::from_word(word).ok_or_else(|| {
                let words = "`queued`, `running`, `waiting`, `sleeping`, `interrupted`, `succeeded`, `failed`, `cancelled` or `moved`";
                invalid("status", format!("`status` is {words}"))
            })?;
            query.states = vec![state];
            query.is_interrupted = (state == RunState::Running).then_some(false);
        }
    }
    let mut is_empty = query.apps.is_empty();
    if let Some(slug) = given("app") {
        match call.server.context().app(slug) {
            Some(app) => query.apps = vec![app.dir.display().to_string()],
            None => is_empty = true,
        }
    }
    query.target = match (given("pipeline"), given("machine")) {
        // A run is either of a pipeline or of a machine, never of both.
        (Some(_), Some(_)) => {
            is_empty = true;
            None
        }
        (Some(name), None) => Some(Target::Pipeline(name.to_owned()).to_string()),
        (None, Some(name)) => Some(Target::Machine(name.to_owned()).to_string()),
        (None, None) => None,
    };
    if let Some(word) = given("cause") {
        let words = "`cause` must be `cli`, `api`, `schedule`, `webhook` or `mcp`";
        query.cause = Some(Cause::from_word(word).ok_or_else(|| invalid("cause", words))?);
    }
    for label in call.query.all("label") {
        let (key, value) = label.split_once(':').ok_or_else(|| invalid("label", "`label` must be `KEY:VALUE`"))?;
        query.labels.push((key.to_owned(), value.to_owned()));
    }
    query.text = given("q").filter(|text| !text.is_empty()).map(str::to_owned);
    query.created_since_ms = time(call, "since")?;
    query.created_before_ms = time(call, "until")?;
    Ok((!is_empty).then_some(query))
}

fn time(call: &Call, name: &str) -> Result<Option<i64>, Problem> {
    let Some(text) = call.query.get(name) else { return Ok(None) };
    etude_runtime::clock::from_rfc3339(text)
        .map(Some)
        .ok_or_else(|| invalid(name, format!("`{name}` must be an RFC 3339 time")))
}

/// The filters of a list as text: a cursor is valid only with the same ones.
fn filters_text(call: &Call) -> String {
    FILTERS.iter().map(|name| format!("{:?}", call.query.all(name).collect::<Vec<_>>())).collect()
}

fn cursor_check(cursor: Cursor, filters: &str) -> String {
    let text = format!("{} {} {filters}", cursor.created_at_ms, cursor.number);
    etude_core::digest::hex(&blake3::derive_key("etude list cursor 1", text.as_bytes())[..6])
}

fn to_cursor(cursor: Cursor, filters: &str) -> String {
    format!("{}.{}.{}", cursor.created_at_ms, cursor.number, cursor_check(cursor, filters))
}

fn from_cursor(text: &str, filters: &str) -> Result<Cursor, Problem> {
    let foreign = || invalid("cursor", "`cursor` must be the `next` of a page with the same filters");
    let mut parts = text.splitn(3, '.');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let cursor = number().zip(number()).map(|(created_at_ms, number)| Cursor { created_at_ms, number });
    let cursor = cursor.ok_or_else(foreign)?;
    if parts.next() == Some(&cursor_check(cursor, filters)) { Ok(cursor) } else { Err(foreign()) }
}

/// `GET /v1/runs/{id}`.
pub(crate) async fn show(call: Call) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let readings = call.readings.clone();
    if call.query.flag("brief")? {
        let document = blocking(move || {
            let outline = outline(&server, &caller, &id)?;
            server.runs().document_of(&outline, Extent::Brief, &readings).map(Tagged::new)
        });
        return Ok(document.await?.response(&call.headers));
    }
    let is_quick = server.engine().is_quick();
    // Reading one row of a local journal costs less than another thread.
    if is_quick && let Some(document) = server.runs().kept(&caller, &id)? {
        return Ok(document.response(&call.headers));
    }
    let document = blocking(move || {
        if !is_quick && let Some(document) = server.runs().kept(&caller, &id)? {
            return Ok(document);
        }
        let outline = outline(&server, &caller, &id)?;
        let row = outline.row.clone();
        let document = Arc::new(Tagged::new(server.runs().document_of(&outline, Extent::Whole, &readings)?));
        server.runs().keep(row, &document);
        Ok(document)
    });
    Ok(document.await?.response(&call.headers))
}

/// The outline of a run. Wakes the queue if the run is queued: another process may have queued it a moment ago, and wait for it.
fn outline(server: &Server, caller: &Caller, id: &str) -> Result<RunView, Problem> {
    let outline = server.context().outline(caller, id)?;
    if outline.row.state == RunState::Queued {
        server.works().wake.notify_one();
    }
    Ok(outline)
}

/// `GET /v1/runs/{id}/output`: the output of the run, or null before it ends.
pub(crate) async fn output(call: Call) -> Respond {
    value(call, |server, view| Ok(result_in(&**server.engine(), view).and_then(|document| document.output))).await
}

/// `GET /v1/runs/{id}/input`.
pub(crate) async fn input(call: Call) -> Respond {
    value(call, |server, view| {
        let header = Header::parse(&view.run.header, &*server.engine().blobs());
        header.map(|header| Some(header.request.input)).map_err(|why| Problem::new(Code::JournalUnavailable, why))
    })
    .await
}

/// A value of a run as it was written, with all digits, or the requested part of it. Only that part is read.
async fn value(call: Call, of: fn(&Server, &RunView) -> Result<Option<Json>, Problem>) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let value =
        blocking(move || of(&server, &server.context().outline(&caller, &id)?)).await?.unwrap_or_else(Json::null);
    let tag = tag_of(value.digest());
    if let Some(response) = not_modified(&call.headers, &tag) {
        return Ok(response);
    }
    let mut response = Wanted::of(&call.headers, &tag).respond(Bytes::from(&value), tag)?;
    // A part of a JSON text is not JSON.
    if response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(response)
}

#[cfg(test)]
mod tests;
