//! News of the journal: one query serves all waiting requests and streams.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_runtime::engine::{Engine, Error};
use tokio::sync::watch;

use super::{Followed, Stories};

use crate::context::Context;

/// Interval of queries for news, with one query for all runs.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval for a journal that reports writes, while it reports none.
const QUIET: Duration = Duration::from_secs(1);

/// Time after a reported write in which the journal is queried as often as one that reports none: the report comes before the
/// write is visible.
const AFTER_WRITE: Duration = Duration::from_secs(1);

/// Minimum pause while a request waits for a run that another process drives.
const SHORT: Duration = Duration::from_millis(2);

/// A run for whose end requests wait.
#[derive(Debug)]
pub(super) struct Awaited {
    news: watch::Sender<()>,
    since: Instant,
}

/// Queries the journal for news until the server stops. `drives` is true for a run that this process drives; `look` is called
/// with each query.
pub(crate) async fn look_for_news(
    context: Arc<Context>,
    stories: Arc<Stories>,
    drives: impl Fn(&str) -> bool + Send + Sync,
    look: impl Fn() + Send + Sync,
) {
    let mut stopping = context.stopping();
    let mut last: Option<Instant> = None;
    let mut written = Instant::now();
    loop {
        let is_whole = last.is_none_or(|last| last.elapsed() >= PAUSE);
        if is_whole {
            last = Some(Instant::now());
        }
        // Mostly there is nothing to do, which is not worth another thread.
        let is_quiet = context.engine().is_quick() && stories.is_quiet(&**context.engine());
        if !is_quiet {
            let (context, stories) = (Arc::clone(&context), Arc::clone(&stories));
            // A failing journal has no news; requests report it.
            let look = tokio::task::spawn_blocking(move || stories.look(&**context.engine(), is_whole));
            drop(look.await);
        }
        look();
        let looked = Instant::now();
        loop {
            let is_reported = context.engine().written().is_some() && written.elapsed() > AFTER_WRITE;
            let most = if is_reported && stories.is_quiet(&**context.engine()) { QUIET } else { PAUSE };
            tokio::select! {
                () = tokio::time::sleep_until((looked + pause(&stories, &drives, most)).into()) => break,
                () = stories.is_awaited.notified() => {}
                () = report(&**context.engine()) => written = Instant::now(),
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// Returns when the journal reports a write.
async fn report(engine: &dyn Engine) {
    match engine.written() {
        Some(written) => written.await,
        None => std::future::pending().await,
    }
}

/// The time until the next look; `most` if no request waits for a run of another process. It is short after a request has begun
/// to wait, and grows with the wait.
fn pause(stories: &Stories, drives: &impl Fn(&str) -> bool, most: Duration) -> Duration {
    let awaited = stories.awaited();
    let elsewhere = awaited.iter().filter(|(run, _)| !drives(run));
    elsewhere.map(|(_, run)| (run.since.elapsed() / 10).max(SHORT).min(PAUSE)).fold(most, Duration::min)
}

impl Stories {
    fn awaited(&self) -> MutexGuard<'_, BTreeMap<String, Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that changes shortly after each write to the journal, and at once when this server has driven the run to an end
    /// or a stop.
    pub(crate) fn news_of_run(&self, run_id: &str) -> watch::Receiver<()> {
        let mut awaited = self.awaited();
        let new = || Awaited { news: watch::Sender::default(), since: Instant::now() };
        let news = awaited.entry(run_id.to_owned()).or_insert_with(new).news.subscribe();
        self.is_awaited.notify_one();
        news
    }

    /// True if a look would change nothing: no process has written, the last whole look has seen everything, and no request waits.
    fn is_quiet(&self, engine: &dyn Engine) -> bool {
        let version = *self.news.borrow();
        let is_old = self.looked.load(Ordering::Relaxed) == version && engine.version().is_ok_and(|now| now == version);
        if !is_old || !self.awaited().is_empty() {
            return false;
        }
        let is_seen = |story: &Mutex<Followed>| story.lock().unwrap_or_else(PoisonError::into_inner).version == version;
        self.open_stories().iter().all(|story| is_seen(story))
    }

    /// Looks once at the journal. Each look wakes the requests that wait for runs; a whole one also wakes all streams of the
    /// journal, and advances the shared stories.
    fn look(&self, engine: &dyn Engine, is_whole: bool) -> Result<(), Error> {
        let version = engine.version()?;
        let is_new = self.looked.swap(version, Ordering::Relaxed) != version;
        // Removes runs for which no request waits.
        self.awaited().retain(|_, run| if is_new { run.news.send(()).is_ok() } else { run.news.receiver_count() > 0 });
        if !is_whole {
            return Ok(());
        }
        self.news.send_if_modified(|last| std::mem::replace(last, version) != version);
        for story in self.open_stories() {
            let mut followed = story.lock().unwrap_or_else(PoisonError::into_inner);
            // A story that was opened during the last look may not have all of it.
            if followed.version != version {
                followed.version = version;
                // On failure, only the streams of this run end.
                let _ = followed.advance(engine);
            }
        }
        Ok(())
    }

    /// Wakes the waiting requests: this server has stopped driving the run.
    pub(crate) fn note_end(&self, run_id: &str) {
        if let Some(run) = self.awaited().get(run_id) {
            // The last waiting request may have ended.
            let _ = run.news.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use etude_process::blob::FileBlobs;
    use etude_runtime::conformance::{block_on, new_run};
    use etude_runtime::memory::MemoryEngine;

    use super::*;

    /// S-41: an end in this process wakes only the requests that wait for that run; a write by another process wakes all.
    #[test]
    fn who_waits_for_a_run_is_woken_by_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false)));
        let stories = Stories::default();
        let [mut first, mut second] = ["r-1", "r-2"].map(|run| stories.news_of_run(run));
        let woken = |run: &mut watch::Receiver<()>| {
            let is_woken = run.has_changed().expect("there is a sender");
            run.mark_unchanged();
            is_woken
        };
        stories.note_end("r-1");
        stories.note_end("r-3");
        assert_eq!([woken(&mut first), woken(&mut second)], [true, false]);
        let run = new_run("r-4", 1);
        drop(block_on(engine.create(&run)).expect("created"));
        stories.look(&engine, false).expect("the engine works");
        assert_eq!([woken(&mut first), woken(&mut second)], [true, true]);
        stories.look(&engine, false).expect("the engine works");
        assert_eq!([woken(&mut first), woken(&mut second)], [false, false]);
        let mut news = stories.news.subscribe();
        stories.look(&engine, true).expect("the engine works");
        assert!(news.has_changed().expect("there is a sender"), "a short look leaves the others to the next whole one");
        news.mark_unchanged();
        // A run without waiting requests is forgotten.
        drop((first, second));
        drop(engine.claim("r-4").expect("claimed"));
        stories.look(&engine, false).expect("the engine works");
        assert!(stories.awaited.lock().expect("no panic").is_empty());
    }

    /// A look is left out only if it would change nothing.
    #[test]
    fn a_journal_is_quiet_after_a_whole_look_and_until_the_next_write() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false)));
        let stories = Stories::default();
        let write = |id: &str| {
            let run = new_run(id, 1);
            drop(block_on(engine.create(&run)).expect("created"));
        };
        write("r-1");
        assert!(!stories.is_quiet(&engine));
        stories.look(&engine, false).expect("the engine works");
        assert!(!stories.is_quiet(&engine), "a short look leaves the streams to the next whole one");
        stories.look(&engine, true).expect("the engine works");
        assert!(stories.is_quiet(&engine));
        let waiting = stories.news_of_run("r-1");
        assert!(!stories.is_quiet(&engine), "a request waits");
        drop(waiting);
        stories.look(&engine, true).expect("the engine works");
        assert!(stories.is_quiet(&engine));
        write("r-2");
        assert!(!stories.is_quiet(&engine));
    }
}
