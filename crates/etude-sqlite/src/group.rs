//! Writes of many runs at once: one thread makes them, several in one transaction.
//!
//! A transaction costs its begin, its commit and its sync, whatever it writes, and the waiter for one keeps a thread. A run that is
//! alone is better served by writing itself; where many are at work, none of them is held up by a moment's wait for others.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use etude_core::digest::Digest;
use etude_runtime::engine::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::pool::{Pool, lock};
use crate::syncer::Committed;

/// With fewer sessions than this in a journal, each writes for itself.
pub(crate) const MANY_RUNS: usize = 8;

/// So long a write waits for others. In strict mode it need not: meanwhile those of before are brought to the disk.
const GATHER: Duration = Duration::from_millis(1);

/// Number that need not wait.
const ENOUGH: usize = 64;

/// The statements of one write; false if the run is not the writer's. It is not dropped before the transaction is over: with it may
/// go the last of what a journal is.
type Work = dyn Fn(&Connection) -> rusqlite::Result<bool> + Send;

/// One write, and who waits for it.
struct Job {
    work: Box<Work>,
    /// What its rows refer to.
    blobs: Vec<Digest>,
    done: oneshot::Sender<Result<bool, Error>>,
}

/// The writes of a journal that wait for one another.
pub(crate) struct Group {
    shared: Arc<Shared>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

struct Shared {
    pool: Arc<Pool>,
    committed: Committed,
    queue: Mutex<Queue>,
    /// There is something to write, or it is time to stop.
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Job>,
    has_thread: bool,
    /// The thread waits for the first one of a group.
    is_idle: bool,
    is_stopping: bool,
}

impl Group {
    pub(crate) fn new(pool: Arc<Pool>, committed: Committed) -> Self {
        Self { shared: Arc::new(Shared { pool, committed, queue: Mutex::default(), work: Condvar::new() }) }
    }

    /// Does `work`, which refers to `blobs`, in one transaction with that of others; what it says, once it is as safe as an append
    /// is. Where `work` fails, that of the others is undone as well.
    ///
    /// # Errors
    /// The transaction failed.
    pub(crate) async fn write(
        &self,
        blobs: Vec<Digest>,
        work: impl Fn(&Connection) -> rusqlite::Result<bool> + Send + 'static,
    ) -> Result<bool, Error> {
        let (done, written) = oneshot::channel();
        self.put(Job { work: Box::new(work), blobs, done });
        // A thread that panicked has said why; whether it wrote is not known.
        let why = || "the thread that writes it has broken down".to_owned();
        let path = || self.shared.pool.path().display().to_string();
        written.await.unwrap_or_else(|_| Err(Error::Store { path: path(), why: why() }))
    }

    fn put(&self, job: Job) {
        let mut queue = lock(&self.shared.queue);
        queue.waiting.push(job);
        if queue.has_thread {
            if queue.is_idle || queue.waiting.len() >= ENOUGH {
                self.shared.work.notify_one();
            }
            return;
        }
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new().name("journal-write".to_owned()).spawn(move || shared.run()) {
            Ok(_) => queue.has_thread = true,
            // As if there were few runs.
            Err(_) => {
                let alone = std::mem::take(&mut queue.waiting);
                drop(queue);
                self.shared.finish(alone);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_stopping = true;
        self.shared.work.notify_one();
    }
}

impl Shared {
    /// The thread's whole life.
    fn run(&self) {
        // A thread that breaks down lets no one wait for ever, and the next write has another one.
        let _end = End(self);
        while let Some(group) = self.next() {
            self.finish(group);
        }
    }

    /// Writes a group and tells all that wait for it.
    fn finish(&self, group: Vec<Job>) {
        let written = self.write(&group);
        for (at, job) in group.into_iter().enumerate() {
            // Anyone who does not wait any more has given the run up.
            let _ = job.done.send(written.as_ref().map(|accepted| accepted[at]).map_err(Clone::clone));
        }
    }

    /// Waits for something to write. `None` when nothing will ever come.
    fn next(&self) -> Option<Vec<Job>> {
        let mut queue = lock(&self.queue);
        while queue.waiting.is_empty() {
            if queue.is_stopping {
                return None;
            }
            queue.is_idle = true;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.is_idle = false;
        }
        if !self.committed.is_strict() {
            let wait = |queue: &mut Queue| queue.waiting.len() < ENOUGH && !queue.is_stopping;
            queue = self.work.wait_timeout_while(queue, GATHER, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(std::mem::take(&mut queue.waiting))
    }

    /// Does them in one transaction: what each says.
    fn write(&self, group: &[Job]) -> Result<Vec<bool>, Error> {
        let accepted = self.pool.transaction(|connection| group.iter().map(|job| (job.work)(connection)).collect())?;
        let blobs: Vec<_> = group.iter().flat_map(|job| job.blobs.iter().copied()).collect();
        self.committed.notify(&blobs)?;
        Ok(accepted)
    }
}

/// The end of the thread, whatever it dies of.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        (queue.has_thread, queue.is_idle) = (false, false);
        let left = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
