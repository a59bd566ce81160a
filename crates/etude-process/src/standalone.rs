//! Programs that no run attends: tool servers, models, pip.

mod unix;

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};

use crate::environment::ChildEnvironment;

/// A command for a program that no run attends, such as a tool server or pip. It has exactly the variables of `environment`,
/// and an empty stdin unless the caller gives it a pipe.
///
/// The caller holds the pipes, so the caller redacts the output. There is no sandbox: the user has configured the program, and
/// it needs the network. Programs that an app's files name run in a [`ProcessHost`](crate::ProcessHost).
#[expect(clippy::disallowed_methods, reason = "the one way to start a program that no run attends")]
pub fn standalone(program: impl AsRef<OsStr>, environment: ChildEnvironment) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.into_variables()).stdin(Stdio::null());
    command
}

/// A [`standalone`] program that leads a process group of its own. Ctrl-C in the terminal does not reach it, and the caller
/// can end it with its children.
pub fn detached(program: impl AsRef<OsStr>, environment: ChildEnvironment) -> Command {
    let mut command = standalone(program, environment);
    unix::detach(&mut command);
    command
}

/// Sends `SIGTERM` to a [`detached`] program and its children. `leader` is its process id, which must not have been waited
/// for. Does nothing on systems without signals.
pub fn terminate_group(leader: Option<u32>) {
    unix::terminate_group(leader);
}

/// Kills a [`detached`] program and its children. `leader` is its process id, at the latest right after it was waited for.
/// Does nothing on systems without process groups: there the caller kills the program alone.
pub fn kill_group(leader: Option<u32>) {
    unix::kill_group(leader);
}

/// True if a [`detached`] program waits for a terminal: the system stops a background process that asks for input, and nothing
/// continues it. `leader` is its process id, which must not have been waited for. Always false on systems without such
/// signals.
pub fn is_stopped_by_terminal(leader: Option<u32>) -> bool {
    unix::is_stopped_by_terminal(leader)
}

/// Replaces this process by a [`standalone`] program, which keeps the process id. Returns only on failure.
pub fn replace(command: Command) -> io::Error {
    unix::replace(command)
}
