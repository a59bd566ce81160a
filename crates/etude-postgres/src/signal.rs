//! Signals for runs.

use std::sync::Arc;

use etude_runtime::engine::{Error, Signal, Signalled};

use crate::error::Fault;
use crate::link::{Connection, attempt};
use crate::rows;
use crate::store::{self, Store};

impl Store {
    /// Leaves a signal; the first one of a key counts.
    pub(crate) async fn signal(self: &Arc<Self>, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        let token = store::random();
        let run = self.find_here(run_id).await?;
        let left = attempt!(self.link, |connection| leave(connection, run.row.number, signal, token));
        if left == Some(Signalled::Accepted) && run.row.placement.bundle.is_some() {
            self.ring().await;
        }
        if left.is_none() {
            self.find_here(run_id).await?;
        }
        left.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

/// Inserts a signal. `None` if the run is pruned or moved at this moment.
async fn leave(connection: &mut Connection, run: i64, signal: &Signal, token: i64) -> Result<Option<Signalled>, Fault> {
    // The row of the run is locked: a driver that suspends the run at this moment comes before or after.
    let sql = "with locked as (select run, state, bundle, queue, rank, created_at_ms, limit_group, limit_max, abi
            from runs where run = $1 and state <> 'moved' for no key update),
        left_here as (
            insert into signals (run, key, body, token, created_at_ms) select run, $2, $3, $4, now_ms() from locked
            on conflict (run, key) do nothing returning run),
        ready as (
            insert into queue (queue, rank, run, not_before_ms, limit_group, limit_max, abi, is_bundled)
            select queue, coalesce(rank, created_at_ms), run, now_ms(), limit_group, limit_max, abi, true
            from locked join left_here using (run)
            where bundle is not null and (state in ('waiting', 'sleeping')
                or state = 'running' and exists (select 1 from queue where queue.run = locked.run and is_asleep))
            on conflict (run) do update set not_before_ms = least(queue.not_before_ms, excluded.not_before_ms),
                is_asleep = false)
        select 1 from left_here";
    let left = connection.query_opt(sql, &[&run, &signal.key, &signal.body.as_bytes(), &token]).await?;
    if left.is_some() {
        return Ok(Some(Signalled::Accepted));
    }
    let sql = "select body, token from signals where run = $1 and key = $2";
    let Some(row) = connection.query_opt(sql, &[&run, &signal.key]).await? else { return Ok(None) };
    let by: i64 = row.try_get(1)?;
    Ok(Some(match by == token {
        // An earlier attempt left it, and its reply was lost.
        true => Signalled::Accepted,
        false => Signalled::TooLate(rows::text(row.try_get(0)?)?),
    }))
}
