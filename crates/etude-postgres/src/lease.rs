//! Leases of workers: the statements of a heartbeat.
//!
//! A lease belongs to the worker, not to a run. The worker renews it with each beat and holds an advisory lock on the
//! connection of its heartbeat. If the lock is gone, others shorten the lease to the grace period. Behind a pooler that
//! shares sessions there is no lock, and only the lease counts.

use std::time::{Duration, Instant};

use etude_runtime::engine::Profile;

use crate::error::Fault;
use crate::link::{Connection, Parameter, lock};
use crate::rules;
use crate::store::{Store, random};
use crate::worker::Times;

/// The key of a worker without a lock: a pooler would keep the lock beyond the worker's death, and drop it while the
/// worker lives.
const NO_LOCK: i64 = 0;

/// SQL condition: the backend that holds a worker's lock lives, or there is no such lock; the lock is in this database.
const HAS_LOCK: &str =
    "(workers.lock = 0 or exists (select 1 from pg_locks where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_database where datname = current_database())
    and ((classid::bigint << 32) | objid::bigint) = workers.lock))";

/// SQL condition: the server has not restarted since the last heartbeat of any worker. A restart drops all locks.
const IS_SAME_SERVER: &str = "exists (select 1 from server where started_at = pg_postmaster_start_time())";

/// State of a worker's lease.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The worker lives.
    Held,
    /// The worker's connection is gone; at most the grace period remains.
    Disconnected,
    /// The lease is over, or the worker is unknown.
    Over,
}

/// Takes the lock on a connection and renews the lease. Returns the key of the lock, a new one for each connection:
/// after a partition the server may keep the previous connection and its lock for a long time.
pub(crate) async fn enlist(connection: &mut Connection, store: &Store) -> Result<i64, Fault> {
    let key = if connection.keeps_session() { random() } else { NO_LOCK };
    if key != NO_LOCK {
        connection.query("select pg_advisory_lock($1)", &[&key]).await?;
    }
    beat(connection, store, key).await?;
    Ok(key)
}

/// Sends a heartbeat.
pub(crate) async fn beat(connection: &mut Connection, store: &Store, key: i64) -> Result<(), Fault> {
    let Times { lease, grace, .. } = store.times;
    if !store.access.is_tenant() {
        extend_after_restart(connection, lease).await?;
    }
    let sent = Instant::now();
    let now_ms = renew(connection, store, key).await?;
    *lock(&store.clock) = Some((sent, now_ms));
    store.pulse.beaten(sent);
    let sql = format!(
        "update workers set lease_until = clock_timestamp() + $2 * interval '1 millisecond'
         where worker <> $1 and lease_until > clock_timestamp() + $2 * interval '1 millisecond'
            and not {HAS_LOCK} and {IS_SAME_SERVER}"
    );
    connection.execute(&sql, &[&store.worker, &ms(grace)]).await?;
    let sql = "delete from workers where lease_until < clock_timestamp() - interval '1 hour'";
    connection.execute(sql, &[]).await?;
    store.depot.follow(rules::url(connection).await?.as_deref());
    Ok(())
}

/// The first heartbeat after a restart extends every lease that had not expired at the last heartbeat before it (K-23).
async fn extend_after_restart(connection: &mut Connection, lease: Duration) -> Result<(), Fault> {
    let sql = "with before as (select beat_at from server),
        restarted as (
            update server set started_at = pg_postmaster_start_time(), beat_at = clock_timestamp()
            where started_at <> pg_postmaster_start_time() returning 1)
        update workers set lease_until = clock_timestamp() + $1 * interval '1 millisecond'
        from before, restarted where workers.lease_until > before.beat_at";
    connection.execute(sql, &[&ms(lease)]).await?;
    Ok(())
}

/// Renews the lease and writes the profile of this worker. Returns the time of the database, in milliseconds since 1970.
async fn renew(connection: &mut Connection, store: &Store, key: i64) -> Result<i64, Fault> {
    let (host, pid) = (crate::worker::host(), i64::from(std::process::id()));
    let none = Profile { version: String::new(), abi: 0, queues: Vec::new(), places: 0, has_sandbox: false };
    let (profile, is_draining) = {
        let standing = lock(&store.profile);
        (standing.profile.clone().unwrap_or(none), standing.is_draining)
    };
    let live = i64::try_from(lock(&store.held).len()).unwrap_or(i64::MAX);
    // A tenant does not vouch for the server: leases of others depend on that.
    let seen = if store.access.is_tenant() { "select 1" } else { "update server set beat_at = clock_timestamp()" };
    let sql = format!(
        "with seen as ({seen})
        insert into workers (worker, lock, started_at, beat_at, lease_until, host, pid, version, abi, queues, places, live,
            is_draining)
        values ($1, $2, clock_timestamp(), clock_timestamp(), clock_timestamp() + $3 * interval '1 millisecond', $4, $5, $6, $7,
            $8, $9, $10, $11)
        on conflict (worker) do update set lock = excluded.lock, beat_at = excluded.beat_at, lease_until = excluded.lease_until,
            version = excluded.version, abi = excluded.abi, queues = excluded.queues, places = excluded.places,
            live = excluded.live, is_draining = excluded.is_draining
        returning now_ms()"
    );
    let parameters: [Parameter<'_>; 11] = [
        &store.worker,
        &key,
        &ms(store.times.lease),
        &host,
        &pid,
        &profile.version,
        &i64::from(profile.abi),
        &profile.queues,
        &i64::from(profile.places),
        &live,
        &is_draining,
    ];
    let row = connection.query_opt(&sql, &parameters).await?;
    Ok(row.map_or(Ok(0), |row| row.try_get(0))?)
}

/// State of another worker's lease. The lease of a worker without a connection is shortened to the grace period.
pub(crate) async fn lease_of(connection: &mut Connection, worker: &str, grace: Duration) -> Result<Lease, Fault> {
    let sql = format!(
        "update workers set lease_until = least(lease_until, clock_timestamp() + $2 * interval '1 millisecond')
         where worker = $1 and not {HAS_LOCK} and {IS_SAME_SERVER}"
    );
    let is_disconnected = connection.execute(&sql, &[&worker, &ms(grace)]).await? == 1;
    let sql = "select 1 from workers where worker = $1 and is_alive(lease_until)";
    let is_over = connection.query_opt(sql, &[&worker]).await?.is_none();
    Ok(match (is_over, is_disconnected) {
        (true, _) => Lease::Over,
        (false, true) => Lease::Disconnected,
        (false, false) => Lease::Held,
    })
}

/// Milliseconds as a factor of an interval.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
