//! Starting the server process on demand.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::socket;

/// Time limit until a started process listens; it loads nothing before that.
const START: Duration = Duration::from_secs(15);
/// Time without a socket after which another process is started: the previous one may have been ending.
const RESTART: Duration = Duration::from_secs(2);
/// Interval between two connection attempts.
const POLL: Duration = Duration::from_millis(20);

/// The socket of the process that serves `settings`. If there is none, calls `start`, which starts the process and returns at
/// once; then waits until the process listens.
///
/// # Errors
/// The process cannot be started or does not listen, or the runtime directory is not private.
pub async fn ensure_running(
    settings: &Settings,
    start: &(dyn Fn() -> io::Result<()> + Send + Sync),
) -> io::Result<PathBuf> {
    let begun = Instant::now();
    let mut started: Option<Instant> = None;
    loop {
        match socket::connect(&settings.socket()) {
            Ok(_) => return Ok(settings.socket()),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
        if begun.elapsed() > START {
            let why = format!("it did not listen at {} within {} s", settings.socket().display(), START.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        if started.is_none_or(|at| at.elapsed() > RESTART) {
            start()?;
            started = Some(Instant::now());
        }
        tokio::time::sleep(POLL).await;
    }
}
