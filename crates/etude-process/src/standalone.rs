//! Programs beside the processes of runs.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};

#[cfg(unix)]
use unix as os;
#[cfg(windows)]
use windows as os;

use crate::environment::ChildEnvironment;

/// A program that no run attends: a server of tools, pip. It has exactly the variables of `environment`, and reads nothing
/// unless the caller gives it a pipe.
///
/// The caller holds its pipes, so the caller redacts what it prints. There is no sandbox: the user has configured the
/// program, and it needs the network. Programs that an app's files name run in a [`ProcessHost`](crate::ProcessHost).
#[expect(clippy::disallowed_methods, reason = "the one way to start a program that no run attends")]
pub fn standalone(program: impl AsRef<OsStr>, environment: ChildEnvironment) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.into_variables()).stdin(Stdio::null());
    command
}

/// A [`standalone`] program that leads a process group of its own: Ctrl-C in the terminal does not reach it, and the caller
/// can end it with its children.
pub fn detached(program: impl AsRef<OsStr>, environment: ChildEnvironment) -> Command {
    let mut command = standalone(program, environment);
    os::detach(&mut command);
    command
}

/// Asks a [`detached`] program and what it started to end, as `SIGTERM` does. `leader` is its process id until it was waited
/// for. Systems without signals do nothing.
pub fn terminate_group(leader: Option<u32>) {
    os::terminate_group(leader);
}

/// Kills a [`detached`] program and what it started. `leader` is its process id, at the latest when it was just waited for. Systems
/// without process groups do nothing: there the caller kills the program alone.
pub fn kill_group(leader: Option<u32>) {
    os::kill_group(leader);
}

/// True if a [`detached`] program waits for a terminal: the system stops what asks for input in the background, and nothing
/// continues it. `leader` is its process id until it was waited for. Systems without such signals say no.
pub fn is_stopped_by_terminal(leader: Option<u32>) -> bool {
    os::is_stopped_by_terminal(leader)
}

/// Runs a [`standalone`] program in place of this one, with the same process id. Returns only if that fails.
pub fn replace(command: Command) -> io::Error {
    os::replace(command)
}
