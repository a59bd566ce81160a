//! Async runtime of commands, with a check for enough threads and file descriptors.

use tokio::runtime::{Builder, Runtime};

use crate::problem::Problem;

/// Maximum time for remaining threads to finish after all other work.
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(5);

/// Runs a future on a multi-threaded runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    descriptors()?;
    let runtime = start()?;
    let done = runtime.block_on(work);
    // All relevant work has ended, but a thread may still be in a read that never returns.
    runtime.shutdown_timeout(SHUTDOWN);
    Ok(done)
}

/// Number of threads without which the runtime panics: its own two, and one for the work of a step.
const THREADS: usize = 3;

/// Starts the runtime with the thread of the first step, after a check that enough threads can be started.
fn start() -> Result<Runtime, Problem> {
    let cannot = |e| {
        Problem::environment(format!("cannot start threads: {e}"))
            .hint("raise the limit: `ulimit -u` for processes, `ulimit -v` for memory")
    };
    let started: Vec<_> = (0..THREADS).map(|_| std::thread::Builder::new().spawn(std::thread::park)).collect();
    // All of them wake up before the first one is waited for.
    started.iter().flatten().for_each(|thread| thread.thread().unpark());
    // The threads do nothing that could panic.
    let ended = started.into_iter().try_for_each(|thread| thread.map(|thread| drop(thread.join())));
    ended.map_err(cannot)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        // One for each active process, and for each that waits for its permit: with too few, middleware would hold all of
        // them and wait for the steps within.
        .max_blocking_threads(4096)
        .enable_all()
        .build()
        .map_err(cannot)?;
    // Its thread waits for the first step, which then begins at once.
    runtime.spawn_blocking(|| {});
    Ok(runtime)
}

/// Number of file descriptors for the start of a runtime, and a few for the first step.
const DESCRIPTORS: usize = 16;

/// Checks that there are enough file descriptors: libraries below the runtime panic without them. Mostly a list of the open ones
/// shows it; where it does not, opening some has the error to report.
pub(crate) fn descriptors() -> Result<(), Problem> {
    if etude_process::are_descriptors_free(DESCRIPTORS as u64) {
        return Ok(());
    }
    // Pipes need no readable file; the program itself may be unreadable for this user.
    let opened: Result<Vec<_>, std::io::Error> = (0..DESCRIPTORS / 2).map(|_| std::io::pipe()).collect();
    opened.map(drop).map_err(|e| {
        Problem::environment(format!("the limit of open files is too low: {e}"))
            .hint("raise the limit: `ulimit -n 256`")
    })
}
