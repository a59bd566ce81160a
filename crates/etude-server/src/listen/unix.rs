//! The socket of the server on Unix.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The socket; its file is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Binds a socket that only its owner can use. Its directory is private already, so that no one is faster.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        // A process of the same id has left it behind.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Nothing depends on it: the next client finds no one behind it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the socket of a server.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client;

    /// Section 3: the socket of a server that was killed goes with the start of the next one, and that of a living one stays.
    #[tokio::test]
    async fn sockets_of_killed_servers_do_not_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let [killed, living] = ["1.sock", "2.sock"].map(|name| dir.path().join(name));
        drop(UnixListener::bind(&killed).expect("a socket"));
        let _listener = Listener::bind(&living).expect("a socket");
        client::remove_abandoned(dir.path(), Duration::from_secs(60)).await;
        assert_eq!(client::sockets(dir.path()).len(), 2, "they are young");
        client::remove_abandoned(dir.path(), Duration::ZERO).await;
        assert_eq!(client::sockets(dir.path()), [living]);
    }
}
