//! What the threads of the model's process share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_core::model::Request;

use super::Ended;
use crate::protocol::{Reply, Status};
use crate::queue::Queue;

/// A call that waits or is under way.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) reply: Sender<Reply>,
    pub(super) given_up: Arc<AtomicBool>,
}

impl Job {
    /// True if no one waits for the answer any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

pub(super) struct Shared {
    model: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: Queue<Job>,
    is_working: bool,
    is_loaded: bool,
    is_stopping: bool,
    is_ending: bool,
}

impl Shared {
    pub(super) fn new(model: String) -> Self {
        let state =
            State { queue: Queue::new(), is_working: false, is_loaded: false, is_stopping: false, is_ending: false };
        Self { model, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a call; false if the process is about to end.
    pub(super) fn push(&self, client: String, job: Job) -> bool {
        let mut state = self.lock();
        if state.is_ending || state.is_stopping {
            return false;
        }
        state.queue.push(client, job);
        self.changed.notify_all();
        true
    }

    /// Answers calls with `answer` until none has come for as long as `idle`, or until it is stopped.
    pub(super) fn work(&self, idle: Duration, mut answer: impl FnMut(&Job) -> Reply) -> Ended {
        loop {
            let job = match self.next(idle) {
                Ok(job) => job,
                Err(ended) => return ended,
            };
            if !job.is_given_up() {
                // Anyone who has gone does not take the answer, which is no one's fault.
                drop(job.reply.send(answer(&job)));
            }
            self.lock().is_working = false;
        }
    }

    fn next(&self, idle: Duration) -> Result<Job, Ended> {
        let deadline = Instant::now().checked_add(idle);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop() {
                state.is_working = true;
                return Ok(job);
            }
            if state.is_stopping {
                state.is_ending = true;
                return Err(Ended::Stopped);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.is_ending = true;
                return Err(Ended::Idle);
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes no more calls, and ends after those that wait.
    pub(super) fn stop(&self) {
        self.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Takes no more calls and forgets those that wait.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_ending = true;
        state.queue = Queue::new();
    }

    pub(super) fn set_loaded(&self) {
        self.lock().is_loaded = true;
    }

    pub(super) fn is_ending(&self) -> bool {
        self.lock().is_ending
    }

    pub(super) fn status(&self) -> Status {
        let state = self.lock();
        Status {
            model: self.model.clone(),
            process: std::process::id(),
            is_loaded: state.is_loaded,
            calls: state.queue.iter().filter(|job| !job.is_given_up()).count() + usize::from(state.is_working),
        }
    }

    /// What is behind the lock is whole after every statement, a panic or not.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
