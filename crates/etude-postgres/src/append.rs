//! Appends: records of many runs are written in one statement.

use std::sync::Arc;

use etude_core::digest::Digest;
use etude_runtime::engine::{Error, Record};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio_postgres::error::SqlState;

use crate::error::Fault;
use crate::link::{Connection, Link, Parameter, attempt};
use crate::rows;
use crate::store::Store;

/// Maximum number of statements in flight.
const WRITERS: usize = 3;

/// Maximum number of records in one statement.
const MAX_GROUP: usize = 256;

/// A record that waits to be written. A session has one at a time.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) run: i64,
    pub(crate) session: i64,
    /// Position of the run's last record. Locked until this one is written, even if its caller stops waiting.
    pub(crate) last: OwnedMutexGuard<i32>,
    pub(crate) record: Record,
    pub(crate) done: oneshot::Sender<Result<Appended, Error>>,
    /// Keeps the store open until the record is written.
    pub(crate) store: Arc<Store>,
}

impl Pending {
    /// Position of the record.
    fn position(&self) -> i32 {
        *self.last + 1
    }

    /// Ends the append. The caller's next one finds the position unlocked.
    fn end(self, end: Result<Appended, Error>) {
        let Self { mut last, done, store, .. } = self;
        if matches!(end, Ok(Appended::Done)) {
            *last += 1;
        }
        drop(last);
        // The caller may have stopped waiting.
        let _ = done.send(end);
        drop(store);
    }
}

/// Result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The record is written.
    Done,
    /// Another session has taken the run.
    Refused,
    /// Acknowledged records before it are missing; the run ends at this position.
    Gap(i32),
}

/// Starts the writers. They end when the sender of appends is gone.
pub(crate) fn start(link: &Arc<Link>, pending: UnboundedReceiver<Pending>) {
    let pending = Arc::new(Mutex::new(pending));
    for _ in 0..WRITERS {
        let (link, pending) = (Arc::downgrade(link), Arc::clone(&pending));
        let Some(starter) = link.upgrade() else { return };
        starter.start(async move {
            loop {
                let mut group = Vec::new();
                // Records that wait while others are written form the next group.
                if pending.lock().await.recv_many(&mut group, MAX_GROUP).await == 0 {
                    return;
                }
                let Some(link) = link.upgrade() else { return };
                write_group(&link, group).await;
            }
        });
    }
}

async fn write_group(link: &Link, mut group: Vec<Pending>) {
    // One order everywhere, so that two statements never wait for each other.
    group.sort_by_key(|pending| (pending.run, pending.position()));
    match write(link, &group).await {
        Ok(ends) => group.into_iter().zip(ends).for_each(|(pending, end)| pending.end(Ok(end))),
        Err(cause) => group.into_iter().for_each(|pending| pending.end(Err(cause.clone()))),
    }
}

async fn write(link: &Link, group: &[Pending]) -> Result<Vec<Appended>, Error> {
    Ok(attempt!(link, |connection| append(connection, group)))
}

/// Appends each record if its predecessor is of the same session. The statement neither changes nor locks a row of `runs`.
///
/// A position that is taken fails the whole statement, with nothing written. It is rare: a reply was lost, or another
/// session has claimed the run. The group is then written again by a statement that skips taken positions.
async fn append(connection: &mut Connection, group: &[Pending]) -> Result<Vec<Appended>, Fault> {
    let accepted = match insert(connection, group, Collision::Fails).await {
        Err(Fault::Database(cause)) if cause.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            insert(connection, group, Collision::Skipped).await?
        }
        done => done?,
    };
    if accepted == group.len() as u64 {
        return Ok(vec![Appended::Done; group.len()]);
    }
    let mut ends = Vec::with_capacity(group.len());
    for (pending, is_present) in group.iter().zip(present(connection, group).await?) {
        ends.push(match is_present {
            true => Appended::Done,
            false => resolve(connection, pending).await?,
        });
    }
    Ok(ends)
}

/// Effect of a position that has a record already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collision {
    /// The statement fails. A row costs the server half as much as with [`Collision::Skipped`] (ADR 0207).
    Fails,
    /// The record is skipped.
    Skipped,
}

/// The statement that inserts a group; it affects or returns a row for each record that it accepts.
fn statement(collision: Collision, has_blobs: bool) -> String {
    let conflict = match collision {
        Collision::Fails => "",
        Collision::Skipped => " on conflict do nothing",
    };
    let insert = format!(
        "insert into records (run, seq, session, key, request, body, blobs)
            select new.* from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[])
                as new (run, seq, session, key, request, body, blobs)
            where case when new.seq = 1 then exists (select 1 from runs where runs.run = new.run)
                else exists (select 1 from records before
                    where before.run = new.run and before.seq = new.seq - 1 and before.session = new.session) end{conflict}"
    );
    match has_blobs {
        false => insert,
        true => format!(
            "with accepted as ({insert} returning run),
            referred as (
                insert into blob_refs (blob, run)
                select distinct needed.blob, needed.run from unnest($8::bigint[], $9::bytea[]) as needed (run, blob)
                join accepted on accepted.run = needed.run on conflict do nothing)
            select run from accepted"
        ),
    }
}

/// Inserts the records of a group that have a predecessor. Returns their number.
async fn insert(connection: &mut Connection, group: &[Pending], collision: Collision) -> Result<u64, Fault> {
    let runs: Vec<i64> = group.iter().map(|pending| pending.run).collect();
    let positions: Vec<i32> = group.iter().map(Pending::position).collect();
    let sessions: Vec<i64> = group.iter().map(|pending| pending.session).collect();
    let keys: Vec<&str> = group.iter().map(|pending| pending.record.key.as_str()).collect();
    let requests: Vec<&[u8]> = group.iter().map(|pending| &pending.record.request.as_bytes()[..]).collect();
    let bodies: Vec<&[u8]> = group.iter().map(|pending| pending.record.body.as_bytes()).collect();
    let joined: Vec<Option<Vec<u8>>> = group.iter().map(|pending| rows::joined(&pending.record.blobs)).collect();
    let of_blobs = || group.iter().flat_map(|pending| pending.record.blobs.iter().map(|blob| (pending.run, blob)));
    let referring: Vec<i64> = of_blobs().map(|(run, _)| run).collect();
    let referred: Vec<&[u8]> = of_blobs().map(|(_, blob): (i64, &Digest)| &blob.as_bytes()[..]).collect();
    let parameters: [Parameter<'_>; 9] =
        [&runs, &positions, &sessions, &keys, &requests, &bodies, &joined, &referring, &referred];
    match referred.is_empty() {
        true => connection.execute(&statement(collision, false), &parameters[..7]).await,
        false => Ok(connection.query(&statement(collision, true), &parameters).await?.len() as u64),
    }
}

/// Looks which records of a group are in the database, by this statement or because an earlier reply was lost.
async fn present(connection: &mut Connection, group: &[Pending]) -> Result<Vec<bool>, Fault> {
    let runs: Vec<i64> = group.iter().map(|pending| pending.run).collect();
    let positions: Vec<i32> = group.iter().map(Pending::position).collect();
    let sessions: Vec<i64> = group.iter().map(|pending| pending.session).collect();
    let sql = "select exists (select 1 from records
            where records.run = new.run and records.seq = new.seq and records.session = new.session)
        from unnest($1::bigint[], $2::integer[], $3::bigint[]) with ordinality as new (run, seq, session, place)
        order by place";
    let rows = connection.query(sql, &[&runs, &positions, &sessions]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<_>, _>>()?)
}

/// Finds the reason why a record is not there: another session writes to the run, or the database has lost acknowledged
/// records.
async fn resolve(connection: &mut Connection, pending: &Pending) -> Result<Appended, Fault> {
    // Positions have no gaps: if this session still has the run, records before this one were lost.
    let sql = "select coalesce((select max(seq) from records where records.run = runs.run), 0) from runs
        where run = $1 and session = $2";
    let last = connection.query_opt(sql, &[&pending.run, &pending.session]).await?;
    let last: Option<i32> = last.map(|row| row.try_get(0)).transpose()?;
    Ok(last.filter(|last| *last < pending.position() - 1).map_or(Appended::Refused, Appended::Gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check of each position before its insertion costs the server as much as the insertion: only the second statement
    /// has it.
    #[test]
    fn the_first_statement_of_a_group_lets_the_index_check_positions() {
        let checked = "before.session = new.session) end on conflict do nothing";
        for has_blobs in [false, true] {
            assert!(!statement(Collision::Fails, has_blobs).contains(checked));
            assert!(statement(Collision::Skipped, has_blobs).contains(checked));
        }
    }
}
