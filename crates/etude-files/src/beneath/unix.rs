//! An open directory on Unix. Every operation takes one name and follows no symbolic link.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Linux opens a directory for walking with search permission alone.
#[cfg(target_os = "linux")]
const WALKABLE: OFlags = READABLE.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const WALKABLE: OFlags = READABLE;

/// What a leaf is opened with that need not be read.
#[cfg(target_os = "linux")]
const LEAF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const LEAF: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// What a name in a directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, which is not followed.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// The status of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The type of the file; a link is not followed.
    pub kind: Kind,
    /// Size in bytes.
    pub len: u64,
    /// The nine permission bits, with those for set-id and sticky.
    pub mode: u32,
}

/// The result of one step of a resolution.
#[derive(Debug)]
pub(super) enum Step {
    Dir(Dir),
    Link(PathBuf),
    Leaf(Kind),
    Missing,
}

/// Something open, whatever it is.
pub type Handle = OwnedFd;

/// How often a name is looked at again that changes between two system calls.
const RETRIES: u32 = 64;

impl Dir {
    /// Opens the directory `path`, links followed: for paths that the user has named.
    ///
    /// # Errors
    /// It cannot be opened, or is no directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, WALKABLE, Mode::empty())?))
    }

    /// The same directory once more.
    ///
    /// # Errors
    /// There are too many open descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// What `name` is, opened if it is a directory.
    pub(super) fn step(&self, name: &OsStr) -> io::Result<Step> {
        for _ in 0..RETRIES {
            match rustix::fs::openat(&self.0, name, WALKABLE | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(dir) => return Ok(Step::Dir(Self(dir))),
                Err(Errno::NOENT) => return Ok(Step::Missing),
                Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {}
                Err(error) => return Err(error.into()),
            }
            match self.status(name) {
                // It has become one since.
                Ok(Status { kind: Kind::Dir, .. }) => {}
                Ok(Status { kind: Kind::Link, .. }) => match self.read_link(name) {
                    Ok(target) => return Ok(Step::Link(target)),
                    Err(error) if has_changed(&error) => {}
                    Err(error) => return Err(error),
                },
                Ok(Status { kind, .. }) => return Ok(Step::Leaf(kind)),
                Err(error) if has_changed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("it keeps changing"))
    }

    /// The status of `name`.
    ///
    /// # Errors
    /// There is nothing of that name, or it cannot be looked at.
    pub fn status(&self, name: &OsStr) -> io::Result<Status> {
        Ok(status(&rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Where the symbolic link `name` leads, as it is written.
    ///
    /// # Errors
    /// It is no symbolic link, or is gone.
    pub fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Opens the directory `name`.
    ///
    /// # Errors
    /// It is no directory (a symbolic link is none), or cannot be opened.
    pub fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, WALKABLE | OFlags::NOFOLLOW, Mode::empty()).map_err(in_words)?))
    }

    /// Opens the regular file `name` for reading. A pipe or a device does not hold the caller, and is refused.
    ///
    /// # Errors
    /// It is no regular file (a symbolic link is none), or cannot be opened.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty()).map_err(in_words)?;
        let file = File::from(file);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    /// Opens the regular file at `below`, in one call. `None` where a symbolic link is in the
    /// way, the kernel cannot be asked for this, or anything else is amiss: resolving the path name by name tells.
    #[cfg(target_os = "linux")]
    pub(super) fn open_straight(&self, below: &Path) -> Option<(File, Metadata)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(rustix::fs::openat2(&self.0, below, flags, Mode::empty(), resolve).ok()?);
        let metadata = file.metadata().ok()?;
        metadata.is_file().then_some((file, metadata))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn open_straight(&self, _below: &Path) -> Option<(File, Metadata)> {
        None
    }

    /// What is at `below`, or that nothing is. `None` as for [`Self::open_straight`].
    #[cfg(target_os = "linux")]
    pub(super) fn status_straight(&self, below: &Path) -> Option<io::Result<Status>> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let found = match rustix::fs::openat2(&self.0, below, LEAF, Mode::empty(), resolve) {
            Ok(leaf) => status(&rustix::fs::fstat(&leaf).ok()?),
            Err(missing @ (Errno::NOENT | Errno::NOTDIR)) if !below.as_os_str().is_empty() => {
                return Some(Err(missing.into()));
            }
            Err(_) => return None,
        };
        // The last name may be a link, which is not followed.
        (found.kind != Kind::Link).then_some(Ok(found))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn status_straight(&self, _below: &Path) -> Option<io::Result<Status>> {
        None
    }

    /// Opens whatever `name` is without the right to read it: for rules about it.
    ///
    /// # Errors
    /// It is a symbolic link, or cannot be opened.
    pub(super) fn open_leaf(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let leaf = rustix::fs::openat(&self.0, name, LEAF, Mode::empty())?;
        // With these flags a link is opened itself.
        match status(&rustix::fs::fstat(&leaf)?).kind {
            Kind::Link => Err(in_words(Errno::LOOP)),
            _ => Ok(leaf),
        }
    }

    /// Names and kinds of what is in the directory, in no order, at most `limit` of them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<(OsString, Kind)>> {
        let mut found = Vec::new();
        // One that is open for walking cannot be read.
        let readable = rustix::fs::openat(&self.0, c".", READABLE, Mode::empty())?;
        for entry in rustix::fs::Dir::new(readable)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => match self.status(name) {
                    Ok(status) => status.kind,
                    Err(_) => continue,
                },
                kind => kind_of(kind),
            };
            if found.len() == limit {
                break;
            }
            found.push((name.to_owned(), kind));
        }
        Ok(found)
    }

    /// Opens the directory `name`, which is made if it is missing.
    ///
    /// # Errors
    /// It can neither be made nor opened.
    pub fn make_dir(&self, name: &OsStr) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the file `name` for writing, which must not exist. `mode` are its exact permissions.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create_new(&self, name: &OsStr, mode: Option<u32>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666))?;
        if let Some(mode) = mode {
            // Whatever the mask of this process is.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(File::from(file))
    }

    /// Renames `from` to `to` within the directory; a file `to` is replaced.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Puts `content` in the place of the file `name`, or makes it: all of it or nothing, whatever happens meanwhile. A file that was
    /// there gives its permissions.
    ///
    /// # Errors
    /// It cannot be written, or something else than a file is in its place.
    pub fn replace(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mode = match self.status(name) {
            Ok(status) if status.kind == Kind::File => Some(status.mode),
            Ok(status) if status.kind == Kind::Dir => return Err(io::Error::other("it is a directory")),
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = OsString::from(format!(".etude-{}-{number}.tmp", std::process::id()));
        let written = self.create_new(&temporary, mode).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_data()
        });
        let result = written.and_then(|()| self.rename(&temporary, name));
        if result.is_err() {
            // The first error counts; what is left behind is hidden and harmless.
            let _ = self.remove(&temporary);
        }
        result
    }

    /// Renames `from` to `to` in another directory.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn rename_to(&self, from: &OsStr, dir: &Self, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &dir.0, to)?)
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes the symbolic link `name` to `target`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn symlink(&self, target: &Path, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// It cannot be read, or belongs to somebody else.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // One that is open for walking cannot be changed.
        let readable = rustix::fs::openat(&self.0, c".", READABLE, Mode::empty())?;
        Ok(rustix::fs::fchmod(readable, Mode::from_raw_mode(mode))?)
    }

    /// What tells this directory from every other one.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        identity(&self.0)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> Self {
        dir.0
    }
}

/// What tells the file of a descriptor from every other one.
pub fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev as u64, stat.st_ino))
}

fn status(stat: &Stat) -> Status {
    #[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "it is narrower elsewhere"))]
    Status {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        len: u64::try_from(stat.st_size).unwrap_or(0),
        mode: (stat.st_mode as u32) & 0o7777,
    }
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// A name that was there a moment ago is gone or something else.
fn has_changed(error: &io::Error) -> bool {
    let changed = [Errno::NOENT, Errno::INVAL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| changed.contains(&errno))
}

/// The refusal of a symbolic link in words that say what happened.
fn in_words(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::MLINK => io::Error::other("it is a symbolic link now, which is not followed"),
        error => error.into(),
    }
}
