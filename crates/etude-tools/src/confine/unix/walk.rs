//! Opening a path part by part.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::DIRECTORY;

/// Opens `below` below `dir`; no symbolic link is followed anywhere on the way.
pub(super) fn open(dir: &OwnedFd, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let parts: Vec<&OsStr> = below
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(Errno::XDEV),
        })
        .collect::<Result<_, _>>()?;
    let Some((last, above)) = parts.split_last() else {
        return rustix::fs::openat(dir, c".", flags, Mode::empty());
    };
    let mut at: Option<OwnedFd> = None;
    for part in above {
        let next = rustix::fs::openat(at.as_ref().unwrap_or(dir), *part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        // With both flags a link is reported as something that is no directory.
        at = Some(next?);
    }
    rustix::fs::openat(at.as_ref().unwrap_or(dir), *last, flags | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// what the kernel does where it can, this does where it cannot.
    #[test]
    fn links_and_parents_are_refused_part_by_part() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("made");
        std::fs::write(dir.path().join("a/b/file"), "x").expect("written");
        std::os::unix::fs::symlink("b", dir.path().join("a/link")).expect("linked");
        std::os::unix::fs::symlink("b/file", dir.path().join("a/filelink")).expect("linked");
        let root = rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).expect("opened");
        let try_open = |path: &str| open(&root, Path::new(path), OFlags::RDONLY).map(drop);
        assert_eq!(try_open("a/b/file"), Ok(()));
        assert_eq!(try_open("."), Ok(()));
        assert!(try_open("a/link/file").is_err());
        assert!(try_open("a/filelink").is_err());
        assert!(try_open("a/../a/b/file").is_err());
        assert!(try_open("/etc/passwd").is_err());
    }
}
