//! Runs: rows, lists, counts and documents.

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::machine::Limits as RunLimits;
use etude_runs::header::Header;
use etude_runs::inspect::Bytes;
use etude_runs::target::Target;
use etude_runtime::engine::{Cause, Counts, Cursor, Query, RunRow, RunState, RunView, name_of};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::effect::Wanted;
use crate::problem::{Code, Problem, engine_failed};
use crate::query::invalid;
use crate::reading::{Reading, Readings};
use crate::request::{Call, Respond, Tagged, json_response, not_modified, tag_of, text_response};
use crate::result::result_in;
use crate::server::Server;
use crate::token::Caller;

mod kept;
mod row;
mod wire;

pub(crate) use kept::Documents;
pub(crate) use row::{Rows, row_text};

use row::Summary;
use wire::Page;

/// The parameters that select runs.
const FILTERS: [&str; 9] = ["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until"];

/// How many runs are read at once where a token sees only some of them.
const PAGE: u32 = 200;

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
        let (rows, has_more) = page(&server, &caller, query, after, limit)?;
        let next = rows.last().filter(|_| has_more).map(|row| to_cursor(row.cursor(), &filters));
        let runs = rows.iter().map(|row| row_text(&server, row)).collect::<Result<_, _>>()?;
        Ok(Page { runs, next })
    });
    let text = serde_json::to_string(&page.await?).map_err(|error| Problem::new(Code::Bug, error.to_string()))?;
    Ok(text_response(StatusCode::OK, text))
}

/// At most `limit` runs that the caller sees, and whether there are more.
pub(crate) fn page(
    server: &Server,
    caller: &Caller,
    query: Query,
    mut after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<RunRow>, bool), Problem> {
    let mut found = Vec::new();
    let size = if caller.only.is_empty() { u32::try_from(limit + 1).unwrap_or(PAGE) } else { PAGE };
    loop {
        let query = Query { after, limit: Some(size), ..query.clone() };
        let rows = server.engine().list(&query).map_err(|e| engine_failed(&e))?;
        let is_last = rows.len() < size as usize;
        after = rows.last().map(RunRow::cursor);
        found.extend(rows.into_iter().filter(|row| caller.covers(name_of(&row.target))));
        if is_last || found.len() > limit {
            let has_more = found.len() > limit;
            found.truncate(limit);
            return Ok((found, has_more));
        }
    }
}

/// `GET /v1/runs/counts`.
pub(crate) async fn counts(call: Call) -> Respond {
    let caller = call.caller()?.clone();
    let query = filter(&call)?;
    let server = Arc::clone(&call.server);
    let counts =
        blocking(move || query.map_or_else(|| Ok(Counts::default()), |query| counted(&server, &caller, query)));
    let Counts { queued, running, waiting, sleeping, interrupted, succeeded, failed, cancelled, moved: _ } =
        counts.await?;
    let mut document = json!({
        "queued": queued, "running": running, "waiting": waiting, "interrupted": interrupted, "succeeded": succeeded,
        "failed": failed, "cancelled": cancelled,
    });
    // Seven are always there. Runs sleep on workers alone, and `status=sleeping` lists them.
    if sleeping > 0 {
        document["sleeping"] = sleeping.into();
    }
    Ok(json_response(StatusCode::OK, &document))
}

/// The number of runs that the caller sees, by state.
pub(crate) fn counted(server: &Server, caller: &Caller, query: Query) -> Result<Counts, Problem> {
    if caller.only.is_empty() {
        return server.engine().counts(&query).map_err(|e| engine_failed(&e));
    }
    let mut counts = Counts::default();
    let mut after = None;
    loop {
        let (rows, has_more) = page(server, caller, query.clone(), after, PAGE as usize)?;
        rows.iter().for_each(|row| counts.add(row.state, row.is_live, 1));
        after = rows.last().map(RunRow::cursor);
        if !has_more {
            return Ok(counts);
        }
    }
}

/// The runs that the query's parameters select; `None` if there can be none.
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
        // No run is of both.
        (Some(_), Some(_)) => {
            is_empty = true;
            None
        }
        (Some(name), None) => Some(Target::Pipeline(name.to_owned()).to_string()),
        (None, Some(name)) => Some(Target::Machine(name.to_owned()).to_string()),
        (None, None) => None,
    };
    if let Some(word) = given("cause") {
        let words = "`cause` is `cli`, `api`, `schedule`, `webhook` or `mcp`";
        query.cause = Some(Cause::from_word(word).ok_or_else(|| invalid("cause", words))?);
    }
    for label in call.query.all("label") {
        let (key, value) = label.split_once(':').ok_or_else(|| invalid("label", "`label` is `KEY:VALUE`"))?;
        query.labels.push((key.to_owned(), value.to_owned()));
    }
    query.text = given("q").filter(|text| !text.is_empty()).map(str::to_owned);
    query.created_since_ms = time(call, "since")?;
    query.created_before_ms = time(call, "until")?;
    Ok((!is_empty).then_some(query))
}

fn time(call: &Call, name: &str) -> Result<Option<i64>, Problem> {
    let Some(text) = call.query.get(name) else { return Ok(None) };
    etude::clock::from_rfc3339(text).map(Some).ok_or_else(|| invalid(name, format!("`{name}` is an RFC 3339 time")))
}

/// The filters of a list: a cursor is for the same ones only.
fn filters_text(call: &Call) -> String {
    FILTERS.iter().map(|name| format!("{:?}", call.query.all(name).collect::<Vec<_>>())).collect()
}

fn cursor_check(cursor: Cursor, filters: &str) -> String {
    let text = format!("{} {} {filters}", cursor.created_at_ms, cursor.number);
    blake3::derive_key("etude list cursor 1", text.as_bytes())[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn to_cursor(cursor: Cursor, filters: &str) -> String {
    format!("{}.{}.{}", cursor.created_at_ms, cursor.number, cursor_check(cursor, filters))
}

fn from_cursor(text: &str, filters: &str) -> Result<Cursor, Problem> {
    let foreign = || invalid("cursor", "`cursor` is the `next` of a page with the same filters");
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
            document_of(&server, &server.context().outline(&caller, &id)?, Extent::Brief, &readings).map(Tagged::new)
        });
        return Ok(document.await?.response(&call.headers));
    }
    let is_quick = server.engine().is_quick();
    // One row of a local journal costs less than another thread.
    if is_quick && let Some(document) = kept(&server, &caller, &id)? {
        return Ok(document.response(&call.headers));
    }
    let document = blocking(move || {
        if !is_quick && let Some(document) = kept(&server, &caller, &id)? {
            return Ok(document);
        }
        let outline = server.context().outline(&caller, &id)?;
        if outline.row.state == RunState::Queued {
            // Another process may have queued it a moment ago, and waits for it.
            server.works().wake.notify_one();
        }
        let row = outline.row.clone();
        let document = Arc::new(Tagged::new(document_of(&server, &outline, Extent::Whole, &readings)?));
        server.documents().keep(row, &document);
        Ok(document)
    });
    Ok(document.await?.response(&call.headers))
}

/// The document of a run that the caller may see, if it has ended and its document was asked for before.
fn kept(server: &Server, caller: &Caller, id: &str) -> Result<Option<Arc<Tagged>>, Problem> {
    Ok(server.documents().get(&server.context().visible(caller, id)?))
}

/// `GET /v1/runs/{id}/output`: what the run has returned, and null before.
pub(crate) async fn output(call: Call) -> Respond {
    value(call, |server, view| Ok(result_in(&**server.engine(), view).and_then(|document| document.output))).await
}

/// `GET /v1/runs/{id}/input`.
pub(crate) async fn input(call: Call) -> Respond {
    value(call, |server, view| {
        let header = Header::parse(&view.run.header, &*server.engine().blobs());
        header.map(|header| Some(header.input)).map_err(|why| Problem::new(Code::JournalUnavailable, why))
    })
    .await
}

/// A value of a run as it was written, with all digits, or the part of it that is asked for. Only that is read.
async fn value(call: Call, of: fn(&Server, &RunView) -> Result<Option<Json>, Problem>) -> Respond {
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let value =
        blocking(move || of(&server, &server.context().outline(&caller, &id)?)).await?.unwrap_or_else(Json::null);
    let tag = tag_of(value.digest());
    if let Some(response) = not_modified(&call.headers, &tag) {
        return Ok(response);
    }
    let mut response = Wanted::of(&call.headers, &tag).respond(Bytes::from(&value), tag)?;
    // A part of a JSON text is none.
    if response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(response)
}

/// How much of a run its document has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// All but the input and the output, which may be as long as a disk allows.
    Brief,
}

/// The document of a run, as text.
pub(crate) fn document(server: &Server, id: &str) -> Result<String, Problem> {
    let outline = server.engine().outline(id).map_err(|e| engine_failed(&e))?;
    document_of(server, &outline, Extent::Whole, &Readings::default())
}

/// The document of a run, as text: its input and its output keep their digits. Only a run without a result is read whole.
fn document_of(server: &Server, outline: &RunView, extent: Extent, readings: &Readings) -> Result<String, Problem> {
    let engine = server.engine();
    let ended = result_in(&**engine, outline);
    let reading: Arc<Reading>;
    let (view, result) = match &ended {
        Some(document) => (outline, Some(document)),
        None => {
            reading = readings.of(server.context(), &outline.row.id)?;
            (&reading.view, reading.result(server.context()))
        }
    };
    let (row, blobs) = (&view.row, engine.blobs());
    let header = Header::parse(&view.run.header, &*blobs).ok();
    let summary = result.map(Summary::of).transpose()?;
    let mut text = row::text(server, row, summary.as_ref())?.get().to_owned();
    let empty = || Value::from(Vec::<Value>::new());
    let member = |name: &str| result.and_then(|document| document.members.get(name).cloned());
    let limits = header.as_ref().map_or_else(RunLimits::default, |header| header.limits);
    let waiting = result.filter(|_| row.state == RunState::Waiting).map(|document| document.waiting.clone());
    let place = match row.state {
        RunState::Queued => engine.place(&row.id, &server.context().limits(), server.clock().now_ms()),
        _ => Ok(None),
    };
    let place = place.map_err(|e| engine_failed(&e))?;
    let mut rest = json!({
        "errors": member("errors").unwrap_or_else(empty),
        "steps": member("steps").unwrap_or_else(empty),
        "fell_back": member("fell_back"),
        "not_before": row.placement.not_before_ms.map(etude::clock::rfc3339),
        "limits": {
            "max_cost_usd": limits.max_cost_usd, "max_tokens": limits.max_tokens, "timeout_ms": limits.timeout_ms,
        },
        "waiting": waiting.unwrap_or_default(),
        "queue": place.map(|place| json!({"position": place.position, "reason": place.reason.word()})),
    });
    if Target::parse(&row.target).machine().is_some() {
        rest["stages"] = member("stages").unwrap_or_else(empty);
    }
    // Both are objects with members.
    text.pop();
    text.push(',');
    text.push_str(&rest.to_string()[1..]);
    if extent == Extent::Brief {
        return Ok(text);
    }
    text.pop();
    let raw = |json: Option<&etude_core::data::Json>| match json.map(etude_core::data::Json::text) {
        None => Ok("null".into()),
        Some(Ok(text)) => Ok(text),
        Some(Err(error)) => Err(Problem::new(Code::JournalUnavailable, error.to_string())),
    };
    let output = raw(result.and_then(|document| document.output.as_ref()))?;
    let input = raw(header.as_ref().map(|header| &header.input))?;
    text.push_str(&format!(r#","output":{output},"input":{input}}}"#));
    Ok(text)
}

#[cfg(test)]
mod tests;
