//! A Unix socket in a directory that only its owner can enter.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) use std::os::unix::net::UnixListener as Listener;
use std::os::unix::net::UnixStream as Stream;

use etude_files::{private, socket};
pub(crate) use tokio::net::{UnixListener as AsyncListener, UnixStream as AsyncStream};

/// Creates the directory of sockets, private to the user, if it is missing.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    private::create_missing_dirs(dir)?;
    check_private(dir)
}

/// Listens at `path`. Removes an existing file there: the caller holds the lock, so no other process listens.
pub(crate) fn listen(path: &Path) -> io::Result<Listener> {
    check_private(path.parent().unwrap_or(Path::new(".")))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Listener::bind(socket::short(path))?;
    private::restrict(path)?;
    Ok(listener)
}

/// Connects to the socket `path`, whose directory must be private to the user.
pub(crate) fn connect(path: &Path) -> io::Result<Stream> {
    // A directory of another user could hold a socket of that user.
    check_private(path.parent().unwrap_or(Path::new(".")))?;
    Stream::connect(socket::short(path))
}

/// Refuses a directory that others own or can write to.
fn check_private(dir: &Path) -> io::Result<()> {
    let found = fs::metadata(dir)?;
    let owner = rustix::process::geteuid().as_raw();
    if found.uid() != owner || found.mode() & 0o022 != 0 {
        let why = format!("{} is not private: another user owns it or can write to it", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_can_open_the_socket_and_enter_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run/model.sock");
        make_dir(&dir.path().join("run")).expect("made");
        let _listener = listen(&path).expect("listening");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("run"))), (0o600, 0o700));
        assert!(connect(&path).is_ok());
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("opened");
        let error = listen(&dir.path().join("model.sock")).expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(connect(&dir.path().join("model.sock")).expect_err("an error").kind(), error.kind());
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("model.sock");
        drop(listen(&path).expect("listening"));
        assert!(connect(&path).is_err());
        let _listener = listen(&path).expect("listening again");
        assert!(connect(&path).is_ok());
    }
}
