//! The socket of the server on Unix.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use etude_files::{private, socket};
use rustix::io::FdFlags;
use rustix::net::{SocketType, sockopt};
use tokio::net::{UnixListener, UnixStream};

/// The first descriptor that a service manager hands over (`sd_listen_fds(3)`).
const FIRST: u32 = 3;

/// The socket; its file is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Binds a socket that only its owner can use. Its directory is private already, so no other user can connect before the mode
    /// is set.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        // A killed process with the same id has left the file behind.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(socket::short(path))?;
        private::restrict(path)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A failure is harmless: the next client finds no server behind the socket.
        let _ = fs::remove_file(&self.path);
    }
}

/// The listening TCP sockets that a service manager has handed to this process, by descriptor: `LISTEN_FDS` of them from 3 on, if
/// `LISTEN_PID` is this process (section 10). They are marked so that processes of steps do not inherit them. Call this once,
/// before the process opens files.
///
/// # Errors
/// The variables are not numbers.
pub fn inherited() -> io::Result<BTreeMap<u32, TcpListener>> {
    let given = sd_listen_fds::get().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    let mut sockets = BTreeMap::new();
    for (at, (_, fd)) in (FIRST..).zip(given) {
        let fd = fd.into_std();
        // A descriptor that is not open is an error only of an address that asks for it.
        if rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).is_err() {
            continue;
        }
        let is_stream = sockopt::socket_type(&fd).is_ok_and(|kind| kind == SocketType::STREAM);
        if !is_stream || !is_listening(&fd) {
            continue;
        }
        let listener = TcpListener::from(fd);
        // A socket with a path listens, too.
        if listener.local_addr().is_ok() {
            listener.set_nonblocking(true)?;
            sockets.insert(at, listener);
        }
    }
    Ok(sockets)
}

/// True if a stream socket listens.
#[cfg(target_os = "linux")]
fn is_listening(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// True: not every system says whether a socket listens. The first accept reports one that does not.
#[cfg(not(target_os = "linux"))]
fn is_listening(_socket: &OwnedFd) -> bool {
    true
}

/// Connects to the socket of a server.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(socket::short(path)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client;

    /// Section 3: the start of a server removes the socket of a killed one, and leaves that of a living one.
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
