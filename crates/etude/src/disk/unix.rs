//! Opening files below a directory, on Unix.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, ResolveFlags, openat2};
#[cfg(target_os = "linux")]
use rustix::io::Errno;

/// Opens a file for reading. A pipe that nobody writes to does not hold the caller.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Dir(OwnedFd);

/// Why a file was not opened.
pub(super) enum Refused {
    /// The kernel cannot say that it lies inside without following a link: the caller has to look closely.
    Outside,
    /// Anything else.
    Failed(io::Error),
}

impl Dir {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    /// Opens a file for reading in one system call, which refuses every way out of the directory.
    #[cfg(target_os = "linux")]
    pub(super) fn open_beneath(&self, path: &str) -> Result<File, Refused> {
        // A pipe in place of a file must not hang the program.
        self.open_with(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    #[cfg(target_os = "linux")]
    fn open_with(&self, path: &str, flags: OFlags) -> Result<File, Refused> {
        let path = if path.is_empty() { "." } else { path };
        match openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH) {
            Ok(file) => Ok(File::from(file)),
            // A link that is absolute or climbs; or a kernel or sandbox without this call.
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM) => Err(Refused::Outside),
            Err(error) => Err(Refused::Failed(error.into())),
        }
    }

    /// Elsewhere the caller resolves the links first.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open_beneath(&self, _path: &str) -> Result<File, Refused> {
        Err(Refused::Outside)
    }

    /// Looks at a file without opening it for reading: a script that may be run but not read is one, too.
    #[cfg(target_os = "linux")]
    pub(super) fn metadata_beneath(&self, path: &str) -> Result<Metadata, Refused> {
        self.open_with(path, OFlags::PATH)?.metadata().map_err(Refused::Failed)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn metadata_beneath(&self, path: &str) -> Result<Metadata, Refused> {
        self.open_beneath(path)?.metadata().map_err(Refused::Failed)
    }
}

/// True if anybody may execute the file.
pub(super) fn is_executable(meta: &Metadata) -> bool {
    meta.permissions().mode() & 0o111 != 0
}
