//! The ledger of the memory engine.

use super::{Memory, MemoryEngine, lock};
use crate::engine::{Boxed, Enqueued, Entry, EntryQuery, Error, Ledger, OldEntries, Write, Written};

impl Ledger for MemoryEngine {
    fn write<'l>(&'l self, write: &'l Write) -> Boxed<'l, Result<Written, Error>> {
        Box::pin(async move { lock(&self.shared).put(write) })
    }

    fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error> {
        Ok(lock(&self.shared).entries_of(query))
    }

    fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error> {
        Ok(lock(&self.shared).remove(old))
    }
}

impl Memory {
    fn put(&mut self, write: &Write) -> Result<Written, Error> {
        let Write { entry, expected, submission, is_alone } = write;
        let place = (entry.book.clone(), entry.key.clone());
        let found = self.entries.get(&place);
        if !expected.fits(found) {
            return Ok(Written::Other(found.cloned().map(Box::new)));
        }
        let unfinished = EntryQuery { book: entry.book.clone(), is_unfinished: true, ..EntryQuery::default() };
        let busy: Vec<String> = self.entries_of(&unfinished).into_iter().filter_map(|entry| entry.run_id).collect();
        if *is_alone && !busy.is_empty() {
            return Ok(Written::Busy(busy));
        }
        let mut entry = entry.clone();
        if let Some(submission) = submission {
            match self.accept(submission)? {
                Enqueued::Accepted => entry.run_id = Some(submission.run.id.clone()),
                Enqueued::Repeated { run_id, key, .. } => return Ok(Written::Repeated { run_id, key }),
                Enqueued::Full | Enqueued::Refused(_) => return Ok(Written::Full),
                Enqueued::Held { run_id } => return Ok(Written::Held { run_id }),
            }
        }
        self.entries.insert(place, entry);
        self.writes += 1;
        Ok(Written::Done)
    }

    fn remove(&mut self, old: &OldEntries) -> u64 {
        let query = EntryQuery { book: old.book.clone(), ..EntryQuery::default() };
        let is_old = |entry: &Entry| {
            let is_begun = entry.run_id.as_ref().is_some_and(|id| self.find(id).is_ok());
            entry.at_ms < old.before_ms && entry.due_ms.is_none() && old.states.contains(&entry.state) && !is_begun
        };
        let found: Vec<Entry> = self.entries_of(&query).into_iter().filter(is_old).take(old.limit as usize).collect();
        for entry in &found {
            self.entries.remove(&(entry.book.clone(), entry.key.clone()));
        }
        self.writes += u64::from(!found.is_empty());
        found.len() as u64
    }

    fn entries_of(&self, query: &EntryQuery) -> Vec<Entry> {
        let is_unfinished = |entry: &Entry| {
            entry.run_id.as_ref().is_some_and(|id| self.find(id).is_ok_and(|run| !run.state.is_final()))
        };
        let fits = |entry: &&Entry| {
            entry.book == query.book
                && query.key.as_ref().is_none_or(|key| *key == entry.key)
                && query.state.as_ref().is_none_or(|state| *state == entry.state)
                && query.from_ms.is_none_or(|from| entry.at_ms >= from)
                && query.until_ms.is_none_or(|until| entry.at_ms <= until)
                && query.after.as_ref().is_none_or(|(at, key)| (entry.at_ms, &entry.key) < (*at, key))
                && query.due_ms.is_none_or(|due| entry.due_ms.is_some_and(|at| at <= due))
                && query.run_id.as_ref().is_none_or(|id| entry.run_id.as_ref() == Some(id))
                && (!query.is_unfinished || is_unfinished(entry))
        };
        let mut entries: Vec<Entry> = self.entries.values().filter(fits).cloned().collect();
        entries.sort_by(|one, other| (other.at_ms, &other.key).cmp(&(one.at_ms, &one.key)));
        entries.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
        entries
    }
}
