//! Linux resolves a path below a directory by itself.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::walk;

/// Opens `below` below `dir`; no symbolic link is followed anywhere on the way.
pub(super) fn open(dir: &OwnedFd, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(dir, below, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile, and the kernel cannot tell whether it matters.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Kernels before 5.6, and sandboxes that do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => return walk::open(dir, below, flags),
            result => return result,
        }
    }
}
