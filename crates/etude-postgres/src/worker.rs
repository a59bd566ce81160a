//! The engine as a worker: its heartbeat, its connection, and the news for its runs.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use etude_runtime::engine::{Error, Profile};

use crate::error::{Answer, Fault, answer};
use crate::lease::{beat, enlist};
use crate::link::{Connection, attempt, lock};
use crate::store::Store;
use crate::wake;

/// Interval at which signals for the runs here are counted.
const SIGNALS: Duration = Duration::from_millis(50);

/// Maximum wait for the reply to a heartbeat; after that the connection counts as lost.
const REPLY: Duration = Duration::from_secs(5);

/// Pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_millis(500);

/// Interval at which this process looks at its own clock.
const CLOCK: Duration = Duration::from_millis(100);

/// Times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Length of a lease after a beat.
    pub lease: Duration,
    /// Interval between two beats.
    pub beat: Duration,
    /// Grace period: the remainder of a lease once the worker's connection is gone.
    pub grace: Duration,
    /// Interval between two looks at the queue.
    pub poll: Duration,
    /// Maximum time for which effects in progress continue while the database is down.
    pub patience: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            beat: Duration::from_secs(3),
            grace: Duration::from_secs(3),
            poll: Duration::from_millis(500),
            patience: Duration::from_secs(60),
        }
    }
}

/// Profile of this process for others.
#[derive(Debug, Default)]
pub(crate) struct Enrolment {
    pub(crate) profile: Option<Profile>,
    pub(crate) is_draining: bool,
    /// True to beat in the next round, regardless of the time.
    pub(crate) is_changed: bool,
}

/// The name of this host.
pub(crate) fn host() -> String {
    whoami::hostname().unwrap_or_else(|_| "unknown".to_owned())
}

/// A name for this engine: the host, the process, four random characters.
pub(crate) fn name() -> String {
    let suffix = etude_runtime::run_id::new();
    format!("{}-{}-{}", host(), std::process::id(), &suffix[suffix.len() - 4..])
}

/// Registers this engine as a worker, before it has its first run.
pub(crate) async fn register(store: &Arc<Store>) -> Result<(), Error> {
    let mut registered = store.registered.lock().await;
    if *registered {
        return Ok(());
    }
    let mut attempts = store.link.attempts();
    let (loan, key) = loop {
        let mut loan = attempts.next().await?;
        match enlist(&mut loan.connection, store).await {
            Ok(key) => break (loan, key),
            Err(fault) => attempts.failed(loan, fault).await?,
        }
    };
    *registered = true;
    store.link.start(attend(Arc::downgrade(store), Some((loan.into_connection(), key))));
    store.link.start(watch_clock(Arc::downgrade(store)));
    Ok(())
}

/// Looks at the clock until the store is gone: a lease must also end while nothing else happens here.
async fn watch_clock(store: Weak<Store>) {
    while let Some(store) = store.upgrade() {
        store.pulse.look();
        drop(store);
        tokio::time::sleep(CLOCK).await;
    }
}

/// Times of the next tasks of [`attend`].
struct Due {
    beat: Instant,
    wake: Instant,
}

/// Beats and looks for news until the store is gone. The connection comes with the key of its lock.
async fn attend(store: Weak<Store>, mut connection: Option<(Connection, i64)>) {
    let mut due = Due { beat: Instant::now(), wake: Instant::now() };
    loop {
        tokio::time::sleep(SIGNALS).await;
        let Some(store) = store.upgrade() else { return };
        if let Some((open, key)) = connection.take().filter(|(connection, _)| !connection.is_closed()) {
            match tokio::time::timeout(REPLY, round(&store, key, open, &mut due)).await {
                Ok(Ok(open)) => {
                    connection = Some((open, key));
                    continue;
                }
                // The other connections of this process are equally suspect.
                Ok(Err(_)) | Err(_) => store.link.give_up(),
            }
        }
        store.pulse.broken();
        connection = connected(&store).await;
        if connection.is_none() {
            drop(store);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Opens another connection with the lock and a heartbeat, if the database answers.
async fn connected(store: &Store) -> Option<(Connection, i64)> {
    let attempt = async {
        let mut connection = store.link.connect().await?;
        let key = enlist(&mut connection, store).await?;
        Ok::<_, Fault>((connection, key))
    };
    match tokio::time::timeout(REPLY, attempt).await {
        Ok(Ok(connected)) => Some(connected),
        Ok(Err(fault)) => {
            store.pulse.not_connected(answer(&fault));
            None
        }
        Err(_) => {
            store.pulse.not_connected(Answer::Silence);
            None
        }
    }
}

async fn round(store: &Store, key: i64, mut connection: Connection, due: &mut Due) -> Result<Connection, Fault> {
    let is_changed = std::mem::take(&mut lock(&store.profile).is_changed);
    if is_changed || due.beat.elapsed() >= store.times.beat {
        beat(&mut connection, store, key).await?;
        store.release_orphans(&mut connection).await?;
        due.beat = Instant::now();
    }
    let unreleased = std::mem::take(&mut *lock(&store.unreleased));
    for of in &unreleased {
        if let Err(fault) = wake::release(&mut connection, *of, store.is_draining()).await {
            lock(&store.unreleased).extend(unreleased);
            return Err(fault);
        }
    }
    if due.wake.elapsed() >= store.times.poll {
        wake::wake(&mut connection).await?;
        due.wake = Instant::now();
    }
    count_signals(&mut connection, store).await?;
    Ok(connection)
}

/// Counts the signals of all runs here in one statement. A count, because numbers do not become visible in their order
/// (K-39).
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
    if !*store.registered.get_mut() || !store.pulse.is_connected() {
        // The lease ends by itself.
        return;
    }
    let (link, worker) = (Arc::clone(&store.link), store.worker.clone());
    let ending = async move {
        let sql = "delete from workers where worker = $1";
        attempt!(link.attempts_for(Duration::from_secs(1)); |connection| connection.execute(sql, &[&worker]));
        Ok::<(), Error>(())
    };
    if crate::link::Link::is_own_thread() {
        drop(store.link.spawn(ending));
    } else {
        let _ = store.link.wait(async { tokio::time::timeout(Duration::from_secs(2), ending).await.map(drop) });
    }
}
