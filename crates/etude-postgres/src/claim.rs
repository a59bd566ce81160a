//! Claims of workers: one statement, in the order of an index, without a sort (K-31).

use etude_runtime::engine::{Error, NewRun};

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt, lock};
use crate::rows::{CLAIM, CLOCK, Run, columns};
use crate::rules::{CLOSED, OPEN, OPEN_TENANT, has_room};
use crate::store::{Store, Taken};

/// Takes the run that is next in the queue `$1`: its row in the queue is locked, the run gets the session `$2` and the worker `$3`,
/// its row in the queue goes, and the mark of the claim comes. `$4` is the version of the interpreter, if it counts, `$5` a digest of nothing,
/// `$6` is true if this machine can keep steps in a sandbox.
///
/// Limits hold: until this statement is committed, no other claim counts what it counts (K-33). While tenants are at their limits, the scan
/// of the index begins at the first row of another one, and passes over none of the rows before it (K-34). What came or went after the
/// snapshot of this statement changes nothing: a row before that place either cannot be claimed or is gone.
///
/// Of two claims at once, the second one skips the row that the first one has locked. A row whose run is over or has a living worker
/// is in no one's way: a signal may have written it at the moment at which the run was taken.
pub(crate) fn statement() -> String {
    format!(
        "with {CLOSED},
        first as materialized (
            select place.* from closed cross join lateral first_open($1, $4, full_tenants) as place where cardinality(full_tenants) > 0),
        picked as (
            select run from queue
            where {0} and queue = $1 and is_bundled and not is_asleep and ($4::bigint is null or abi = $4) and {OPEN_TENANT}
                and (rank, run) >= (coalesce((select from_rank from first), '{1}'), coalesce((select from_run from first), '{1}'))
                and exists (select 1 from runs where runs.run = queue.run and {IS_FREE} and {OPEN})
            order by rank, run limit 1 for update skip locked),
        last as (
            select run, coalesce((select max(seq) from records where records.run = picked.run), 0) as seq,
                coalesce((select max(seq) from records where records.run = picked.run and key not in ('{CLAIM}', '{CLOCK}')), 0) as proper
            from picked),
        taken as (
            update runs set epoch = runs.epoch + 1, session = $2, worker = $3, state = 'running',
                deaths = {DEATHS}, dead = {DEAD}, deaths_at = case when runs.worker is null then runs.deaths_at else last.proper end,
                started_at_ms = coalesce(runs.started_at_ms, now_ms()), changed_at_ms = now_ms(),
                rank = coalesce(runs.rank, runs.created_at_ms)
            from last join runs as before using (run)
            where runs.run = last.run and runs.epoch = before.epoch and {IS_FREE}
            returning runs.run, before.epoch as before, before.worker as taken_from),
        gone as (delete from queue using taken where queue.run = taken.run),
        mark as (
            insert into records (run, seq, session, key, request, body)
            select run, last.seq + 1, $2, '{CLAIM}', $5, convert_to($3, 'UTF8') from taken join last using (run)
            where taken.before > 0)
        select run, last.seq + (taken.before > 0)::integer as position, taken_from from taken join last using (run)",
        has_room("$6::boolean"),
        i64::MIN,
    )
}

/// Whether a worker may take the run of the row `runs` from a queue. Not one of its own: it drives that.
pub(crate) const IS_FREE: &str = "runs.state in ('queued', 'running', 'waiting', 'sleeping') and (runs.worker is null
    or not exists (select 1 from workers where workers.worker = runs.worker and is_alive(workers.lease_until)))";

/// How many workers have died with the run since its last record, once another one takes it.
pub(crate) const DEATHS: &str = "case when runs.worker is null then runs.deaths
    else 1 + case when runs.deaths_at = last.proper then runs.deaths else 0 end end";

/// Their names.
pub(crate) const DEAD: &str = "case when runs.worker is null then runs.dead
    else case when runs.deaths_at = last.proper then runs.dead else '{}' end || runs.worker end";

/// Takes the run that is next in a queue.
pub(crate) async fn claim(store: &Store, queue: &str, session: i64) -> Result<Option<(NewRun, Taken)>, Error> {
    let mut is_repeated = false;
    Ok(attempt!(store.link, |connection| {
        let is_repeated = std::mem::replace(&mut is_repeated, true);
        try_claim(connection, store, queue, (session, is_repeated))
    }))
}

async fn try_claim(
    connection: &mut Connection,
    store: &Store,
    queue: &str,
    (session, is_repeated): (i64, bool),
) -> Result<Option<(NewRun, Taken)>, Fault> {
    // Before anything else is claimed: this session has one run at most.
    let before = if is_repeated { earlier(connection, store, session).await? } else { None };
    let abi = lock(&store.profile).profile.as_ref().map(|profile| i64::from(profile.abi));
    let request = [0_u8; 32];
    let has_sandbox = store.has_sandbox();
    let parameters: [Parameter<'_>; 6] = [&queue, &session, &store.worker, &abi, &request.as_slice(), &has_sandbox];
    let claimed = match before {
        Some(before) => Some(before),
        None => match connection.query_opt(&statement(), &parameters).await? {
            Some(row) => Some((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)),
            None => None,
        },
    };
    let Some((number, position, taken_from)): Option<(i64, i32, Option<String>)> = claimed else { return Ok(None) };
    let sql = format!("select {} from runs where run = $1", columns());
    let Some(row) = connection.query_opt(&sql, &[&number]).await? else { return Ok(None) };
    let run = Run::from_row(&row)?;
    let began_at_ms = run.row.started_at_ms.unwrap_or(run.row.created_at_ms);
    let taken_from = taken_from.filter(|name| *name != store.worker);
    let created = run.created(connection).await?;
    let taken = Taken { number, session, position, began_at_ms, was_queued: false, taken_from, lapses: 0 };
    Ok(Some((created, taken)))
}

/// The run that an attempt of this session has taken, whose reply was lost (K-8).
async fn earlier(
    connection: &mut Connection,
    store: &Store,
    session: i64,
) -> Result<Option<(i64, i32, Option<String>)>, Fault> {
    let sql = "select run, coalesce((select max(seq) from records where records.run = runs.run), 0) from runs
        where worker = $1 and session = $2";
    let row = connection.query_opt(sql, &[&store.worker, &session]).await?;
    row.map(|row| Ok::<_, Fault>((row.try_get(0)?, row.try_get(1)?, None))).transpose()
}
