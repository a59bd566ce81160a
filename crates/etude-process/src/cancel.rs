//! Giving up a running process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use etude_core::outcome::Stderr;

use super::os::Alarm;

/// Asks the processes that were started with it to end. Clones are the same handle; one may serve many processes.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    /// The alarm of the processes that run now. It is theirs: a handle may outlive its process for long, and thousands of them
    /// must not hold a file descriptor each.
    alarm: Mutex<Weak<Alarm>>,
}

/// The process was given up as asked, and everything it had started is gone. What it had printed on stderr is here: its last
/// words may say why.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled(pub Stderr);

impl Cancel {
    /// A handle that no one has used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to end. Does not wait, cannot fail, may be called from any thread and any number of times.
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

    /// What becomes readable on cancellation, for good. The caller asks [`Cancel::is_cancelled`] once after this call: a
    /// cancellation that came before does not ring. The descriptor is closed when the last process drops it.
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

    /// A fan-out keeps a handle per element until its end is recorded.
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
