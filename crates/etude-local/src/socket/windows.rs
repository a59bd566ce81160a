//! Sockets on Windows, which are not supported: the standard library has no private ones here, and any program could open a
//! loopback port.

use std::io;
use std::net::TcpStream;
use std::path::Path;

pub(crate) use std::net::TcpListener as Listener;
pub(crate) use tokio::net::{TcpListener as AsyncListener, TcpStream as AsyncStream};

/// Always fails on this system.
pub(crate) fn make_dir(_dir: &Path) -> io::Result<()> {
    Err(unsupported())
}

/// Always fails on this system.
pub(crate) fn listen(_path: &Path) -> io::Result<Listener> {
    Err(unsupported())
}

/// Always fails on this system.
pub(crate) fn connect(_path: &Path) -> io::Result<TcpStream> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the local model's process needs a Unix socket")
}
