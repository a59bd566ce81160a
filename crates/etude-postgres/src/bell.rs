//! The bell: a notification to workers that the queue has work (K-36).
//!
//! `NOTIFY` takes a lock on all commits, so it is never in a transaction that writes runs or records: a process sends
//! one notification for everything that it committed within a few milliseconds. Polling covers lost notifications.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use etude_runtime::engine::Error;
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use crate::link::attempt;
use crate::store::Store;

/// The channel of all schemas of a database; the payload is the schema.
const CHANNEL: &str = "etude";

/// Window in which commits share a notification.
const TOGETHER: Duration = Duration::from_millis(10);

/// Maximum time for sending a notification.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which a listener checks its connection.
const LOOK: Duration = Duration::from_secs(1);

/// The bell of a process.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// True if the bell neither sends nor listens, for tests.
    is_off: bool,
    rung: Arc<Notify>,
    is_due: AtomicBool,
}

impl Bell {
    pub(crate) fn new(is_off: bool) -> Self {
        Self { is_off, ..Self::default() }
    }

    /// Returns when the bell rings.
    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }
}

impl Store {
    /// Rings the bell: a queue may have work. A running process rings in the background; a process that is ending rings
    /// before it ends.
    pub(crate) async fn ring(self: &Arc<Self>) {
        if self.bell.is_off || self.bell.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let store = Arc::clone(self);
        let ringing = async move {
            tokio::time::sleep(TOGETHER).await;
            store.bell.is_due.store(false, Ordering::Relaxed);
            let schema = store.link.address().schema();
            let sql = "select pg_notify($1, $2)";
            attempt!(store.link.attempts_for(PATIENCE); |connection| connection.query(sql, &[&CHANNEL, &schema]));
            Ok::<(), Error>(())
        };
        if *self.registered.lock().await {
            self.link.start(async { drop(ringing.await) });
        } else {
            // If ringing fails, polling finds the run.
            let _ = ringing.await;
        }
    }

    /// Listens until the store is dropped.
    pub(crate) fn listen(self: &Arc<Self>) {
        // A pooler that shares sessions may give the listening session to others, so that no notification would arrive.
        if !self.bell.is_off && !self.link.shares_sessions() {
            self.link.start(attend(Arc::downgrade(self)));
        }
    }
}

async fn attend(store: Weak<Store>) {
    while let Some(store) = store.upgrade() {
        if let Ok(client) = connect(&store).await {
            drop(store);
            while !client.is_closed() {
                tokio::time::sleep(LOOK).await;
            }
        } else {
            drop(store);
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Opens a connection that only listens.
async fn connect(store: &Arc<Store>) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, mut connection, _) = store.link.open().await?;
    let (rung, schema) = (Arc::clone(&store.bell.rung), store.link.address().schema().to_owned());
    let is_there = Arc::downgrade(store);
    store.link.start(async move {
        while is_there.strong_count() > 0 {
            match tokio::time::timeout(LOOK, poll_fn(|cx| connection.poll_message(cx))).await {
                Ok(Some(Ok(AsyncMessage::Notification(notification)))) if notification.payload() == schema => {
                    rung.notify_one()
                }
                Ok(Some(Ok(_))) | Err(_) => {}
                Ok(Some(Err(_)) | None) => return,
            }
        }
    });
    client.batch_execute(&format!("listen {CHANNEL}")).await?;
    // Commits from before the connection listened are covered by one look at the queue.
    store.bell.rung.notify_one();
    Ok(client)
}
