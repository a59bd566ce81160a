//! The socket of the server on Windows, which has none.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;

/// No socket.
#[derive(Debug)]
pub(crate) struct Listener;

/// No service manager of this system hands sockets over.
///
/// # Errors
/// None.
pub fn inherited() -> io::Result<BTreeMap<u32, TcpListener>> {
    Ok(BTreeMap::new())
}

impl Listener {
    pub(crate) fn bind(_: &Path) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn accept(&self) -> io::Result<tokio::io::DuplexStream> {
        std::future::pending().await
    }
}

/// Connects to the socket of a server.
pub(crate) async fn connect(_: &Path) -> io::Result<tokio::io::DuplexStream> {
    Err(io::ErrorKind::Unsupported.into())
}
