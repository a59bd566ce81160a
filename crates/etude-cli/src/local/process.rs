//! Start of the model server: the same binary, as a process apart from the run that needs it first.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use etude::local::{Settings, Start, default_threads, environment};
use etude_files::private;
use etude_process::{ChildEnvironment, detached};

use crate::paths;

/// Function that starts the model server with that number of threads.
pub(super) fn starter(threads: Option<usize>) -> Start {
    Arc::new(move |served| start(served, threads))
}

/// Command line of the model server, started with `program`. Its environment contains none of the user's keys.
pub(super) fn command(
    program: impl FnOnce(PathBuf, ChildEnvironment) -> Command,
    served: &Settings,
    threads: Option<usize>,
) -> io::Result<Command> {
    let variables =
        environment(threads.unwrap_or_else(default_threads)).map(|(name, value)| (name.to_owned(), value.into()));
    let mut command = program(std::env::current_exe()?, ChildEnvironment::only(Vec::new()).with(variables));
    command
        .args(["model", "process", "--id", &served.id, "--weights"])
        .arg(&served.weights)
        .arg("--runtime-dir")
        .arg(&served.runtime_dir)
        .args(["--context-tokens", &served.context_tokens.to_string()])
        .args(["--idle-ms", &served.idle.as_millis().to_string()]);
    Ok(command)
}

fn start(served: &Settings, threads: Option<usize>) -> io::Result<()> {
    let mut command = command(detached, served, threads)?;
    command
        // The server outlives the run, so it must not hold one of the user's directories.
        .current_dir(served.weights.parent().unwrap_or(&served.runtime_dir))
        .stdout(Stdio::null())
        .stderr(log().map_or_else(|_| Stdio::null(), Stdio::from));
    // There is no waiting parent: the server ends by itself when idle. It serves all runs, so this one does not end it.
    command.spawn().map(|child| etude_process::exempt(&child))
}

/// Log file of the server, which shows why it ended.
fn log() -> io::Result<File> {
    let dir = paths::state_dir().map_err(io::Error::other)?;
    private::create_dir_all(&dir)?;
    private::create(&dir.join("local-model.log"))
}
