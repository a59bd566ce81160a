//! The runtime on which a command waits, and whether this machine has the threads and file descriptors for it.

use crate::problem::Problem;

/// How long threads that still do something have when everything else is done.
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(5);

/// A runtime for whatever has to wait for several things at once.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    descriptors()?;
    threads()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // One for each process that is under way, and for each that waits for its turn: with too few, layers would hold all of
        // them and wait for the steps within.
        .max_blocking_threads(4096)
        .enable_all()
        .build()
        .map(|runtime| {
            let done = runtime.block_on(work);
            // All that matters has ended. A thread may still be in a read that never ends.
            runtime.shutdown_timeout(SHUTDOWN);
            done
        })
        .map_err(|e| Problem::environment(format!("no threads can be started: {e}")))
}

/// The file descriptors that a runtime takes at its start, and a few for the first step.
const DESCRIPTORS: usize = 16;

/// Makes sure that there are enough file descriptors: what lies below the runtime panics where it gets none.
pub(crate) fn descriptors() -> Result<(), Problem> {
    // Pipes need no file that this user may read: the program itself need not be one.
    let opened: Result<Vec<_>, std::io::Error> = (0..DESCRIPTORS / 2).map(|_| std::io::pipe()).collect();
    opened.map(drop).map_err(|e| {
        Problem::environment(format!("there are too few file descriptors: {e}"))
            .hint("allow more of them: `ulimit -n 256`")
    })
}

/// The threads that a run needs: two of the runtime, one of the journal, and one for the work of a step.
const THREADS: usize = 4;

/// Makes sure that there can be enough threads.
fn threads() -> Result<(), Problem> {
    let start = |_| std::thread::Builder::new().spawn(std::thread::park);
    let started: Vec<_> = (0..THREADS).map(start).collect();
    let mut refused = None;
    for thread in started {
        match thread {
            Ok(thread) => {
                thread.thread().unpark();
                // It does nothing that could panic.
                let _ = thread.join();
            }
            Err(error) => refused = Some(error),
        }
    }
    let no_threads =
        |e| Problem::environment(format!("no threads can be started: {e}")).hint("allow more of them: `ulimit -u`");
    refused.map_or(Ok(()), |error| Err(no_threads(error)))
}
