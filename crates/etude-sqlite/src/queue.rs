//! The queue: runs that are accepted now, and begun later by some process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::digest::Digest;
use etude_runtime::engine::{
    DamagedRun, Enqueued, Error, LimitGroup, Limits, NewRun, Placement, QueuePlace, QueueReason, RunState, Submission,
    UniqueKey, values_of_header,
};
use rusqlite::{Connection, OptionalExtension as _};

use crate::journal::Journal;
use crate::rows::{self, Run};
use crate::session::SqliteSession;
use crate::{ledger, lock_owner};

/// Outcome of the statements of a submission.
enum Written {
    Done(Enqueued),
    /// There is a run with that id.
    Exists,
}

/// The numbers of runs with drivers, in all and by limit group.
struct AtWork {
    all: u32,
    by_group: BTreeMap<String, u32>,
}

/// A row of the queue.
struct Waiting {
    number: i64,
    limit_group: Option<(String, u32)>,
}

impl Journal {
    /// Accepts a run, or finds the run that has one of its keys.
    pub(crate) fn enqueue(&self, submission: &Submission) -> Result<Enqueued, Error> {
        self.serve()?;
        let found = self.pool.read(|connection| repeated(connection, &submission.keys))?;
        // A repetition is answered without the writer's lock.
        if let Some(found) = found {
            return Ok(found);
        }
        let written = self.pool.transaction(|connection| enqueue(connection, submission))?;
        match written {
            Written::Exists => Err(Error::Exists(submission.run.id.clone())),
            Written::Done(Enqueued::Accepted) => {
                self.is_in_place()?;
                self.syncer.committed(&input_of(submission))?;
                Ok(Enqueued::Accepted)
            }
            Written::Done(other) => Ok(other),
        }
    }

    /// Takes the next queued run.
    pub(crate) fn next(self: &Arc<Self>, limits: &Limits, now_ms: i64) -> Result<Option<SqliteSession>, Error> {
        self.serve()?;
        let waits = |connection: &Connection| {
            let sql = "select 1 from queue where queue = ?1 and not_before_ms <= ?2 limit 1";
            connection.prepare_cached(sql)?.exists((&limits.queue, now_ms))
        };
        // An empty queue costs one read.
        if !self.pool.read(waits)? {
            return Ok(None);
        }
        let (mut damaged, mut failed) = (BTreeSet::new(), None);
        loop {
            let dead = self.dead_holders()?;
            let picked = |connection: &Connection| pick(connection, limits, now_ms, &dead, &damaged);
            let found = self.pool.snapshot(|connection| {
                let Some(number) = picked(connection)? else { return Ok(None) };
                Ok(Some((number, Run::whole(connection, number)?)))
            })?;
            let (number, found) = match found {
                Some((number, Ok(found))) => (number, found),
                // A damaged run holds up no other. It is reported when no other is left.
                Some((number, Err(cause))) => {
                    damaged.insert(number);
                    failed = failed.or(Some(cause));
                    continue;
                }
                None => return failed.map_or(Ok(None), |cause| Err(self.damaged_run(&cause))),
            };
            let lock_owner = self.lock_owner()?;
            // Pick again in the transaction, when no other process writes: runs that another process has taken meanwhile count.
            let taken = self.take_if(&found, &lock_owner, |connection| {
                let is_next = picked(connection)? == Some(number);
                if is_next {
                    begin(connection, number, now_ms)?;
                }
                Ok(is_next)
            })?;
            if let Some((run, taken)) = taken {
                // The session comes first: if the disk fails now, its end releases the run.
                let session = SqliteSession::new(Arc::clone(self), run, taken);
                self.syncer.committed(&[])?;
                return Ok(Some(session));
            }
        }
    }

    fn damaged_run(&self, run: &DamagedRun) -> Error {
        Error::Damaged { path: self.pool.path().display().to_string(), why: format!("run `{}`: {}", run.id, run.why) }
    }

    /// Takes this run if the limits allow it.
    pub(crate) fn take_within(
        self: &Arc<Self>,
        run_id: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<Option<SqliteSession>, Error> {
        loop {
            let run = self.find_here(run_id)?;
            let lock_owner = self.lock_owner()?;
            if let Some(name) = self.other_owner(&run, &lock_owner)? {
                return Err(self.busy(run_id, name));
            }
            let dead = self.dead_holders()?;
            let mut has_room = true;
            let taken = self.take_if(&run, &lock_owner, |connection| {
                let group = run.placement.limit_group.as_ref().map(|group| (group.name.clone(), group.max_runs));
                has_room = AtWork::count(connection, &dead)?.has_room(limits, group.as_ref());
                if has_room && run.state == RunState::Queued {
                    begin(connection, run.number, now_ms)?;
                } else if has_room {
                    connection
                        .prepare_cached("update runs set rank = coalesce(rank, created_at_ms) where number = ?1")?
                        .execute([run.number])?;
                }
                Ok(has_room)
            })?;
            match taken {
                Some((run, taken)) => return Ok(Some(SqliteSession::new(Arc::clone(self), run, taken))),
                None if !has_room => return Ok(None),
                // Another process has taken the run since it was read.
                None => {}
            }
        }
    }

    /// The position of a queued run.
    pub(crate) fn queue_place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error> {
        let run = self.find(run_id)?;
        let dead = self.dead_holders()?;
        self.pool.snapshot(|connection| {
            let row = connection
                .prepare_cached("select queue, rank, not_before_ms from queue where run = ?1")?
                .query_row([run.number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((queue, rank, not_before_ms)): Option<(String, i64, i64)> = row else { return Ok(None) };
            let before = connection
                .prepare_cached("select count(*) from queue where queue = ?1 and (rank, run) < (?2, ?3)")?
                .query_row((queue, rank, run.number), |row| rows::length(row, 0))?;
            let at_work = AtWork::count(connection, &dead)?;
            let is_group_full =
                run.placement.limit_group.as_ref().is_some_and(|group| {
                    at_work.by_group.get(&group.name).is_some_and(|count| *count >= group.max_runs)
                });
            let reason = match not_before_ms > now_ms {
                true => QueueReason::NotBefore,
                false if is_group_full && at_work.all < limits.max_runs => QueueReason::Pipeline,
                false => QueueReason::MaxRuns,
            };
            Ok(Some(QueuePlace { position: before + 1, reason }))
        })
    }

    /// The number of processes that died with the run since its last progress.
    pub(crate) fn deaths(&self, run_id: &str) -> Result<u32, Error> {
        let run = self.find(run_id)?;
        let noticed = self.pool.snapshot(|connection| {
            let progress = rows::progress(connection, run.number)?;
            rows::deaths(connection, run.number, progress)
        })?;
        let is_dead = run.lock_owner.is_some() && !self.is_held(&run);
        Ok(noticed + u32::from(is_dead))
    }

    /// Queues a run again that has ended or was interrupted.
    pub(crate) fn requeue(&self, run_id: &str, now_ms: i64) -> Result<(), Error> {
        self.serve()?;
        loop {
            let run = self.find_here(run_id)?;
            let lock_owner = self.lock_owner()?;
            if let Some(name) = self.other_owner(&run, &lock_owner)? {
                return Err(self.busy(run_id, name));
            }
            if !run.state.has_ended() && run.state != RunState::Running {
                return Ok(());
            }
            let is_queued = self.pool.transaction(|connection| {
                let is_as_before = Run::find(connection, run_id)?.is_some_and(|now| now.is_as(&run));
                if is_as_before {
                    queue_again(connection, &run, now_ms)?;
                }
                Ok(is_as_before)
            })?;
            if is_queued {
                self.is_in_place()?;
                return self.syncer.committed(&[]);
            }
            // Another process has taken the run since it was read.
        }
    }

    /// Takes the queued runs whose queue timeout is over.
    pub(crate) fn expired(self: &Arc<Self>, now_ms: i64) -> Result<Vec<SqliteSession>, Error> {
        let ids = self.pool.read(|connection| {
            let sql = "select id from queue join runs on number = run where expires_at_ms <= ?1 order by expires_at_ms";
            let mut statement = connection.prepare_cached(sql)?;
            let ids = statement.query_map([now_ms], |row| row.get(0))?;
            ids.collect::<rusqlite::Result<Vec<String>>>()
        })?;
        let (mut sessions, mut failed) = (Vec::new(), None);
        for id in ids {
            match self.claim(&id) {
                Ok(session) => sessions.extend(Some(session).filter(SqliteSession::is_queued)),
                // Another process ends it, begins it, or has moved it away.
                Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => {}
                Err(cause) => failed = failed.or(Some(cause)),
            }
        }
        match failed {
            // The next call reports it.
            Some(cause) if sessions.is_empty() => Err(cause),
            _ => Ok(sessions),
        }
    }

    /// The names of holders in the journal that are dead. Their locks are checked outside of transactions, for which all writers
    /// wait.
    fn dead_holders(&self) -> Result<BTreeSet<String>, Error> {
        let names = self.pool.read(|connection| {
            let sql = "select distinct holder from runs where rank is not null and holder is not null";
            let mut statement = connection.prepare_cached(sql)?;
            let names = statement.query_map([], |row| row.get(0))?;
            names.collect::<rusqlite::Result<BTreeSet<String>>>()
        })?;
        let is_dead = |name: &String| !self.is_own(name) && !lock_owner::is_alive(&self.locks, name).unwrap_or(true);
        Ok(names.into_iter().filter(is_dead).collect())
    }
}

/// Removes a run from the queue.
pub(crate) fn leave(connection: &Connection, number: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("delete from queue where run = ?1")?.execute([number]).map(drop)
}

/// Marks a queued run as running.
fn begin(connection: &Connection, number: i64, now_ms: i64) -> rusqlite::Result<()> {
    leave(connection, number)?;
    connection
        .prepare_cached(
            "update runs set state = 'running', started_at_ms = coalesce(started_at_ms, ?1), changed_at_ms = ?1 where number = ?2",
        )?
        .execute((now_ms, number))
        .map(drop)
}

/// The value that holds a large input. No record names it, so it is synced with the row of the run.
pub(crate) fn input_of(submission: &Submission) -> Vec<Digest> {
    values_of_header(&submission.run.header).collect()
}

/// The run that has one of the keys.
fn repeated(connection: &Connection, keys: &[UniqueKey]) -> rusqlite::Result<Option<Enqueued>> {
    for UniqueKey { key, digest } in keys {
        let found = connection
            .prepare_cached("select id, digest from keys join runs on number = run where key = ?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((run_id, of)) = found {
            let of: Option<Vec<u8>> = of;
            let is_same = of.as_deref() == digest.as_ref().map(|digest| &digest.as_bytes()[..]);
            return Ok(Some(Enqueued::Repeated { run_id, key: key.clone(), is_same }));
        }
    }
    for key in keys {
        if let Some((run_id, is_same)) = ledger::removed_run(connection, key)? {
            return Ok(Some(Enqueued::Repeated { run_id, key: key.key.clone(), is_same }));
        }
    }
    Ok(None)
}

/// Accepts a run inside a transaction. `None` if there is a run with that id.
pub(crate) fn accept(connection: &Connection, submission: &Submission) -> rusqlite::Result<Option<Enqueued>> {
    Ok(match enqueue(connection, submission)? {
        Written::Done(enqueued) => Some(enqueued),
        Written::Exists => None,
    })
}

fn enqueue(connection: &Connection, submission: &Submission) -> rusqlite::Result<Written> {
    let Submission { run, keys, max_queued, needs_room } = submission;
    if let Some(found) = repeated(connection, keys)? {
        return Ok(Written::Done(found));
    }
    let placement = &run.placement;
    if let Some(max) = max_queued {
        let count = connection
            .prepare_cached("select count(*) from queue where queue = ?1")?
            .query_row([placement.queue()], |row| rows::length(row, 0))?;
        if count >= *max {
            return Ok(Written::Done(Enqueued::Full));
        }
    }
    if let Some(group) = placement.limit_group.as_ref().filter(|_| *needs_room)
        && let Some(run_id) = holder(connection, group)?
    {
        return Ok(Written::Done(Enqueued::Held { run_id }));
    }
    let Some(number) = rows::insert(connection, run, RunState::Queued, None)? else { return Ok(Written::Exists) };
    line_up(connection, number, Waits::since(run, run.created_at_ms), placement)?;
    note_keys(connection, number, keys)?;
    Ok(Written::Done(Enqueued::Accepted))
}

/// Queues a run again. A session that had the run has an outdated epoch.
fn queue_again(connection: &Connection, run: &Run, now_ms: i64) -> rusqlite::Result<()> {
    let placement = &run.placement;
    let rank = placement.rank(run.created_at_ms);
    connection
        .prepare_cached(
            "update runs set state = 'queued', epoch = epoch + 1, holder = null, changed_at_ms = ?2, rank = ?3 where number = ?1",
        )?
        .execute((run.number, now_ms, rank))?;
    connection.prepare_cached("delete from results where run = ?1")?.execute([run.number])?;
    let waits = Waits { rank, not_before_ms: AT_ONCE, since_ms: now_ms };
    line_up(connection, run.number, waits, placement)
}

/// Earliest start of a run that waits for no time: a clock that is set back does not delay it.
const AT_ONCE: i64 = 0;

/// The times that decide when a queued run begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    rank: i64,
    not_before_ms: i64,
    /// The time at which the run was queued.
    since_ms: i64,
}

impl Waits {
    /// The times of a run that has been queued since `since_ms`, which is the time of its creation or later.
    pub(crate) fn since(run: &NewRun, since_ms: i64) -> Self {
        let placement = &run.placement;
        let not_before_ms = placement.not_before_ms.unwrap_or(AT_ONCE);
        Self { rank: placement.rank(run.created_at_ms), not_before_ms, since_ms }
    }
}

/// Adds a run to the queue.
pub(crate) fn line_up(
    connection: &Connection,
    number: i64,
    waits: Waits,
    placement: &Placement,
) -> rusqlite::Result<()> {
    let group = placement.limit_group.as_ref();
    connection
        .prepare_cached(
            "insert into queue (queue, rank, run, not_before_ms, expires_at_ms, limit_group, limit_max)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            placement.queue(),
            waits.rank,
            number,
            waits.not_before_ms,
            placement.expires_at_ms(waits.since_ms),
            group.map(|group| &group.name),
            group.map(|group| group.max_runs),
        ))
        .map(drop)
}

/// Gives a run those of the keys that no other run has.
pub(crate) fn note_keys(connection: &Connection, number: i64, keys: &[UniqueKey]) -> rusqlite::Result<()> {
    for UniqueKey { key, digest } in keys {
        let digest = digest.as_ref().map(Digest::as_bytes);
        connection.prepare_cached("insert or ignore into keys (key, digest, run) values (?1, ?2, ?3)")?.execute((
            key,
            digest.map(|digest| &digest[..]),
            number,
        ))?;
    }
    Ok(())
}

/// The oldest run of a group without room for another one.
fn holder(connection: &Connection, group: &LimitGroup) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(
        "select id from runs where limit_group = ?1 and state in ('queued', 'running') order by number limit ?2",
    )?;
    let holders: Vec<String> =
        statement.query_map((&group.name, group.max_runs), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let is_full = holders.len() >= group.max_runs as usize;
    Ok(holders.into_iter().next().filter(|_| is_full))
}

/// The number of the next queued run that may begin, apart from damaged ones.
fn pick(
    connection: &Connection,
    limits: &Limits,
    now_ms: i64,
    dead: &BTreeSet<String>,
    damaged: &BTreeSet<i64>,
) -> rusqlite::Result<Option<i64>> {
    let at_work = AtWork::count(connection, dead)?;
    if at_work.all >= limits.max_runs {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(
        "select run, queue.limit_group, queue.limit_max, holder, app, bundle is not null from queue
         cross join runs on number = run
         where queue.queue = ?1 and queue.not_before_ms <= ?2 order by queue.rank, run",
    )?;
    let mut rows = statement.query((&limits.queue, now_ms))?;
    while let Some(row) = rows.next()? {
        let group: Option<String> = row.get(1)?;
        let max: Option<u32> = row.get(2)?;
        let waiting = Waiting { number: row.get(0)?, limit_group: group.zip(max) };
        // A held run in the queue is being ended.
        let (holder, app): (Option<String>, String) = (row.get(3)?, row.get(4)?);
        let is_free = holder.is_none_or(|name| dead.contains(&name)) && !damaged.contains(&waiting.number);
        let is_fit = limits.takes.fits(&app, row.get(5)?);
        if is_free && is_fit && at_work.has_room(limits, waiting.limit_group.as_ref()) {
            return Ok(Some(waiting.number));
        }
    }
    Ok(None)
}

impl AtWork {
    /// Counts the runs with live drivers. Suspended runs have none.
    fn count(connection: &Connection, dead: &BTreeSet<String>) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(
            "select holder, limit_group from runs where rank is not null and holder is not null and +state <> 'queued'",
        )?;
        let mut rows = statement.query([])?;
        let mut at_work = Self { all: 0, by_group: BTreeMap::new() };
        while let Some(row) = rows.next()? {
            let holder: String = row.get(0)?;
            if dead.contains(&holder) {
                continue;
            }
            at_work.all += 1;
            if let Some(group) = row.get::<_, Option<String>>(1)? {
                *at_work.by_group.entry(group).or_default() += 1;
            }
        }
        Ok(at_work)
    }

    fn has_room(&self, limits: &Limits, group: Option<&(String, u32)>) -> bool {
        let is_group_full = group.is_some_and(|(name, max)| self.by_group.get(name).copied().unwrap_or(0) >= *max);
        self.all < limits.max_runs && !is_group_full
    }
}
