//! Claims of workers: one statement, in the order of an index, without a sort (K-31).

use std::collections::HashMap;

use etude_runtime::engine::{Error, NewRun};
use tokio_postgres::Row;

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt, lock};
use crate::rows::{CLAIM, NO_PROGRESS, Run, columns};
use crate::rules::{OPEN, OPEN_TENANT, closed, has_room};
use crate::store::{Store, Taken};

/// Maximum number of runs that one statement takes.
pub(crate) const MAX_RUNS: usize = 10;

/// Number of rows in which a claim looks for further runs while tenants are at their limits.
const WINDOW: usize = 64;

/// Takes the next runs of the queue `$1`, one for each of the sessions `$2`, of which there are at most [`MAX_RUNS`].
/// Their rows in the queue are locked, the runs get their sessions and the worker `$3`, their rows in the queue are
/// deleted, and the marks of the claim are inserted. `$4` is the version of the interpreter, null without `has_abi`;
/// `$5` is a digest of nothing; `$6` is true if this machine can run steps in a sandbox.
///
/// Limits hold: until this statement is committed, no other claim counts the same runs, and it takes only runs that
/// have room (K-33): of a tenant with a limit, the first ones. It takes the same runs as claims of one run each would,
/// one after the other. While tenants are at their limits, the scan of the index begins at the first row of another
/// tenant, and skips no claimable row before it (K-34). Changes after the snapshot of this statement do not matter: a
/// row before that place either cannot be claimed or is gone. The scan then ends after [`WINDOW`] rows, if one of them
/// can be claimed: rows of full tenants between other ones are not all looked at for a tenth run.
///
/// The picked runs are collected in an array before the first row changes: a function that counts would otherwise see
/// the changes of this same statement. The limit of that array only shows the planner that the array is short.
///
/// Of two claims at once, the second one skips the rows that the first one has locked. Only taken rows are locked,
/// unless tenants have limits, where no two claims run at once. A row whose run is over or has a living worker does not
/// block others: a signal may have written it at the moment at which the run was taken.
pub(crate) fn statement(has_abi: bool) -> String {
    // With a version, rows are scanned in the order of its index alone: a range of one value keeps the planner from the
    // index of all versions. A process without a profile takes runs of all versions, from the first row on.
    let (version, order, value, first) = match has_abi {
        true => (
            "abi between $4 and $4",
            "abi, rank, run",
            "$4, ",
            "select place.* from closed cross join lateral first_open($1, $4, full_tenants) as place where cardinality(full_tenants) > 0",
        ),
        false => (
            "$4::bigint is null",
            "rank, run",
            "",
            "select null::bigint as from_rank, null::bigint as from_run where false",
        ),
    };
    let waits = format!("queue = $1 and is_bundled and not is_asleep and {version}");
    // Where no run waits, no lock is taken, and one run is claimed beside others far from the limit.
    let wanted = format!(
        "(select least(cardinality($2::bigint[]), count(*)) from (
            select 1 from queue where {waits} order by {order} limit {MAX_RUNS}) as waiting)"
    );
    let place = |table: &str, name: &str, otherwise: i64| {
        let [rank, run] =
            ["rank", "run"].map(|column| format!("coalesce((select {name}{column} from {table}), '{otherwise}')"));
        format!("({value}{rank}, {run})")
    };
    let (begin, end) = (place("first", "from_", i64::MIN), place("until", "", i64::MAX));
    let near = picked(&format!("{waits} and ({order}) >= {begin} and ({order}) <= {end}"), order);
    let far = picked(&format!("{waits} and ({order}) > {end} and not exists (select from near)"), order);
    format!(
        "with {0},
        first as materialized ({first}),
        until as materialized (
            select rank, run from queue where exists (select from first) and {waits} and ({order}) >= {begin}
            order by {order} limit 1 offset {WINDOW}),
        near as materialized ({near}),
        far as materialized ({far}),
        picked as materialized (select * from near union all select * from far),
        chosen as (
            select run, ($2::bigint[])[place::integer] as session
            from unnest(array(select run from picked where {WITHIN_SHARE} limit (select room from closed))) with ordinality
                as next_ones (run, place) limit (select room from closed)),
        last as (
            select run, session, coalesce((select max(seq) from records where records.run = chosen.run), 0) as seq,
                coalesce((select max(seq) from records where records.run = chosen.run and key not in {NO_PROGRESS}), 0) as proper
            from chosen),
        taken as (
            update runs set epoch = runs.epoch + 1, session = last.session, worker = $3, state = 'running',
                deaths = {DEATHS}, dead = {DEAD}, deaths_at = case when runs.worker is null then runs.deaths_at else last.proper end,
                started_at_ms = coalesce(runs.started_at_ms, now_ms()), changed_at_ms = now_ms(),
                rank = coalesce(runs.rank, runs.created_at_ms)
            from last join runs as before using (run)
            where runs.run = last.run and runs.epoch = before.epoch and {IS_FREE}
            returning runs.run, before.epoch as before, before.worker as taken_from),
        gone as (delete from queue using taken where queue.run = taken.run),
        mark as (
            insert into records (run, seq, session, key, request, body)
            select run, last.seq + 1, last.session, '{CLAIM}', $5, convert_to($3, 'UTF8') from taken join last using (run)
            where taken.before > 0)
        select run, last.session, last.seq + (taken.before > 0)::integer as position, taken_from from taken join last using (run)",
        closed(&wanted),
    )
}

/// SQL query: locks the first of these rows of the queue that may be claimed.
fn picked(rows: &str, order: &str) -> String {
    format!(
        "select run, tenant, rank from queue
            where {} and {rows} and {OPEN_TENANT}
                and exists (select 1 from runs where runs.run = queue.run and {IS_FREE} and {OPEN})
            order by {order} limit {MAX_RUNS} for update skip locked",
        has_room("$6::boolean")
    )
}

/// SQL condition: the tenant of the row `picked` has room for the run after the earlier rows. Runs that count already,
/// because their worker died, need no room.
const WITHIN_SHARE: &str = "(not (select has_shares from closed) or room_of_tenant($1, picked.tenant) > (
    select count(*) from picked as before where before.tenant = picked.tenant and (before.rank, before.run) < (picked.rank, picked.run)
        and not exists (select 1 from counted where counted.run = before.run)))";

/// SQL condition: a worker may take the run of the row `runs` from a queue. The worker's own runs are excluded: it
/// drives them.
pub(crate) const IS_FREE: &str = "runs.state in ('queued', 'running', 'waiting', 'sleeping') and (runs.worker is null
    or not exists (select 1 from workers where workers.worker = runs.worker and is_alive(workers.lease_until)))";

/// SQL expression: number of workers that have died with the run since its last record, at the moment another one takes it.
pub(crate) const DEATHS: &str = "case when runs.worker is null then runs.deaths
    else 1 + case when runs.deaths_at = last.proper then runs.deaths else 0 end end";

/// SQL expression: names of the workers in [`DEATHS`].
pub(crate) const DEAD: &str = "case when runs.worker is null then runs.dead
    else case when runs.deaths_at = last.proper then runs.dead else '{}' end || runs.worker end";

/// A run that was taken.
struct Claimed {
    number: i64,
    session: i64,
    position: i32,
    taken_from: Option<String>,
}

/// Takes the next runs of a queue in their order, at most one for each session.
pub(crate) async fn claim(store: &Store, queue: &str, sessions: &[i64]) -> Result<Vec<(NewRun, Taken)>, Error> {
    let mut is_repeated = false;
    Ok(attempt!(store.link, |connection| {
        let is_repeated = std::mem::replace(&mut is_repeated, true);
        try_claim(connection, store, queue, (sessions, is_repeated))
    }))
}

async fn try_claim(
    connection: &mut Connection,
    store: &Store,
    queue: &str,
    (sessions, is_repeated): (&[i64], bool),
) -> Result<Vec<(NewRun, Taken)>, Fault> {
    // Runs of a lost reply come first: a session has one run at most.
    let mut claimed = if is_repeated { earlier(connection, store, sessions).await? } else { Vec::new() };
    if claimed.is_empty() {
        claimed = claim_now(connection, store, queue, sessions).await?;
    }
    if claimed.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Vec<i64> = claimed.iter().map(|one| one.number).collect();
    let sql = format!(
        "select {}, headers.body as header from runs left join headers using (run) where run = any($1)",
        columns()
    );
    let rows = connection.query(&sql, &[&numbers]).await?;
    let (mut runs, mut failed) = (HashMap::with_capacity(rows.len()), None);
    for row in &rows {
        match created(row) {
            Ok((run, created)) => {
                runs.insert(run.row.number, (run.row.started_at_ms.unwrap_or(run.row.created_at_ms), created));
            }
            Err(fault) => failed = failed.or(Some(fault)),
        }
    }
    // A damaged run holds up no other. The next heartbeat releases it, and it is reported when it is adopted.
    if let (true, Some(fault)) = (runs.is_empty(), failed) {
        return Err(fault);
    }
    let of = |one: Claimed| {
        let Claimed { number, session, position, taken_from } = one;
        let (began_at_ms, created) = runs.remove(&number)?;
        let taken_from = taken_from.filter(|name| *name != store.worker);
        Some((created, Taken { number, session, position, began_at_ms, was_queued: false, taken_from, lapses: 0 }))
    };
    Ok(claimed.into_iter().filter_map(of).collect())
}

/// A run as it was created.
fn created(row: &Row) -> Result<(Run, NewRun), Fault> {
    let run = Run::from_row(row)?;
    let header: Option<Vec<u8>> = row.try_get("header")?;
    let created = run.with_header(header)?;
    Ok((run, created))
}

async fn claim_now(
    connection: &mut Connection,
    store: &Store,
    queue: &str,
    sessions: &[i64],
) -> Result<Vec<Claimed>, Fault> {
    let abi = lock(&store.profile).profile.as_ref().map(|profile| i64::from(profile.abi));
    let request = [0_u8; 32];
    let has_sandbox = store.has_sandbox();
    let parameters: [Parameter<'_>; 6] = [&queue, &sessions, &store.worker, &abi, &request.as_slice(), &has_sandbox];
    let rows = connection.query(&statement(abi.is_some()), &parameters).await?;
    let of = |row: &Row| {
        let taken_from = row.try_get(3)?;
        Ok(Claimed { number: row.try_get(0)?, session: row.try_get(1)?, position: row.try_get(2)?, taken_from })
    };
    let mut claimed = rows.iter().map(of).collect::<Result<Vec<_>, Fault>>()?;
    // Sessions are matched to runs in the order of the queue.
    claimed.sort_by_key(|one| sessions.iter().position(|session| *session == one.session));
    Ok(claimed)
}

/// The runs that an earlier attempt of these sessions has taken, whose reply was lost (K-8).
async fn earlier(connection: &mut Connection, store: &Store, sessions: &[i64]) -> Result<Vec<Claimed>, Fault> {
    let sql = "select run, session, coalesce((select max(seq) from records where records.run = runs.run), 0) from runs
        where worker = $1 and session = any($2)";
    let rows = connection.query(sql, &[&store.worker, &sessions]).await?;
    let of = |row: &Row| {
        Ok(Claimed { number: row.try_get(0)?, session: row.try_get(1)?, position: row.try_get(2)?, taken_from: None })
    };
    rows.iter().map(of).collect()
}
