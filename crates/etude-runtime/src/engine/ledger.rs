//! The contract of the ledger: what became of ticks, deliveries and notices.
//!
//! An entry and the run that it begins are written in one transaction, so that several servers on one journal begin one run.

use super::{Boxed, Error, Submission};

/// A store of entries, each in a book and with a key that is unique there.
pub trait Ledger: Send + Sync {
    /// Writes an entry, with the run that it begins, if the entry of its book and key is what [`Write::expected`] says. Once the
    /// future is ready, both survive any death of this process.
    ///
    /// # Errors
    /// The store fails.
    fn write<'l>(&'l self, write: &'l Write) -> Boxed<'l, Result<Written, Error>>;

    /// The entries that `query` asks for, newest first; those with the same `at_ms` by their keys.
    ///
    /// # Errors
    /// The store fails.
    fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error>;

    /// Removes old entries. Returns how many; if there are none, nothing is written.
    ///
    /// # Errors
    /// The store fails.
    fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error>;
}

/// Entries that are not needed any more: nothing is due, and the run that they began is gone, if there was one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldEntries {
    /// The book whose entries are removed; others stay as they are.
    pub book: String,
    /// Only those in one of these states.
    pub states: Vec<String>,
    /// Only those with `at_ms` before.
    pub before_ms: i64,
    /// At most this many.
    pub limit: u32,
}

/// What became of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The book: a word for its kind, and whose it is.
    pub book: String,
    /// What it is about; once in its book.
    pub key: String,
    /// When that was, or should have been, in milliseconds since 1970.
    pub at_ms: i64,
    /// Where it stands: a word of its book.
    pub state: String,
    /// When something must be done about it, in milliseconds since 1970.
    pub due_ms: Option<i64>,
    /// The run that it began, or is about.
    pub run_id: Option<String>,
    /// Everything else: a JSON document.
    pub body: String,
}

/// How the names of books begin whose entries are removed with their runs: they have values of these.
pub const OF_RUN: &str = "run:";

/// The book of unique keys whose runs were removed before a day was over: an engine's own.
pub const KEYS: &str = "keys of removed runs";

/// How long a unique key lives at least, in milliseconds.
pub const KEY_LIFE_MS: i64 = 24 * 60 * 60 * 1000;

/// An entry to be written.
#[derive(Debug, Clone)]
pub struct Write {
    /// The entry. Its `run_id` is that of the submission, if there is one.
    pub entry: Entry,
    /// The condition on the present entry; if it does not hold, nothing is written.
    pub expected: Expected,
    /// The run that begins.
    pub submission: Option<Submission>,
    /// No other run of the book may be unfinished.
    pub is_alone: bool,
}

/// What must be there for an entry to be written.
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
    /// An entry that is equal in all fields.
    Exactly(Box<Entry>),
    /// An entry or none.
    Anything,
}

impl Expected {
    /// True if what was found is what must be there.
    pub fn fits(&self, found: Option<&Entry>) -> bool {
        match (self, found) {
            (Self::Anything, _) | (Self::Nothing, None) => true,
            (Self::Entry { state, due_ms }, Some(found)) => found.state == *state && found.due_ms == *due_ms,
            (Self::Exactly(entry), Some(found)) => **entry == *found,
            _ => false,
        }
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The entry is written.
    Done,
    /// There is another entry than expected; `None`: there is none. Nothing was written.
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

/// A filter of entries; fields that are `None` let all pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// Only entries of this book.
    pub book: String,
    /// Only this key.
    pub key: Option<String>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those with `at_ms` from here on.
    pub from_ms: Option<i64>,
    /// Only those with `at_ms` up to here.
    pub until_ms: Option<i64>,
    /// Only those after this position in the list: `at_ms` and key of the last one before.
    pub after: Option<(i64, String)>,
    /// Only those with `due_ms` up to here.
    pub due_ms: Option<i64>,
    /// Only those of this run.
    pub run_id: Option<String>,
    /// Only those whose run has not ended.
    pub is_unfinished: bool,
    /// At most this many.
    pub limit: Option<u32>,
}
