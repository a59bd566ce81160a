//! The socket of the server on Windows, which has none.

use std::io;
use std::path::Path;

/// No socket.
#[derive(Debug)]
pub(crate) struct Listener;

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
