//! The ledger of the journal. All of it blocks.

pub(crate) mod book;
mod retention;

use std::sync::Arc;
use std::time::Instant;

use etude_runtime::engine::{Entry, EntryQuery, Write, Written};

use self::retention::Retention;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::problem::{Problem, engine_failed};
use crate::query::{Query, invalid};

/// Entries per read once a filter has left a page incomplete.
const MANY: usize = 500;

/// Reads and writes the books of the journal, and measures the writes.
pub(crate) struct Ledger {
    context: Arc<Context>,
    metrics: Arc<Metrics>,
    retention: Retention,
}

impl Ledger {
    /// The ledger of the journal. `metrics` gets the time of each write.
    pub(crate) fn new(context: &Arc<Context>, metrics: &Arc<Metrics>) -> Self {
        Self { context: Arc::clone(context), metrics: Arc::clone(metrics), retention: Retention::default() }
    }

    /// Writes an entry.
    pub(crate) fn write(&self, write: &Write) -> Result<Written, Problem> {
        let (runtime, since) = (tokio::runtime::Handle::current(), Instant::now());
        let written = runtime.block_on(self.context.engine().write(write));
        self.metrics.journal_write(since.elapsed());
        written.map_err(|e| engine_failed(&e))
    }

    pub(crate) fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Problem> {
        self.context.engine().entries(query).map_err(|e| engine_failed(&e))
    }
}

/// The requested page of a book.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    limit: usize,
    after: Option<(i64, String)>,
}

impl Page {
    /// Reads the parameters `limit` and `cursor`.
    pub(crate) fn of(query: &Query) -> Result<Self, Problem> {
        let limit = usize::try_from(query.number("limit", 1, 200, 50)?).unwrap_or(50);
        let after = query.get("cursor").map(from_cursor).transpose()?;
        Ok(Self { limit, after })
    }

    /// The entries of the page, newest first, and the cursor of the next page.
    pub(crate) fn read(self, ledger: &Ledger, book: String) -> Result<(Vec<Entry>, Option<String>), Problem> {
        self.read_of(ledger, &EntryQuery { book, ..EntryQuery::default() }, |_| true)
    }

    /// The same for the entries of `query` that pass `is_wanted`.
    pub(crate) fn read_of(
        self,
        ledger: &Ledger,
        query: &EntryQuery,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Result<(Vec<Entry>, Option<String>), Problem> {
        let Self { limit, mut after } = self;
        let (mut entries, mut size) = (Vec::new(), limit + 1);
        loop {
            let part = EntryQuery { after, limit: Some(u32::try_from(size).unwrap_or(u32::MAX)), ..query.clone() };
            let read = ledger.entries(&part)?;
            let is_last = read.len() < size;
            after = read.last().map(|entry| (entry.at_ms, entry.key.clone()));
            entries.extend(read.into_iter().filter(&is_wanted));
            if is_last || entries.len() > limit {
                break;
            }
            // Few entries may pass the filter.
            size = MANY;
        }
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|entry| format!("{}.{}", entry.at_ms, entry.key));
        Ok((entries, next))
    }
}

fn from_cursor(text: &str) -> Result<(i64, String), Problem> {
    let parts = text.split_once('.').and_then(|(at, key)| Some((at.parse().ok()?, key.to_owned())));
    parts.ok_or_else(|| invalid("cursor", "`cursor` must be the `next` of the previous page"))
}
