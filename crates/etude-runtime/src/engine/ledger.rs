//! The contract of the ledger: the outcomes of ticks, deliveries and notices.
//!
//! An entry and the run that it begins are written in one transaction, so that several servers on one journal begin a
//! single run.

use std::collections::BTreeMap;

use etude_core::tree;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Boxed, Error, Submission};

/// A store of entries, each in a book and with a key that is unique there.
pub trait Ledger: Send + Sync {
    /// Writes an entry, with the run that it begins, if the present entry meets [`Write::expected`]. Once the future is
    /// ready, both survive any death of this process.
    ///
    /// # Errors
    /// The store fails.
    fn write<'l>(&'l self, write: &'l Write) -> Boxed<'l, Result<Written, Error>>;

    /// The entries that match `query`, newest first; entries with the same `at_ms` by their keys.
    ///
    /// # Errors
    /// The store fails.
    fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error>;

    /// Removes old entries. Returns their number; if there are none, nothing is written.
    ///
    /// # Errors
    /// The store fails.
    fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error>;
}

/// Filter of entries that are not needed any more: they have no due time, and the run that they began, if any, is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldEntries {
    /// The book whose entries are removed; others stay as they are.
    pub book: String,
    /// Only entries in one of these states.
    pub states: Vec<String>,
    /// Only entries with `at_ms` before this time.
    pub before_ms: i64,
    /// Maximum number of entries to remove.
    pub limit: u32,
}

/// State of one tick, delivery or notice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The book: a word for its kind, and its owner.
    pub book: String,
    /// Subject of the entry; unique in its book.
    pub key: String,
    /// Time of the subject, or its scheduled time, in milliseconds since 1970.
    pub at_ms: i64,
    /// State of the entry: a word of its book.
    pub state: String,
    /// Time at which the entry needs work, in milliseconds since 1970; `None` if it needs none.
    pub due_ms: Option<i64>,
    /// The run that the entry began, or concerns.
    pub run_id: Option<String>,
    /// Everything else, as a JSON document.
    pub body: String,
}

/// Prefix of the names of books whose entries refer to values of their runs; the entries are removed with the runs.
pub const OF_RUN: &str = "run:";

/// The engine's own book of unique keys whose runs were removed before a day was over.
pub const KEYS: &str = "keys of removed runs";

/// Minimum life of a unique key, in milliseconds.
pub const KEY_LIFE_MS: i64 = 24 * 60 * 60 * 1000;

/// The engine's own book of the costs of runs that were removed before a day was over ([`KEY_LIFE_MS`]): budgets of a day count them.
pub const COSTS: &str = "costs of removed runs";

/// Entry of the book [`COSTS`] for a run that is about to be removed, from its result document in the form of the journal. `None` if
/// it cost nothing.
pub fn cost_entry(run_id: &str, app: &str, created_at_ms: i64, result: &str) -> Option<Entry> {
    // Outputs may have strings that no text can hold, such as half of a surrogate pair.
    let parts: BTreeMap<String, &RawValue> = serde_json::from_str(result).ok()?;
    let members = tree::parse(parts.get("members")?.get()).ok()?;
    let cost = members["usage"]["cost_usd"].as_f64().filter(|cost| *cost > 0.0)?;
    Some(Entry {
        book: COSTS.to_owned(),
        key: run_id.to_owned(),
        at_ms: created_at_ms,
        state: "removed".to_owned(),
        due_ms: None,
        run_id: Some(run_id.to_owned()),
        body: json!({"app": app, "cost_usd": cost}).to_string(),
    })
}

/// App and cost in US dollars of an entry of the book [`COSTS`].
pub fn cost_of(entry: &Entry) -> Option<(String, f64)> {
    let body = tree::parse(&entry.body).ok()?;
    Some((body["app"].as_str()?.to_owned(), body["cost_usd"].as_f64()?))
}

/// An entry to write, and the conditions of the write.
#[derive(Debug, Clone)]
pub struct Write {
    /// The entry. If there is a submission, `run_id` is the run of it.
    pub entry: Entry,
    /// The condition on the present entry; if it does not hold, nothing is written.
    pub expected: Expected,
    /// The run that begins.
    pub submission: Option<Submission>,
    /// True if no other run of the book may be unfinished.
    pub is_alone: bool,
}

/// Condition on the present entry of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// No entry of the key.
    Nothing,
    /// An entry with this state and time.
    Entry {
        /// The word in [`Entry::state`].
        state: String,
        /// The time in [`Entry::due_ms`], in milliseconds since 1970; `None`: it must have none.
        due_ms: Option<i64>,
    },
    /// An entry that is equal in every field.
    Exactly(Box<Entry>),
    /// An entry or none.
    Anything,
}

impl Expected {
    /// True if the present entry meets the condition.
    pub fn fits(&self, found: Option<&Entry>) -> bool {
        match (self, found) {
            (Self::Anything, _) | (Self::Nothing, None) => true,
            (Self::Entry { state, due_ms }, Some(found)) => found.state == *state && found.due_ms == *due_ms,
            (Self::Exactly(entry), Some(found)) => **entry == *found,
            _ => false,
        }
    }
}

/// Result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The entry is written.
    Done,
    /// The present entry does not meet the condition; `None`: there is none. Nothing was written.
    Other(Option<Box<Entry>>),
    /// These runs of the book are unfinished. Nothing was written.
    Busy(Vec<String>),
    /// Another run has one of the submission's keys. Nothing was written.
    Repeated {
        /// The run that has the key.
        run_id: String,
        /// The first key of the submission that the other run has.
        key: String,
    },
    /// The queue is full. Nothing was written.
    Full,
    /// The submission needs room, and its limit group has none. Nothing was written.
    Held {
        /// The oldest run of the group that is queued or running.
        run_id: String,
    },
}

/// A filter of entries; fields that are `None` match every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// Only entries of this book.
    pub book: String,
    /// Only this key.
    pub key: Option<String>,
    /// Only entries in this state.
    pub state: Option<String>,
    /// Only entries with `at_ms` at or after this time.
    pub from_ms: Option<i64>,
    /// Only entries with `at_ms` at or before this time.
    pub until_ms: Option<i64>,
    /// Only entries after this position in the list: `at_ms` and key of the last entry of the previous page.
    pub after: Option<(i64, String)>,
    /// Only entries with `due_ms` at or before this time.
    pub due_ms: Option<i64>,
    /// Only entries of this run.
    pub run_id: Option<String>,
    /// True for only entries whose run has not ended.
    pub is_unfinished: bool,
    /// Maximum number of entries; `None`: all.
    pub limit: Option<u32>,
}
