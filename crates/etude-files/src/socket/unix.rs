//! Short paths of sockets, on Unix.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum length of a path of a socket, in bytes, on all systems.
const MAX: usize = 100;

/// Directory of the open files of a process, on Linux.
const OPEN_FILES: &str = "/proc/self/fd";

/// Directories of sockets with long paths. They stay open, because a client connects at any time.
static DIRS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The path through the open directory of the socket; `None` if it is not needed, or not possible.
pub(super) fn short(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().len() <= MAX || !Path::new(OPEN_FILES).is_dir() {
        return None;
    }
    let (dir, name) = (crate::parent(path), path.file_name()?);
    let meta = fs::metadata(dir).ok()?;
    let is_dir = |file: &File| file.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (meta.dev(), meta.ino()));
    let mut dirs = DIRS.lock().unwrap_or_else(PoisonError::into_inner);
    let fd = match dirs.iter().find(|file| is_dir(file)) {
        Some(known) => known.as_raw_fd(),
        None => {
            let file = File::open(dir).ok()?;
            let fd = file.as_raw_fd();
            dirs.push(file);
            fd
        }
    };
    Some(Path::new(OPEN_FILES).join(fd.to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    /// A socket is reached below a directory of any length, and one directory is opened once.
    #[test]
    fn sockets_below_long_directories_are_reached() {
        if !Path::new(super::OPEN_FILES).is_dir() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let long = dir.path().join("x".repeat(120));
        std::fs::create_dir(&long).expect("made");
        for name in ["a.sock", "b.sock"] {
            let path = long.join(name);
            let short = super::super::short(&path);
            let _listener = UnixListener::bind(&short).expect("bound");
            assert!(path.exists() && UnixStream::connect(super::super::short(&path)).is_ok());
        }
        let [a, b] = ["a.sock", "b.sock"].map(|name| super::super::short(&long.join(name)));
        assert_eq!(a.parent(), b.parent());
        let plain = dir.path().join("a.sock");
        assert_eq!(super::super::short(&plain), plain);
    }
}
