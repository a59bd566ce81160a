//! The ledger: ticks, deliveries and notices.

use std::sync::atomic::Ordering;

use etude_core::digest::Digest;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{
    COSTS, Enqueued, Entry, EntryQuery, Error, KEY_LIFE_MS, KEYS, OF_RUN, OldEntries, UniqueKey, Write, Written,
};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql};

use crate::journal::Journal;
use crate::queue;
use crate::rows::Run;

/// The SQL of the table and its indexes.
const LEDGER: &str = include_str!("../migrations/ledger.sql");

const COLUMNS: &str = "book, key, at_ms, state, due_ms, run, body";

impl Journal {
    /// Writes an entry with its run.
    pub(crate) fn write_entry(&self, write: &Write) -> Result<Written, Error> {
        self.serve()?;
        if !self.has_ledger()? {
            self.pool.transaction(|connection| connection.execute_batch(LEDGER))?;
        }
        let written = self.pool.transaction(|connection| put(connection, write))?;
        if let Some(id) = write.submission.as_ref().map(|submission| &submission.run.id)
            && written.is_none()
        {
            return Err(Error::Exists(id.clone()));
        }
        let written = written.unwrap_or(Written::Full);
        if written == Written::Done {
            self.is_in_place()?;
            self.syncer.committed(&write.submission.as_ref().map(queue::input_of).unwrap_or_default())?;
        }
        Ok(written)
    }

    /// The entries of a query, newest first.
    pub(crate) fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error> {
        // A journal without the table has no entries, and a read must not create it.
        if !self.has_ledger()? {
            return Ok(Vec::new());
        }
        self.pool.read(|connection| find(connection, query))
    }

    /// Removes old entries. A read comes first, because most of the time there are none.
    pub(crate) fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error> {
        if !self.has_ledger()? || self.pool.read(|connection| old_keys(connection, old))?.is_empty() {
            return Ok(0);
        }
        self.serve()?;
        let removed = self.pool.transaction(|connection| remove(connection, old))?;
        self.is_in_place()?;
        self.syncer.committed(&[])?;
        Ok(removed)
    }

    pub(crate) fn has_ledger(&self) -> Result<bool, Error> {
        if self.has_ledger.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let sql = "select 1 from sqlite_schema where name = 'entries_by_run'";
        let has = self.pool.read(|connection| connection.prepare(sql)?.exists([]))?;
        self.has_ledger.store(has, Ordering::Relaxed);
        Ok(has)
    }
}

/// Writes an entry in a transaction. `None` if there is a run with the submission's id.
fn put(connection: &Connection, write: &Write) -> rusqlite::Result<Option<Written>> {
    let Write { entry, expected, submission, is_alone } = write;
    let sql = format!("select {COLUMNS} from entries where book = ?1 and key = ?2");
    let found = connection.prepare_cached(&sql)?.query_row((&entry.book, &entry.key), from_row).optional()?;
    if !expected.fits(found.as_ref()) {
        return Ok(Some(Written::Other(found.map(Box::new))));
    }
    if *is_alone {
        let unfinished = EntryQuery { book: entry.book.clone(), is_unfinished: true, ..EntryQuery::default() };
        let busy: Vec<String> = find(connection, &unfinished)?.into_iter().filter_map(|entry| entry.run_id).collect();
        if !busy.is_empty() {
            return Ok(Some(Written::Busy(busy)));
        }
    }
    if let Some(submission) = submission {
        match queue::accept(connection, submission)? {
            None => return Ok(None),
            Some(Enqueued::Accepted) => {}
            Some(Enqueued::Full | Enqueued::Refused(_)) => return Ok(Some(Written::Full)),
            Some(Enqueued::Held { run_id }) => return Ok(Some(Written::Held { run_id })),
            Some(Enqueued::Repeated { run_id, key, .. }) => return Ok(Some(Written::Repeated { run_id, key })),
        }
    }
    let run_id = submission.as_ref().map_or(entry.run_id.as_ref(), |submission| Some(&submission.run.id));
    insert(connection, entry, run_id)?;
    Ok(Some(Written::Done))
}

/// Writes an entry with this run.
fn insert(connection: &Connection, entry: &Entry, run_id: Option<&String>) -> rusqlite::Result<()> {
    let sql = format!("insert or replace into entries ({COLUMNS}) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    connection
        .prepare_cached(&sql)?
        .execute((&entry.book, &entry.key, entry.at_ms, &entry.state, entry.due_ms, run_id, &entry.body))?;
    Ok(())
}

/// Keys of the entries that [`OldEntries`] describes, oldest first.
fn old_keys(connection: &Connection, old: &OldEntries) -> rusqlite::Result<Vec<String>> {
    let states = vec!["?"; old.states.len()].join(", ");
    let sql = format!(
        "select key from entries where book = ? and at_ms < ? and due_ms is null and state in ({states})
         and (run is null or not exists (select 1 from runs where id = entries.run)) order by at_ms limit ?"
    );
    let mut values: Vec<&dyn ToSql> = vec![&old.book, &old.before_ms];
    values.extend(old.states.iter().map(|state| state as &dyn ToSql));
    values.push(&old.limit);
    connection.prepare_cached(&sql)?.query_map(values.as_slice(), |row| row.get(0))?.collect()
}

/// Removes the entries that have values of a run.
pub(crate) fn remove_of_run(connection: &Connection, run: &str) -> rusqlite::Result<()> {
    let sql = "delete from entries where run = ?1 and substr(book, 1, length(?2)) = ?2";
    connection.prepare_cached(sql)?.execute((run, OF_RUN))?;
    Ok(())
}

/// Keeps the unique keys of a run that is about to be removed, unless they have expired.
pub(crate) fn keep_keys(connection: &Connection, run: &Run) -> rusqlite::Result<()> {
    if run.created_at_ms < now_ms().saturating_sub(KEY_LIFE_MS) {
        return Ok(());
    }
    if !connection.prepare_cached("select 1 from keys where run = ?1")?.exists([run.number])? {
        return Ok(());
    }
    connection.execute_batch(LEDGER)?;
    let sql = format!(
        "insert or replace into entries ({COLUMNS}) select ?1, key, ?2, 'removed', null, ?3,
         case when digest is null then 'null' else '\"' || lower(hex(digest)) || '\"' end from keys where run = ?4"
    );
    connection.prepare_cached(&sql)?.execute((KEYS, run.created_at_ms, &run.id, run.number))?;
    Ok(())
}

/// The removed run that had a unique key, and true if the digest is the same.
pub(crate) fn removed_run(connection: &Connection, key: &UniqueKey) -> rusqlite::Result<Option<(String, bool)>> {
    let has_ledger =
        connection.prepare_cached("select 1 from sqlite_schema where name = 'entries_by_run'")?.exists([])?;
    if !has_ledger {
        return Ok(None);
    }
    let sql = "select run, body from entries where book = ?1 and key = ?2 and at_ms >= ?3";
    let found = connection
        .prepare_cached(sql)?
        .query_row((KEYS, &key.key, now_ms().saturating_sub(KEY_LIFE_MS)), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.map(|(run, body): (String, String)| (run, body == of_digest(key.digest.as_ref()))))
}

/// Keeps the cost of a removed run.
pub(crate) fn keep_cost(connection: &Connection, cost: &Entry) -> rusqlite::Result<()> {
    connection.execute_batch(LEDGER)?;
    insert(connection, cost, cost.run_id.as_ref())
}

/// Forgets the expired keys and costs of removed runs.
pub(crate) fn forget_expired(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "delete from entries where book in (?1, ?2) and at_ms < ?3";
    connection.prepare_cached(sql)?.execute((KEYS, COSTS, now_ms().saturating_sub(KEY_LIFE_MS)))?;
    Ok(())
}

fn of_digest(digest: Option<&Digest>) -> String {
    digest.map_or_else(|| "null".to_owned(), |digest| format!("\"{digest}\""))
}

fn remove(connection: &Connection, old: &OldEntries) -> rusqlite::Result<u64> {
    let keys = old_keys(connection, old)?;
    let mut statement = connection.prepare_cached("delete from entries where book = ?1 and key = ?2")?;
    for key in &keys {
        statement.execute((&old.book, key))?;
    }
    Ok(keys.len() as u64)
}

fn find(connection: &Connection, query: &EntryQuery) -> rusqlite::Result<Vec<Entry>> {
    let EntryQuery { book, key, state, from_ms, until_ms, after, due_ms, run_id, is_unfinished, limit } = query;
    let mut sql = format!("select {COLUMNS} from entries where book = ?");
    let mut values: Vec<&dyn ToSql> = vec![book];
    let mut also = |condition: &str| {
        sql.push_str(" and ");
        sql.push_str(condition);
    };
    if let Some(key) = key {
        also("key = ?");
        values.push(key);
    }
    if let Some(state) = state {
        also("state = ?");
        values.push(state);
    }
    if let Some(from) = from_ms {
        also("at_ms >= ?");
        values.push(from);
    }
    if let Some(until) = until_ms {
        also("at_ms <= ?");
        values.push(until);
    }
    if let Some((at, key)) = after {
        also("(at_ms, key) < (?, ?)");
        values.push(at);
        values.push(key);
    }
    if let Some(due) = due_ms {
        also("due_ms <= ?");
        values.push(due);
    }
    if let Some(run_id) = run_id {
        also("run = ?");
        values.push(run_id);
    }
    if *is_unfinished {
        also("run in (select id from runs where state in ('queued', 'running', 'waiting'))");
    }
    sql.push_str(" order by at_ms desc, key desc");
    if let Some(limit) = limit {
        sql.push_str(" limit ?");
        values.push(limit);
    }
    let mut statement = connection.prepare_cached(&sql)?;
    let entries = statement.query_map(values.as_slice(), from_row)?;
    entries.collect()
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        book: row.get(0)?,
        key: row.get(1)?,
        at_ms: row.get(2)?,
        state: row.get(3)?,
        due_ms: row.get(4)?,
        run_id: row.get(5)?,
        body: row.get(6)?,
    })
}
