//! How long a reader waits for a store that is away.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static PATIENCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Does `read` on this thread with a patience of its own: reads of an engine whose store is away fail after about this time. Writes
/// of a run, and reads elsewhere, wait as long as the engine does.
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

/// The patience of reads on this thread, if it is not that of the engine.
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
