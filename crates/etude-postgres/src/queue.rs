//! The queue: a run is accepted now, and a process begins it later.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::{Enqueued, Error, Limits, QueuePlace, QueueReason, Submission, Takes};

use crate::claim::IS_FREE;
use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt};
use crate::rows::{self, NO_PROGRESS, Run, columns};
use crate::rules::{OPEN, OPEN_TENANT, closed, has_room};
use crate::session::PostgresSession;
use crate::store::{Manner, Store, Taken};
use crate::submission::{Attempted, time, transact};
use crate::wake::IS_POSTPONED;
use crate::{claim, worker};

/// SQL query: runs that count against limits and whose worker lives.
const AT_WORK: &str = "select limit_group from runs join workers on workers.worker = runs.worker
    where is_alive(lease_until) and rank is not null and state <> 'queued'";

/// Maximum time in which a database must answer that it takes writes.
const READINESS: Duration = Duration::from_secs(3);

/// True if the database takes no writes, whatever the rights of the user.
pub(crate) async fn is_read_only(connection: &mut Connection) -> Result<bool, Fault> {
    let sql = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean";
    Ok(match connection.query_opt(sql, &[]).await? {
        Some(row) => row.try_get(0)?,
        None => false,
    })
}

/// Result of an attempt to take a run.
enum Attempt {
    Taken(Box<(etude_runtime::engine::NewRun, Taken)>),
    NoRoom,
    /// Another session has taken it since it was read.
    Changed,
}

impl Store {
    /// Accepts a run, or finds the run that has one of its keys.
    pub(crate) async fn enqueue(self: Arc<Self>, submission: Submission) -> Result<Enqueued, Error> {
        let submission = Submission { run: self.owned(submission.run), ..submission };
        let mut attempted = Attempted::default();
        let at_ms = self.given(submission.run.created_at_ms);
        let enqueued = attempt!(self.link, |connection| transact(connection, &submission, at_ms, attempted.next()));
        if enqueued == Enqueued::Accepted {
            self.ring().await;
        }
        Ok(enqueued)
    }

    /// Takes the next queued runs, at most `count`.
    pub(crate) async fn next(
        self: &Arc<Self>,
        limits: &Limits,
        count: usize,
        now_ms: i64,
    ) -> Result<Vec<PostgresSession>, Error> {
        // A process that waits for runs is a worker: its heartbeat notices the death of others.
        worker::register(self).await?;
        let takes_bundles = limits.takes == Takes::Bundles;
        // Other processes take one run at a time, after a look at all running ones.
        let count = count.min(if takes_bundles { claim::MAX_RUNS } else { 1 });
        if count == 0 {
            return Ok(Vec::new());
        }
        let claiming: Vec<_> = (0..count).map(|_| self.claiming()).collect();
        let sessions: Vec<i64> = claiming.iter().map(|one| one.session).collect();
        let lapses = self.pulse.lapses();
        let taken = if takes_bundles {
            // The limits of a worker are its places, which it counts itself.
            claim::claim(self, &limits.queue, &sessions).await?
        } else if self.is_waiting(limits, now_ms).await? {
            let taken = attempt!(self.link, |connection| self.take_next(connection, limits, now_ms, sessions[0]));
            Vec::from_iter(taken)
        } else {
            // An empty queue costs one query.
            Vec::new()
        };
        self.pulse.claimed((!taken.is_empty()).then_some((limits.queue.as_str(), taken.len())), false);
        let hold = |(run, taken)| PostgresSession::new(Arc::clone(self), run, Taken { lapses, ..taken });
        Ok(taken.into_iter().map(hold).collect())
    }

    /// Checks that the database answers at once and takes writes.
    pub(crate) async fn check_writes(&self) -> Result<(), Error> {
        let is_read_only = attempt!(self.link.attempts_for(READINESS); |connection| is_read_only(connection));
        if !is_read_only {
            return Ok(());
        }
        let why = "the database is read-only: it is a standby, or `default_transaction_read_only` is on".to_owned();
        Err(Error::Store { path: self.link.address().to_string(), why })
    }

    /// True if a run of the queue could be claimed.
    pub(crate) async fn is_waiting(&self, limits: &Limits, now_ms: i64) -> Result<bool, Error> {
        let waits = attempt!(self.link, |connection| waits(connection, limits, self.given(now_ms)));
        self.pulse.claimed(None, false);
        Ok(waits)
    }

    async fn take_next(
        &self,
        connection: &mut Connection,
        limits: &Limits,
        now_ms: i64,
        session: i64,
    ) -> Result<Option<(etude_runtime::engine::NewRun, Taken)>, Fault> {
        // The reply to an earlier attempt may be lost.
        let earlier = format!("select {} from runs where session = $1 and worker = $2", columns());
        if let Some(row) = connection.query_opt(&earlier, &[&session, &self.worker]).await? {
            let run = Run::from_row(&row)?;
            return self.take(connection, &run, session, Manner::default()).await;
        }
        begin_claim(connection, self.link.address().schema()).await?;
        let now_ms = time(connection, self.given(now_ms)).await?;
        let manner = Manner { begins_at_ms: Some(now_ms), counts: true };
        let (mut damaged, mut failed) = (Vec::new(), None);
        while let Some((number, run)) = pick(connection, limits, now_ms, &damaged).await? {
            let taken = match run {
                Ok(run) => self.take(connection, &run, session, manner).await,
                Err(fault) => Err(fault),
            };
            match taken {
                // A damaged run holds up no other. It is reported when no other is left.
                Err(fault @ Fault::Engine(Error::Damaged { .. })) => {
                    damaged.push(number);
                    failed = failed.or(Some(fault));
                }
                taken => {
                    let taken = taken?;
                    connection.commit().await?;
                    return Ok(taken);
                }
            }
        }
        connection.roll_back().await?;
        failed.map_or(Ok(None), Err)
    }

    /// Takes this run if the limits allow it.
    pub(crate) async fn take_within(
        self: &Arc<Self>,
        run_id: &str,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<Option<PostgresSession>, Error> {
        let claiming = self.claiming();
        let session = claiming.session;
        loop {
            worker::register(self).await?;
            let run = self.find_here(run_id).await?;
            self.wait_until_free(&run).await?;
            let lapses = self.pulse.lapses();
            match attempt!(self.link, |connection| self.try_take(connection, &run, limits, now_ms, session)) {
                Attempt::NoRoom => return Ok(None),
                Attempt::Changed => {}
                Attempt::Taken(taken) => {
                    let (run, taken) = *taken;
                    let is_takeover = taken.taken_from.is_some();
                    self.pulse.claimed(is_takeover.then(|| (run.placement.queue(), 1)), is_takeover);
                    let taken = Taken { lapses, ..taken };
                    return Ok(Some(PostgresSession::new(Arc::clone(self), run, taken)));
                }
            }
        }
    }

    async fn try_take(
        &self,
        connection: &mut Connection,
        run: &Run,
        limits: &Limits,
        now_ms: i64,
        session: i64,
    ) -> Result<Attempt, Fault> {
        let has_places = limits.takes == Takes::Bundles;
        if is_postponed(connection, run.row.number).await? {
            return Ok(Attempt::NoRoom);
        }
        if has_places && run.counts {
            if !self.has_sandbox() && is_untrusted(connection, run).await? {
                return Ok(Attempt::NoRoom);
            }
            // A worker counts its places itself, and the run counts for the limits of its queue already.
            let taken = self.take(connection, run, session, Manner { begins_at_ms: None, counts: true }).await?;
            return Ok(taken.map_or(Attempt::Changed, |taken| Attempt::Taken(Box::new(taken))));
        }
        match has_places {
            true => connection.begin(),
            false => begin_claim(connection, self.link.address().schema()).await?,
        }
        // The reply to an earlier attempt may be lost: then the run counts, and this session has it.
        let is_own = self.already_taken(connection, run.row.number, session).await?.is_some();
        if !run.counts && !is_own && !is_open(connection, run, self.has_sandbox()).await? {
            connection.roll_back().await?;
            return Ok(Attempt::NoRoom);
        }
        let group = run.row.placement.limit_group.as_ref();
        let sql = format!(
            "with at_work as ({AT_WORK})
             select (select count(*) from at_work) < $1
                and ($2::bytea is null or (select count(*) from at_work where limit_group = $2) < $3)"
        );
        let parameters: [Parameter<'_>; 3] = [
            &i64::from(limits.max_runs),
            &group.map(|group| group.name.as_bytes()),
            &group.map_or(0, |group| i64::from(group.max_runs)),
        ];
        let has_room = connection.query_opt(&sql, &parameters).await?.is_some_and(|row| row.get(0));
        if !has_room {
            connection.roll_back().await?;
            return Ok(Attempt::NoRoom);
        }
        let now_ms = time(connection, self.given(now_ms)).await?;
        let manner = Manner { begins_at_ms: Some(now_ms), counts: true };
        let taken = self.take(connection, run, session, manner).await?;
        connection.commit().await?;
        Ok(taken.map_or(Attempt::Changed, |taken| Attempt::Taken(Box::new(taken))))
    }

    /// Position of a queued run. `None` if the run is not queued.
    pub(crate) async fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error> {
        let run = self.find(run_id).await?;
        Ok(attempt!(self.link, |connection| place(connection, &run, limits, self.given(now_ms))))
    }

    /// Number of processes that died with the run since its last record.
    pub(crate) async fn deaths(&self, run_id: &str) -> Result<u32, Error> {
        let run = self.find(run_id).await?;
        let is_dead = run.worker.is_some() && !run.row.is_live;
        let noticed = attempt!(self.link, |connection| deaths(connection, run.row.number));
        Ok(noticed + u32::from(is_dead))
    }

    /// The workers that have died with the run since its last record.
    pub(crate) async fn dead_workers(&self, run_id: &str) -> Result<Vec<String>, Error> {
        let run = self.find(run_id).await?;
        let mut dead = attempt!(self.link, |connection| dead(connection, run.row.number));
        dead.extend(run.worker.filter(|_| !run.row.is_live));
        Ok(dead)
    }

    /// Takes the queued runs whose queue timeout has passed.
    pub(crate) async fn expired(self: &Arc<Self>, now_ms: i64) -> Result<Vec<PostgresSession>, Error> {
        let ids = attempt!(self.link, |connection| expired(connection, self.given(now_ms)));
        let (mut sessions, mut failed) = (Vec::new(), None);
        for id in ids {
            match self.claim(&id).await {
                Ok(session) => sessions.extend(Some(session).filter(PostgresSession::is_queued)),
                // Another process ends it, begins it, or has moved it away.
                Err(Error::Busy { .. } | Error::Unknown(_) | Error::Moved(_)) => {}
                Err(cause) => {
                    failed = failed.or(Some(cause));
                    if !self.pulse.is_connected() {
                        break;
                    }
                }
            }
        }
        match failed {
            // The next call reports it.
            Some(cause) if sessions.is_empty() => Err(cause),
            _ => Ok(sessions),
        }
    }
}

/// Begins a transaction in which no other process takes runs within limits: its counts hold until its end.
async fn begin_claim(connection: &mut Connection, schema: &str) -> Result<(), Fault> {
    connection.begin();
    connection.query("select pg_advisory_xact_lock(1702131046, hashtext($1))", &[&schema]).await?;
    Ok(())
}

/// True if the limits of the run's queue and tenant allow a claim. They hold until the end of the transaction (K-33).
async fn is_open(connection: &mut Connection, run: &Run, has_sandbox: bool) -> Result<bool, Fault> {
    let sql = format!("with {} select {} and {OPEN} from runs where run = $2", closed("1"), has_room("$3::boolean"));
    let parameters: [Parameter<'_>; 3] = [&run.row.placement.queue(), &run.row.number, &has_sandbox];
    Ok(connection.query_opt(&sql, &parameters).await?.map_or(Ok(false), |row| row.try_get(0))?)
}

/// True if the run waits for the end of a delay, because its large values could not be reached.
async fn is_postponed(connection: &mut Connection, number: i64) -> Result<bool, Fault> {
    let sql = format!("select 1 from runs where run = $1 and {IS_POSTPONED}");
    Ok(connection.query_opt(&sql, &[&number]).await?.is_some())
}

/// True if the queue of a run needs a sandbox (K-55).
async fn is_untrusted(connection: &mut Connection, run: &Run) -> Result<bool, Fault> {
    let sql = "select is_untrusted from queues where queue = $1";
    let row = connection.query_opt(sql, &[&run.row.placement.queue()]).await?;
    Ok(row.map_or(Ok(false), |row| row.try_get(0))?)
}

async fn waits(connection: &mut Connection, limits: &Limits, now_ms: Option<i64>) -> Result<bool, Fault> {
    let sql = "select 1 from queue where queue = $1 and not_before_ms <= (select coalesce($2, now_ms())) limit 1";
    Ok(connection.query_opt(sql, &[&limits.queue, &now_ms]).await?.is_some())
}

/// The next queued run that may begin, apart from damaged ones, with its number.
async fn pick(
    connection: &mut Connection,
    limits: &Limits,
    now_ms: i64,
    damaged: &[i64],
) -> Result<Option<(i64, Result<Run, Fault>)>, Fault> {
    let sql = format!(
        "with {}, at_work as materialized ({AT_WORK}),
        full_groups as (select limit_group, count(*) as count from at_work where limit_group is not null group by 1)
        select {} from runs where run = (
            select queue.run from queue
            join runs on runs.run = queue.run
            left join full_groups on full_groups.limit_group = queue.limit_group
            where {} and queue.queue = $1 and queue.not_before_ms <= $2 and (select count(*) from at_work) < $3
                and (queue.limit_max is null or coalesce(full_groups.count, 0) < queue.limit_max)
                and ($4 or case when $5::text[] is null then runs.bundle is not null
                    else runs.bundle is null and runs.app = any($5) end)
                and queue.run <> all($6::bigint[]) and {OPEN_TENANT} and {IS_FREE} and {OPEN}
            order by queue.rank, queue.run limit 1)",
        closed("1"),
        columns(),
        has_room("false")
    );
    let apps = match &limits.takes {
        Takes::Apps(apps) => Some(apps),
        Takes::Any | Takes::Bundles => None,
    };
    let is_any = limits.takes == Takes::Any;
    let parameters: [Parameter<'_>; 6] =
        [&limits.queue, &now_ms, &i64::from(limits.max_runs), &is_any, &apps, &damaged];
    let row = connection.query_opt(&sql, &parameters).await?;
    row.map(|row| Ok((row.try_get("run")?, Run::from_row(&row)))).transpose()
}

async fn place(
    connection: &mut Connection,
    run: &Run,
    limits: &Limits,
    now_ms: Option<i64>,
) -> Result<Option<QueuePlace>, Fault> {
    let now_ms = time(connection, now_ms).await?;
    let sql = format!(
        "with at_work as materialized ({AT_WORK})
        select own.not_before_ms,
            (select count(*) from queue as before where before.queue = own.queue
                and (before.rank, before.run) < (own.rank, own.run)),
            (select count(*) from at_work),
            (select count(*) from at_work where at_work.limit_group = own.limit_group), own.limit_max
        from queue as own where own.run = $1"
    );
    let Some(row) = connection.query_opt(&sql, &[&run.row.number]).await? else { return Ok(None) };
    let (not_before_ms, before, all, of_group): (i64, i64, i64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let max: Option<i64> = row.try_get(4)?;
    let reason = match not_before_ms > now_ms {
        true => QueueReason::NotBefore,
        false if max.is_some_and(|max| of_group >= max) && all < i64::from(limits.max_runs) => QueueReason::Pipeline,
        false => QueueReason::MaxRuns,
    };
    Ok(Some(QueuePlace { position: rows::length(before) + 1, reason }))
}

async fn deaths(connection: &mut Connection, number: i64) -> Result<u32, Fault> {
    let sql = format!(
        "select case when deaths_at = (select coalesce(max(seq), 0) from records
            where records.run = runs.run and key not in {NO_PROGRESS}) then deaths else 0 end from runs where run = $1"
    );
    let deaths: i32 = connection.query_opt(&sql, &[&number]).await?.map_or(Ok(0), |row| row.try_get(0))?;
    Ok(u32::try_from(deaths).unwrap_or(0))
}

async fn dead(connection: &mut Connection, number: i64) -> Result<Vec<String>, Fault> {
    let sql = format!(
        "select case when deaths_at = (select coalesce(max(seq), 0) from records
            where records.run = runs.run and key not in {NO_PROGRESS}) then dead else '{{}}' end from runs where run = $1"
    );
    Ok(connection.query_opt(&sql, &[&number]).await?.map_or(Ok(Vec::new()), |row| row.try_get(0))?)
}

async fn expired(connection: &mut Connection, now_ms: Option<i64>) -> Result<Vec<String>, Fault> {
    let sql = "select id from queue join runs using (run) where expires_at_ms <= (select coalesce($1, now_ms())) order by expires_at_ms";
    let rows = connection.query(sql, &[&now_ms]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
