//! Sockets of hosts are Unix sockets: elsewhere code tools run without one.

use std::io;
use std::path::Path;

use serde_json::Value;

/// Listens for the requests of one call.
pub(crate) struct Listener;

/// Fails: there are no Unix sockets here.
pub(crate) fn listen(_path: &Path) -> io::Result<Listener> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "hosts listen on Unix sockets"))
}

impl Listener {
    /// Answers every line of every connection with what `answer` gives for it, until it is dropped.
    pub(crate) async fn serve<F, A>(self, _answer: F)
    where
        F: Fn(String) -> A + Clone + Send + 'static,
        A: Future<Output = String> + Send,
    {
    }
}

/// Asks the host at `path` one thing. Blocks until it has answered.
///
/// # Errors
/// Always: there are no hosts here.
pub fn ask(_path: &Path, _request: &Value) -> io::Result<Value> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "hosts listen on Unix sockets"))
}
