//! Appends: records of many runs are written in one statement.

use std::sync::Arc;

use etude_core::digest::Digest;
use etude_runtime::engine::{Error, Record};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, oneshot};

use crate::error::Fault;
use crate::link::{Connection, Link, Parameter, attempt};
use crate::rows;

/// Maximum number of statements in flight.
const WRITERS: usize = 3;

/// Maximum number of records in one statement.
const MAX_GROUP: usize = 256;

/// A record that waits to be written. A session has one at a time.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) run: i64,
    pub(crate) position: i32,
    pub(crate) session: i64,
    pub(crate) record: Record,
    pub(crate) done: oneshot::Sender<Result<Appended, Error>>,
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
    group.sort_by_key(|pending| (pending.run, pending.position));
    let written = write(link, &group).await;
    for (at, pending) in group.into_iter().enumerate() {
        let end = match &written {
            Ok(ends) => Ok(ends[at]),
            Err(cause) => Err(cause.clone()),
        };
        // The caller may have stopped waiting.
        let _ = pending.done.send(end);
    }
}

async fn write(link: &Link, group: &[Pending]) -> Result<Vec<Appended>, Error> {
    Ok(attempt!(link, |connection| append(connection, group)))
}

/// Appends each record if its predecessor is of the same session. The statement neither changes nor locks a row of `runs`.
async fn append(connection: &mut Connection, group: &[Pending]) -> Result<Vec<Appended>, Fault> {
    let runs: Vec<i64> = group.iter().map(|pending| pending.run).collect();
    let positions: Vec<i32> = group.iter().map(|pending| pending.position).collect();
    let sessions: Vec<i64> = group.iter().map(|pending| pending.session).collect();
    let keys: Vec<&str> = group.iter().map(|pending| pending.record.key.as_str()).collect();
    let requests: Vec<&[u8]> = group.iter().map(|pending| &pending.record.request.as_bytes()[..]).collect();
    let bodies: Vec<&[u8]> = group.iter().map(|pending| pending.record.body.as_bytes()).collect();
    let joined: Vec<Option<Vec<u8>>> = group.iter().map(|pending| rows::joined(&pending.record.blobs)).collect();
    let of_blobs = || group.iter().flat_map(|pending| pending.record.blobs.iter().map(|blob| (pending.run, blob)));
    let referring: Vec<i64> = of_blobs().map(|(run, _)| run).collect();
    let referred: Vec<&[u8]> = of_blobs().map(|(_, blob): (i64, &Digest)| &blob.as_bytes()[..]).collect();
    let sql = "with accepted as (
            insert into records (run, seq, session, key, request, body, blobs)
            select new.* from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[])
                as new (run, seq, session, key, request, body, blobs)
            where case when new.seq = 1 then exists (select 1 from runs where runs.run = new.run)
                else exists (select 1 from records before
                    where before.run = new.run and before.seq = new.seq - 1 and before.session = new.session) end
            on conflict do nothing returning run),
        referred as (
            insert into blob_refs (blob, run)
            select distinct needed.blob, needed.run from unnest($8::bigint[], $9::bytea[]) as needed (run, blob)
            join accepted on accepted.run = needed.run on conflict do nothing)
        select run from accepted";
    let parameters: [Parameter<'_>; 9] =
        [&runs, &positions, &sessions, &keys, &requests, &bodies, &joined, &referring, &referred];
    let accepted = connection.query(sql, &parameters).await?;
    let accepted = accepted.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    let mut ends = Vec::with_capacity(group.len());
    for pending in group {
        ends.push(match accepted.contains(&pending.run) {
            true => Appended::Done,
            false => resolve(connection, pending).await?,
        });
    }
    Ok(ends)
}

/// Finds the reason why a record was not accepted: it is there already, because a reply was lost; another session
/// writes to the run; or the database has lost acknowledged records.
async fn resolve(connection: &mut Connection, pending: &Pending) -> Result<Appended, Fault> {
    let own = "select 1 from records where run = $1 and seq = $2 and session = $3";
    let parameters: [Parameter<'_>; 3] = [&pending.run, &pending.position, &pending.session];
    if connection.query_opt(own, &parameters).await?.is_some() {
        return Ok(Appended::Done);
    }
    // Positions have no gaps: if this session still has the run, records before this one were lost.
    let sql = "select coalesce((select max(seq) from records where records.run = runs.run), 0) from runs
        where run = $1 and session = $2";
    let last = connection.query_opt(sql, &[&pending.run, &pending.session]).await?;
    let last: Option<i32> = last.map(|row| row.try_get(0)).transpose()?;
    Ok(last.filter(|last| *last < pending.position - 1).map_or(Appended::Refused, Appended::Gap))
}
