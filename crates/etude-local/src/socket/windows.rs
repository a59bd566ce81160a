//! There is no private socket in the standard library here: a loopback port could be opened by anybody.

use std::io;
use std::net::TcpStream;
use std::path::Path;

pub(crate) use std::net::TcpListener as Listener;
pub(crate) use tokio::net::{TcpListener as AsyncListener, TcpStream as AsyncStream};

/// Not on this system.
pub(crate) fn make_dir(_dir: &Path) -> io::Result<()> {
    Err(unsupported())
}

/// Not on this system.
pub(crate) fn listen(_path: &Path) -> io::Result<Listener> {
    Err(unsupported())
}

/// Not on this system.
pub(crate) fn connect(_path: &Path) -> io::Result<TcpStream> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the local model's process needs a Unix socket")
}
