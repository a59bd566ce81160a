//! Connections to the database, and the runtime that drives them.
//!
//! The engine's contract is used with and without a runtime, so this crate has its own. Callers that cannot await a
//! future block their own thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use etude_runtime::engine::{Boxed, Error, patience};
use etude_runtime::sync::block_on;
pub(crate) use etude_runtime::sync::lock;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::address::Address;
pub(crate) use crate::connection::{Connection, Parameter};
use crate::error::{Fault, is_of_another_session, is_passing, store_error};
use crate::tls::{Opened, Tls};

/// Pause between two attempts while the database does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause between two attempts while other transactions block.
const SHORT_PAUSE: Duration = Duration::from_millis(5);

/// Time in which a server that accepts a connection must respond.
const GREETING: Duration = Duration::from_secs(5);

/// Number of comparisons of two connections: other clients of the pooler may hide once that it shares sessions.
const LOOKS: usize = 6;

/// Name of the runtime's threads.
const THREAD: &str = "etude-postgres";

/// Pool of connections to the database.
#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    tls: Tls,
    patience: Duration,
    runtime: Option<Runtime>,
    /// True if each transaction may have another session; unset until that is known.
    is_shared: OnceCell<bool>,
    /// True if a prepared statement was missing later: the pooler shares sessions, and the comparison missed it.
    has_lost_session: AtomicBool,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// Number of times all connections were abandoned.
    breaks: watch::Sender<u64>,
}

impl Link {
    pub(crate) fn new(address: Address, connections: usize, patience: Duration) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(THREAD)
            .enable_all()
            .build()
            .map_err(|cause| Error::Store { path: address.to_string(), why: cause.to_string() })?;
        let tls = Tls::new(address.tls()).map_err(|why| Error::Store { path: address.to_string(), why })?;
        let permits = Arc::new(Semaphore::new(connections.max(1)));
        let (is_shared, has_lost_session, idle) = Default::default();
        let (runtime, breaks) = (Some(runtime), watch::Sender::new(0));
        Ok(Self { address, tls, patience, runtime, is_shared, has_lost_session, idle, permits, breaks })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Attempts at one piece of work, within the patience of this thread.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        match patience() {
            Some(patience) => Attempts { is_impatient: true, ..self.attempts_for(patience.min(self.patience)) },
            None => self.attempts_for(self.patience),
        }
    }

    pub(crate) fn attempts_for(&self, patience: Duration) -> Attempts<'_> {
        Attempts { link: self, until: Instant::now() + patience, is_impatient: false }
    }

    /// Abandons all connections, because the heartbeat's does not answer. Statements in progress are repeated.
    pub(crate) fn give_up(&self) {
        lock(&self.idle).clear();
        self.breaks.send_modify(|breaks| *breaks += 1);
    }

    /// Opens a connection outside the pool.
    pub(crate) async fn connect(&self) -> Result<Connection, Fault> {
        tokio::time::timeout(GREETING, self.connect_now()).await.unwrap_or(Err(Fault::Silence))
    }

    async fn connect_now(&self) -> Result<Connection, Fault> {
        let (client, encryption) = self.client().await?;
        let schema = self.address.schema();
        let has_shared = *self.is_shared.get_or_try_init(|| self.has_shared(&client)).await?;
        match has_shared || self.shares_sessions() {
            true => Ok(Connection::shared(client, encryption, schema)),
            false => Connection::kept(client, encryption, schema).await,
        }
    }

    /// True if a pooler gives each transaction of this connection any free session. While another connection has a
    /// transaction, that has this connection's former session, or this connection gets another one. No setting is sent
    /// before the answer: it could reach a session of others.
    async fn has_shared(&self, client: &Client) -> Result<bool, Fault> {
        let (other, _) = self.client().await?;
        let own = session_of(client, "").await?;
        for _ in 0..LOOKS {
            if session_of(&other, "begin; ").await? == own || session_of(client, "").await? != own {
                return Ok(true);
            }
            other.batch_execute("rollback").await?;
        }
        Ok(false)
    }

    /// True if a connection has shown that each transaction may have another session.
    pub(crate) fn shares_sessions(&self) -> bool {
        self.is_shared.get() == Some(&true) || self.has_lost_session.load(Ordering::Relaxed)
    }

    /// Opens a connection without settings.
    async fn client(&self) -> Result<(Client, Option<&'static str>), tokio_postgres::Error> {
        let (client, connection, encryption) = self.open().await?;
        self.start(async move {
            // The user of the client sees the end of the connection.
            let _ = connection.await;
        });
        Ok((client, encryption))
    }

    /// Opens a connection in the client library's form.
    pub(crate) async fn open(&self) -> Result<Opened, tokio_postgres::Error> {
        self.tls.connect(self.address.config()).await
    }

    /// Runs a future on this thread, which may be a thread of another runtime.
    ///
    /// The caller may be inside a poll of a task of that runtime, which has a budget of operations for each poll. The
    /// poll does not end before this future does, so that a used-up budget would never be refilled: the future is
    /// polled without one.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let _context = self.runtime.as_ref().map(Runtime::enter);
        block_on(tokio::task::unconstrained(future))
    }

    /// Runs a future to its end, even if its caller stops waiting.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Boxed<'static, Result<T, Error>> {
        let path = self.address.to_string();
        let Some(runtime) = &self.runtime else { return Box::pin(future) };
        let task = runtime.spawn(future);
        Box::pin(async move {
            let why = "the statement was abandoned".to_owned();
            task.await.unwrap_or(Err(Error::Store { path, why }))
        })
    }

    /// Starts a background task that ends by itself.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// True on a thread of the runtime, which must not block.
    pub(crate) fn is_own_thread() -> bool {
        thread::current().name() == Some(THREAD)
    }
}

/// Process id of the session that runs a statement now, after `before`.
async fn session_of(client: &Client, before: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let messages = client.simple_query(&format!("{before}select pg_backend_pid()")).await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
        _ => None,
    }))
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Attempts at one piece of work.
#[derive(Debug)]
pub(crate) struct Attempts<'l> {
    link: &'l Link,
    until: Instant,
    /// True if a client waits: the attempt does not queue behind work that waits longer for the database.
    is_impatient: bool,
}

/// A connection on loan. It is closed unless it is returned: its state is unknown after a failure.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) connection: Connection,
    breaks: watch::Receiver<u64>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Loan {
    /// The connection, which does not return to the pool.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Returns once all connections are abandoned.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + use<> {
        let mut breaks = self.breaks.clone();
        async move {
            if breaks.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Attempts<'_> {
    /// The connection for the next attempt.
    pub(crate) async fn next(&mut self) -> Result<Loan, Error> {
        let permit = self.permit().await?;
        loop {
            let breaks = self.link.breaks.subscribe();
            let idle = lock(&self.link.idle).pop();
            if let Some(connection) = idle.filter(|connection| !connection.is_closed()) {
                return Ok(Loan { connection, breaks, _permit: permit });
            }
            match self.link.connect().await {
                Ok(connection) => return Ok(Loan { connection, breaks, _permit: permit }),
                Err(Fault::Engine(cause)) => return Err(cause),
                Err(Fault::Silence) => self.pause_after_silence().await?,
                Err(Fault::Database(cause)) => self.pause(&cause, PAUSE).await?,
            }
        }
    }

    /// Permit for a connection. While the database is away, waiting writes hold all of them.
    async fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let permit = Arc::clone(&self.link.permits).acquire_owned();
        if !self.is_impatient {
            return Ok(permit.await.ok());
        }
        match tokio::time::timeout_at(self.until.into(), permit).await {
            Ok(permit) => Ok(permit.ok()),
            Err(_) => Err(self.silence()),
        }
    }

    fn silence(&self) -> Error {
        Error::Store { path: self.link.address.to_string(), why: "the database does not respond".to_owned() }
    }

    /// Returns the connection of a successful attempt to the pool.
    pub(crate) fn succeeded(&self, loan: Loan) {
        lock(&self.link.idle).push(loan.connection);
    }

    /// Returns if another attempt makes sense.
    pub(crate) async fn failed(&mut self, loan: Loan, fault: Fault) -> Result<(), Error> {
        let is_open = !loan.connection.is_closed();
        if let Fault::Database(cause) = &fault
            && is_of_another_session(cause)
        {
            self.link.has_lost_session.store(true, Ordering::Relaxed);
            lock(&self.link.idle).clear();
        }
        drop(loan);
        match fault {
            Fault::Engine(cause) => Err(cause),
            Fault::Silence => self.pause_after_silence().await,
            Fault::Database(cause) => self.pause(&cause, if is_open { SHORT_PAUSE } else { PAUSE }).await,
        }
    }

    async fn pause_after_silence(&mut self) -> Result<(), Error> {
        if Instant::now() + SHORT_PAUSE > self.until {
            return Err(self.silence());
        }
        tokio::time::sleep(SHORT_PAUSE).await;
        Ok(())
    }

    async fn pause(&mut self, cause: &tokio_postgres::Error, pause: Duration) -> Result<(), Error> {
        if !is_passing(cause) || Instant::now() + pause > self.until {
            return Err(store_error(&self.link.address, cause));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Repeats work on a connection until it succeeds or repetition cannot help. The work must be idempotent: the reply to
/// a commit may be lost.
macro_rules! attempt {
    ($link:expr, |$connection:ident| $work:expr) => {
        $crate::link::attempt!($link.attempts(); |$connection| $work)
    };
    ($attempts:expr; |$connection:ident| $work:expr) => {{
        let mut attempts = $attempts;
        loop {
            let mut loan = attempts.next().await?;
            let given_up = loan.given_up();
            let $connection = &mut loan.connection;
            let done = tokio::select! {
                biased;
                done = async { $work.await.map_err($crate::error::Fault::from) } => done,
                () = given_up => Err($crate::error::Fault::Silence),
            };
            match done {
                Ok(value) => {
                    attempts.succeeded(loan);
                    break value;
                }
                Err(fault) => attempts.failed(loan, fault).await?,
            }
        }
    }};
}
pub(crate) use attempt;

#[cfg(test)]
mod tests {
    use etude_runtime::engine::with_patience;

    use super::*;

    /// K-23: a reader with little patience waits neither for a database that is away nor for a connection that others hold.
    #[test]
    fn a_reader_with_little_patience_is_not_kept() {
        let address = Address::parse("postgres://u@127.0.0.1:1/db").expect("an address");
        let day = Duration::from_secs(86_400);
        let link = Link::new(address, 1, day).expect("a link");
        let read = || with_patience(Duration::ZERO, || link.wait(async { link.attempts().next().await.map(drop) }));
        let refused = read().expect_err("no one listens there").to_string();
        assert!(!refused.contains("does not respond"), "{refused}");
        let _taken = Arc::clone(&link.permits).try_acquire_owned().expect("the only one");
        let kept = read().expect_err("another one has the connection").to_string();
        assert!(kept.contains("does not respond"), "{kept}");
    }
}
