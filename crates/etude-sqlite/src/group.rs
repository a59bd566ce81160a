//! Writes of many runs together: one thread makes them, several in one transaction.
//!
//! A transaction costs its begin, its commit and its sync, whatever it writes, and a waiting session keeps a thread. A single run
//! is better served by writing itself. Among many runs, a moment's wait for others delays none of them.

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

/// Number of sessions in a journal from which on they write together.
pub(crate) const MANY_RUNS: usize = 8;

/// Maximum wait of a write for others. Strict mode needs none: earlier writes are synced meanwhile.
const GATHER: Duration = Duration::from_millis(1);

/// Number of writes that are made without a wait.
const ENOUGH: usize = 64;

/// The statements of one write; false if the run is not the writer's. The closure is not dropped before the end of the
/// transaction, because it may hold the last reference to parts of the journal.
type Work = dyn Fn(&Connection) -> rusqlite::Result<bool> + Send;

/// One write, and the channel to its waiting session.
struct Job {
    work: Box<Work>,
    /// The blobs that its rows refer to.
    blobs: Vec<Digest>,
    done: oneshot::Sender<Result<bool, Error>>,
}

/// The group of writes that wait for each other.
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
    /// Notified when there is something to write, or when the thread must stop.
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Job>,
    has_thread: bool,
    /// True while the thread waits for the first write of a group.
    is_idle: bool,
    is_stopping: bool,
}

impl Group {
    pub(crate) fn new(pool: Arc<Pool>, committed: Committed) -> Self {
        Self { shared: Arc::new(Shared { pool, committed, queue: Mutex::default(), work: Condvar::new() }) }
    }

    /// Runs `work`, which refers to `blobs`, in one transaction with the work of others. Returns its result once it is as safe as
    /// an append. If `work` fails, the work of the others is undone as well.
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
        // A panic of the thread has been printed; it is unknown if the thread wrote.
        let why = || "internal error: the writer thread panicked".to_owned();
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
            // Without the thread, the caller makes the writes itself.
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
    /// The main function of the thread.
    fn run(&self) {
        // If the thread panics, waiting writes get an error, and the next write starts another thread.
        let _end = End(self);
        while let Some(group) = self.next() {
            self.finish(group);
        }
    }

    /// Writes a group and notifies all that wait for it.
    fn finish(&self, group: Vec<Job>) {
        let written = self.write(&group);
        for (at, job) in group.into_iter().enumerate() {
            // A receiver that is gone has given up its run.
            let _ = job.done.send(written.as_ref().map(|accepted| accepted[at]).map_err(Clone::clone));
        }
    }

    /// Waits for something to write. `None` once the group stops.
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

    /// Executes the jobs in one transaction. Returns their results.
    fn write(&self, group: &[Job]) -> Result<Vec<bool>, Error> {
        let accepted = self.pool.transaction(|connection| group.iter().map(|job| (job.work)(connection)).collect())?;
        let blobs: Vec<_> = group.iter().flat_map(|job| job.blobs.iter().copied()).collect();
        self.committed.notify(&blobs)?;
        Ok(accepted)
    }
}

/// Guard that handles the end of the thread, including a panic.
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
