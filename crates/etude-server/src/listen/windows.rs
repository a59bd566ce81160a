//! The socket of the server on Windows, where it does not exist.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;

/// A socket that never accepts a connection.
#[derive(Debug)]
pub(crate) struct Listener;

/// The inherited sockets: always none, because no service manager of this system hands sockets over.
///
/// # Errors
/// Never fails.
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

/// Always fails with [`io::ErrorKind::Unsupported`].
pub(crate) async fn connect(_: &Path) -> io::Result<tokio::io::DuplexStream> {
    Err(io::ErrorKind::Unsupported.into())
}
