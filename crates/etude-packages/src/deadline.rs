//! A time limit for a process: cancels it when the time is over or the caller cancels, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use etude_process::Cancel;

/// Polling interval of the caller's cancellation.
const PACE: Duration = Duration::from_millis(50);

/// A running time limit. Dropping it stops the clock.
#[derive(Debug)]
pub(crate) struct Deadline {
    cancel: Cancel,
    is_over: Arc<AtomicBool>,
    _alive: Sender<()>,
}

impl Deadline {
    /// Starts the clock. A cancellation of `outer` cancels [`Deadline::cancel`] as well.
    pub(crate) fn start(time: Duration, outer: &Cancel) -> Self {
        let (alive, ended) = channel::<()>();
        let (cancel, is_over) = (Cancel::new(), Arc::new(AtomicBool::new(false)));
        let (theirs, outer, over) = (cancel.clone(), outer.clone(), Arc::clone(&is_over));
        let until = Instant::now() + time;
        let watch = move || loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                over.store(true, Ordering::SeqCst);
            }
            if left.is_zero() || outer.is_cancelled() {
                return theirs.cancel();
            }
            if ended.recv_timeout(left.min(PACE)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        if thread::Builder::new().name("deadline".to_owned()).spawn(watch).is_err() {
            // Without a watcher, a process could run forever.
            cancel.cancel();
        }
        Self { cancel, is_over, _alive: alive }
    }

    /// The token to start the process with.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// True if the time was over before the process ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}
