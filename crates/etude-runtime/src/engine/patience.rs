//! Time that a reader waits for an unavailable store.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static PATIENCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs `read` with its own patience on this thread: if the engine's store is away, the reads fail after about this
/// time. Writes of a run, and reads on other threads, wait for the engine's own time.
pub fn with_patience<T>(patience: Duration, read: impl FnOnce() -> T) -> T {
    struct Before(Option<Duration>);
    impl Drop for Before {
        fn drop(&mut self) {
            PATIENCE.set(self.0);
        }
    }
    let _before = Before(PATIENCE.replace(Some(patience)));
    read()
}

/// The patience of reads on this thread, if it differs from the engine's.
pub fn patience() -> Option<Duration> {
    PATIENCE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_ends_with_its_read() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let nested = with_patience(long, || (with_patience(short, patience), patience()));
        assert_eq!((nested, patience()), ((Some(short), Some(long)), None));
    }
}
