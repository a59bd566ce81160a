//! The ledger of ticks, deliveries and notices.

use std::sync::Arc;

use etude_runtime::engine::{Enqueued, Entry, EntryQuery, Error, OldEntries, Submission, Write, Written};
use tokio_postgres::Row;

use crate::error::Fault;
use crate::grant::{Access, SEPARATOR};
use crate::link::{Connection, Parameter, attempt};
use crate::rows;
use crate::store::Store;
use crate::submission::{self, Attempted, End};

const COLUMNS: &str = "book, key, at_ms, state, due_ms, run, body";

impl Store {
    /// Writes an entry with its run.
    pub(crate) async fn write_entry(self: Arc<Self>, mut write: Write) -> Result<Written, Error> {
        write.submission = write.submission.map(|one| Submission { run: self.owned(one.run), ..one });
        let mut attempted = Attempted::default();
        let at_ms = write.submission.as_ref().and_then(|submission| self.given(submission.run.created_at_ms));
        Ok(attempt!(self.link, |connection| transact(connection, &self.access, &write, at_ms, attempted.next())))
    }

    /// The entries of a query, newest first.
    pub(crate) async fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>, Error> {
        Ok(attempt!(self.link, |connection| find(connection, &self.access, query)))
    }

    /// Removes old entries. Returns their number.
    pub(crate) async fn remove_entries(&self, old: &OldEntries) -> Result<u64, Error> {
        Ok(attempt!(self.link, |connection| remove(connection, &self.access, old)))
    }
}

async fn transact(
    connection: &mut Connection,
    access: &Access,
    write: &Write,
    at_ms: Option<i64>,
    attempted: Attempted,
) -> Result<Written, Fault> {
    connection.begin();
    // A book has one writer at a time: the checked conditions hold until the end of the transaction.
    let sql = "select pg_advisory_xact_lock(1702131048, hashtext($1))";
    connection.query(sql, &[&access.book(&write.entry.book)]).await?;
    let written = put(connection, access, write, at_ms, attempted).await?;
    match written == Written::Done {
        true => connection.commit().await?,
        false => connection.roll_back().await?,
    }
    Ok(written)
}

async fn put(
    connection: &mut Connection,
    access: &Access,
    write: &Write,
    at_ms: Option<i64>,
    attempted: Attempted,
) -> Result<Written, Fault> {
    let Write { entry, expected, submission, is_alone } = write;
    let sql = format!("select {COLUMNS} from entries where book = $1 and key = $2");
    let found = connection.query_opt(&sql, &[&access.book(&entry.book), &entry.key]).await?;
    let found = found.as_ref().map(from_row).transpose()?;
    let run_id = submission.as_ref().map_or(entry.run_id.as_ref(), |submission| Some(&submission.run.id));
    let wanted = Entry { run_id: run_id.cloned(), ..entry.clone() };
    if !expected.fits(found.as_ref()) {
        // An attempt whose reply was lost has begun this same run.
        let is_own = submission.is_some() && found.as_ref() == Some(&wanted);
        return Ok(if is_own { Written::Done } else { Written::Other(found.map(Box::new)) });
    }
    if *is_alone {
        let unfinished = EntryQuery { book: entry.book.clone(), is_unfinished: true, ..EntryQuery::default() };
        let busy: Vec<String> =
            find(connection, access, &unfinished).await?.into_iter().filter_map(|entry| entry.run_id).collect();
        if !busy.is_empty() {
            return Ok(Written::Busy(busy));
        }
    }
    if let Some(submission) = submission {
        match submission::accept(connection, submission, at_ms, (attempted, End::Later)).await? {
            Enqueued::Accepted => {}
            Enqueued::Full | Enqueued::Refused(_) => return Ok(Written::Full),
            Enqueued::Held { run_id } => return Ok(Written::Held { run_id }),
            Enqueued::Repeated { run_id, key, .. } => return Ok(Written::Repeated { run_id, key }),
        }
    }
    let sql = format!(
        "insert into entries ({COLUMNS}, tenant) values ($1, $2, $3, $4, $5, $6, $7, $8)
         on conflict (book, key) do update set at_ms = excluded.at_ms, state = excluded.state, due_ms = excluded.due_ms,
            run = excluded.run, body = excluded.body"
    );
    let Entry { book, key, at_ms, state, due_ms, run_id, body } = &wanted;
    let (book, tenant) = (access.book(book), &access.tenant);
    connection.execute(&sql, &[&book, key, at_ms, state, due_ms, run_id, &body.as_bytes(), tenant]).await?;
    Ok(Written::Done)
}

/// Removes old entries in a statement of its own. A lost reply only makes the number too small.
async fn remove(connection: &mut Connection, access: &Access, old: &OldEntries) -> Result<u64, Fault> {
    let OldEntries { book, states, before_ms, limit } = old;
    let (book, limit) = (access.book(book), i64::from(*limit));
    let sql = "delete from entries where book = $1 and key in (
        select key from entries where book = $1 and at_ms < $2 and due_ms is null and state = any($3)
        and (run is null or not exists (select 1 from runs where id = entries.run)) order by at_ms limit $4)";
    let values: [Parameter<'_>; 4] = [&book, before_ms, states, &limit];
    connection.execute(sql, &values).await
}

async fn find(connection: &mut Connection, access: &Access, query: &EntryQuery) -> Result<Vec<Entry>, Fault> {
    let EntryQuery { book, key, state, from_ms, until_ms, after, due_ms, run_id, is_unfinished, limit } = query;
    let mut sql = format!("select {COLUMNS} from entries where true");
    let mut values: Vec<Parameter<'_>> = Vec::new();
    let book = access.book(book);
    push(&mut sql, &mut values, "book =", &book);
    for (condition, value) in [("key =", key), ("state =", state), ("run =", run_id)] {
        if let Some(value) = value {
            push(&mut sql, &mut values, condition, value);
        }
    }
    for (condition, value) in [("at_ms >=", from_ms), ("at_ms <=", until_ms), ("due_ms <=", due_ms)] {
        if let Some(value) = value {
            push(&mut sql, &mut values, condition, value);
        }
    }
    if let Some((at, key)) = after {
        values.extend([at as Parameter<'_>, key]);
        sql.push_str(&format!(" and (at_ms, key) < (${}, ${})", values.len() - 1, values.len()));
    }
    if *is_unfinished {
        sql.push_str(" and run in (select id from runs where state in ('queued', 'running', 'waiting'))");
    }
    let limit = limit.map(i64::from);
    values.push(&limit);
    sql.push_str(&format!(" order by at_ms desc, key desc limit ${}", values.len()));
    connection.query(&sql, &values).await?.iter().map(from_row).collect()
}

/// Adds a condition on a value.
fn push<'v>(sql: &mut String, values: &mut Vec<Parameter<'v>>, condition: &str, value: Parameter<'v>) {
    values.push(value);
    sql.push_str(&format!(" and {condition} ${}", values.len()));
}

fn from_row(row: &Row) -> Result<Entry, Fault> {
    let book: &str = row.try_get(0)?;
    Ok(Entry {
        book: book.rsplit(SEPARATOR).next().unwrap_or_default().to_owned(),
        key: row.try_get(1)?,
        at_ms: row.try_get(2)?,
        state: row.try_get(3)?,
        due_ms: row.try_get(4)?,
        run_id: row.try_get(5)?,
        body: rows::text(row.try_get(6)?)?,
    })
}
