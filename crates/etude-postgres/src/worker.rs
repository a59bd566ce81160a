//! This engine as a worker: its lease, its heartbeat, the news for its runs.
//!
//! A lease belongs to the worker, not to a run. The worker renews it with each beat and holds an advisory lock on the connection of
//! its heartbeat. If the lock is gone, others shorten the lease to the grace.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use etude_runtime::engine::Error;

use crate::error::Fault;
use crate::link::{Connection, attempt, lock};
use crate::store::{self, Store};

/// How often signals for the runs here are looked for.
const POLL: Duration = Duration::from_millis(50);

/// Whether the backend that holds a worker's lock lives; the lock is in this database.
const HAS_LOCK: &str = "exists (select 1 from pg_locks where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_database where datname = current_database())
    and ((classid::bigint << 32) | objid::bigint) = workers.lock)";

/// Times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How long a lease lasts after a beat.
    pub lease: Duration,
    /// Between two beats.
    pub beat: Duration,
    /// What remains of a lease once the worker's connection is gone.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), beat: Duration::from_secs(3), grace: Duration::from_secs(3) }
    }
}

/// How the lease of a worker stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The worker lives.
    Held,
    /// Its connection is gone; at most the grace remains.
    Disconnected,
    /// It is over, or there is no such worker.
    Over,
}

/// A name for this engine: the host, the process, four random characters.
pub(crate) fn name() -> String {
    let host = whoami::hostname().unwrap_or_else(|_| "unknown".to_owned());
    let suffix = etude_runtime::run_id::new();
    format!("{host}-{}-{}", std::process::id(), &suffix[suffix.len() - 4..])
}

/// Registers this engine as a worker, before it has its first run.
pub(crate) async fn register(store: &Arc<Store>) -> Result<(), Error> {
    let mut registered = store.registered.lock().await;
    if *registered {
        return Ok(());
    }
    let key = store::random();
    let mut attempts = store.link.attempts();
    let loan = loop {
        let mut loan = attempts.next().await?;
        match enlist(&mut loan.connection, store, key).await {
            Ok(()) => break loan,
            Err(fault) => attempts.failed(loan, fault).await?,
        }
    };
    *registered = true;
    store.link.start(attend(Arc::downgrade(store), store.times, key, Some(loan.connection)));
    Ok(())
}

/// Takes the lock on a connection and renews the lease.
async fn enlist(connection: &mut Connection, store: &Store, key: i64) -> Result<(), Fault> {
    // Not released before the connection ends; another connection of this worker may be about to.
    let sql = "select pg_try_advisory_lock($1)";
    connection.query(sql, &[&key]).await?;
    beat(connection, store, key).await
}

async fn beat(connection: &mut Connection, store: &Store, key: i64) -> Result<(), Fault> {
    let Times { lease, grace, .. } = store.times;
    let sql = "insert into workers (worker, lock, started_at, beat_at, lease_until)
        values ($1, $2, clock_timestamp(), clock_timestamp(), clock_timestamp() + $3 * interval '1 millisecond')
        on conflict (worker) do update set beat_at = excluded.beat_at, lease_until = excluded.lease_until
        returning now_ms()";
    let before = Instant::now();
    let row = connection.query_opt(sql, &[&store.worker, &key, &ms(lease)]).await?;
    if let Some(row) = row {
        *lock(&store.clock) = Some((before, row.try_get(0)?));
    }
    let sql = format!(
        "update workers set lease_until = clock_timestamp() + $2 * interval '1 millisecond'
         where worker <> $1 and lease_until > clock_timestamp() + $2 * interval '1 millisecond' and not {HAS_LOCK}"
    );
    connection.execute(&sql, &[&store.worker, &ms(grace)]).await?;
    let sql = "delete from workers where lease_until < clock_timestamp() - interval '1 hour'";
    connection.execute(sql, &[]).await?;
    Ok(())
}

/// How the lease of another worker stands. That of a worker without a connection is shortened to the grace.
pub(crate) async fn lease_of(connection: &mut Connection, worker: &str, grace: Duration) -> Result<Lease, Fault> {
    let sql = format!(
        "update workers set lease_until = least(lease_until, clock_timestamp() + $2 * interval '1 millisecond')
         where worker = $1 and not {HAS_LOCK}"
    );
    let is_disconnected = connection.execute(&sql, &[&worker, &ms(grace)]).await? == 1;
    let sql = "select 1 from workers where worker = $1 and lease_until > clock_timestamp()";
    let is_over = connection.query_opt(sql, &[&worker]).await?.is_none();
    Ok(match (is_over, is_disconnected) {
        (true, _) => Lease::Over,
        (false, true) => Lease::Disconnected,
        (false, false) => Lease::Held,
    })
}

/// Beats and looks for news until the store is gone.
async fn attend(store: Weak<Store>, times: Times, key: i64, mut connection: Option<Connection>) {
    let mut last_beat = Instant::now();
    loop {
        tokio::time::sleep(POLL).await;
        let Some(store) = store.upgrade() else { return };
        let is_due = last_beat.elapsed() >= times.beat;
        match round(&store, key, connection.take(), is_due).await {
            Ok(open) => {
                connection = Some(open);
                if is_due {
                    last_beat = Instant::now();
                }
            }
            // The next round connects again, and beats.
            Err(_) => last_beat = Instant::now().checked_sub(times.beat).unwrap_or(last_beat),
        }
    }
}

async fn round(store: &Store, key: i64, open: Option<Connection>, is_due: bool) -> Result<Connection, Fault> {
    let mut connection = match open.filter(|connection| !connection.client.is_closed()) {
        Some(connection) => connection,
        None => {
            let mut connection = store.link.connect().await?;
            enlist(&mut connection, store, key).await?;
            connection
        }
    };
    if is_due {
        beat(&mut connection, store, key).await?;
    }
    let unreleased = std::mem::take(&mut *lock(&store.unreleased));
    for (number, session) in &unreleased {
        if let Err(fault) = store::release(&mut connection, *number, *session).await {
            lock(&store.unreleased).extend(unreleased);
            return Err(fault);
        }
    }
    count_signals(&mut connection, store).await?;
    Ok(connection)
}

/// Counts the signals of all runs here in one statement. A count, because numbers do not become visible in their order.
async fn count_signals(connection: &mut Connection, store: &Store) -> Result<(), Fault> {
    let runs: Vec<i64> = lock(&store.held).keys().copied().collect();
    if runs.is_empty() {
        return Ok(());
    }
    let rows = connection.query("select run, count(*) from signals where run = any($1) group by run", &[&runs]).await?;
    let mut held = lock(&store.held);
    for row in rows {
        if let Some(hold) = held.get_mut(&row.try_get(0)?) {
            hold.signals = row.try_get(1)?;
        }
    }
    Ok(())
}

/// Ends the lease, if the database answers at once.
pub(crate) fn leave(store: &mut Store) {
    if !*store.registered.get_mut() {
        return;
    }
    let (link, worker) = (Arc::clone(&store.link), store.worker.clone());
    let ending = async move {
        let sql = "update workers set lease_until = clock_timestamp() where worker = $1";
        attempt!(link.attempts_for(Duration::from_secs(1)); |connection| connection.execute(sql, &[&worker]));
        Ok::<(), Error>(())
    };
    // The lease ends by itself otherwise.
    if crate::link::Link::is_own_thread() {
        drop(store.link.spawn(ending));
    } else {
        let _ = store.link.wait(ending);
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
