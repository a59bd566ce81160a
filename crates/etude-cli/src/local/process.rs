//! Starting the model's process: the same binary, apart from the run that needs it first.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;

use etude::local::{Served, Start, default_threads, environment};
use etude::private;

use crate::paths;

/// What starts the process with that number of threads.
pub(super) fn starter(threads: Option<usize>) -> Start {
    let threads = threads.unwrap_or_else(default_threads);
    Arc::new(move |served| start(served, threads))
}

fn start(served: &Served, threads: usize) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["model", "serve", "--id", &served.id, "--weights"])
        .arg(&served.weights)
        .arg("--runtime-dir")
        .arg(&served.runtime_dir)
        .args(["--context-tokens", &served.context_tokens.to_string()])
        .args(["--idle-ms", &served.idle.as_millis().to_string()])
        // It outlives the run, so it holds none of the user's keys, and no directory of theirs.
        .env_clear()
        .envs(environment(threads))
        .current_dir(served.weights.parent().unwrap_or(&served.runtime_dir))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log().map_or_else(|_| Stdio::null(), Stdio::from));
    #[cfg(unix)]
    unix::detach(&mut command);
    #[cfg(windows)]
    windows::detach(&mut command);
    // No one waits for it: it ends by itself when no one asks. It is for all runs, so this one does not end it.
    command.spawn().map(|child| etude::runtime::process::exempt(&child))
}

/// What it says last, for anyone who wonders why it ended.
fn log() -> io::Result<File> {
    let dir = paths::state_dir().map_err(io::Error::other)?;
    private::create_dir_all(&dir)?;
    private::create(&dir.join("local-model.log"))
}
