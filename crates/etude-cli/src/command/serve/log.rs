//! Log of a server on stderr, written by a separate thread, so that an unread stderr blocks no request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use etude_server::{Event, LogLine};
use serde_json::{Value, json};

/// Maximum number of lines that wait for stderr; further ones are dropped and counted.
const MAX_LINES: usize = 1_024;

/// Maximum time to write the last lines at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A line of the log.
enum Line {
    Request(LogLine),
    Other(Value),
}

/// Sender of lines to the log thread.
#[derive(Debug, Clone)]
pub(super) struct RequestLog {
    lines: SyncSender<Line>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Number of lines not written yet.
    waiting: AtomicUsize,
    /// Number of lines dropped since the last line that reports them.
    dropped: AtomicU64,
}

impl RequestLog {
    /// Starts the thread. `write` gets each line.
    pub(super) fn start(write: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MAX_LINES);
        let counts = Arc::new(Counts::default());
        let of = Arc::clone(&counts);
        std::thread::Builder::new().name("request-log".to_owned()).spawn(move || follow(&waiting, &of, write))?;
        Ok(Self { lines, counts })
    }

    /// Logs a request without blocking.
    pub(super) fn log(&self, line: &LogLine) {
        self.take(Line::Request(line.clone()));
    }

    /// Logs an event besides requests, without blocking like [`RequestLog::log`].
    pub(super) fn note(&self, event: &Event) {
        let mut line = event.to_json();
        line["at"] = etude_runtime::clock::rfc3339(etude_runtime::clock::now_ms()).into();
        self.take(Line::Other(line));
    }

    fn take(&self, line: Line) {
        self.counts.waiting.fetch_add(1, Ordering::SeqCst);
        if self.lines.try_send(line).is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::SeqCst);
            self.counts.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until all lines are written, for at most a second.
    pub(super) fn flush(&self) {
        let since = Instant::now();
        while self.counts.waiting.load(Ordering::SeqCst) > 0 && since.elapsed() < LAST_LINES {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn follow(lines: &Receiver<Line>, counts: &Counts, write: impl Fn(&str)) {
    while let Ok(line) = lines.recv() {
        let line = match line {
            Line::Request(line) => line.to_json(),
            Line::Other(line) => line,
        };
        write(&line.to_string());
        let dropped = counts.dropped.swap(0, Ordering::SeqCst);
        if dropped > 0 {
            write(&json!({"dropped": dropped}).to_string());
        }
        counts.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// Section 9: an unread stderr blocks no request, and dropped lines are counted.
    #[test]
    fn a_stderr_that_is_not_read_stops_nothing() {
        let (go, may_go) = channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let of = Arc::clone(&written);
        let log = RequestLog::start(move |line| {
            // Blocks until the sender is dropped.
            let _ = may_go.recv();
            of.lock().expect("no panic").push(line.to_owned());
        });
        let log = log.expect("a thread");
        let line = LogLine {
            at_ms: 0,
            request_id: "r".to_owned(),
            method: "GET".to_owned(),
            route: None,
            status: 200,
            code: None,
            token: None,
            took: std::time::Duration::from_millis(1),
        };
        (0..2 * MAX_LINES).for_each(|_| log.log(&line));
        drop(go);
        log.flush();
        let written = written.lock().expect("no panic");
        let dropped: Vec<u64> = written
            .iter()
            .filter_map(|line| line.strip_prefix("{\"dropped\":")?.strip_suffix('}')?.parse().ok())
            .collect();
        assert_eq!((written.len() - dropped.len()) as u64 + dropped.iter().sum::<u64>(), 2 * MAX_LINES as u64);
        assert!(!dropped.is_empty());
    }
}
