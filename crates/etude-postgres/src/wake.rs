//! Suspended runs: their return into the queue, with no process that waits for them.

use std::sync::Arc;

use etude_runtime::engine::{Error, RunState};

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt};
use crate::rows::{self, CLAIM, IS_LIVE, NO_PROGRESS};
use crate::store::Store;

/// SQL: puts the run `$1` into its queue, ready from now on. Runs without a bundle are driven by the processes that
/// have their app.
pub(crate) const READY: &str = "insert into queue (queue, rank, run, not_before_ms, limit_group, limit_max, abi, is_bundled)
    select queue, coalesce(rank, created_at_ms), run, now_ms(), limit_group, limit_max, abi, true from runs
    where run = $1 and bundle is not null
    on conflict (run) do update set not_before_ms = least(queue.not_before_ms, excluded.not_before_ms), is_asleep = false";

/// SQL: puts the run `$1` into its queue if it was queued again. Its queue timeout counts from that change.
const QUEUED_AGAIN: &str =
    "insert into queue (queue, rank, run, not_before_ms, expires_at_ms, limit_group, limit_max, abi, is_bundled)
    select queue, coalesce(rank, created_at_ms), run, 0, changed_at_ms + queue_timeout_ms, limit_group, limit_max, abi,
        bundle is not null from runs
    where run = $1 and state = 'queued'
    on conflict (run) do nothing";

/// Marks sleeping runs whose time has come as ready.
pub(crate) async fn wake(connection: &mut Connection) -> Result<(), Fault> {
    let sql = "update queue set is_asleep = false where is_asleep and not_before_ms <= now_ms()";
    connection.execute(sql, &[]).await?;
    Ok(())
}

/// Suspends the run `number` of the session. False if another worker has the run.
///
/// A signal at the same moment waits for the row of the run, or is seen by the following statement: each statement of a
/// transaction sees earlier commits.
pub(crate) async fn suspend(
    connection: &mut Connection,
    (number, session): (i64, i64),
    state: RunState,
    (read, wakes_at_ms): (i64, Option<i64>),
    result: &str,
) -> Result<bool, Fault> {
    connection.begin();
    let sql = "with noted as (
            update runs set state = $4, changed_at_ms = now_ms(), worker = case when bundle is null then worker end
            where run = $1 and session = $2 returning run),
        kept as (
            insert into results (run, body) select run, $3 from noted
            on conflict (run) do update set body = excluded.body)
        select run from noted";
    let parameters: [Parameter<'_>; 4] = [&number, &session, &result.as_bytes(), &state.word()];
    let is_noted = connection.query_opt(sql, &parameters).await?.is_some();
    if is_noted {
        let sql = "insert into queue (queue, rank, run, not_before_ms, limit_group, limit_max, abi, is_bundled, is_asleep)
            select queue, coalesce(rank, created_at_ms), run, at_ms, limit_group, limit_max, abi, true, at_ms > now_ms() from runs,
                (select case when (select count(*) from signals where run = $1) > $2 then now_ms() else $3::bigint end as at_ms) as due
            where run = $1 and bundle is not null and at_ms is not null
            on conflict (run) do update set not_before_ms = excluded.not_before_ms, is_asleep = excluded.is_asleep";
        connection.execute(sql, &[&number, &read, &wakes_at_ms]).await?;
    }
    match is_noted {
        true => connection.commit().await?,
        false => connection.roll_back().await?,
    }
    Ok(is_noted)
}

impl Store {
    /// Puts a run that no process has into its queue. A finished run is queued again.
    pub(crate) async fn requeue(self: &Arc<Self>, run_id: &str, now_ms: i64) -> Result<(), Error> {
        let run = self.find_here(run_id).await?;
        self.wait_until_free(&run).await?;
        attempt!(self.link, |connection| requeue(connection, run.row.number, self.given(now_ms)));
        self.ring().await;
        Ok(())
    }
}

/// A finished run, and an interrupted one without a bundle, is then queued. The time of that also counts if this is an
/// attempt whose predecessor lost its reply.
async fn requeue(connection: &mut Connection, number: i64, now_ms: Option<i64>) -> Result<(), Fault> {
    connection.begin();
    let sql = format!(
        "update runs set worker = null, changed_at_ms = case when state = 'queued' then changed_at_ms else coalesce($2, now_ms()) end,
            state = case when state in ('waiting', 'sleeping') or state = 'running' and bundle is not null then state else 'queued' end
         where run = $1 and state <> 'moved' and (worker is null or not {IS_LIVE}) returning run"
    );
    if connection.query_opt(&sql, &[&number, &now_ms]).await?.is_some() {
        let sql =
            "delete from results using runs where runs.run = results.run and runs.run = $1 and runs.state = 'queued'";
        connection.execute(sql, &[&number]).await?;
        connection.execute(QUEUED_AGAIN, &[&number]).await?;
        connection.execute(READY, &[&number]).await?;
    }
    connection.commit().await
}

/// A run and the session that releases it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    /// Number of the run.
    pub(crate) number: i64,
    /// Number of the session.
    pub(crate) session: i64,
    /// Number of signals that the session has read, if the run's large values cannot be reached: it is taken again
    /// after a delay.
    pub(crate) postponed: Option<i64>,
}

/// First delay of a run that stops because its large values cannot be reached, counted since its last record.
const FIRST_DELAY_MS: i64 = 5_000;

/// Maximum delay of such a run.
const MAX_DELAY_MS: i64 = 300_000;

/// SQL condition: the run of the row `runs` waits for the end of such a delay.
pub(crate) const IS_POSTPONED: &str = "runs.state = 'running' and exists (
    select 1 from queue where queue.run = runs.run and queue.is_asleep and queue.not_before_ms > now_ms())";

/// Releases the run, unless another session has taken it. A run that a draining worker releases keeps its place in the
/// queue (K-30): the search for abandoned runs comes after the queue, which has younger ones. A run that stopped on a
/// worker that keeps running is left alone for a while.
///
/// A postponed run sleeps in its queue. The delay doubles with each claim since the last record, by any worker: the
/// claims are counted, and workers need no knowledge of each other. A signal that the session has not read ends the
/// delay.
pub(crate) async fn release(connection: &mut Connection, of: Released, is_draining: bool) -> Result<(), Fault> {
    let Released { number, session, postponed } = of;
    let released = "update runs set worker = null where run = $1 and session = $2";
    if postponed.is_none() && !is_draining {
        connection.execute(released, &[&number, &session]).await?;
        return Ok(());
    }
    let sql = format!(
        "with released as (
            {released} returning run, state, bundle, queue, coalesce(rank, created_at_ms) as place, limit_group, limit_max, abi),
        claims as (
            select count(*) as count from records where run = $1 and key = '{CLAIM}' and seq > (
                select coalesce(max(seq), 0) from records where run = $1 and key not in {NO_PROGRESS})),
        due as (
            select case when (select count(*) from signals where run = $1) > $3::bigint or $3 is null then now_ms()
                else now_ms() + least({MAX_DELAY_MS}, {FIRST_DELAY_MS} << least(count, 16)::integer) end as at_ms from claims)
        insert into queue (queue, rank, run, not_before_ms, limit_group, limit_max, abi, is_bundled, is_asleep)
        select queue, place, run, at_ms, limit_group, limit_max, abi, true, at_ms > now_ms() from released, due
        where state = 'running' and bundle is not null
        on conflict (run) do nothing"
    );
    connection.execute(&sql, &[&number, &session, &postponed]).await?;
    Ok(())
}

/// A number of signals in PostgreSQL's type.
pub(crate) fn count(signals: usize) -> i64 {
    rows::from_length(signals as u64)
}
