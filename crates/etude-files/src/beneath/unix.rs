//! An open directory on Unix. Every operation takes one name and follows no symbolic link.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{MAX_SEARCHED, MIN_AGE, is_unfinished};

const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Linux opens a directory for walking with search permission alone.
#[cfg(target_os = "linux")]
const WALKABLE: OFlags = READABLE.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const WALKABLE: OFlags = READABLE;

/// Flags to open a leaf that need not be read.
#[cfg(target_os = "linux")]
const LEAF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const LEAF: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Type of the file behind a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
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
    pub kind: EntryKind,
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
    Leaf(EntryKind),
    Missing,
}

/// An open file of any type.
pub type Handle = OwnedFd;

/// Maximum number of looks at a name that changes between two system calls.
const RETRIES: u32 = 64;

impl Dir {
    /// Opens the directory `path` and follows links: for paths that the user has named.
    ///
    /// # Errors
    /// The path cannot be opened, or is not a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, WALKABLE, Mode::empty())?))
    }

    /// A second descriptor of the same directory.
    ///
    /// # Errors
    /// There are too many open descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Type of `name`; a directory is opened, the target of a link is read.
    pub(super) fn step(&self, name: &OsStr) -> io::Result<Step> {
        for _ in 0..RETRIES {
            match rustix::fs::openat(&self.0, name, WALKABLE | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(dir) => return Ok(Step::Dir(Self(dir))),
                Err(Errno::NOENT) => return Ok(Step::Missing),
                Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {}
                Err(error) => return Err(error.into()),
            }
            match self.status(name) {
                // The name has become a directory since.
                Ok(Status { kind: EntryKind::Dir, .. }) => {}
                Ok(Status { kind: EntryKind::Link, .. }) => match self.read_link(name) {
                    Ok(target) => return Ok(Step::Link(target)),
                    Err(error) if has_changed(&error) => {}
                    Err(error) => return Err(error),
                },
                Ok(Status { kind, .. }) => return Ok(Step::Leaf(kind)),
                Err(error) if has_changed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("it changes too often to read"))
    }

    /// Status of the entry `name`; a link is not followed.
    ///
    /// # Errors
    /// No entry has that name, or its status cannot be read.
    pub fn status(&self, name: &OsStr) -> io::Result<Status> {
        Ok(status(&rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Target of the symbolic link `name`, as it is written.
    ///
    /// # Errors
    /// The entry is not a symbolic link, or is gone.
    pub fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Opens the directory `name`.
    ///
    /// # Errors
    /// The entry is not a directory (a symbolic link does not count), or cannot be opened.
    pub fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, WALKABLE | OFlags::NOFOLLOW, Mode::empty()).map_err(in_words)?))
    }

    /// Opens the regular file `name` for reading. A pipe or a device does not block the caller, and is refused.
    ///
    /// # Errors
    /// The entry is not a regular file (a symbolic link does not count), or cannot be opened.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty()).map_err(in_words)?;
        let file = File::from(file);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    /// Opens the regular file at `below`, in one call. `None` if a symbolic link is on the way, the kernel does not
    /// support the call, or anything else fails: resolving the path name by name then shows the reason.
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

    /// Status of the file at `below`, or the error that it does not exist. `None` as for [`Self::open_straight`].
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
        // The last name may be a link, which must not be followed here.
        (found.kind != EntryKind::Link).then_some(Ok(found))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn status_straight(&self, _below: &Path) -> Option<io::Result<Status>> {
        None
    }

    /// Opens the entry `name`, whatever its type, without the right to read it: for rules about it.
    ///
    /// # Errors
    /// The entry is a symbolic link, or cannot be opened.
    pub(super) fn open_leaf(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let leaf = rustix::fs::openat(&self.0, name, LEAF, Mode::empty())?;
        // With these flags the link itself is opened.
        match status(&rustix::fs::fstat(&leaf)?).kind {
            EntryKind::Link => Err(in_words(Errno::LOOP)),
            _ => Ok(leaf),
        }
    }

    /// Names and types of the directory's entries, in no order, at most `limit` of them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut found = Vec::new();
        // A descriptor that is open for walking cannot be read.
        let readable = rustix::fs::openat(&self.0, c".", READABLE, Mode::empty())?;
        for entry in rustix::fs::Dir::new(readable)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not report the type.
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

    /// Opens the directory `name`, which is created if it is missing.
    ///
    /// # Errors
    /// The directory can neither be created nor opened.
    pub fn make_dir(&self, name: &OsStr) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the file `name` for writing; it must not exist. `mode` is its exact permissions, `None` means those of
    /// the process mask.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create_new(&self, name: &OsStr, mode: Option<u32>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666))?);
        if let Some(mode) = mode {
            // Set explicitly, because the mask of this process may have removed bits.
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(file)
    }

    /// Renames `from` to `to` within the directory; a file `to` is replaced.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Replaces the content of the file `name`, or creates it: completely or not at all, even on a crash. The
    /// permissions of an existing file are kept. Unfinished files of dead processes are removed from the directory.
    ///
    /// # Errors
    /// The file cannot be written, or something other than a regular file has its name.
    pub fn replace(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mode = match self.status(name) {
            Ok(status) if status.kind == EntryKind::File => Some(status.mode),
            Ok(status) if status.kind == EntryKind::Dir => return Err(io::Error::other("it is a directory")),
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        self.remove_abandoned();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = OsString::from(format!(".etude-{}-{number}.tmp", std::process::id()));
        let written = self.create_new(&temporary, mode).and_then(|mut file| {
            // The mark of a living process. Where files cannot be locked, none counts as abandoned.
            let _ = file.try_lock();
            file.write_all(content)?;
            file.sync_data()?;
            Ok(file)
        });
        let result = written.and_then(|_locked| self.rename(&temporary, name));
        if result.is_err() {
            // The first error counts; a file left behind is hidden and harmless.
            let _ = self.remove(&temporary);
        }
        result
    }

    /// Removes the unfinished files of dead processes. A file that cannot be removed now stays.
    fn remove_abandoned(&self) {
        let is_abandoned = |name: &OsStr| {
            let Ok(file) = self.open_file(name) else { return false };
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MIN_AGE));
            is_old && file.try_lock().is_ok()
        };
        for (name, kind) in self.entries(MAX_SEARCHED).unwrap_or_default() {
            if kind == EntryKind::File && is_unfinished(&name) && is_abandoned(&name) {
                let _ = self.remove(&name);
            }
        }
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
    /// The file cannot be removed.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Creates the symbolic link `name` to `target`.
    ///
    /// # Errors
    /// The link cannot be created.
    pub fn symlink(&self, target: &Path, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Sets the permission bits of this directory.
    ///
    /// # Errors
    /// The directory cannot be read, or belongs to another user.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // The mode of a descriptor that is open for walking cannot be changed.
        let readable = File::from(rustix::fs::openat(&self.0, c".", READABLE, Mode::empty())?);
        readable.set_permissions(Permissions::from_mode(mode))
    }

    /// Device and inode number, which identify this directory.
    ///
    /// # Errors
    /// The status cannot be read.
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

/// Device and inode number, which identify the file of a descriptor.
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

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Dir,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

/// True if an entry that existed a moment ago is gone or has another type now.
fn has_changed(error: &io::Error) -> bool {
    let changed = [Errno::NOENT, Errno::INVAL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| changed.contains(&errno))
}

/// Turns the refusal of a symbolic link into a readable message.
fn in_words(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::MLINK => io::Error::other("it became a symbolic link, which is not followed"),
        error => error.into(),
    }
}
