//! Workers and queues, as rows for all processes.

use std::sync::Arc;

use etude_runtime::engine::{Census, DEFAULT_QUEUE, Error, Profile, QueueRow, WorkerRow, WorkerState};
use tokio_postgres::Row;

use crate::error::Fault;
use crate::link::{Connection, attempt, lock};
use crate::rows;
use crate::store::Store;
use crate::worker;

impl Store {
    /// Joins the fleet as a worker.
    pub(crate) async fn join(self: &Arc<Self>, profile: &Profile) -> Result<(), Error> {
        {
            let mut enrolment = lock(&self.profile);
            enrolment.profile = Some(profile.clone());
            enrolment.is_changed = true;
        }
        worker::register(self).await?;
        self.listen();
        Ok(())
    }

    /// Stops taking runs: the next heartbeat, which comes now, announces it.
    pub(crate) fn retire(&self) {
        let mut enrolment = lock(&self.profile);
        enrolment.is_draining = true;
        enrolment.is_changed = true;
    }

    /// True if this process is a worker that takes no more runs.
    pub(crate) fn is_draining(&self) -> bool {
        lock(&self.profile).is_draining
    }

    /// Reads the workers and queues.
    pub(crate) async fn census(&self) -> Result<Census, Error> {
        Ok(attempt!(self.link, |connection| census(connection)))
    }
}

/// Reads workers and queues. The live runs of a worker are counted now: its last heartbeat may be old, and after its death
/// others take its runs over. A run whose worker is dead waits for another one, like queued runs: it counts for depth
/// and age, and, until it is taken over, as live too, because limits count it (K-33). A run that a worker has released
/// waits for that worker or for others; without any worker it counts, too.
async fn census(connection: &mut Connection) -> Result<Census, Fault> {
    let sql = "select worker, host, pid, version, abi, queues, places,
            (select count(*) from runs where runs.worker = workers.worker and runs.state = 'running') as live,
            is_draining, is_alive(lease_until),
            (extract(epoch from started_at) * 1000)::bigint, (extract(epoch from beat_at) * 1000)::bigint,
            (extract(epoch from lease_until) * 1000)::bigint
        from workers where cardinality(queues) > 0 order by worker";
    let workers = connection.query(sql, &[]).await?.iter().map(worker_of).collect::<Result<_, _>>()?;
    let sql = "with names as (
            select distinct queue from queue union select unnest(queues) from workers where is_alive(lease_until)
            union select queue from queues union select $1),
        alive as (select worker, queues from workers where is_alive(lease_until)),
        held as (
            select runs.queue, runs.created_at_ms, alive.worker is not null or runs.worker is not null and bundle is not null as is_live,
                bundle is not null and alive.worker is null and not exists (select 1 from queue where queue.run = runs.run)
                    and (runs.worker is not null or not exists (select 1 from alive as other where runs.queue = any(other.queues))) as is_left
            from runs left join alive using (worker) where runs.state = 'running'),
        working as (
            select queue, count(*) filter (where is_live) as live, count(*) filter (where is_left) as left_over,
                min(created_at_ms) filter (where is_left) as oldest_left
            from held group by 1),
        ready as (
            select queue.queue, count(*) filter (where not is_asleep) as depth, count(*) filter (where is_asleep) as sleeping,
                min(runs.created_at_ms) filter (where not is_asleep) as oldest,
                count(*) filter (where not is_asleep and is_bundled and exists (
                        select 1 from workers where is_alive(lease_until) and queue.queue = any(workers.queues))
                    and not exists (select 1 from workers where is_alive(lease_until) and queue.queue = any(workers.queues)
                        and workers.abi = queue.abi)) as unclaimable
            from queue join runs using (run) group by 1)
        select names.queue, coalesce(depth, 0) + coalesce(left_over, 0), now_ms() - least(oldest, oldest_left),
            coalesce(sleeping, 0), coalesce(live, 0), coalesce(unclaimable, 0), max_live, coalesce(is_untrusted, false)
        from names left join ready using (queue) left join working using (queue) left join queues using (queue) order by 1";
    let queues = connection.query(sql, &[&DEFAULT_QUEUE]).await?.iter().map(queue_of).collect::<Result<_, _>>()?;
    Ok(Census { workers, queues })
}

fn worker_of(row: &Row) -> Result<WorkerRow, Fault> {
    let (is_draining, is_alive): (bool, bool) = (row.try_get(8)?, row.try_get(9)?);
    let state = match (is_alive, is_draining) {
        (false, _) => WorkerState::Lost,
        (true, true) => WorkerState::Draining,
        (true, false) => WorkerState::Live,
    };
    let small = |at: usize| Ok::<_, Fault>(u32::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0));
    Ok(WorkerRow {
        name: row.try_get(0)?,
        host: row.try_get(1)?,
        pid: small(2)?,
        version: row.try_get(3)?,
        abi: small(4)?,
        state,
        queues: row.try_get(5)?,
        places: small(6)?,
        live: rows::length(row.try_get(7)?),
        started_at_ms: row.try_get(10)?,
        last_beat_at_ms: row.try_get(11)?,
        lease_until_ms: row.try_get(12)?,
    })
}

fn queue_of(row: &Row) -> Result<QueueRow, Fault> {
    let (age, limit): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(6)?);
    Ok(QueueRow {
        name: row.try_get(0)?,
        depth: rows::length(row.try_get(1)?),
        oldest_age_ms: age.map(rows::length),
        sleeping: rows::length(row.try_get(3)?),
        live: rows::length(row.try_get(4)?),
        unclaimable: rows::length(row.try_get(5)?),
        limit: limit.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        untrusted: row.try_get(7)?,
    })
}
