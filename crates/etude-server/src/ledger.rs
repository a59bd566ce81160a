//! The ledger of the journal. All of it blocks.

pub(crate) mod book;
mod retention;

use std::sync::Arc;
use std::time::Instant;

use etude_core::digest::hex;
use etude_runtime::engine::{Entry, EntryQuery, Write, Written};

use self::retention::Retention;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::problem::{Problem, engine_failed};
use crate::query::{Query, from_hex, invalid};

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
    after: Option<After>,
    /// The values of the parameters that select entries of the book.
    filters: String,
}

/// The end of the previous page, as its cursor has it.
#[derive(Debug, Clone)]
struct After {
    at_ms: i64,
    key: String,
    check: String,
}

impl Page {
    /// Reads the parameters `limit` and `cursor`. `filters` are the parameters that select entries.
    pub(crate) fn parse(query: &Query, filters: &[&str]) -> Result<Self, Problem> {
        let limit = usize::try_from(query.number("limit", 1, 200, 50)?).unwrap_or(50);
        let after = query.get("cursor").map(|text| After::parse(text).ok_or_else(foreign)).transpose()?;
        let filters = filters.iter().map(|name| format!("{:?}", query.get(name))).collect();
        Ok(Self { limit, after, filters })
    }

    /// The entries of the page, newest first, and the cursor of the next page.
    pub(crate) fn read(self, ledger: &Ledger, book: String) -> Result<(Vec<Entry>, Option<String>), Problem> {
        self.read_of(ledger, &EntryQuery { book, ..EntryQuery::default() }, |_| true)
    }

    /// The same for the entries of `query` that pass `is_wanted`. A cursor of another list is refused (S-53).
    pub(crate) fn read_of(
        self,
        ledger: &Ledger,
        query: &EntryQuery,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Result<(Vec<Entry>, Option<String>), Problem> {
        let Self { limit, after, filters } = self;
        let check = |at_ms: i64, key: &str| cursor_check(at_ms, key, &query.book, &filters);
        if after.as_ref().is_some_and(|after| after.check != check(after.at_ms, &after.key)) {
            return Err(foreign());
        }
        let mut after = after.map(|after| (after.at_ms, after.key));
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
        // Hexadecimal digits need no escape in a query.
        let cursor =
            |entry: &Entry| format!("{}.{}.{}", entry.at_ms, hex(entry.key.as_bytes()), check(entry.at_ms, &entry.key));
        let next = entries.last().filter(|_| has_more).map(cursor);
        Ok((entries, next))
    }
}

impl After {
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let [at_ms, key, check] = parts[..] else { return None };
        let key = String::from_utf8(from_hex(key)?).ok()?;
        Some(Self { at_ms: at_ms.parse().ok()?, key, check: check.to_owned() })
    }
}

/// The check digits of a cursor, so that it is valid only for its own list.
fn cursor_check(at_ms: i64, key: &str, book: &str, filters: &str) -> String {
    let text = format!("{at_ms} {key:?} {book:?} {filters}");
    hex(&blake3::derive_key("etude ledger cursor 1", text.as_bytes())[..6])
}

fn foreign() -> Problem {
    invalid("cursor", "`cursor` must be the `next` of a page of the same list")
}
