//! Open directories, and files opened below them without following any symbolic link.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
use other as platform;
mod walk;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub(super) struct Dir(OwnedFd);

impl Dir {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// A file below this directory, for reading. Opening a pipe does not wait for its other end.
    pub(super) fn open_file(&self, below: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(platform::open(&self.0, dot(below), flags).map_err(plain)?))
    }

    /// The directory `below` this one; what is missing of it is made.
    pub(super) fn make_all(&self, below: &Path) -> io::Result<Self> {
        match platform::open(&self.0, dot(below), DIRECTORY) {
            Ok(dir) => return Ok(Self(dir)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(plain(error)),
        }
        let mut dir = rustix::fs::openat(&self.0, c".", DIRECTORY, Mode::empty())?;
        for part in below {
            match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(plain(error)),
            }
            dir = rustix::fs::openat(&dir, part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).map_err(plain)?;
        }
        Ok(Self(dir))
    }

    /// The permissions of the file `name`; those of a new file if there is none.
    pub(super) fn mode_of(&self, name: &OsStr) -> io::Result<Option<u32>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::RegularFile => Ok(Some(stat.st_mode & 0o7777)),
                rustix::fs::FileType::Directory => Err(io::Error::other("it is a directory")),
                _ => Err(io::Error::other("it is not a regular file")),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(plain(error)),
        }
    }

    /// A new file for writing, which must not exist yet.
    pub(super) fn create_new(&self, name: &str, mode: Option<u32>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666)).map_err(plain)?;
        if let Some(mode) = mode {
            // Exactly those of the file that it replaces, whatever the mask of this process is.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(File::from(file))
    }

    pub(super) fn rename(&self, from: &str, to: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(&self.0, from, &self.0, to).map_err(plain)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

fn dot(below: &Path) -> &Path {
    if below.as_os_str().is_empty() { Path::new(".") } else { below }
}

/// The refusals of symbolic links in words that say what happened.
fn plain(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::XDEV => io::Error::other("a symbolic link was put in its way"),
        error => error.into(),
    }
}
