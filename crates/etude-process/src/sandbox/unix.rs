//! Sandboxes on Unix; only Linux enforces them.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use etude_files::beneath::Dir;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
use other as platform;

pub(crate) use platform::send;
pub(super) use platform::{SIGNALS, landlock, open, receive, restrict};

/// Becomes `program`, with `name` as `argv[0]` and `words` as arguments; hidden variables get their names back. Returns the
/// reason if that failed.
#[expect(clippy::disallowed_methods, reason = "the program of a sandbox replaces this process")]
pub(super) fn replace(
    program: &OsStr,
    name: &OsStr,
    words: impl Iterator<Item = OsString>,
    shown: Vec<(OsString, OsString, OsString)>,
    stdin: Option<OwnedFd>,
) -> String {
    let mut command = Command::new(program);
    if let Some(stdin) = stdin {
        command.stdin(stdin);
    }
    command.arg0(name).args(words);
    for (hidden, own, value) in shown {
        command.env_remove(hidden).env(own, value);
    }
    let error = command.exec();
    format!("`{}` could not be started: {error}", name.to_string_lossy())
}

/// Maximum number of names that are tried for a directory.
const TRIES: u32 = 1000;

/// Creates and opens a directory below `parent` that other users cannot look into.
pub(super) fn private_dir(parent: &Path) -> io::Result<(PathBuf, Dir)> {
    let above = Dir::open(parent)?;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    for number in 0..TRIES {
        let name = format!("etude-{}-{number}", std::process::id());
        let path = parent.join(&name);
        match builder.create(&path) {
            // The directory belongs to another process, which may have put it there as a trap.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return above.open_dir(name.as_ref()).map(|dir| (path, dir)),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}
