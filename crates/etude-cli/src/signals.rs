//! Handling of Ctrl-C and other stop signals.
//!
//! The first one cancels and still runs the destructor, the second one kills. A program that does not end then is ended a
//! little later, whatever it waits for; a third signal ends it at once.

mod unix;

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use etude_runtime::driver::Stop;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::problem::Problem;

/// Time for the program to end after the second signal: longer than children have between `SIGTERM` and `SIGKILL`.
const LAST_GRACE: Duration = Duration::from_secs(8);

/// The same time for a program that only follows another process, which at most waits for a database or a server.
const GRACE_TO_FOLLOW: Duration = Duration::from_secs(1);

/// Maximum time to print the last message, since stderr may be blocked.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A receiver of signals.
struct Listener {
    sender: watch::Sender<Stop>,
    /// Number of signals so far, an initial stop included.
    count: u32,
    /// Time to end after the second signal.
    grace: Duration,
}

static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// Result of installing the signal handlers, with the reason of a failure.
static RECEIVING: OnceLock<Result<(), String>> = OnceLock::new();

/// Listens for signals from now on; the receiver gets the requested stops.
///
/// # Errors
/// The operating system refuses the signal handlers.
pub(crate) fn listen() -> Result<watch::Receiver<Stop>, Problem> {
    caught(listen_after(Stop::No))
}

/// Like [`listen`], for a program that runs nothing itself: after the second signal it ends soon, even during an outage of the
/// database or the server.
///
/// # Errors
/// The operating system refuses the signal handlers.
pub(crate) fn listen_to_follow() -> Result<watch::Receiver<Stop>, Problem> {
    caught(listen_for(Stop::No, GRACE_TO_FOLLOW))
}

fn caught(listening: io::Result<watch::Receiver<Stop>>) -> Result<watch::Receiver<Stop>, Problem> {
    listening.map_err(|error| Problem::environment(format!("cannot handle signals: {error}")))
}

/// Like [`listen`], after an earlier stop: after a cancellation the next signal is the second one.
///
/// # Errors
/// The operating system refuses the signal handlers.
pub(crate) fn listen_after(already: Stop) -> io::Result<watch::Receiver<Stop>> {
    listen_for(already, LAST_GRACE)
}

fn listen_for(already: Stop, grace: Duration) -> io::Result<watch::Receiver<Stop>> {
    RECEIVING.get_or_init(|| receive().map_err(|error| error.to_string())).clone().map_err(io::Error::other)?;
    let count = u32::from(already != Stop::No);
    let (sender, receiver) = watch::channel(already);
    listeners().push(Listener { sender, count, grace });
    Ok(receiver)
}

fn listeners() -> MutexGuard<'static, Vec<Listener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives signals on a separate thread that nothing else can block: all others may wait for a pipe or a dead network disk. The
/// handlers are installed here, so that a run does not wait for that thread to begin.
fn receive() -> io::Result<()> {
    let (give, given) = mpsc::channel::<(Runtime, unix::Signals)>();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok((runtime, mut signals)) = given.recv() else { return };
        runtime.block_on(async {
            loop {
                received(signals.next().await);
            }
        });
    })?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _entered = runtime.enter();
        unix::Signals::new()
    };
    match signals {
        Ok(signals) => give.send((runtime, signals)).map_err(|_| io::Error::other("the thread for signals ended")),
        Err(error) => {
            // Another runtime may be around this one, which must not wait.
            runtime.shutdown_background();
            Err(error)
        }
    }
}

fn received(name: &'static str) {
    let mut listeners = listeners();
    listeners.retain(|listener| !listener.sender.is_closed());
    if listeners.is_empty() {
        // Remaining work cannot be cancelled any more.
        end(format!("ended by {name}"));
    }
    let (mut count, mut grace) = (0, Duration::ZERO);
    for listener in listeners.iter_mut() {
        listener.count += 1;
        (count, grace) = (count.max(listener.count), grace.max(listener.grace));
        let stop = match listener.count {
            1 => Stop::Cancel(format!("cancelled by {name}")),
            _ => Stop::Kill(format!("killed by a second {name}")),
        };
        listener.sender.send_replace(stop);
    }
    drop(listeners);
    match count {
        0 | 1 => {}
        2 => {
            let late = move || {
                thread::sleep(grace);
                end(format!("ended {} s after a second {name}: a task did not stop", grace.as_secs()));
            };
            if thread::Builder::new().spawn(late).is_err() {
                end(format!("ended by a second {name}"));
            }
        }
        _ => end(format!("ended by a third {name}")),
    }
}

/// Ends the program. The run can be resumed, which also ends processes that its steps left behind.
fn end(why: String) -> ! {
    let (said, is_said) = mpsc::channel();
    let say = move || {
        crate::render::say!("{why}");
        let _ = said.send(());
    };
    if thread::Builder::new().spawn(say).is_ok() {
        let _ = is_said.recv_timeout(LAST_WORDS);
    }
    std::process::exit(Exit::Interrupted as i32)
}
