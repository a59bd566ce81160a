//! Runs as the API sends them: rows, lists, counts and documents.

use std::sync::Arc;

use etude_core::machine::Limits as RunLimits;
use etude_runs::document::Document;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_runtime::engine::{Counts, Cursor, Engine, NewRun, Query, QueuePlace, RunRow, RunState, RunView, name_of};
use etude_runtime::record;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::context::Context;
use crate::problem::{Code, Problem, engine_failed};
use crate::reading::{Reading, Readings};
use crate::response::Tagged;
use crate::result::{result_in, result_in_list};
use crate::token::Caller;

mod kept;
mod row;
mod wire;

pub(crate) use wire::Page;

use kept::Documents;
use row::{Rows, Summary};

/// Runs per read if a token may see only some of them.
const PAGE: u32 = 200;

/// The runs of the journal, with caches of their rows and documents.
pub(crate) struct Runs {
    context: Arc<Context>,
    rows: Rows,
    documents: Documents,
}

/// The extent of a run's document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// All but the input and the output, which may be very large.
    Brief,
}

impl Runs {
    /// The runs of the journal.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), rows: Rows::default(), documents: Documents::default() }
    }

    /// The cached document of an ended run that the caller may see.
    pub(crate) fn kept(&self, caller: &Caller, id: &str) -> Result<Option<Arc<Tagged>>, Problem> {
        Ok(self.documents.get(&self.context.visible(caller, id)?))
    }

    /// Caches the document of an ended run.
    pub(crate) fn keep(&self, row: RunRow, document: &Arc<Tagged>) {
        self.documents.keep(row, document);
    }

    /// The row of a run as JSON text.
    pub(crate) fn row_text(&self, row: &RunRow) -> Result<Arc<RawValue>, Problem> {
        if let Some(kept) = self.rows.get(row) {
            return Ok(kept);
        }
        let (result, unread) = result_in_list(&**self.context.engine(), row)?;
        let summary = result.as_ref().map(Summary::of).transpose()?;
        let written: Arc<RawValue> = row::text(&self.context, row, summary.as_ref(), unread.as_deref())?.into();
        // Without a result, the duration of the run is still growing.
        if summary.is_some() {
            self.rows.keep(row, &written);
        }
        Ok(written)
    }

    /// At most `limit` runs that the caller may see, and true if there are more.
    pub(crate) fn page(
        &self,
        caller: &Caller,
        query: Query,
        mut after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<RunRow>, bool), Problem> {
        let mut found = Vec::new();
        let size = if caller.only.is_empty() { u32::try_from(limit + 1).unwrap_or(PAGE) } else { PAGE };
        loop {
            let query = Query { after, limit: Some(size), ..query.clone() };
            let rows = self.context.engine().list(&query).map_err(|e| engine_failed(&e))?;
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

    /// The number of runs that the caller may see, by state.
    pub(crate) fn counted(&self, caller: &Caller, query: Query) -> Result<Counts, Problem> {
        if caller.only.is_empty() {
            return self.context.engine().counts(&query).map_err(|e| engine_failed(&e));
        }
        let mut counts = Counts::default();
        let mut after = None;
        loop {
            let (rows, has_more) = self.page(caller, query.clone(), after, PAGE as usize)?;
            rows.iter().for_each(|row| counts.add(row.state, row.is_live, 1));
            after = rows.last().map(RunRow::cursor);
            if !has_more {
                return Ok(counts);
            }
        }
    }

    /// The document of a run as text.
    pub(crate) fn document(&self, id: &str) -> Result<String, Problem> {
        let outline = self.context.engine().outline(id).map_err(|e| engine_failed(&e))?;
        self.document_of(&outline, Extent::Whole, &Readings::default())
    }

    /// The document of a run as text; its input and its output keep their digits. Only a run without a result is read completely.
    pub(crate) fn document_of(
        &self,
        outline: &RunView,
        extent: Extent,
        readings: &Readings,
    ) -> Result<String, Problem> {
        let engine = self.context.engine();
        let ended = result_in(&**engine, outline);
        let reading: Arc<Reading>;
        let (view, result) = match &ended {
            Some(document) => (outline, Some(document)),
            None => {
                reading = readings.of(&self.context, &outline.row.id)?;
                (&reading.view, reading.result(&self.context))
            }
        };
        let header = Header::parse(&view.run.header, &*engine.blobs()).ok();
        let limits = limits_in_force(&**engine, &view.row, header.as_ref())?;
        let place = match view.row.state {
            RunState::Queued => engine.place(&view.row.id, &self.context.limits(), self.context.clock().now_ms()),
            _ => Ok(None),
        };
        let place = place.map_err(|e| engine_failed(&e))?;
        self.written((&view.row, header.as_ref()), result, limits, place, extent)
    }

    /// The document of a run at its acceptance, also if the run has been removed since.
    pub(crate) fn accepted(&self, run: &NewRun) -> Result<String, Problem> {
        let header = Header::parse(&run.header, &*self.context.engine().blobs()).ok();
        let limits = header.as_ref().map(|header| header.request.limits).unwrap_or_default();
        self.written((&row_at_acceptance(run), header.as_ref()), None, limits, None, Extent::Whole)
    }

    fn written(
        &self,
        (row, header): (&RunRow, Option<&Header>),
        result: Option<&Document>,
        limits: RunLimits,
        place: Option<QueuePlace>,
        extent: Extent,
    ) -> Result<String, Problem> {
        let summary = result.map(Summary::of).transpose()?;
        let mut text = row::text(&self.context, row, summary.as_ref(), None)?.get().to_owned();
        let empty = || Value::from(Vec::<Value>::new());
        let member = |name: &str| result.and_then(|document| document.members.get(name).cloned());
        let waiting = result.filter(|_| row.state == RunState::Waiting).map(|document| document.waiting.clone());
        let mut rest = json!({
            "errors": member("errors").unwrap_or_else(empty),
            "steps": member("steps").unwrap_or_else(empty),
            "fell_back": member("fell_back"),
            "limits": {
                "max_cost_usd": limits.max_cost_usd, "max_tokens": limits.max_tokens, "timeout_ms": limits.timeout_ms,
            },
            "waiting": waiting.unwrap_or_default(),
            "queue": place.map(|place| json!({"position": place.position, "reason": place.reason.word()})),
        });
        if Target::parse(&row.target).machine().is_some() {
            rest["stages"] = member("stages").unwrap_or_else(empty);
        }
        // Both texts are objects with members.
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
        let input = raw(header.map(|header| &header.request.input))?;
        text.push_str(&format!(r#","output":{output},"input":{input}}}"#));
        Ok(text)
    }
}

/// The row of a run at its acceptance.
pub(crate) fn row_at_acceptance(run: &NewRun) -> RunRow {
    RunRow {
        id: run.id.clone(),
        number: 0,
        app: run.app.clone(),
        target: run.target.clone(),
        state: RunState::Queued,
        is_live: false,
        worker: None,
        created_at_ms: run.created_at_ms,
        started_at_ms: None,
        changed_at_ms: run.created_at_ms,
        change: 0,
        placement: run.placement.clone(),
    }
}

/// The limits of a run: those of its last resume, otherwise those of its start.
fn limits_in_force(engine: &dyn Engine, row: &RunRow, header: Option<&Header>) -> Result<RunLimits, Problem> {
    let attempts = engine.records_of(&row.id, record::ATTEMPT).map_err(|e| engine_failed(&e))?;
    let last = record::Continuation::last(&attempts).map(|(_, last)| last.limits);
    Ok(last.or(header.map(|header| header.request.limits)).unwrap_or_default())
}
