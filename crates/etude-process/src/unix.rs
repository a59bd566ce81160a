//! Processes on Unix: spawning, process groups, and termination.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::program::Launch;
use super::sandbox;

mod attend;
mod descriptors;
mod kill;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
use other as platform;
mod signals;
mod terminal;
mod waiter;
mod worker;

pub(super) use attend::{Ended, Step};
pub(super) use descriptors::{allow_descriptors, descriptors};
pub use descriptors::{are_descriptors_free, main_stack};
pub(super) use kill::{kill_leftovers, reap_survivors};
pub use platform::keep_private;
pub(super) use platform::{Alarm, adopt_orphans};
pub(super) use terminal::stopped_by;
pub(super) use worker::{Server, Trouble};

/// Identifies a process and the group that it leads.
pub(super) type Id = Pid;

pub(super) fn id_of(child: &Child) -> Id {
    Pid::from_child(child)
}

/// Maximum number of start attempts for a program that is open for writing, and the pause between them.
const MAX_BUSY_ATTEMPTS: u32 = 2_500;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A child that leads a group of its own, with its three pipes.
#[derive(Debug)]
pub(super) struct Launched {
    id: Id,
    /// Becomes readable when the process has ended.
    end: OwnedFd,
    /// This process's ends of the pipes.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Launched {
    pub(super) fn id(&self) -> Id {
        self.id
    }
}

/// Working directory of a process to start.
#[derive(Debug, Clone, Copy)]
pub(super) enum At<'a> {
    /// A directory by its path.
    Path(&'a Path),
    /// The first of the descriptors that the sandbox receives.
    Given(&'a [OwnedFd]),
}

/// Starts `launch` at `at` with exactly the variables `env`. Without `stdin`, the process reads from `/dev/null`.
#[expect(clippy::disallowed_methods, reason = "how a host starts a process")]
pub(super) fn spawn(launch: &Launch, at: At<'_>, env: Vec<(OsString, OsString)>, stdin: bool) -> io::Result<Launched> {
    let mut command = Command::new(&launch.program);
    command.arg0(&launch.name).args(&launch.args).env_clear().envs(env);
    let ((stdout, out), (stderr, err)) = (io::pipe()?, io::pipe()?);
    command.process_group(0).stdout(out).stderr(err);
    let mut fed = None;
    match at {
        At::Path(dir) => _ = command.current_dir(dir).stdin(if stdin { Stdio::piped() } else { Stdio::null() }),
        At::Given(given) => fed = give(&mut command, given, stdin)?,
    }
    // Reserves a descriptor for the end of the process. If none were left, a child that has begun its work would have to be
    // killed.
    let exempt = stdout.try_clone()?;
    let mut child = spawn_when_written(&mut command)?;
    // Dropping the command closes this process's copies of the child's ends.
    drop((command, exempt));
    let id = id_of(&child);
    descriptors::give_back(id);
    match platform::end_of(id) {
        Ok(end) => {
            let stdin = child.stdin.take().map(OwnedFd::from).or(fed);
            Ok(Launched { id, end, stdin, stdout: stdout.into(), stderr: stderr.into() })
        }
        Err(error) => {
            // The first error counts. A child that cannot be watched must not run unattended.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Sets up a socket as the stdin of `command`, over which it receives its real stdin and the descriptors of its sandbox.
/// Returns the write end of its stdin, if it has one.
fn give(command: &mut Command, given: &[OwnedFd], stdin: bool) -> io::Result<Option<OwnedFd>> {
    let (theirs, ours) = if stdin {
        let (theirs, ours) = io::pipe()?;
        (OwnedFd::from(theirs), Some(OwnedFd::from(ours)))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    let (socket, end) = UnixStream::pair()?;
    let all: Vec<BorrowedFd<'_>> = std::iter::once(&theirs).chain(given).map(AsFd::as_fd).collect();
    // The descriptors wait in the socket until the command reads them.
    sandbox::send(&socket, &all)?;
    command.stdin(OwnedFd::from(end));
    Ok(ours)
}

/// Starts a program, and waits while it is open for writing. Such a program cannot be started. A copy of this process between
/// the fork and the exec of another thread may hold it open for some microseconds, so waiting helps.
fn spawn_when_written(command: &mut Command) -> io::Result<Child> {
    for _ in 0..MAX_BUSY_ATTEMPTS {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::sleep(BUSY_PAUSE),
            result => return result,
        }
    }
    command.spawn()
}

/// True if `path` may be executed (a directory may be, too).
pub(super) fn is_executable(path: &Path) -> bool {
    access(path).is_ok()
}

/// Checks the execute permission of `path`.
pub(super) fn access(path: &Path) -> Result<(), io::ErrorKind> {
    rustix::fs::access(path, Access::EXEC_OK).map_err(|errno| errno.kind())
}

/// True if a shortage of the machine, and not the program, caused the error. The resource may be available after other
/// processes have ended.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::TOOMANYREFS].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| short.contains(&errno))
}

/// True if the file is neither a program nor a script that names its interpreter.
pub(super) fn is_no_program(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
}

/// True if anything is alive in the group `id`, whose leader is gone. Reaps the zombies in it that are children of this
/// process.
fn is_group_alive(id: Id) -> bool {
    let dead = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = rustix::process::waitid(WaitId::Pgid(Some(id)), dead) {}
    rustix::process::test_kill_process_group(id).is_ok()
}

/// False if this process has no children at all, dead or alive.
fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::All, look), Err(Errno::CHILD))
}
