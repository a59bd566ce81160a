//! Giving up a running process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use etude_core::outcome::Stderr;

use super::os::Alarm;

/// Asks the processes that were started with it to end. Clones are the same handle; one may serve many processes.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    /// Made when a process first waits for it: most handles never need a file descriptor.
    alarm: OnceLock<Alarm>,
}

/// The process was given up as asked, and everything it had started is gone. What it had printed on stderr is here: its last
/// words may say why.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled(pub Stderr);

impl Cancel {
    /// A handle that nobody has used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to end. Does not wait, cannot fail, may be called from any thread and any number of times.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        if let Some(alarm) = self.0.alarm.get() {
            alarm.ring();
        }
    }

    /// True after [`Cancel::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// What becomes readable on cancellation, for good. Whoever waits for it asks [`Cancel::is_cancelled`] once after
    /// this call: a cancellation that came before does not ring.
    pub(super) fn alarm(&self) -> io::Result<&Alarm> {
        if let Some(alarm) = self.0.alarm.get() {
            return Ok(alarm);
        }
        let alarm = Alarm::new()?;
        Ok(self.0.alarm.get_or_init(|| alarm))
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
}
