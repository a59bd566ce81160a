//! Code tools without a host socket: hosts listen on Unix sockets only.

use std::io;
use std::path::Path;

use serde_json::Value;

/// Accepts the requests of one call.
pub(crate) struct Listener;

/// Fails: this platform has no Unix sockets.
pub(crate) fn listen(_path: &Path) -> io::Result<Listener> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "hosts listen on Unix sockets"))
}

impl Listener {
    /// Answers every line of every connection with the result of `answer`, until it is dropped.
    pub(crate) async fn serve<F, A>(self, _answer: F)
    where
        F: Fn(String) -> A + Clone + Send + 'static,
        A: Future<Output = String> + Send,
    {
    }
}

/// Sends one request to the host at `path`. Blocks until the reply arrives.
///
/// # Errors
/// Always: this platform has no hosts.
pub fn ask(_path: &Path, _request: &Value) -> io::Result<Value> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "hosts listen on Unix sockets"))
}
