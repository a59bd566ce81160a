//! Cancellation of running processes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use etude_core::outcome::Stderr;

use super::os::Alarm;

/// Cancels the processes that were started with it. Clones are the same handle; one handle may serve many processes.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    /// The alarm of the running processes, which own it. A handle may outlive its process for long, and thousands of handles
    /// must not hold a file descriptor each.
    alarm: Mutex<Weak<Alarm>>,
}

/// The process was cancelled, and everything it had started is gone. Holds the stderr of the process, whose last lines may
/// give the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled(pub Stderr);

impl Cancel {
    /// A handle without processes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the cancellation. Does not wait, cannot fail, and may be called from any thread, any number of times.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        let alarm = self.0.alarm.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(alarm) = alarm {
            alarm.ring();
        }
    }

    /// True after [`Cancel::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// The alarm, whose descriptor becomes readable on cancellation and stays so. The caller must check
    /// [`Cancel::is_cancelled`] once after this call: an earlier cancellation does not ring. The descriptor is closed when the
    /// last process drops the alarm.
    pub(super) fn alarm(&self) -> io::Result<Arc<Alarm>> {
        let mut current = self.0.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(alarm) = current.upgrade() {
            return Ok(alarm);
        }
        let alarm = Arc::new(Alarm::new()?);
        *current = Arc::downgrade(&alarm);
        Ok(alarm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clone_sees_the_cancellation() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(!clone.is_cancelled());
        cancel.cancel();
        cancel.cancel();
        assert!(clone.is_cancelled());
    }

    /// A handle keeps no descriptor after its process has ended: a fan-out keeps one handle per element until its end is
    /// recorded.
    #[test]
    fn a_handle_keeps_no_descriptor_after_its_process() {
        let cancel = Cancel::new();
        let alarm = cancel.alarm().expect("there is a descriptor");
        let second = cancel.alarm().expect("the same one");
        assert!(Arc::ptr_eq(&alarm, &second));
        let weak = Arc::downgrade(&alarm);
        drop((alarm, second));
        assert!(weak.upgrade().is_none());
        cancel.cancel();
    }
}
